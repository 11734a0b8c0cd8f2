//! Login with a real identity provider: the npm package `oidc-provider`, and the OAuth flow of the
//! Python package `mcp`.

#![expect(clippy::unwrap_used, reason = "a test may fail here")]

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};

use serde_json::Value;

use super::clients::{client, root, run};
use crate::support::home::Home;
use crate::support::http::Http;
use crate::support::server::Server;

/// An identity provider that runs. Dropped, it ends.
pub(crate) struct Provider {
    child: Child,
    pub(crate) issuer: String,
}

impl Provider {
    pub(crate) fn start() -> Option<Self> {
        let node = client("node")?;
        let packages = node.parent().unwrap().join("../npm/package.json");
        if !packages
            .with_file_name("node_modules/oidc-provider")
            .exists()
        {
            let reason = "oidc-provider is missing: see tests/clients/install";
            hotcell_testkit::skip(hotcell_testkit::Need::Clients, reason);
            return None;
        }
        let mut child = Command::new(node)
            .arg(root().join("tests/clients/oidc_provider.mjs"))
            .env("OIDC_PROVIDER_FROM", packages)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let mut issuer = String::new();
        let stdout = child.stdout.take().unwrap();
        BufReader::new(stdout).read_line(&mut issuer).unwrap();
        let issuer = issuer.trim().to_owned();
        assert!(issuer.starts_with("http://"), "{issuer}");
        Some(Self { child, issuer })
    }
}

impl Drop for Provider {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn serve(home: &Home, provider: &Provider) -> Server {
    let arguments = ["--auth", "oidc", "--oidc-issuer", &provider.issuer];
    home.serve_with(&arguments)
}

fn log_in(home: &Home, server: &Server, python: &Path, name: &str) -> Vec<String> {
    let mut command = Command::new(python);
    let story = command
        .arg(root().join("tests/clients/oauth_story.py"))
        .arg(format!("{}/mcp", server.url))
        .arg(name)
        .env("PYTHONDONTWRITEBYTECODE", "1")
        .env("HOME", home.path());
    serde_json::from_str(&run(story)).unwrap()
}

#[test]
fn the_python_client_logs_in_by_itself_and_works() {
    let home = Home::new();
    let (Some(provider), Some(python)) = (Provider::start(), client("python-mcp")) else {
        return;
    };
    let server = serve(&home, &provider);
    let tools = log_in(&home, &server, &python, "plain");
    let has = |tools: &[String], name: &str| tools.iter().any(|tool| tool == name);
    assert!(
        has(&tools, "spawn") && !has(&tools, "system_status"),
        "{tools:?}"
    );
    let mut http = Http::connect(&server.url);
    http.get("/mcp", &[("Authorization", "Bearer a.b.c".to_owned())]);
    assert_eq!(http.status, 401);
    assert!(server.terminate().success());
}

#[test]
fn metadata_says_where_to_log_in_whatever_the_host_header_says() {
    let home = Home::new();
    let Some(provider) = Provider::start() else {
        return;
    };
    let server = serve(&home, &provider);
    let well_known = "/.well-known/oauth-protected-resource";
    for host in [server.authority(), "evil.example", "localhost"] {
        for (path, resource) in [("", ""), ("/mcp", "/mcp")] {
            let mut http = Http::connect(&server.url);
            let headers = [
                ("Host", host.to_owned()),
                ("X-Forwarded-Host", "evil.example".to_owned()),
                ("Forwarded", "host=evil.example".to_owned()),
                ("Origin", "https://page.example".to_owned()),
            ];
            http.get(&format!("{well_known}{path}"), &headers);
            assert_eq!(http.status, 200, "{host}");
            assert_eq!(http.header("access-control-allow-origin"), Some("*"));
            let document: Value = serde_json::from_slice(&http.read_whole()).unwrap();
            assert_eq!(document["resource"], format!("{}{resource}", server.url));
            assert_eq!(
                document["authorization_servers"][0],
                provider.issuer.as_str()
            );
            assert!(!document.to_string().contains("evil"), "{document}");
        }
    }
    let mut http = Http::connect(&server.url);
    http.get("/mcp", &[("X-Forwarded-Host", "evil.example".to_owned())]);
    assert_eq!(http.status, 401);
    let challenge = http.header("www-authenticate").unwrap();
    let expected = format!("resource_metadata=\"{}{well_known}/mcp\"", server.url);
    assert!(challenge.contains(&expected), "{challenge}");
    assert!(challenge.contains("scope=\"hotcell:use\""), "{challenge}");
    assert!(server.terminate().success());
}
