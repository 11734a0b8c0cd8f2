//! One configuration: files, variables and flags, told and obeyed by the real binary.

#![expect(clippy::unwrap_used, reason = "a test may fail here")]

use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::process::Output;

use serde_json::{Value, json};

use crate::support::home::Home;
use crate::support::mcp::Client;

/// A state directory with a configuration file, which everything that is started reads.
struct Configured {
    home: Home,
    file: PathBuf,
    _directory: tempfile::TempDir,
}

impl Configured {
    fn with(text: &str) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("hotcell.toml");
        let configured = Self {
            home: Home::new().with("HOTCELL_CONFIG", file.to_str().unwrap()),
            file,
            _directory: directory,
        };
        configured.write(text);
        configured
    }

    fn write(&self, text: &str) {
        std::fs::write(&self.file, text).unwrap();
        std::fs::set_permissions(&self.file, Permissions::from_mode(0o600)).unwrap();
    }
}

fn stderr(output: &Output) -> String {
    String::from_utf8(output.stderr.clone()).unwrap()
}

fn stdout(output: &Output) -> String {
    assert!(output.status.success(), "{}", stderr(output));
    String::from_utf8(output.stdout.clone()).unwrap()
}

/// The value of a setting and where it came from, as `hotcell config --json` tells them.
fn setting(home: &Home, key: &str) -> (Value, String) {
    let shown: Value = serde_json::from_str(&stdout(&home.run(&["config", "--json"]))).unwrap();
    let settings = shown["settings"].as_array().unwrap();
    let found = settings.iter().find(|setting| setting["key"] == key);
    let found = found.unwrap_or_else(|| panic!("no {key} in {shown}"));
    (
        found["value"].clone(),
        found["from"].as_str().unwrap().to_owned(),
    )
}

#[test]
fn flags_override_variables_which_override_the_file() {
    let mut configured = Configured::with(
        "[server]\nport = 1\ntransport = 'stdio'\n[limits]\nmemory = '96m'\n[warm_pool]\nwarm = 0\n",
    );
    configured.home = configured.home.with("HOTCELL_TRANSPORT", "streamable-http");
    // It listens on a free port (a flag), over HTTP (a variable).
    let server = configured.home.serve();
    let made = server.client().ok("spawn", json!({}));
    let status = Client::socket(&configured.home).ok("system_status", json!({}));
    assert_eq!(status["profile"]["memory_bytes"], 96 << 20, "{status}");
    let id = json!({ "container_id": made["container_id"] });
    server.client().ok("kill", id);
    assert!(server.terminate().success());
}

#[test]
fn every_value_knows_where_it_came_from() {
    let mut configured = Configured::with("[limits]\nmemory = '96m'\ncpus = 0.5\n");
    configured.home = configured
        .home
        .with("HOTCELL_CPUS", "2")
        .with("MCP_PORT", "9000")
        .with("CONTAINER_MEMORY_LIMIT", "64m");
    let told = |key| setting(&configured.home, key);
    assert_eq!(told("cpus"), (json!("2"), "HOTCELL_CPUS".to_owned()));
    assert_eq!(told("memory"), (json!("96m"), "file".to_owned()));
    assert_eq!(told("port"), (json!("9000"), "MCP_PORT".to_owned()));
    assert_eq!(told("host"), (json!("127.0.0.1"), "default".to_owned()));
    let text = stdout(&configured.home.run(&["config"]));
    assert!(text.contains("\nmemory = \"96m\"  # file\n"), "{text}");
    assert!(text.contains("\ncpus = 2  # HOTCELL_CPUS\n"), "{text}");
}

#[test]
fn a_broken_file_is_refused_before_anything_is_touched() {
    let configured = Configured::with("[limits]\nmemry = '96m'\n");
    for (arguments, code) in [(&["serve"][..], 1), (&["run", "--", "true"], 125)] {
        let output = configured.home.run(arguments);
        assert_eq!(output.status.code(), Some(code));
        let (said, file) = (stderr(&output), configured.file.display());
        let expected =
            format!("{file}:2:1: unknown key of [limits]: `memry`; did you mean `memory`?");
        assert!(said.contains(&expected), "{said}");
    }
    assert!(!configured.home.path().join("hotcell.db").exists());
    // The commands that mend it work.
    let checked = configured
        .home
        .run(&["config", "check", configured.file.to_str().unwrap()]);
    assert_eq!(checked.status.code(), Some(1));
    assert!(stderr(&checked).contains(":2:1: unknown key"));
}

#[test]
fn garbage_and_huge_files_are_refused_with_a_reason_and_touch_nothing() {
    let configured = Configured::with("");
    let long_line = format!("[limits]\nmemory = '{}'\n", "9".repeat(200_000));
    let nested = format!("a = {}{}", "[".repeat(50_000), "]".repeat(50_000));
    let huge = format!("# {}\n", "x".repeat(10 << 20));
    let cases: [(&[u8], &str); 9] = [
        (huge.as_bytes(), "larger than 1024 KiB"),
        (b"\x7fELF\x02\x01\x01\0\0\0", ""),
        (b"\xff\xfe[\0l\0i\0", "UTF-8"),
        (b"[limits\n", ":1:"),
        (b"{\"limits\": {}}", ":1:"),
        (b"[limits]\nmemory = '96m'\nmemory = '97m'\n", ":3:"),
        (b"[limits]\nmemory = 7.5\n", ":2:"),
        (long_line.as_bytes(), ":2:"),
        (nested.as_bytes(), ""),
    ];
    for (content, reason) in cases {
        std::fs::write(&configured.file, content).unwrap();
        let output = configured.home.run(&["serve", "--port", "0"]);
        let said = stderr(&output);
        let shown: String = said.chars().take(400).collect();
        assert_eq!(output.status.code(), Some(1), "{shown}");
        let file = configured.file.display().to_string();
        assert!(
            said.contains(reason) && said.contains(&file),
            "{reason}: {shown}"
        );
        assert!(said.len() < 16 << 10, "{} bytes: {shown}", said.len());
        let checked = configured.home.run(&["config", "check", &file]);
        assert_eq!(checked.status.code(), Some(1), "{shown}");
    }
    assert!(!configured.home.path().join("hotcell.db").exists());
    assert!(!configured.home.path().join("audit").exists());
}

#[test]
fn a_file_that_others_can_write_or_that_is_missing_is_refused() {
    let configured = Configured::with("");
    std::fs::set_permissions(&configured.file, Permissions::from_mode(0o666)).unwrap();
    let output = configured.home.run(&["ps"]);
    assert!(
        stderr(&output).contains("chmod go-w"),
        "{}",
        stderr(&output)
    );
    std::fs::remove_file(&configured.file).unwrap();
    let output = configured.home.run(&["ps"]);
    assert!(
        stderr(&output).contains("there is no file"),
        "{}",
        stderr(&output)
    );
}

#[test]
fn a_new_file_has_every_setting_and_changes_none() {
    let configured = Configured::with("");
    let before = stdout(&configured.home.run(&["config"]));
    let file = configured.file.to_str().unwrap();
    let refused = configured.home.run(&["config", "init", file]);
    assert!(stderr(&refused).contains("--force"), "{}", stderr(&refused));
    stdout(&configured.home.run(&["config", "init", "--force", file]));
    assert!(
        std::fs::read_to_string(file)
            .unwrap()
            .contains("#memory_max")
    );
    let checked = stdout(&configured.home.run(&["config", "check", file]));
    assert!(checked.contains("it sets 0 settings"), "{checked}");
    assert_eq!(stdout(&configured.home.run(&["config"])), before);
}

#[test]
fn an_alias_is_an_image_wherever_one_is_named() {
    let configured = Configured::with(
        "[images]\ndefault_image = 'me'\n[images.aliases]\nme = 'host'\npy = 'python:3.12-slim'\n\
         [warm_pool]\nwarm_image = ['me=1']\n",
    );
    let ran = configured
        .home
        .run(&["run", "--image", "me", "--", "echo", "hi"]);
    assert_eq!(stdout(&ran), "hi\n");
    let pulled = configured.home.run(&["pull", "me"]);
    assert!(
        stderr(&pulled).contains("not an image of a registry"),
        "{}",
        stderr(&pulled)
    );
    let server = configured.home.serve();
    let mut client = server.client();
    for arguments in [json!({}), json!({ "image": "me" })] {
        let made = client.ok("spawn", arguments);
        assert_eq!(made["image"], "host", "{made}");
        client.ok("kill", json!({ "container_id": made["container_id"] }));
    }
    let status = Client::socket(&configured.home).ok("system_status", json!({}));
    let python = &status["image_aliases"]["py"];
    assert_eq!(python, "docker.io/library/python:3.12-slim");
    assert!(server.terminate().success());
}

#[test]
fn an_old_name_works_and_the_log_names_the_new_one() {
    let home = Home::new()
        .with("CONTAINER_MEMORY_LIMIT", "96m")
        .with("MCP_BRIDGE_OUTPUT_MODE", "compact")
        .with("POOL_SIZE", "0");
    let server = home.serve();
    server.said("CONTAINER_MEMORY_LIMIT is an old name; use HOTCELL_MEMORY");
    server.said("POOL_SIZE is an old name; use HOTCELL_WARM,");
    server.said("MCP_BRIDGE_OUTPUT_MODE is an old name; use HOTCELL_CODEMODE_OUTPUT");
    let status = Client::socket(&home).ok("system_status", json!({}));
    assert_eq!(status["profile"]["memory_bytes"], 96 << 20, "{status}");
    assert!(server.terminate().success());
    let refused = Home::new().with("MCP_PORT", "http").run(&["serve"]);
    assert!(stderr(&refused).contains("MCP_PORT, an old name of HOTCELL_PORT, is refused"));
}

#[test]
fn a_variable_that_is_no_setting_is_named_in_the_log() {
    let home = Home::new()
        .with("HOTCELL_MEMROY", "96m")
        .with("HOTCELL_QQQQQQ", "1");
    let server = home.serve_with(&["--warm=0"]);
    server.said("HOTCELL_MEMROY is not a setting; did you mean HOTCELL_MEMORY?");
    server.said("HOTCELL_QQQQQQ is not a setting");
    assert!(server.terminate().success());
}

#[test]
fn a_secret_that_is_refused_is_not_repeated() {
    for (variable, flag) in [
        ("HOTCELL_BEARER_TOKEN", "--bearer-token"),
        ("HOTCELL_OTEL_HEADERS", "--otel-headers"),
    ] {
        let by_variable = Home::new().with(variable, "hush").run(&["serve"]);
        let by_flag = Home::new().run(&["serve", flag, "hush"]);
        for refused in [by_variable, by_flag] {
            let said = stderr(&refused);
            assert!(said.contains(flag) && !said.contains("hush"), "{said}");
            assert_eq!(refused.status.code(), Some(2));
        }
    }
    // The positive control: what is no secret is.
    let said = stderr(&Home::new().run(&["serve", "--port", "hush"]));
    assert!(said.contains("hush"), "{said}");
}

#[test]
fn the_log_level_of_the_file_is_the_servers_and_not_that_of_every_command() {
    let configured = Configured::with("[logging]\nlog_level = \"debug\"\n");
    let server = configured.home.serve_with(&["--warm=0"]);
    let listed = configured.home.run(&["ps"]);
    assert_eq!(stderr(&listed), "");
    // The positive control.
    let listed = configured.home.run(&["ps", "--log-level", "debug"]);
    assert!(stderr(&listed).contains("DEBUG"));
    assert!(server.terminate().success());
}

#[test]
fn log_lines_are_json_on_request() {
    let home = Home::new();
    let mut server = home.serve_with(&["--log-format=json", "--warm=0"]);
    server.signal(rustix::process::Signal::TERM);
    let line = server.wait_for("stopping");
    let line: Value = serde_json::from_str(&line).unwrap();
    assert_eq!(line["level"], "INFO", "{line}");
    assert!(line["timestamp"].is_string() && line["fields"]["message"].is_string());
    assert!(server.wait().success());
}

const ROOMY: &str = "[limits]\nmemory_max = '1g'\n[warm_pool]\nwarm = 0\n";
const TIGHT: &str = "[limits]\nmemory = '64m'\nmemory_max = '128m'\n[images.aliases]\nme = 'host'\n\
                     [warm_pool]\nwarm = 0\n[server]\ndrain_grace_s = 5\n";

/// Whether a container of 256 MiB is let in.
fn is_let_in(client: &mut Client) -> bool {
    let answer = client.call("spawn", json!({ "memory": "256m" }));
    let content = &answer["structuredContent"];
    if answer["isError"] == true {
        assert!(
            content["message"]
                .as_str()
                .unwrap()
                .contains("`memory_max`"),
            "{content}"
        );
        return false;
    }
    client.ok("kill", json!({ "container_id": content["container_id"] }));
    true
}

#[test]
fn a_reload_changes_policy_for_the_next_spawn() {
    let configured = Configured::with(ROOMY);
    let mut server = configured.home.serve();
    let mut client = server.client();
    assert!(is_let_in(&mut client));
    configured.write(TIGHT);
    assert!(is_let_in(&mut client), "nobody asked for a reload yet");
    assert_eq!(
        stdout(&configured.home.run(&["reload"])),
        "reloaded: [limits] memory, [limits] memory_max, [images.aliases]\n\
         needs a restart: [server] drain_grace_s\n"
    );
    server.wait_for("reloaded the configuration");
    assert!(!is_let_in(&mut client));
    let made = client.ok("spawn", json!({ "image": "me" }));
    client.ok("kill", json!({ "container_id": made["container_id"] }));
    // What needs a restart is named until there was one.
    let again = stdout(&configured.home.run(&["reload"]));
    assert!(
        again.contains("nothing that applies at once has changed"),
        "{again}"
    );
    assert!(
        again.contains("needs a restart: [server] drain_grace_s"),
        "{again}"
    );
    server.wait_for("reloaded the configuration");
    configured.write(ROOMY);
    server.signal(rustix::process::Signal::HUP);
    server.wait_for("reloaded the configuration");
    assert!(is_let_in(&mut client));
    assert!(server.terminate().success());
}

#[test]
fn a_principal_has_the_quota_of_its_table_and_a_reload_changes_it() {
    let quota = |count: u32, warm: u32| {
        format!("[quota.local]\ncontainers = {count}\n[warm_pool]\nwarm = {warm}\n")
    };
    let configured = Configured::with(&quota(1, 0));
    let server = configured.home.serve();
    let mut client = server.client();
    client.ok("spawn", json!({}));
    let refused = client.call("spawn", json!({}));
    assert_eq!(
        refused["structuredContent"]["quota"], "containers",
        "{refused}"
    );
    assert_eq!(refused["structuredContent"]["limit"], 1, "{refused}");
    configured.write(&quota(2, 1));
    assert_eq!(
        stdout(&configured.home.run(&["reload"])),
        "reloaded: [quota]\nneeds a restart: [warm_pool] warm\n"
    );
    client.ok("spawn", json!({}));
    let told = stdout(&configured.home.run(&["config"]));
    assert!(
        told.contains("[quota.\"local\"]\ncontainers = 2  # file"),
        "{told}"
    );
    assert!(server.terminate().success());
}

#[test]
fn without_an_audit_log_nothing_is_recorded_and_the_server_says_so() {
    let home = Home::new();
    let server = home.serve_with(&["--warm=0", "--audit=false"]);
    server.said("nothing that callers do is recorded");
    server.client().ok("spawn", json!({}));
    assert!(!home.path().join("audit").exists());
    assert!(server.terminate().success());
}

#[test]
fn a_broken_or_missing_file_changes_nothing_and_says_so() {
    let configured = Configured::with(TIGHT);
    let mut server = configured.home.serve();
    let mut client = server.client();
    for broken in [
        "[limits]\nmemory_max = '1x'\n",
        "[limits",
        "[limits]\nmemory = '2g'\nmemory_max = '1g'\n",
    ] {
        configured.write(broken);
        let refused = configured.home.run(&["reload"]);
        assert_eq!(refused.status.code(), Some(1));
        assert!(
            stderr(&refused).contains("nothing was changed"),
            "{}",
            stderr(&refused)
        );
        server.wait_for("could not reload the configuration; the settings stay");
        assert!(!is_let_in(&mut client), "{broken}");
    }
    std::fs::remove_file(&configured.file).unwrap();
    server.signal(rustix::process::Signal::HUP);
    let line = server.wait_for("could not reload the configuration");
    assert!(line.contains("there is no file"), "{line}");
    assert!(!is_let_in(&mut client));
    // The positive control: it still reloads.
    configured.write(ROOMY);
    stdout(&configured.home.run(&["reload"]));
    assert!(is_let_in(&mut client));
    assert!(server.terminate().success());
}

#[test]
fn a_reload_changes_what_is_logged() {
    let configured = Configured::with("[warm_pool]\nwarm = 0\n");
    let mut server = configured.home.serve();
    configured.write("[warm_pool]\nwarm = 0\n[logging]\nlog_level = 'debug'\n");
    let told = stdout(&configured.home.run(&["reload"]));
    assert_eq!(told, "reloaded: [logging] log_level\n");
    server.client().ok("list_containers", json!({}));
    let line = server.wait_for("action=\"list_containers\"");
    assert!(line.contains("DEBUG"), "{line}");
    assert!(server.terminate().success());
}

#[test]
fn only_the_operator_reloads() {
    let configured = Configured::with("[warm_pool]\nwarm = 0\n");
    let server = configured.home.serve();
    let refused = server.client().request("hotcell/reload", json!({}));
    assert_eq!(refused.unwrap_err()["code"], -32601);
    let reloaded = Client::socket(&configured.home).request("hotcell/reload", json!({}));
    assert_eq!(reloaded.unwrap()["error"], Value::Null);
    assert!(server.terminate().success());
}
