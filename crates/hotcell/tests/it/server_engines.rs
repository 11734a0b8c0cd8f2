//! The real server on Docker, Podman and gVisor: the same work as on its own engine; and
//! whatever dies, server or engine, it goes on by itself.

#![expect(clippy::unwrap_used, reason = "a test may fail here")]

use std::path::Path;
use std::time::Instant;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use hotcell_engine::docker::Flavor;
use serde_json::{Value, json};

use crate::server_limits::run_out_of_disk;
use crate::support;
use crate::support::engines::{IMAGE, Private};
use crate::support::home::Home;
use crate::support::mcp::Client;
use crate::support::registry::{PASSWORD, Registry, USER};
use crate::support::server::Server;
use crate::support::wait_until;

/// Writes numbered lines until it is told to stop, and says so.
const COUNTING: &str =
    "i=0; while [ ! -e stop ]; do i=$((i+1)); echo $i; sleep 0.02; done; echo end";

pub(crate) fn home(private: &Private) -> Home {
    let (name, address) = private.address();
    Home::new().with(name, &address)
}

pub(crate) fn serve(home: &Home, flavor: Flavor, more: &[&str]) -> Server {
    let mut arguments = vec!["--engine", flavor.name(), "--default-image", IMAGE];
    arguments.extend(["--drain-grace-s", "0", "--admin-over-http"]);
    home.serve_with(&[&arguments, more].concat())
}

/// Fails if the engine still has a container or a volume of this server's.
pub(crate) fn expect_nothing_left(private: &Private, home: &Home) {
    let scope = std::fs::read_to_string(home.path().join("scope")).unwrap();
    let label = format!("label=io.hotcell.scope={scope}");
    let format = ["--format", "{{.Names}} {{.Status}}"];
    let containers = private.says(&[&["ps", "-a", "--filter", &label], &format[..]].concat());
    assert_eq!(containers, "", "containers are left");
    let volumes = private.says(&["volume", "ls", "-q", "--filter", &label]);
    let left: Vec<_> = volumes
        .lines()
        .filter(|name| !name.starts_with("hotcell-agent-"))
        .collect();
    assert_eq!(left, [""; 0], "volumes are left");
}

fn text(polled: &Value) -> String {
    let messages = polled["messages"].as_array().unwrap().iter();
    messages.map(|one| one["data"].as_str().unwrap()).collect()
}

/// Runs a script to its end; returns the last `exec_poll`.
fn sh(client: &mut Client, container: &Value, script: &str) -> Value {
    let run = json!({ "container_id": container, "cmd": ["sh", "-c", script], "wait_s": 40 });
    let ran = client.ok("exec_start", run);
    assert_eq!(ran["complete"], true, "{script}: {ran}");
    ran
}

/// Starts to count, and waits until the first line was seen, long before the end.
fn start_counting(client: &mut Client, container: &Value) -> Value {
    let run = json!({ "container_id": container, "cmd": ["sh", "-c", COUNTING] });
    let exec = client.ok("exec_start", run)["exec_id"].clone();
    let polled = client.ok("exec_poll", json!({ "exec_id": exec, "wait_s": 30 }));
    assert!(text(&polled).starts_with("1\n"), "{polled}");
    assert_eq!(polled["complete"], false);
    exec
}

/// Ends the counting, and fails if a line is missing or there twice.
fn expect_whole_count(client: &mut Client, container: &Value, exec: &Value) {
    let stop = json!({ "container_id": container, "path": "stop", "content": "" });
    wait_until("the container answers", || {
        client.call("fs_write", stop.clone())["isError"] != true
    });
    wait_until("the exec ends", || {
        let polled = client.ok("exec_poll", json!({ "exec_id": exec, "wait_s": 10 }));
        polled["complete"] == true
    });
    let polled = client.ok(
        "exec_poll",
        json!({ "exec_id": exec, "max_bytes": 1 << 20 }),
    );
    assert_eq!(polled["status"], "succeeded", "{polled}");
    let said = text(&polled);
    let lines: Vec<_> = said.lines().collect();
    let (last, count) = lines.split_last().unwrap();
    assert_eq!(*last, "end");
    for (n, line) in (1..).zip(count) {
        assert_eq!(*line, format!("{n}"));
    }
}

/// Typical work of an AI agent, and what the operator sees of it.
fn work(client: &mut Client, engine: &str) {
    let made = client.ok("spawn", json!({ "alias": "work", "memory": "96m" }));
    assert_eq!(
        (&made["status"], &made["engine"], &made["image"]),
        (&json!("running"), &json!(engine), &json!(IMAGE))
    );
    let id = made["container_id"].clone();
    let exec = start_counting(client, &id);
    expect_whole_count(client, &id, &exec);
    let write = json!({ "container_id": "work", "path": "src/a.txt", "content": "one\n" });
    client.ok("fs_write", write);
    let ran = sh(
        client,
        &id,
        "cat src/a.txt; echo two > src/b.txt; id -u; exit 3",
    );
    assert_eq!(
        (text(&ran), &ran["exit_code"]),
        ("one\n1000\n".into(), &json!(3))
    );
    let exported = client.ok("fs_export", json!({ "container_id": id, "path": "src" }));
    let import = json!({ "container_id": id, "dest": "copy", "archive": exported["archive"] });
    client.ok("fs_import", import);
    let listed = sh(client, &id, "cat copy/b.txt copy/*/b.txt 2>/dev/null");
    assert_eq!(text(&listed), "two\n");
    expect_numbers(client, &id);
    client.ok("kill", json!({ "container_id": id }));
    let gone = json!({ "container_id": id, "path": "." });
    assert_eq!(client.refused("fs_list", gone), "not_found");
}

/// A list and `stats://` show the memory that is used and the limit.
fn expect_numbers(client: &mut Client, id: &Value) {
    let is_used = |used: &Value| {
        used.as_u64()
            .is_some_and(|used| used > 0 && used < 96 << 20)
    };
    // A list does not wait for an engine that is busy.
    wait_until("a list shows the memory that is used", || {
        let listed = client.ok("list_containers", json!({}));
        let memory = &listed["containers"][0]["memory"];
        assert_eq!(memory["limit_bytes"], 96 << 20);
        is_used(&memory["used_bytes"])
    });
    let uri = format!("stats://{}", id.as_str().unwrap());
    let read = client
        .request("resources/read", json!({ "uri": uri }))
        .unwrap();
    let stats: Value = serde_json::from_str(read["contents"][0]["text"].as_str().unwrap()).unwrap();
    assert!(is_used(&stats["memory"]["used_bytes"]), "{stats}");
    assert_eq!(
        (&stats["oom_kills"], &stats["enforced_by"]["memory"]),
        (&json!(0), &json!("cgroup"))
    );
}

/// Memory that runs out is told as such, and the container works on.
fn run_out_of_memory(client: &mut Client) {
    let made = client.ok("spawn", json!({ "memory": "64m" }));
    let id = made["container_id"].clone();
    let ran = sh(client, &id, "tail -c 1000000000 /dev/zero");
    assert_eq!(ran["status"], "oom_killed", "{ran}");
    assert_eq!(text(&sh(client, &id, "echo alive")), "alive\n");
    client.ok("kill", json!({ "container_id": id, "force": true }));
}

/// The server dies and comes back: what runs goes on, and its output is whole.
fn survive_the_server(home: &Home, flavor: Flavor, more: &[&str], server: Server) -> Server {
    let mut client = server.client();
    let id =
        client.ok("spawn", json!({ "alias": "p", "persistent": true }))["container_id"].clone();
    let exec = start_counting(&mut client, &id);
    server.kill();
    let server = serve(home, flavor, more);
    let mut client = server.client();
    expect_whole_count(&mut client, &id, &exec);
    client.ok("kill", json!({ "container_id": id }));
    server
}

/// Typical work with a server crash in between; nothing may be left.
fn expect_a_days_work(flavor: Flavor, runtime: Option<&str>) {
    let Some(private) = Private::start_with(flavor, runtime) else {
        return;
    };
    let home = home(&private);
    let more: Vec<&str> = runtime.map_or(vec![], |runtime| vec!["--runtime", runtime]);
    let more = more.as_slice();
    let server = serve(&home, flavor, more);
    work(&mut server.client(), flavor.name());
    // gVisor ends the whole container when its memory runs out.
    if more.is_empty() {
        run_out_of_memory(&mut server.client());
    }
    run_out_of_disk(&mut server.client());
    let server = survive_the_server(&home, flavor, more, server);
    assert!(server.terminate().success());
    expect_nothing_left(&private, &home);
}

#[test]
fn an_agent_works_on_docker() {
    expect_a_days_work(Flavor::Docker, None);
}

#[test]
fn an_agent_works_on_docker_with_gvisor() {
    expect_a_days_work(Flavor::Docker, Some("runsc"));
}

#[test]
fn an_agent_works_on_podman() {
    expect_a_days_work(Flavor::Podman, None);
}

/// Whether an answer names the engine, and says to start it.
fn says_away(answer: &Value, engine: &str) -> bool {
    let message = answer["structuredContent"]["message"].as_str().unwrap();
    message.to_lowercase().contains(engine) && message.contains("start")
}

/// Every call that needs the engine reports that it is down and what to do, and none hangs.
fn expect_away(client: &mut Client, id: &Value, engine: &str) {
    let file = json!({ "container_id": id, "path": "x", "content": "x" });
    // A call that was under way when the engine died, or before that is noticed, can only
    // say that it lost its container.
    wait_until("the loss is noticed", || {
        let answer = client.call("fs_write", file.clone());
        assert_eq!(
            answer["structuredContent"]["code"], "unavailable",
            "{answer}"
        );
        says_away(&answer, engine)
    });
    for (tool, arguments) in [("fs_write", file), ("spawn", json!({}))] {
        let begun = Instant::now();
        let answer = client.call(tool, arguments);
        let said = &answer["structuredContent"];
        assert_eq!(said["code"], "unavailable", "{tool}: {answer}");
        assert!(says_away(&answer, engine), "{tool}: {answer}");
        assert!(!said["hint"].as_str().unwrap().is_empty());
        assert!(
            begun.elapsed() < support::deadline() / 2,
            "{tool} took {:?}",
            begun.elapsed()
        );
    }
    client.ok("list_containers", json!({}));
    client.ok("system_status", json!({}));
}

#[test]
fn docker_dies_and_its_containers_with_it_and_persistent_ones_are_started_again() {
    let Some(private) = Private::start_own(Flavor::Docker, &[]) else {
        return;
    };
    let home = home(&private);
    let server = serve(&home, Flavor::Docker, &[]);
    let mut client = server.client();
    let id = client.ok("spawn", json!({ "persistent": true }))["container_id"].clone();
    let transient = client.ok("spawn", json!({}))["container_id"].clone();
    sh(&mut client, &id, "echo before > kept");
    let exec = start_counting(&mut client, &id);
    private.kill();
    expect_away(&mut client, &id, "docker");
    private.start_again(&[]);
    // Docker ends what it finds running.
    wait_until("the exec is noted as lost", || {
        let polled = client.ok("exec_poll", json!({ "exec_id": exec, "wait_s": 1 }));
        polled["complete"] == true && polled["status"] == "lost"
    });
    expect_listed(&mut client, &id, &transient);
    assert_eq!(text(&sh(&mut client, &id, "cat kept")), "before\n");

    // The same when there is no server to see it.
    let exec = start_counting(&mut client, &id);
    server.kill();
    private.kill();
    private.start_again(&[]);
    let server = serve(&home, Flavor::Docker, &[]);
    let mut client = server.client();
    wait_until("the exec is noted as lost", || {
        let polled = client.ok("exec_poll", json!({ "exec_id": exec, "wait_s": 1 }));
        polled["complete"] == true && polled["status"] == "lost"
    });
    expect_listed(&mut client, &id, &transient);
    assert_eq!(text(&sh(&mut client, &id, "cat kept")), "before\n");
    client.ok("kill", json!({ "container_id": id }));
    assert!(server.terminate().success());
    expect_nothing_left(&private, &home);
}

/// The persistent container runs, and nothing is left of the transient one.
fn expect_listed(client: &mut Client, persistent: &Value, transient: &Value) {
    wait_until("one runs and the other is gone", || {
        let listed = client.ok("list_containers", json!({}));
        let listed = listed["containers"].as_array().unwrap();
        let runs = |one: &Value| one["container_id"] == *persistent && one["status"] == "running";
        listed.iter().any(runs) && listed.iter().all(|one| one["container_id"] != *transient)
    });
}

/// The engine dies while an exec writes, and comes back; its containers live on.
fn expect_to_outlive_the_engine(flavor: Flavor, variables: &[(&str, &str)]) {
    let Some(private) = Private::start_own(flavor, variables) else {
        return;
    };
    let home = home(&private);
    let server = serve(&home, flavor, &[]);
    let mut client = server.client();
    let id = client.ok("spawn", json!({ "persistent": true }))["container_id"].clone();
    let exec = start_counting(&mut client, &id);
    private.kill();
    expect_away(&mut client, &id, flavor.name());
    private.start_again(variables);
    expect_whole_count(&mut client, &id, &exec);
    client.ok("kill", json!({ "container_id": id }));
    assert!(server.terminate().success());
    expect_nothing_left(&private, &home);
}

#[test]
fn docker_dies_and_its_containers_live_on_and_so_do_their_execs() {
    let live_restore = [("HOTCELL_ENGINE_OPTIONS", "--live-restore")];
    expect_to_outlive_the_engine(Flavor::Docker, &live_restore);
}

#[test]
fn podman_dies_and_its_containers_live_on_and_so_do_their_execs() {
    expect_to_outlive_the_engine(Flavor::Podman, &[]);
}

/// Puts the image under another name into the registry and takes it away from the engine.
fn push(private: &Private, registry: &Registry, push: &[&str]) -> String {
    let name = format!("{}/box:one", registry.host);
    private.says(&["tag", IMAGE, &name]);
    private.says(&[push, &[&name]].concat());
    private.says(&["rmi", &name]);
    name
}

/// A container of an image that the engine has to pull first; its digest is told.
fn spawn_by_pull(client: &mut Client, name: &str) {
    let made = client.ok("spawn", json!({ "image": name }));
    let digest = made["image_digest"].as_str().unwrap_or_default();
    assert!(
        digest.starts_with("sha256:") && digest.len() == 71,
        "{made}"
    );
    let by_digest = format!("{}@{digest}", name.rsplit_once(':').unwrap().0);
    let again = client.ok("spawn", json!({ "image": by_digest }));
    assert_eq!(again["image_digest"], digest);
    for one in [made, again] {
        client.ok(
            "kill",
            json!({ "container_id": one["container_id"], "force": true }),
        );
    }
    let absent = json!({ "image": name.replace("box", "absent") });
    let refused = client.call("spawn", absent);
    assert_eq!(
        refused["structuredContent"]["code"], "not_found",
        "{refused}"
    );
}

#[test]
fn docker_pulls_what_it_does_not_have_with_our_credentials() {
    let Some(private) = Private::start(Flavor::Docker) else {
        return;
    };
    let Some(registry) = Registry::start_closed() else {
        return;
    };
    let scratch = support::scratch();
    let config = scratch.path().to_str().unwrap();
    let login = ["--config", config, "login", "-u", USER, "-p", PASSWORD];
    private.says(&[&login[..], &[&registry.host]].concat());
    let name = push(&private, &registry, &["--config", config, "push"]);
    let policy = ["--allowed-registries", &registry.host];
    let stranger = home(&private).with("DOCKER_CONFIG", "/nonexistent");
    let server = serve(&stranger, Flavor::Docker, &policy);
    let refused = server.client().call("spawn", json!({ "image": name }));
    assert_eq!(refused["structuredContent"]["code"], "denied", "{refused}");
    assert!(server.terminate().success());
    let home = home(&private).with("DOCKER_CONFIG", config);
    let server = serve(&home, Flavor::Docker, &policy);
    spawn_by_pull(&mut server.client(), &name);
    assert!(server.terminate().success());
    expect_nothing_left(&private, &home);
    private.says(&["rmi", &name]);
}

#[test]
fn docker_uses_no_image_of_its_own_where_only_registries_may_have_made_it() {
    let Some(private) = Private::start(Flavor::Docker) else {
        return;
    };
    let Some(registry) = Registry::start() else {
        return;
    };
    let name = format!("{}/local:one", registry.host);
    private.says(&["tag", IMAGE, &name]);
    let home = home(&private);
    for (is_allowed, code) in [("false", Some("not_found")), ("true", None)] {
        let policy = [
            "--allowed-registries",
            &registry.host,
            "--local-images",
            is_allowed,
        ];
        let server = serve(&home, Flavor::Docker, &policy);
        let answer = server.client().call("spawn", json!({ "image": name }));
        assert_eq!(
            answer["structuredContent"]["code"].as_str(),
            code,
            "{answer}"
        );
        assert!(server.terminate().success());
    }
    expect_nothing_left(&private, &home);
    private.says(&["rmi", &name]);
}

/// A configuration by which Podman speaks to the registry, which has no TLS.
fn without_tls(directory: &Path, registry: &Registry) -> String {
    let config = directory.join("registries.conf");
    let host = &registry.host;
    let insecure = format!("[[registry]]\nlocation = \"{host}\"\ninsecure = true\n");
    std::fs::write(&config, insecure).unwrap();
    config.to_str().unwrap().to_owned()
}

#[test]
fn podman_uses_no_image_of_its_own_where_only_registries_may_have_made_it() {
    let Some(registry) = Registry::start() else {
        return;
    };
    let scratch = support::scratch();
    let config = without_tls(scratch.path(), &registry);
    let variables = [("CONTAINERS_REGISTRIES_CONF", &*config)];
    let Some(private) = Private::start_own(Flavor::Podman, &variables) else {
        return;
    };
    let name = format!("{}/local:one", registry.host);
    private.says(&["tag", IMAGE, &name]);
    let home = home(&private);
    let spawn = |is_allowed: &str| {
        let policy = [
            "--allowed-registries",
            &registry.host,
            "--local-images",
            is_allowed,
        ];
        let server = serve(&home, Flavor::Podman, &policy);
        let mut client = server.client();
        let answers = [1, 2].map(|_| {
            let answer = client.call("spawn", json!({ "image": name }));
            answer["structuredContent"]["code"]
                .as_str()
                .map(str::to_owned)
        });
        assert!(server.terminate().success());
        answers
    };
    let unknown = Some("not_found".to_owned());
    assert_eq!(spawn("false"), [unknown.clone(), unknown]);
    assert_eq!(spawn("true"), [None, None]);
    private.says(&["push", "--tls-verify=false", &name]);
    assert_eq!(spawn("false"), [None, None]);
    expect_nothing_left(&private, &home);
}

#[test]
fn podman_pulls_with_our_credentials_and_its_service_dies_and_the_execs_go_on() {
    let Some(registry) = Registry::start_closed() else {
        return;
    };
    let scratch = support::scratch();
    let key = STANDARD.encode(format!("{USER}:{PASSWORD}"));
    let docker = json!({ "auths": { &registry.host: { "auth": key } } });
    std::fs::write(scratch.path().join("config.json"), docker.to_string()).unwrap();
    let config = without_tls(scratch.path(), &registry);
    let variables = [("CONTAINERS_REGISTRIES_CONF", &*config)];
    let Some(private) = Private::start_own(Flavor::Podman, &variables) else {
        return;
    };
    let login = format!("--creds={USER}:{PASSWORD}");
    let name = push(&private, &registry, &["push", "--tls-verify=false", &login]);
    let home = home(&private).with("DOCKER_CONFIG", scratch.path().to_str().unwrap());
    let server = serve(
        &home,
        Flavor::Podman,
        &["--allowed-registries", &registry.host],
    );
    let mut client = server.client();
    spawn_by_pull(&mut client, &name);
    let id = client.ok("spawn", json!({ "persistent": true }))["container_id"].clone();
    let exec = start_counting(&mut client, &id);
    private.kill();
    expect_away(&mut client, &id, "podman");
    private.start_again(&variables);
    expect_whole_count(&mut client, &id, &exec);
    client.ok("kill", json!({ "container_id": id }));
    assert!(server.terminate().success());
    expect_nothing_left(&private, &home);
}

#[test]
fn docker_hands_out_nothing_ready_of_an_image_that_was_built_again() {
    let Some(private) = Private::start(Flavor::Docker) else {
        return;
    };
    let name = "localhost/hotcell-moving:dev";
    let build = |word: &str| {
        let from = private.says(&["create", IMAGE, "true"]);
        let change = format!("ENV WORD={word}");
        private.says(&["commit", "--change", &change, from.trim(), name]);
        private.says(&["rm", from.trim()]);
    };
    build("one");
    let home = home(&private);
    let stock = format!("{name}=1");
    let server = serve(
        &home,
        Flavor::Docker,
        &["--warm", "0", "--warm-image", &stock],
    );
    let mut client = server.client();
    for (word, is_warm) in [("one", true), ("two", false), ("two", true)] {
        wait_until("one is ready", || {
            client.ok("system_status", json!({}))["warm"][0]["ready"] == 1
        });
        if !is_warm {
            build(word);
        }
        let made = client.ok("spawn", json!({ "image": name }));
        assert_eq!(made["warm"], is_warm, "{made}");
        let said = sh(&mut client, &made["container_id"], "echo $WORD");
        assert_eq!(text(&said), format!("{word}\n"));
    }
    assert!(server.terminate().success());
    expect_nothing_left(&private, &home);
    private.says(&["rmi", name]);
}

#[test]
fn more_cores_than_the_host_has_are_refused_with_the_number_that_it_has() {
    let Some(private) = Private::start(Flavor::Docker) else {
        return;
    };
    let cores = private.says(&["info", "--format", "{{.NCPU}}"]);
    let cores: u32 = cores.trim().parse().unwrap();
    let home = home(&private);
    let server = serve(&home, Flavor::Docker, &[]);
    let mut client = server.client();
    let refused = client.call("spawn", json!({ "cpus": cores + 1 }));
    let said = &refused["structuredContent"];
    assert_eq!(said["code"], "denied", "{refused}");
    let words = format!("more than the {cores} that a container may have");
    assert!(said["message"].as_str().unwrap().contains(&words), "{said}");
    let made = client.ok("spawn", json!({ "cpus": cores }));
    client.ok("kill", json!({ "container_id": made["container_id"] }));
    assert!(server.terminate().success());
    expect_nothing_left(&private, &home);
}

#[test]
fn a_network_is_for_those_whom_the_operator_lets_have_one() {
    let Some(private) = Private::start(Flavor::Docker) else {
        return;
    };
    let home = home(&private);
    let online = json!({ "network": "full" });
    let server = serve(&home, Flavor::Docker, &[]);
    let refused = server.client().call("spawn", online.clone());
    let said = &refused["structuredContent"];
    assert_eq!(said["code"], "denied", "{refused}");
    assert!(
        said["message"]
            .as_str()
            .unwrap()
            .contains("`allow_network`")
    );
    assert!(server.terminate().success());

    let server = serve(&home, Flavor::Docker, &["--allow-network"]);
    let mut client = server.client();
    for (arguments, mode) in [(online, "default"), (json!({}), "none")] {
        let made = client.ok("spawn", arguments);
        let name = format!("hotcell-{}", made["container_id"].as_str().unwrap());
        let format = ["inspect", "--format", "{{.HostConfig.NetworkMode}}", &name];
        assert_eq!(private.says(&format).trim(), mode);
    }
    assert!(server.terminate().success());
    expect_nothing_left(&private, &home);
}
