//! Programs inside trust the server's authority: each one of a table asks a host that is refused. It is told so over TLS
//! instead of complaining about a certificate, and gives up at once instead of trying again.

use hotcell_testkit::Need;
use serde_json::{Value, json};

use crate::support::home::Home;
use crate::support::mcp::Client;
use crate::support::programs;

/// Not listed by any profile.
const HOST: &str = "refused.example.com";

/// How long a program may take. On a busy machine all of them are slow, so each may try again, and has more time then; the
/// longest is less than what a package manager takes that tries again by itself.
const WALL_MS_MAX: [u64; 8] = [1_000, 1_000, 1_500, 2_000, 3_000, 4_000, 5_000, 5_000];

/// Where a program comes from.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Source {
    /// Every machine has it that runs tests.
    Machine,
    /// Some machines have it.
    Somewhere,
    /// `./test` installs it into `/usr`, where it can.
    Debian,
    /// `tests/clients/install`.
    Clients,
    /// The Rust that builds this, which an ordinary user may not have.
    Rust,
}

use self::Source::{Clients, Debian, Machine, Rust, Somewhere};

/// A program, a line of shell that prepares it, one that asks `$URL` with it, and what it says to an answer of 403.
const PROGRAMS: [(Source, &str, &str, &str, &str); 23] = [
    (
        Machine,
        "curl",
        "",
        "curl -sS $URL",
        "ask the operator to add",
    ),
    (
        Machine,
        "python3",
        "",
        "python3 -c \"import urllib.request, os; urllib.request.urlopen(os.environ['URL'])\"",
        "HTTP Error 403: egress to",
    ),
    (
        Machine,
        "git",
        "",
        "git ls-remote $URL/a.git",
        "remote: # egress to",
    ),
    (
        Machine,
        "openssl",
        "",
        "openssl s_client -brief -verify_return_error -connect $HOST:443 -servername $HOST </dev/null",
        "Verification: OK",
    ),
    (
        Debian,
        "wget",
        "",
        "wget -q -S -O /dev/null $URL",
        "403 egress to",
    ),
    (
        Somewhere,
        "perl",
        "",
        "perl -MHTTP::Tiny -e 'my $r = HTTP::Tiny->new(verify_SSL => 1)->get($ENV{URL}); print $r->{status} == 599 ? $r->{content} : $r->{status}'",
        "403",
    ),
    (
        Debian,
        "pip",
        "",
        "/usr/bin/python3 -m pip download -vvv -d /workspace/d --index-url $URL/simple/ nothing-there",
        "403 Client Error",
    ),
    (
        Debian,
        "node",
        "",
        "/usr/bin/node -e \"fetch(process.env.URL).then(it => console.log(it.status, it.statusText), it => console.log(it.cause))\"",
        "403 egress to",
    ),
    (
        Debian,
        "npm",
        "",
        "/usr/bin/npm view --registry $URL nothing-there",
        "403 egress to",
    ),
    (
        Debian,
        "go",
        "mkdir -p go-program && printf 'package main\nimport (\"net/http\"; \"os\")\nfunc main() { it, err := http.Get(os.Getenv(\"URL\")); if err != nil { panic(err) }; println(it.Status) }\n' >go-program/main.go && go build -o get go-program/main.go",
        "./get",
        "403 egress to",
    ),
    (
        Debian,
        "go mod",
        "mkdir -p go-module && printf 'module x\ngo 1.19\nrequire example.org/y v1.0.0\n' >go-module/go.mod",
        "cd go-module && GOPROXY=$URL go mod download",
        "server response: # egress to",
    ),
    (
        Debian,
        "apt",
        "echo \"deb [trusted=yes] $URL/debian tiny main\" >sources",
        "apt-get update -o Dir::Etc::sourcelist=/workspace/sources -o Dir::Etc::sourceparts=/dev/null",
        "403  egress to",
    ),
    (
        Debian,
        "java",
        "printf 'import java.net.*;\nclass A { public static void main(String[] a) throws Exception {\n\
         var it = (HttpURLConnection) new URL(System.getenv(\"URL\")).openConnection();\n\
         System.out.println(it.getResponseCode()); } }\n' >A.java && javac A.java",
        "java -XX:TieredStopAtLevel=1 A",
        "403",
    ),
    (
        Clients,
        "requests",
        "",
        "/usr/bin/python3 -c \"import requests, os; it = requests.get(os.environ['URL']); print(it.status_code, it.reason)\"",
        "403 egress to",
    ),
    (
        Clients,
        "httpx",
        "",
        "/usr/bin/python3 -c \"import httpx, os; it = httpx.get(os.environ['URL']); print(it.status_code, it.reason_phrase)\"",
        "403 egress to",
    ),
    (
        Clients,
        "aiohttp",
        "",
        "/usr/bin/python3 -c \"import aiohttp, asyncio, os\nasync def main():\n  async with aiohttp.ClientSession() as it:\n    it = await it.get(os.environ['URL'])\n    print(it.status, it.reason)\nasyncio.run(main())\"",
        "403 egress to",
    ),
    (
        Clients,
        "uv",
        "uv venv -q v",
        "VIRTUAL_ENV=v uv pip install --index-url $URL/simple/ nothing-there",
        "403 Forbidden",
    ),
    // Its C library is musl, which looks names up in its own way.
    (
        Clients,
        "uv with musl",
        "uv-musl venv -q w",
        "VIRTUAL_ENV=w uv-musl pip install --index-url $URL/simple/ nothing-there",
        "403 Forbidden",
    ),
    (
        Clients,
        "node20",
        "",
        "node20 -e \"fetch(process.env.URL).then(it => console.log(it.status, it.statusText), it => console.log(it.cause))\"",
        "403 egress to",
    ),
    (
        Clients,
        "node24",
        "",
        "node24 -e \"fetch(process.env.URL).then(it => console.log(it.status, it.statusText), it => console.log(it.cause))\"",
        "403 egress to",
    ),
    (
        Clients,
        "deno",
        "",
        "deno eval \"console.log((await fetch(Deno.env.get('URL'))).status)\"",
        "403",
    ),
    (
        Clients,
        "bun",
        "",
        "bun -e \"const it = await fetch(process.env.URL); console.log(it.status, it.statusText)\"",
        "403 egress to",
    ),
    (
        Rust,
        "cargo",
        "",
        "CARGO_REGISTRIES_OTHER_INDEX=sparse+$URL/ cargo search --registry other nothing-there",
        "# egress to",
    ),
];

/// Says that a program or its library is not here.
const MISSING: [&str; 7] = [
    "not found",
    "No module named",
    "Can't locate",
    "IO::Socket::SSL",
    "fetch is not defined",
    "No such file",
    "can't open file",
];

fn run(client: &mut Client, container: &Value, script: &str) -> (String, Value) {
    let env = json!({
        "URL": format!("https://{HOST}"),
        "HOST": HOST,
        "PATH": format!("{}:/usr/bin:/bin", programs::PATH),
        "PYTHONPATH": programs::PYTHON_PATH,
    });
    let start = json!({
        "container_id": container,
        "cmd": ["sh", "-c", format!("exec 2>&1; {script}")],
        "env": env,
        "timeout_s": 60,
    });
    let started = client.ok("exec_start", start);
    let mut output = String::new();
    let ended = client.follow(&started["exec_id"], |message| {
        output += message["data"].as_str().unwrap_or_default();
    });
    (output, ended)
}

/// Asks until it was quick; what is wrong with the last answer.
fn ask(client: &mut Client, container: &Value, script: &str, expected: &str) -> Result<(), String> {
    let mut problem = String::new();
    for wall_ms_max in WALL_MS_MAX {
        let (said, ended) = run(client, container, script);
        let denied = &ended["egress"]["denied"][0];
        if !said.contains(expected) || denied["host"] != HOST || denied["reason"] != "not listed" {
            return Err(format!("{said} {ended}"));
        }
        if ended["usage"]["wall_ms"].as_u64() <= Some(wall_ms_max) {
            return Ok(());
        }
        problem = format!("slow: {}", ended["usage"]);
    }
    Err(problem)
}

#[test]
fn programs_are_told_of_a_refusal_over_tls_that_they_trust_and_give_up_at_once() {
    let home = Home::new();
    let server = home.serve_with(&["--egress", "packages"]);
    let mut client = server.client();
    let container = client.ok("spawn", json!({ "memory": "1g" }))["container_id"].clone();
    let id = container.as_str().expect("an id");
    let has_clients = programs::bring_clients(&server, id);
    let has_rust = programs::bring_cargo(&server, id);
    let mut failed = Vec::new();
    for (from, name, prepare, script, expected) in PROGRAMS {
        if (from == Clients && !has_clients) || (from == Rust && !has_rust) {
            continue;
        }
        let (said, ended) = run(&mut client, &container, prepare);
        let problem = if ended["exit_code"] == 0 {
            ask(&mut client, &container, script, expected).err()
        } else {
            Some(said)
        };
        let Some(problem) = problem else { continue };
        let is_missing = MISSING.iter().any(|it| problem.contains(it));
        match from {
            Somewhere if is_missing => {}
            Debian if is_missing => {
                hotcell_testkit::skip_part(Need::Programs, &format!("{name} is not installed"));
            }
            Machine | Somewhere | Debian | Clients | Rust => {
                failed.push(format!("{name}: {problem}"));
            }
        }
    }
    assert!(failed.is_empty(), "{}", failed.join("\n"));
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
