//! How Docker and Podman are found: by `--engine auto`, by `hotcell doctor`, at other hosts
//! and through TLS; and what is said when they cannot be.

#![expect(clippy::unwrap_used, reason = "a test may fail here")]

use std::net::IpAddr;
use std::os::unix::net::UnixListener;
use std::path::Path;
use std::process::{Command, Stdio};

use hotcell_engine::docker::Flavor;
use serde_json::{Value, json};

use crate::support;
use crate::support::engines::{IMAGE, Private};
use crate::support::home::Home;
use crate::support::mcp::Client;

/// A socket that nobody made.
const NOWHERE: &str = "unix:///nonexistent/engine.sock";

/// What `hotcell doctor` finds, by name, with these variables; and whether it is content.
fn doctor(home: &Home, variables: &[(&str, &str)]) -> (Vec<Value>, bool) {
    let mut command = home.command(&["doctor", "--json"]);
    let output = support::server::output(command.envs(variables.iter().copied()));
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    let findings = report["findings"].as_array().unwrap().clone();
    (findings, output.status.success())
}

fn finding(findings: &[Value], name: &str) -> Value {
    let found = findings.iter().find(|finding| finding["name"] == name);
    found.unwrap().clone()
}

/// What doctor says of Docker alone.
fn of_docker(home: &Home, variables: &[(&str, &str)]) -> Value {
    finding(&doctor(home, variables).0, "Docker")
}

#[track_caller]
fn expect_bad(finding: &Value, found: &str, fix: &str) {
    assert_eq!(finding["ok"], false, "{finding}");
    let said = |field: &str| finding[field].as_str().unwrap_or_default().to_owned();
    assert!(said("found").contains(found), "{finding}");
    assert!(said("fix").contains(fix), "{finding}");
}

#[test]
fn doctor_tells_what_live_engines_are_and_why_dead_ones_are_of_no_use() {
    let [docker, podman] = [Flavor::Docker, Flavor::Podman].map(Private::start);
    let (Some(docker), Some(podman)) = (docker, podman) else {
        return;
    };
    let home = Home::new();
    let ((_, docker), (_, podman)) = (docker.address(), podman.address());
    let both = [("DOCKER_HOST", &*docker), ("CONTAINER_HOST", &*podman)];
    let (findings, is_content) = doctor(&home, &both);
    assert!(is_content, "{findings:#?}");
    for (name, address, word) in [("Docker", &docker, "runsc"), ("Podman", &podman, "runc")] {
        let finding = finding(&findings, name);
        assert_eq!(finding["ok"], true, "{finding}");
        let said = finding["found"].as_str().unwrap();
        for part in [address.as_str(), word, "as root", "cgroup v", "API 1."] {
            assert!(said.contains(part), "{part}: {said}");
        }
    }
    let auto = finding(&findings, "--engine auto");
    assert!(
        auto["found"]
            .as_str()
            .unwrap()
            .starts_with("takes embedded: "),
        "{auto}"
    );
    assert_eq!(finding(&findings, "files of images")["ok"], true);

    let dead = home.path().join("dead.sock");
    drop(UnixListener::bind(&dead).unwrap());
    let dead = format!("unix://{}", dead.display());
    for (host, found, fix) in [
        (NOWHERE, "not found", "start Docker"),
        (&dead, "Connection refused", "start Docker"),
        (
            "ssh://far",
            "not an engine's address",
            "correct the variable",
        ),
        ("tcp://192.0.2.1:2375", "not encrypted", "--allow-plain-tcp"),
    ] {
        expect_bad(&of_docker(&home, &[("DOCKER_HOST", host)]), found, fix);
    }
}

#[test]
fn doctor_tells_who_may_use_a_socket_that_we_may_not() {
    let home = Home::new();
    let socket = home.path().join("closed.sock");
    let _listener = UnixListener::bind(&socket).unwrap();
    if !rustix::process::geteuid().is_root() {
        let reason = "only root can become somebody else";
        hotcell_testkit::skip(hotcell_testkit::Need::Root, reason);
        return;
    }
    let nobody = [
        "--reuid",
        "59999",
        "--regid",
        "59999",
        "--clear-groups",
        "--inh-caps=-all",
    ];
    let program = home.path().join("hotcell");
    std::fs::copy(support::hotcell(), &program).unwrap();
    let open = std::os::unix::fs::PermissionsExt::from_mode(0o755);
    std::fs::set_permissions(home.path(), open).unwrap();
    let mut command = Command::new("setpriv");
    command
        .args(nobody)
        .arg(&program)
        .args(["doctor", "--json"])
        .arg("--state-dir")
        .arg("/nonexistent");
    command.env("DOCKER_HOST", format!("unix://{}", socket.display()));
    let output = support::server::output(command.current_dir("/").stdin(Stdio::null()));
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    let docker = finding(report["findings"].as_array().unwrap(), "Docker");
    expect_bad(&docker, "we may not use unix://", "usermod -aG docker");
}

#[test]
fn auto_takes_what_there_is_and_says_why() {
    let [docker, podman] = [Flavor::Docker, Flavor::Podman].map(Private::start);
    let (Some(docker), Some(podman)) = (docker, podman) else {
        return;
    };
    let ((_, docker), (_, podman)) = (docker.address(), podman.address());
    let home = |docker: &str, podman: &str| {
        Home::new()
            .with("DOCKER_HOST", docker)
            .with("CONTAINER_HOST", podman)
    };
    // Both would do, and the embedded engine is faster.
    let here = home(&docker, &podman);
    let server = here.serve_with(&["--engine", "auto"]);
    assert!(
        server
            .said("chose an engine")
            .contains("engine=\"embedded\"")
    );
    assert!(server.terminate().success());
    // Nothing breaks the embedded engine here, but it has no OCI runtimes.
    for (docker, podman, name) in [(&*docker, &*podman, "docker"), (NOWHERE, &podman, "podman")] {
        let here = home(docker, podman);
        let server = here.serve_with(&["--engine", "auto", "--runtime", "runc"]);
        let line = server.said("chose an engine");
        assert!(line.contains(&format!("engine=\"{name}\"")), "{line}");
        assert!(line.contains("embedded (it has no OCI runtimes"), "{line}");
        let status = Client::socket(&here).ok("system_status", json!({}));
        assert!(status.to_string().contains(name), "{status}");
        assert!(server.terminate().success());
    }
    let here = home(NOWHERE, NOWHERE);
    for (arguments, words) in [
        (
            ["--engine", "auto"],
            "no engine works here: embedded (it has no OCI runtimes",
        ),
        (["--engine", "embedded"], "it has no OCI runtimes"),
        (["--engine", "docker"], "docker cannot be used"),
    ] {
        let output = here.run(
            &[
                &["serve", "--port", "0", "--runtime", "runc"],
                &arguments[..],
            ]
            .concat(),
        );
        let said = String::from_utf8(output.stderr).unwrap();
        assert!(!output.status.success() && said.contains(words), "{said}");
    }
    let here = home(&docker, NOWHERE);
    for (setting, words) in [
        (
            ["--runtime", "steam"],
            "it does not know the runtime steam, only",
        ),
        (["--default-image", "host"], "docker cannot use image host"),
        (["--warm-image", "host=2"], "docker cannot use image host"),
    ] {
        let serve = ["serve", "--port", "0", "--engine", "docker"];
        let output = here.run(&[&serve[..], &setting].concat());
        let said = String::from_utf8(output.stderr).unwrap();
        assert!(!output.status.success() && said.contains(words), "{said}");
    }
}

fn openssl(directory: &Path, line: &str) {
    let ran = Command::new("openssl")
        .args(line.split_whitespace())
        .current_dir(directory)
        .stderr(Stdio::null())
        .status();
    assert!(ran.unwrap().success(), "openssl {line}");
}

/// Makes an authority in a directory, and a certificate by it for a server at that address and
/// for a client.
fn certificates(directory: &Path, ip: IpAddr) {
    std::fs::create_dir(directory).unwrap();
    let of_server = format!("extendedKeyUsage=serverAuth\nsubjectAltName=IP:{ip}\n");
    let new = "-newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -keyout";
    openssl(
        directory,
        &format!("req -x509 {new} ca-key.pem -out ca.pem -subj /CN=ca -days 2"),
    );
    for (name, usage) in [
        ("server", &*of_server),
        ("", "extendedKeyUsage=clientAuth\n"),
    ] {
        std::fs::write(directory.join("usage"), usage).unwrap();
        openssl(
            directory,
            &format!("req {new} {name}key.pem -out request -subj /CN=one"),
        );
        openssl(
            directory,
            &format!(
                "x509 -req -in request -CA ca.pem -CAkey ca-key.pem -CAcreateserial -days 2 -extfile usage -out {name}cert.pem"
            ),
        );
    }
}

#[test]
fn docker_on_another_host_is_reached_through_tls_and_by_those_who_may() {
    let scratch = support::scratch();
    let [ours, other, bare] = ["ours", "other", "bare"].map(|name| scratch.path().join(name));
    let address = support::own_address();
    certificates(&ours, address.ip());
    certificates(&other, address.ip());
    std::fs::create_dir(&bare).unwrap();
    std::fs::copy(ours.join("ca.pem"), bare.join("ca.pem")).unwrap();
    let mixed = scratch.path().join("mixed");
    std::fs::create_dir(&mixed).unwrap();
    for (from, name) in [(&ours, "ca.pem"), (&other, "cert.pem"), (&other, "key.pem")] {
        std::fs::copy(from.join(name), mixed.join(name)).unwrap();
    }
    let file = |name: &str| ours.join(name).display().to_string();
    let options = format!(
        "-H tcp://{address} --tlsverify --tlscacert {} --tlscert {} --tlskey {}",
        file("ca.pem"),
        file("servercert.pem"),
        file("serverkey.pem")
    );
    let variables = [("HOTCELL_ENGINE_OPTIONS", options.as_str())];
    let Some(private) = Private::start_own(Flavor::Docker, &variables) else {
        return;
    };
    let host = format!("tcp://{address}");
    let with = |directory: &Path| {
        let directory = directory.to_str().unwrap();
        Home::new()
            .with("DOCKER_HOST", &host)
            .with("DOCKER_TLS_VERIFY", "1")
            .with("DOCKER_CERT_PATH", directory)
    };
    for (directory, found) in [
        (&other, "invalid peer certificate"),
        (&mixed, "Certificate"),
        (&bare, "cert.pem"),
    ] {
        expect_bad(&of_docker(&with(directory), &[]), found, "DOCKER_CERT_PATH");
    }
    // Without TLS nothing is answered that could be taken for an engine.
    let plain = of_docker(&Home::new(), &[("DOCKER_HOST", &host)]);
    assert_eq!(plain["ok"], false, "{plain}");
    work_from_afar(&with(&ours));
    assert_eq!(private.says(&["ps", "-aq"]), "");
}

/// Everything goes through the connection: streams, numbers, memory that runs out.
fn work_from_afar(home: &Home) {
    let server = home.serve_with(&["--engine", "docker", "--default-image", IMAGE]);
    let mut client = server.client();
    let id = client.ok("spawn", json!({ "memory": "64m" }))["container_id"].clone();
    let run = |cmd: Value| json!({ "container_id": id, "cmd": cmd, "wait_s": 40 });
    let ran = client.ok(
        "exec_start",
        run(json!(["sh", "-c", "echo from afar; exit 4"])),
    );
    assert_eq!(
        (&ran["messages"][0]["data"], &ran["exit_code"]),
        (&json!("from afar\n"), &json!(4))
    );
    let uri = format!("stats://{}", id.as_str().unwrap());
    let read = client
        .request("resources/read", json!({ "uri": uri }))
        .unwrap();
    let stats: Value = serde_json::from_str(read["contents"][0]["text"].as_str().unwrap()).unwrap();
    assert!(
        stats["memory"]["used_bytes"]
            .as_u64()
            .is_some_and(|used| used > 0),
        "{stats}"
    );
    let ran = client.ok(
        "exec_start",
        run(json!(["tail", "-c", "1000000000", "/dev/zero"])),
    );
    assert_eq!(ran["status"], "oom_killed", "{ran}");
    client.ok("kill", json!({ "container_id": id }));
    assert!(server.terminate().success());
}
