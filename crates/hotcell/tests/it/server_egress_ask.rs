//! `[egress] ask = "hold"`: a connection to a host that is not listed waits for the operator.

use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::server_auth::token;
use crate::server_egress::{Configured, Origin, output, run};
use crate::support::mcp::Client;

/// Whatever they ask for is this origin, and nothing is listed.
const HOSTS: [&str; 4] = [
    "new.example.com",
    "once.example.com",
    "paste.example.com",
    "silent.example.com",
];

/// Asks about these hosts, which are this origin.
pub(crate) fn config(origin: &Origin, hosts: &[&str], wait_s: u64) -> String {
    let listed = origin.config(hosts);
    let (hosts, _) = listed.split_once("[egress.work]").expect("it is there");
    format!(
        "{hosts}ask = 'hold'\nask_wait_s = {wait_s}\n\
         [egress.work]\ndeny = ['paste.example.com', 'evil.example.com']\n"
    )
}

fn asking(origin: &Origin, wait_s: u64) -> Configured {
    let configured = Configured::new(origin, &[]);
    configured.write(&config(origin, &HOSTS, wait_s));
    configured
}

/// What `hotcell egress` prints, and whether it succeeds.
fn egress(configured: &Configured, arguments: &[&str]) -> (bool, String) {
    let ran = configured.home.run(&[&["egress"], arguments].concat());
    let text = [ran.stdout, ran.stderr].concat();
    (
        ran.status.success(),
        String::from_utf8_lossy(&text).into_owned(),
    )
}

fn pending(configured: &Configured) -> Vec<Value> {
    let (_, text) = egress(configured, &["pending", "--json"]);
    let listed: Value = serde_json::from_str(&text).expect("JSON");
    listed["questions"].as_array().expect("a list").clone()
}

/// The question about a host, once there is one.
fn question(configured: &Configured, host: &str) -> Value {
    let deadline = Instant::now() + Duration::from_mins(1);
    while Instant::now() < deadline {
        let all = pending(configured);
        if let Some(found) = all.into_iter().find(|question| question["host"] == host) {
            return found;
        }
    }
    panic!("nobody was asked about {host}");
}

fn fetch(url: &str) -> String {
    format!("curl -sS -m 70 -w ' %{{http_code}}' {url} 2>&1")
}

/// Begins a request inside, which goes on while the test answers.
fn begin(client: &mut Client, url: &str) -> Value {
    let command = json!({ "container_id": "cell", "cmd": ["sh", "-c", fetch(url)] });
    client.ok("exec_start", command)["exec_id"].clone()
}

fn finish(client: &mut Client, exec: &Value) -> String {
    let (mut text, mut seq) = (String::new(), json!(0));
    loop {
        let poll = json!({ "exec_id": exec, "after_seq": seq, "wait_s": 50 });
        let polled = client.ok("exec_poll", poll);
        text.push_str(&output(&polled));
        if polled["complete"] == true {
            return text;
        }
        seq = polled["next_seq"].clone();
    }
}

#[test]
fn a_held_request_goes_on_when_it_is_allowed_and_is_refused_when_it_is_denied() {
    let origin = Origin::start();
    let configured = asking(&origin, 60);
    let server = configured.home.serve();
    let mut client = server.client();
    let spawned = client.ok("spawn", json!({ "alias": "cell", "egress": "work" }));
    run(&mut client, "cell", "true");
    let held = begin(&mut client, "http://new.example.com/a");
    let asked = question(&configured, "new.example.com");
    assert_eq!(asked["container_id"], spawned["container_id"], "{asked}");
    assert_eq!(
        (&asked["port"], &asked["profile"]),
        (&json!(80), &json!("work"))
    );
    let id = asked["id"].as_str().expect("a text");
    let (is_done, told) = egress(&configured, &["allow", id]);
    assert!(
        is_done && told.contains("allowed: new.example.com"),
        "{told}"
    );
    assert_eq!(finish(&mut client, &held), "plain /a 200");
    // For as long as the container lives, at an address of its own, with the host's own certificate.
    let pem = json!({ "container_id": "cell", "path": "origin.pem", "content": origin.pem() });
    client.ok("fs_write", pem);
    let ran = run(&mut client, "cell", &fetch("http://new.example.com/b"));
    assert_eq!(output(&ran), "plain /b 200");
    let look = "python3 -c 'import socket; print(socket.gethostbyname(\"new.example.com\"))'";
    let address = output(&run(&mut client, "cell", look));
    assert!(address.starts_with("127.77.0."), "{address}");
    assert!(pending(&configured).is_empty());

    let held = begin(&mut client, "-k https://silent.example.com/");
    question(&configured, "silent.example.com");
    assert!(egress(&configured, &["deny", "silent.example.com"]).0);
    let refused = finish(&mut client, &held);
    assert!(refused.ends_with(" 403"), "{refused}");
    assert!(refused.contains("said no"), "{refused}");
    let ran = run(
        &mut client,
        "cell",
        &fetch("-k https://silent.example.com/"),
    );
    assert!(output(&ran).contains("said no"), "{ran}");
    assert_eq!(
        ran["egress"]["denied"][0]["host"], "silent.example.com",
        "{ran}"
    );

    let held = begin(&mut client, "http://once.example.com/c");
    question(&configured, "once.example.com");
    assert!(egress(&configured, &["allow", "once.example.com", "--once"]).0);
    assert_eq!(finish(&mut client, &held), "plain /c 200");
    let held = begin(&mut client, "http://once.example.com/d");
    question(&configured, "once.example.com");
    assert!(egress(&configured, &["deny", "once.example.com"]).0);
    assert!(finish(&mut client, &held).ends_with(" 403"));

    // What is denied by the profile is nobody's question.
    let ran = run(&mut client, "cell", &fetch("http://paste.example.com/"));
    assert!(
        output(&ran).contains("denied by paste.example.com"),
        "{ran}"
    );
    assert!(pending(&configured).is_empty());
    let (is_done, told) = egress(&configured, &["allow", "q_0123456789"]);
    assert!(
        !is_done && told.contains("there is no egress question"),
        "{told}"
    );
    let (_, log) = egress(&configured, &["log", "--json"]);
    for event in ["EGRESS_ASK", "EGRESS_ANSWER", "allowed_once"] {
        assert!(log.contains(event), "{event}: {log}");
    }
    assert!(server.terminate().success());
}

#[test]
fn silence_is_a_refusal_and_a_retry_after_the_answer_works() {
    let origin = Origin::start();
    let configured = asking(&origin, 1);
    let server = configured.home.serve();
    let mut client = server.client();
    client.ok("spawn", json!({ "alias": "cell", "egress": "work" }));
    let ran = run(&mut client, "cell", &fetch("http://silent.example.com/"));
    let told = output(&ran);
    assert!(told.ends_with(" 403"), "{told}");
    assert!(
        told.contains("was asked and has not answered yet"),
        "{told}"
    );
    let hint = ran["egress"]["denied"][0]["hint"]
        .as_str()
        .unwrap_or_default();
    assert!(
        hint.contains("hotcell egress allow silent.example.com"),
        "{ran}"
    );
    assert!(egress(&configured, &["allow", "silent.example.com"]).0);
    let ran = run(&mut client, "cell", &fetch("http://silent.example.com/x"));
    assert_eq!(output(&ran), "plain /x 200");
    // A program that asks for many hosts is told that they are not listed.
    let many = "for n in $(seq 1 20); do curl -s -m 20 http://n$n.example.org/ & done; wait";
    let told = output(&run(&mut client, "cell", many));
    assert_eq!(told.matches("has not answered yet").count(), 16, "{told}");
    assert_eq!(told.matches("(not listed)").count(), 4, "{told}");
    assert_eq!(pending(&configured).len(), 16);
    assert!(server.terminate().success());
}

#[test]
fn without_a_server_nobody_is_asked() {
    let origin = Origin::start();
    let configured = asking(&origin, 60);
    let url = "http://silent.example.com/";
    let fetch = [
        "run", "--egress", "work", "--", "curl", "-sS", "-m", "70", url,
    ];
    let ran = configured.home.run(&fetch);
    let told = String::from_utf8_lossy(&ran.stdout);
    assert!(told.contains("(not listed);"), "{ran:?}");
}

#[test]
fn questions_are_their_owners_and_an_admins_of_this_machine_and_nobody_elses() {
    let origin = Origin::start();
    let configured = asking(&origin, 60);
    let [alice, bob, remote] = [
        token(&configured.home, &["alice"]),
        token(&configured.home, &["bob"]),
        token(&configured.home, &["root", "--admin"]),
    ];
    let server = configured.home.serve_with(&["--auth", "bearer"]);
    let mut owner = Client::http_by_token(&server.url, &alice);
    owner.ok("spawn", json!({ "alias": "cell", "egress": "work" }));
    let held = begin(&mut owner, "http://new.example.com/a");
    // The operator sees it from the command line.
    let asked = question(&configured, "new.example.com");
    assert_eq!(asked["principal"], "token:alice", "{asked}");
    let allow = |target: &Value| json!({ "op": "answer", "target": target, "verdict": "allow" });
    for stranger in [bob, remote] {
        let mut stranger = Client::http_by_token(&server.url, &stranger);
        let seen = stranger.request("hotcell/egress", json!({ "op": "pending" }));
        assert_eq!(seen.unwrap()["questions"], json!([]));
        let mut told = |target: &Value| {
            let refused = stranger
                .request("hotcell/egress", allow(target))
                .unwrap_err();
            refused
                .to_string()
                .replace(target.as_str().unwrap_or_default(), "TARGET")
        };
        let missing = told(&json!("q_0123456789"));
        assert!(missing.contains("there is no egress question"), "{missing}");
        assert_eq!(told(&asked["id"]), missing);
        assert_eq!(told(&json!("new.example.com")), missing);
    }
    let answered = owner
        .request("hotcell/egress", allow(&asked["id"]))
        .unwrap();
    assert_eq!(answered["questions"][0]["host"], "new.example.com");
    assert_eq!(finish(&mut owner, &held), "plain /a 200");
    owner.ok("kill", json!({ "container_id": "cell", "force": true }));
    drop(owner);
    assert!(server.terminate().success());
}
