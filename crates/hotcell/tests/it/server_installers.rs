//! Installers through egress: the real uv, cargo, go and apt-get install from an index on loopback, under the
//! names of the public ones and with no setting of their own; and git reads and does not write.

use std::path::Path;

use hotcell_testkit::{Need, skip};
use serde_json::{Value, json};

use crate::server_packages::{GIT_HOST, Index};
use crate::support::mcp::Client;
use crate::support::programs;
use crate::support::server::Server;

/// Each of these prints the value that its package has.
const UV: &str = "uv venv -q v && . v/bin/activate && uv pip install tinything && \
    python -c 'import tinything; print(\"value\", tinything.VALUE)'";
const CARGO: &str = "cargo new -q --vcs none --lib thing && cd thing && cargo add tinything && cargo fetch && \
    sed -n 's/.*VALUE: u8 =/value/p' $CARGO_HOME/registry/src/*/tinything-1.0.0/src/lib.rs";
const GO: &str = "cd module && printf 'module x\ngo 1.19\nrequire example.org/tinything v1.0.0\n' >go.mod && \
    printf 'package main\nimport \"example.org/tinything\"\nfunc main() { println(\"value\", tinything.Value) }\n' >main.go && \
    go mod download && go run .";
/// The index is not signed by Debian.
const APT: &str = "apt-get -o Acquire::AllowInsecureRepositories=true update && \
    apt-get --allow-unauthenticated download tinything && dpkg-deb --extract tinything_1.0_all.deb d && \
    echo value $(cat d/usr/share/tinything/value)";

/// Runs a line of shell; its output and its last poll.
fn shell(client: &mut Client, container: &str, script: &str) -> (String, Value) {
    let path = format!("{}:/usr/bin:/bin", programs::PATH);
    let start = json!({
        "container_id": container,
        "cmd": ["sh", "-c", format!("exec 2>&1; {script}")],
        "env": { "PATH": path },
        "timeout_s": 120,
    });
    let started = client.ok("exec_start", start);
    let mut said = String::new();
    let ended = client.follow(&started["exec_id"], |message| {
        said += message["data"].as_str().unwrap_or_default();
    });
    (said, ended)
}

/// Runs a line of shell that prints the value of a package.
pub(crate) fn expect_value(client: &mut Client, container: &str, script: &str) {
    let (said, ended) = shell(client, container, script);
    assert_eq!(ended["exit_code"], 0, "{said} {ended}");
    assert!(said.contains("value 42"), "{said}");
    assert_eq!(ended["egress"]["denied"], json!([]), "{ended}");
}

/// A container, with the installer in it if it can be had.
fn container(
    server: &Server,
    alias: &str,
    bring: impl Fn(&Server, &str) -> bool,
) -> Option<Client> {
    let mut client = server.client();
    client.ok("spawn", json!({ "alias": alias, "memory": "1g" }));
    bring(server, alias).then_some(client)
}

/// Installs in one container, and once more in another, for which the index is not there any more.
fn expect_from_index_then_from_cache(script: &str, bring: impl Fn(&Server, &str) -> bool) {
    let mut index = Index::start();
    let home = index.home();
    let server = home.serve();
    let Some(mut client) = container(&server, "one", &bring) else {
        return skip(Need::Programs, "the installer");
    };
    expect_value(&mut client, "one", script);
    index.stop();
    let mut client = container(&server, "two", &bring).expect("it was there for the first");
    expect_value(&mut client, "two", script);
    assert!(server.terminate().success());
}

fn has(program: &str) -> bool {
    let is_there = Path::new("/usr/bin").join(program).exists();
    if !is_there {
        skip(Need::Programs, &format!("{program} in /usr/bin"));
    }
    is_there
}

#[test]
fn uv_installs_and_once_more_without_the_index() {
    expect_from_index_then_from_cache(UV, programs::bring_uv);
}

#[test]
fn cargo_adds_and_fetches_and_once_more_without_the_index() {
    expect_from_index_then_from_cache(CARGO, programs::bring_cargo_and_rustc);
}

#[test]
fn go_downloads_a_module_and_builds_with_it_and_once_more_without_the_index() {
    if !has("go") {
        return;
    }
    let mut index = Index::start();
    let (home, sum) = (index.home(), index.go_sum());
    let server = home.serve();
    let mut client = server.client();
    for alias in ["one", "two"] {
        client.ok("spawn", json!({ "alias": alias, "memory": "1g" }));
        let write = json!({ "container_id": alias, "path": "module/go.sum", "content": sum });
        client.ok("fs_write", write);
        expect_value(&mut client, alias, GO);
        if alias == "one" {
            index.stop();
        }
    }
    assert!(server.terminate().success());
}

#[test]
fn apt_updates_and_downloads_from_the_releases_of_this_host() {
    if !has("apt-get") {
        return;
    }
    let index = Index::start();
    let home = index.home();
    let server = home.serve();
    let mut client = server.client();
    client.ok("spawn", json!({ "alias": "one" }));
    let (listed, _) = shell(&mut client, "one", "ls /etc/apt/sources.list.d");
    if listed.trim() != "debian.sources" {
        return skip(Need::Programs, "this host is no Debian");
    }
    expect_value(&mut client, "one", APT);
    client.ok("spawn", json!({ "alias": "two" }));
    expect_value(&mut client, "two", APT);
    // Only downloads are promised to be kept: what a release contains is asked for again.
    assert_eq!(index.requests_for("tinything_1.0_all.deb"), 1);
    assert!(index.requests_for("by-hash") > 0);
    assert!(server.terminate().success());
}

#[test]
fn git_clones_over_https_and_may_not_push() {
    if !has("git") {
        return;
    }
    let index = Index::start();
    let home = index.home();
    let server = home.serve();
    let mut client = server.client();
    client.ok("spawn", json!({ "alias": "cell", "egress": "git" }));
    let clone = format!("git clone https://{GIT_HOST}/tiny.git && echo value $(cat tiny/value)");
    expect_value(&mut client, "cell", &clone);
    let push = "cd tiny && git -c user.name=x -c user.email=x@example.com commit -q --allow-empty -m x && git push";
    let (said, ended) = shell(&mut client, "cell", push);
    assert_ne!(ended["exit_code"], 0, "{said}");
    assert!(said.contains("remote: # egress to"), "{said}");
    let reason = &ended["egress"]["denied"][0]["reason"];
    assert_eq!(reason, "GET /tiny.git/info/refs is not allowed", "{ended}");
    assert_eq!(index.requests_for("git-receive-pack"), 0);
    assert!(index.requests_for("git-upload-pack") > 0);
    assert!(server.terminate().success());
}
