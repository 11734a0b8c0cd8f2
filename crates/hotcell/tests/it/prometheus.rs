//! The alert rules and the dashboard, with Debian's Prometheus and a real server.

use std::collections::BTreeSet;
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use hotcell_testkit::{Need, skip};
use serde_json::{Value, json};

use crate::support::home::Home;
use crate::support::http::Http;
use crate::support::server::{Server, output};
use crate::support::{scratch, wait_until};

/// A file that the documentation offers.
fn offered(name: &str) -> PathBuf {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs");
    path.join(name).canonicalize().expect("it is there")
}

/// The names of our metrics in a text of expressions.
fn names_in(text: &str) -> BTreeSet<String> {
    let words = text.split(|c: char| !c.is_ascii_alphanumeric() && c != '_');
    let ours = |word: &&str| word.starts_with("hotcell_") || word.starts_with("mcp_devbench_");
    words.filter(ours).map(str::to_owned).collect()
}

/// The names of all series that a server has, by what it says of its metrics.
fn names_of(metrics: &str) -> BTreeSet<String> {
    let types = metrics
        .lines()
        .filter_map(|line| line.strip_prefix("# TYPE "));
    let series = types.flat_map(|line| {
        let (name, kind) = line.split_once(' ').expect("a name and a type");
        let endings: &[&str] = match kind {
            "counter" => &["_total"],
            "histogram" => &["_bucket", "_count", "_sum"],
            _ => &[""],
        };
        endings.iter().map(move |ending| format!("{name}{ending}"))
    });
    series.collect()
}

fn get(url: &str, path: &str) -> String {
    let mut http = Http::connect(url);
    http.get(path, &[]);
    assert_eq!(http.status, 200, "{path}");
    String::from_utf8(http.read_whole()).expect("text")
}

/// Prometheus, which reads a server's metrics and our rules. Dropped, it is killed.
struct Prometheus {
    child: Child,
    url: String,
    _data: tempfile::TempDir,
}

impl Prometheus {
    fn start(server: &Server) -> Self {
        let data = scratch();
        let config = json!({
            "global": {"scrape_interval": "1s", "evaluation_interval": "1s"},
            "rule_files": [offered("alerts.yml")],
            "scrape_configs": [{
                "job_name": "hotcell",
                "static_configs": [{"targets": [server.authority()]}],
            }],
        });
        // JSON is YAML too.
        let file = data.path().join("prometheus.yml");
        std::fs::write(&file, config.to_string()).expect("it can be written");
        let free = TcpListener::bind("127.0.0.1:0").and_then(|socket| socket.local_addr());
        let address = free.expect("a free port").to_string();
        let child = Command::new("prometheus")
            .arg(format!("--config.file={}", file.display()))
            .arg(format!(
                "--storage.tsdb.path={}",
                data.path().join("data").display()
            ))
            .arg(format!("--web.listen-address={address}"))
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .expect("prometheus starts");
        let this = Self {
            child,
            url: format!("http://{address}"),
            _data: data,
        };
        wait_until("prometheus listens", || {
            std::net::TcpStream::connect(&address).is_ok()
        });
        this
    }

    fn api(&self, path: &str) -> Value {
        let mut http = Http::connect(&self.url);
        http.get(&format!("/api/v1/{path}"), &[]);
        // It answers with an error while it starts.
        let answer = http.read_whole();
        serde_json::from_slice(&answer).unwrap_or_default()
    }
}

impl Drop for Prometheus {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Whether Prometheus is there; else the test is skipped.
fn has_prometheus() -> bool {
    let found = Command::new("promtool").arg("--version").output().is_ok();
    if !found {
        skip(Need::Prometheus, "there is no prometheus here");
    }
    found
}

#[test]
fn every_metric_of_the_rules_and_the_dashboard_is_there() {
    let home = Home::operated();
    let server = Server::start(&home, &[]);
    // The first look is counted too, so that the second shows how long it took.
    get(&server.url, "/metrics");
    let there = names_of(&get(&server.url, "/metrics"));
    assert!(there.contains("hotcell_operations_total"), "{there:?}");
    for file in ["alerts.yml", "grafana.json"] {
        let text = std::fs::read_to_string(offered(file)).expect("text");
        let used = names_in(&text);
        assert!(used.len() > 8, "{file}: {used:?}");
        let missing: Vec<_> = used.difference(&there).collect();
        assert!(missing.is_empty(), "{file} names {missing:?}");
    }
    assert!(server.terminate().success());
}

#[test]
fn prometheus_takes_the_rules_and_reads_a_server() {
    if !has_prometheus() {
        return;
    }
    let rules = offered("alerts.yml");
    let checked = output(
        Command::new("promtool")
            .args(["check", "rules"])
            .arg(&rules),
    );
    assert!(checked.status.success(), "{checked:?}");
    let home = Home::operated();
    let server = Server::start(&home, &[]);
    let container = server.client().ok("spawn", json!({}))["container_id"].clone();
    let run = json!({"container_id": container, "cmd": ["true"], "wait_s": 30});
    server.client().ok("exec_start", run);
    let prometheus = Prometheus::start(&server);
    let query =
        "query?query=hotcell_operations_total%7Boperation%3D%22spawn%22%2Coutcome%3D%22ok%22%7D";
    wait_until("the spawn is counted", || {
        prometheus.api(query)["data"]["result"][0]["value"][1] == "1"
    });
    wait_until("every rule has been evaluated", || {
        let groups = prometheus.api("rules");
        let rules = groups["data"]["groups"][0]["rules"].as_array().cloned();
        let rules = rules.unwrap_or_default();
        rules.len() > 8 && rules.iter().all(|rule| rule["health"] == "ok")
    });
    drop(prometheus);
    assert!(server.terminate().success());
}
