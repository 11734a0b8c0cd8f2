//! What scripts of `run_python` cannot reach: what belongs to others, and programs that nobody named.

#![expect(clippy::unwrap_used, reason = "a test may fail here")]

use std::path::Path;

use serde_json::{Value, json};

use crate::server_auth::token;
use crate::support::home::Home;
use crate::support::mcp::Client;

/// A small MCP server.
const ECHO: &str = include_str!("../../../codemode/tests/it/echo_server.py");

/// Writes the server to a file; it notes there when it is started.
fn echo(directory: &Path) -> (String, std::path::PathBuf) {
    let (script, started) = (directory.join("echo.py"), directory.join("started"));
    let note = format!("open('{}', 'a').write('x')\n", started.display());
    std::fs::write(
        &script,
        format!("{ECHO}\n").replacen("import json\n", &format!("import json\n{note}"), 1),
    )
    .unwrap();
    (script.to_str().unwrap().to_owned(), started)
}

fn read(client: &mut Client, uri: &str) -> Result<String, Value> {
    let read = client.request("resources/read", json!({ "uri": uri }))?;
    Ok(read["contents"][0]["text"].as_str().unwrap().to_owned())
}

#[test]
fn a_discovered_server_is_listed_and_started_only_once_a_call_names_it() {
    let home = Home::new();
    let home_directory = home.path().join("user");
    std::fs::create_dir_all(home_directory.join(".cursor")).unwrap();
    let (script, started) = echo(home.path());
    let entry = json!({"mcpServers": {
        "found": {"command": "/usr/bin/python3", "args": [script]},
        "evil": {"command": "/bin/sh", "args": ["-c", format!("touch {}", started.display())]},
    }});
    std::fs::write(home_directory.join(".cursor/mcp.json"), entry.to_string()).unwrap();
    std::fs::write(home_directory.join(".claude.json"), "{ broken").unwrap();
    let home = home.with("HOME", home_directory.to_str().unwrap());
    let mut client = Client::stdio(&home, &["--discover", "--drain-grace-s", "0"]);
    let tools = client.request("tools/list", json!({})).unwrap();
    let mut tools = tools["tools"].as_array().unwrap().iter();
    let tool = tools.find(|tool| tool["name"] == "run_python").unwrap();
    assert!(
        tool["description"].as_str().unwrap().contains("found"),
        "{tool}"
    );
    let listed = client.ok(
        "run_python",
        json!({"code": "[mcp.runtime.list_servers(), mcp.runtime.discovered_servers()]"}),
    );
    assert_eq!(listed["result"], json!([[], ["evil", "found"]]), "{listed}");
    let unnamed = client.ok("run_python", json!({"code": "await mcp_found.echo('x')"}));
    assert_eq!(unnamed["status"], "validation_error", "{unnamed}");
    let error = unnamed["error"].as_str().unwrap();
    assert!(error.contains("add it to `servers`"), "{error}");
    assert!(!started.exists(), "nobody has named it yet");
    let named = json!({"code": "await mcp_found.echo('x')", "servers": ["found"]});
    let ran = client.ok("run_python", named);
    assert_eq!(ran["result"], "x", "{ran}");
    assert!(started.exists(), "it notes its start");
    client.hang_up();
}

#[test]
fn principals_have_their_own_memories_runs_and_servers() {
    let home = Home::new();
    let tokens = ["ann", "bob"].map(|name| token(&home, &[name]));
    let (script, _) = echo(home.path());
    let config = home.path().join("own.toml");
    let text = format!(
        "[upstream.echo]\ncommand = '/usr/bin/python3'\nargs = ['{script}']\n\
         [upstream.anns]\ncommand = '/usr/bin/python3'\nargs = ['{script}']\nprincipals = ['token:ann']\n"
    );
    std::fs::write(&config, text).unwrap();
    let config = config.to_str().unwrap();
    let server = home.serve_with(&[
        "--auth",
        "bearer",
        "--drain-grace-s",
        "0",
        "--config",
        config,
    ]);
    let [mut ann, mut bob] = tokens.map(|token| Client::http_by_token(&server.url, &token));
    let run = |client: &mut Client, code: &str| client.ok("run_python", json!({ "code": code }));
    let made = run(
        &mut ann,
        "save_memory('k', 'anns')\ndef f():\n    return 1\nsave_tool(f)\n[await mcp_anns.echo('x'), await mcp_echo.echo('y')]",
    );
    assert_eq!(made["result"], json!(["x", "y"]), "{made}");
    let looked = run(
        &mut bob,
        "[load_memory('k'), list_memories(), mcp.runtime.list_saved_tools(), mcp.runtime.discovered_servers(),\n len(mcp.runtime.search_tool_docs('says it again', servers=['anns']))]",
    );
    assert_eq!(
        looked["result"],
        json!([null, [], [], ["echo"], 0]),
        "{looked}"
    );
    run(&mut bob, "save_memory('k', 'bobs'), delete_memory('other')");
    assert_eq!(run(&mut ann, "load_memory('k')")["result"], "anns");
    let again = json!({"code": "1", "resume": made["run_id"]});
    assert_eq!(bob.refused("run_python", again.clone()), "not_found");
    assert_eq!(ann.ok("run_python", again)["status"], "success");
    let hidden = json!({"code": "1", "servers": ["anns"]});
    assert_eq!(bob.refused("run_python", hidden), "invalid_argument");
    assert!(
        read(&mut ann, "hotcell://capabilities/anns")
            .unwrap()
            .contains("wipe-all")
    );
    assert!(read(&mut bob, "hotcell://capabilities/anns").is_err());
    let all = read(&mut bob, "hotcell://capabilities").unwrap();
    assert!(all.contains("mcp_echo") && !all.contains("anns"), "{all}");
    let listed = |client: &mut Client| {
        let request = json!({"op": "list", "prefix": ""});
        let listed = client.request("hotcell/memory", request).unwrap();
        listed["entries"].as_array().unwrap().len()
    };
    assert_eq!((listed(&mut ann), listed(&mut bob)), (2, 1));
    server.terminate();
}

#[test]
fn the_operator_sees_the_health_of_servers_and_reads_what_they_say() {
    let home = Home::operated();
    let (script, _) = echo(home.path());
    let config = home.path().join("own.toml");
    let text = format!(
        "[upstream.echo]\ncommand = '/bin/sh'\nargs = ['-c', 'echo warming up >&2; exec /usr/bin/python3 {script}']\n\
         [upstream.broken]\ncommand = '/bin/false'\n[upstream.unused]\ncommand = '/bin/false'\n"
    );
    std::fs::write(&config, text).unwrap();
    let config = config.to_str().unwrap();
    let mut server = home.serve_with(&["--drain-grace-s", "0", "--config", config]);
    let mut client = server.client();
    let code = "
told = [await mcp_echo.echo('x')]
try:
    await mcp.runtime.call_tool('broken', 'x')
except MCPError as error:
    told.append(error.code)
told
";
    let ran = client.ok("run_python", json!({ "code": code }));
    assert_eq!(ran["result"], json!(["x", "unavailable"]), "{ran}");
    let status = client.ok("system_status", json!({}));
    let health = status["upstreams"].as_array().unwrap().iter();
    let health: Vec<_> = health
        .map(|one| (one["name"].clone(), one["health"].clone()))
        .collect();
    let expected = [
        ("broken", "failing"),
        ("echo", "running"),
        ("unused", "idle"),
    ];
    for ((name, health), (expected_name, expected_health)) in health.iter().zip(expected) {
        assert_eq!(name, expected_name, "{status}");
        assert!(
            health.as_str().unwrap().starts_with(expected_health),
            "{status}"
        );
    }
    let line = server.wait_for("warming up");
    assert!(line.contains("upstream=echo"), "{line}");
    server.terminate();
}

#[test]
fn answers_are_rendered_as_the_operator_says() {
    for (mode, said) in [
        ("compact", "2"),
        ("toon", "status: success"),
        ("json", "\"status\":\"success\""),
    ] {
        let home = Home::new();
        let server = home.serve_with(&["--drain-grace-s", "0", "--codemode-output", mode]);
        let mut client = server.client();
        let call = json!({"name": "run_python", "arguments": {"code": "1 + 1"}});
        let answer = client.request("tools/call", call).unwrap();
        let text = answer["content"][0]["text"].as_str().unwrap();
        assert!(text.contains(said), "{mode}: {text}");
        assert_eq!(answer["structuredContent"]["result"], 2, "{answer}");
        server.terminate();
    }
}

#[test]
fn servers_are_added_tested_called_and_approved_from_the_shell() {
    let home = Home::new();
    let (script, started) = echo(home.path());
    let hotcell = |arguments: &[&str]| {
        let output = home.run(&[&["upstream"], arguments].concat());
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        (
            output.status.code(),
            text(&output.stdout),
            text(&output.stderr),
        )
    };
    let (code, _, said) = hotcell(&["add", "echo", "--", "/usr/bin/python3", &script]);
    assert_eq!(code, Some(0), "{said}");
    let (code, _, said) = hotcell(&["add", "echo", "--", "x"]);
    assert!(code == Some(1) && said.contains("already"), "{said}");
    let (_, listed, _) = hotcell(&["list"]);
    assert!(
        listed.contains("echo") && listed.contains("stdio"),
        "{listed}"
    );
    assert!(!started.exists(), "a list starts nothing");
    let (code, tested, _) = hotcell(&["test"]);
    assert!(
        code == Some(0) && tested.starts_with("echo: works, 9 tools"),
        "{tested}"
    );
    let (_, tools, _) = hotcell(&["tools", "echo"]);
    assert!(
        tools.contains("wipe-all") && tools.contains("new"),
        "{tools}"
    );
    assert!(!tools.contains('\u{1b}'), "{tools:?}");
    let (code, answer, _) = hotcell(&["call", "echo", "add", "{\"a\": 1, \"b\": 2}"]);
    assert_eq!((code, answer.as_str()), (Some(0), "{\"sum\": 3}\n"));
    let (code, answer, _) = hotcell(&["call", "echo", "fail"]);
    assert_eq!((code, answer.as_str()), (Some(1), "it went wrong\n"));
    let (_, approved, _) = hotcell(&["approve", "echo", "--json"]);
    let approved: Value = serde_json::from_str(&approved).unwrap();
    assert_eq!(approved, json!({"server": "echo", "approved": 9}));
    let (_, tools, _) = hotcell(&["tools", "echo", "--json"]);
    let tools: Value = serde_json::from_str(&tools).unwrap();
    assert_eq!(tools["tools"][0]["approval"], "approved", "{tools}");
    let (code, _, said) = hotcell(&["call", "nobody", "x"]);
    assert!(
        code == Some(1) && said.contains("hotcell upstream list"),
        "{said}"
    );
}
