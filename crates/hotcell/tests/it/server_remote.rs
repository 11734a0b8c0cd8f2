//! Clients on other machines, simulated by a network namespace at the other end of a veth pair.

#![expect(clippy::unwrap_used, reason = "a test may fail here")]

use std::fs::File;
use std::os::fd::AsFd;
use std::process::Command;

use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};
use serde_json::json;

use crate::support::home::Home;
use crate::support::http::Http;
use crate::support::mcp::Client;
use crate::support::server::Server;

/// A network namespace connected by a veth pair. Dropping it removes both.
struct Elsewhere {
    name: String,
    cable: String,
    /// Our end.
    here: String,
}

impl Elsewhere {
    /// Returns `None` where we may not create one.
    fn new() -> Option<Self> {
        // The process id is unique on this host, and only one test of this process gets here.
        let id = std::process::id();
        let [high, low] = [(id >> 6) % 256, id % 64 * 4];
        let this = Self {
            name: format!("hotcell-{id}"),
            cable: format!("hc{id}"),
            here: format!("10.213.{high}.{}", low + 1),
        };
        let (here, there) = (&this.here, format!("10.213.{high}.{}", low + 2));
        let (name, cable) = (&this.name, &this.cable);
        let is_there = ip(&format!("netns add {name}"))
            && ip(&format!(
                "link add {cable} type veth peer name eth0 netns {name}"
            ));
        if !is_there {
            let reason = "no network namespace can be made here";
            hotcell_testkit::skip(hotcell_testkit::Need::Root, reason);
            return None;
        }
        for step in [
            format!("addr add {here}/30 dev {cable}"),
            format!("link set {cable} up"),
            format!("-n {name} addr add {there}/30 dev eth0"),
            format!("-n {name} link set eth0 up"),
        ] {
            assert!(ip(&step), "ip {step}");
        }
        Some(this)
    }

    /// Does something there, given the URL of a server here.
    fn visit<T: Send>(&self, server: &Server, visit: impl FnOnce(&str) -> T + Send) -> T {
        let port = server.authority().rsplit(':').next().unwrap();
        let url = format!("http://{}:{port}", self.here);
        let network = File::open(format!("/run/netns/{}", self.name)).unwrap();
        let visit = || {
            let kind = Some(LinkNameSpaceType::Network);
            move_into_link_name_space(network.as_fd(), kind).unwrap();
            visit(&url)
        };
        // Each thread has its own network namespace.
        std::thread::scope(|scope| scope.spawn(visit).join().unwrap())
    }
}

impl Drop for Elsewhere {
    fn drop(&mut self) {
        ip(&format!("link del {}", self.cable));
        ip(&format!("netns del {}", self.name));
    }
}

fn ip(arguments: &str) -> bool {
    let status = Command::new("ip").args(arguments.split(' ')).status();
    status.is_ok_and(|status| status.success())
}

fn status(url: &str, path: &str, headers: &[(&str, &str)]) -> u16 {
    let headers: Vec<_> = headers
        .iter()
        .map(|(name, value)| (*name, (*value).to_owned()))
        .collect();
    let mut http = Http::connect(url);
    http.get(path, &headers);
    http.status
}

#[test]
fn a_client_on_another_machine_works_and_a_foreign_page_there_does_not() {
    let Some(elsewhere) = Elsewhere::new() else {
        return;
    };
    let home = Home::new();
    let open = ["--host", "0.0.0.0", "--allow-anonymous"];
    let mut server = home.serve_with(&open);
    let line = server.wait_for("clients on other machines reach it at http://");
    assert!(line.contains("/mcp"), "{line}");
    elsewhere.visit(&server, |url| {
        let mut client = Client::http(url);
        let id = client.ok("spawn", json!({}))["container_id"].clone();
        let run = json!({ "container_id": id, "cmd": ["echo", "hi"], "wait_s": 30 });
        assert_eq!(client.ok("exec_start", run)["messages"][0]["data"], "hi\n");
        client.ok("kill", json!({ "container_id": id }));
        assert_eq!(status(url, "/nothing", &[("Host", "any.name.at.all")]), 404);
        let page = [("Origin", "http://evil.example")];
        assert_eq!(status(url, "/nothing", &page), 403);
        assert_eq!(status(url, "/metrics", &[]), 403);
    });
    assert!(server.terminate().success());

    let named = [&open[..], &["--allowed-host", "cells.example"]].concat();
    let server = home.serve_with(&named);
    elsewhere.visit(&server, |url| {
        assert_eq!(status(url, "/nothing", &[]), 403);
        assert_eq!(status(url, "/nothing", &[("Host", "cells.example")]), 404);
        assert_eq!(status(url, "/healthz", &[]), 200);
        assert_eq!(status(url, "/readyz", &[]), 200);
    });
    assert!(server.terminate().success());
}
