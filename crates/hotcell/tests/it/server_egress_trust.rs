//! Programs inside trust the server's authority: each one of a table asks a host that is refused, and
//! is told so over TLS instead of complaining about a certificate.

use serde_json::{Value, json};

use crate::support::home::Home;
use crate::support::mcp::Client;

/// Not listed by any profile.
const HOST: &str = "refused.example.com";

/// A program, a line of shell that asks `$URL` with it, and what it says to an answer of 403. A
/// program that is not installed is passed over, except those that every machine has that runs tests.
const PROGRAMS: [(&str, &str, &str); 11] = [
    (
        "curl",
        "curl -sS -o /dev/null -w '%{http_code}' $URL",
        "403",
    ),
    ("wget", "wget -q -S -O /dev/null $URL 2>&1; true", "403"),
    (
        "python3",
        "python3 -c \"import urllib.request, urllib.error, os\ntry: urllib.request.urlopen(os.environ['URL'])\nexcept urllib.error.HTTPError as error: print(error.code)\"",
        "403",
    ),
    (
        "python3 requests",
        "python3 -c \"import requests, os; print(requests.get(os.environ['URL']).status_code)\"",
        "403",
    ),
    (
        "node",
        "node -e \"fetch(process.env.URL).then(it => console.log(it.status), it => console.log(it.cause))\"",
        "403",
    ),
    ("git", "git ls-remote $URL/a.git 2>&1; true", "403"),
    (
        "openssl",
        "openssl s_client -brief -verify_return_error -connect $HOST:443 -servername $HOST </dev/null 2>&1; true",
        "Verification: OK",
    ),
    (
        "perl",
        "perl -MHTTP::Tiny -e 'my $r = HTTP::Tiny->new(verify_SSL => 1)->get($ENV{URL}); print $r->{status} == 599 ? $r->{content} : $r->{status}'",
        "403",
    ),
    (
        "pip",
        "python3 -m pip download -vvv --retries 0 -d /workspace/d --index-url $URL/simple/ nothing-there 2>&1; true",
        "403",
    ),
    (
        "npm",
        "npm view --registry $URL nothing-there 2>&1; true",
        "403",
    ),
    (
        "java",
        "cat >A.java <<'EOF'\nimport java.net.*;\nclass A { public static void main(String[] a) throws Exception {\n\
         var it = (HttpURLConnection) new URL(System.getenv(\"URL\")).openConnection();\n\
         System.out.println(it.getResponseCode()); } }\nEOF\njava A.java",
        "403",
    ),
];

/// Says that the program or its library is not here.
const MISSING: [&str; 6] = [
    "not found",
    "No module named",
    "Can't locate",
    "IO::Socket::SSL",
    "fetch is not defined",
    "No such file",
];

fn run(client: &mut Client, container: &Value, script: &str) -> Value {
    let start = json!({
        "container_id": container,
        "cmd": ["sh", "-c", script],
        "env": { "URL": format!("https://{HOST}"), "HOST": HOST },
        "timeout_s": 60,
    });
    let started = client.ok("exec_start", start);
    let mut output = String::new();
    let ended = client.follow(&started["exec_id"], |message| {
        output += message["data"].as_str().unwrap_or_default();
    });
    json!({ "output": output, "ended": ended })
}

#[test]
fn programs_are_told_of_a_refusal_over_tls_that_they_trust() {
    let home = Home::new();
    let server = home.serve_with(&["--egress", "packages"]);
    let mut client = server.client();
    let container = client.ok("spawn", json!({}))["container_id"].clone();
    let (mut passed, mut failed) = (Vec::new(), Vec::new());
    for (name, script, expected) in PROGRAMS {
        let ran = run(&mut client, &container, script);
        let said = ran["output"].as_str().expect("a text");
        if said.contains(expected) {
            passed.push(name);
        } else if !MISSING.iter().any(|it| said.contains(it)) {
            failed.push(format!("{name}: {said} {}", ran["ended"]));
        }
    }
    assert!(failed.is_empty(), "{failed:#?}");
    for name in ["curl", "python3", "git", "openssl"] {
        assert!(passed.contains(&name), "{name} is not among {passed:?}");
    }
    client.ok("kill", json!({ "container_id": container }));
    assert!(server.terminate().success());
}

#[test]
fn an_execs_own_variables_come_before_those_of_egress() {
    let home = Home::new();
    let server = home.serve_with(&["--egress", "packages"]);
    let mut client = server.client();
    let spawn = json!({ "env": { "PIP_CERT": "/containers" } });
    let container = client.ok("spawn", spawn)["container_id"].clone();
    let start = json!({
        "container_id": container,
        "cmd": ["sh", "-c", "echo $SSL_CERT_FILE; echo $PIP_CERT; echo $GOPATH; echo $PATH"],
        "env": { "GOPATH": "/mine" },
    });
    let started = client.ok("exec_start", start);
    let mut output = String::new();
    client.follow(&started["exec_id"], |message| {
        output += message["data"].as_str().unwrap_or_default();
    });
    let lines: Vec<&str> = output.lines().collect();
    assert_eq!(lines[0], "/workspace/.hotcell/trust/ca-bundle.pem");
    assert_eq!(lines[1], "/containers");
    assert_eq!(lines[2], "/mine");
    assert!(lines[3].ends_with(":/workspace/go/bin"), "{output}");
    client.ok("kill", json!({ "container_id": container }));
    assert!(server.terminate().success());
}
