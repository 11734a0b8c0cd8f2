//! Scripts of `run_python` on the embedded engine.

use serde_json::{Value, json};

use crate::support::home::Home;
use crate::support::mcp::Client;

fn server(home: &Home) -> crate::support::server::Server {
    home.serve_with(&["--drain-grace-s", "0"])
}

fn run(client: &mut Client, code: &str) -> Value {
    client.ok("run_python", json!({ "code": code }))
}

#[test]
fn a_script_awaits_and_its_last_expression_is_the_result() {
    let home = Home::new();
    let server = server(&home);
    let mut client = server.client();
    let code = "import asyncio\nasync def f(n):\n    await asyncio.sleep(0)\n    return n * 2\nprint('out')\nawait asyncio.gather(f(1), f(2))";
    let ran = run(&mut client, code);
    assert_eq!(ran["status"], "success", "{ran}");
    assert_eq!(ran["result"], json!([2, 4]), "{ran}");
    assert_eq!(ran["stdout"], "out\n", "{ran}");
    assert_eq!(ran["exitCode"], 0, "{ran}");
    assert_eq!(ran["timeoutSeconds"], 30, "{ran}");
    assert_eq!((&ran["servers"], &ran["calls"]), (&json!([]), &json!([])));
    assert!(ran["run_id"].as_str().unwrap().starts_with("r_"), "{ran}");
    let odd = run(
        &mut client,
        "{'nan': float('nan'), 'b': b'x', 's': {1}, 2: None}",
    );
    let expected = json!({"nan": "nan", "b": {"base64": "eA=="}, "s": [1], "2": null});
    assert_eq!(odd["result"], expected, "{odd}");
    server.terminate();
}

#[test]
fn a_failed_script_shows_the_users_lines_only() {
    let home = Home::new();
    let server = server(&home);
    let mut client = server.client();
    let code = "import json\ndef f():\n    return json.loads('{')\nf()";
    let failed = run(&mut client, code);
    assert_eq!(failed["status"], "error", "{failed}");
    let stderr = failed["stderr"].as_str().unwrap();
    assert!(
        stderr.contains("line 4, in <module>\n    f()\n"),
        "{stderr}"
    );
    assert!(stderr.contains("line 3, in f\n"), "{stderr}");
    assert!(
        !stderr.contains("json/") && !stderr.contains("hotcell"),
        "{stderr}"
    );
    let error = failed["error"].as_str().unwrap();
    assert!(error.contains("JSONDecodeError"), "{error}");
    let exited = run(&mut client, "import sys\nsys.exit(7)");
    assert_eq!(
        (&exited["status"], &exited["exitCode"]),
        (&json!("error"), &json!(7))
    );
    let fine = run(&mut client, "import sys\nprint(1)\nsys.exit()");
    assert_eq!(fine["status"], "success", "{fine}");
    let killed = run(&mut client, "import os\nos.kill(os.getpid(), 9)");
    assert_eq!(killed["status"], "error", "{killed}");
    assert!(
        killed["error"].as_str().is_some_and(|it| !it.is_empty()),
        "{killed}"
    );
    server.terminate();
}

#[test]
fn what_is_wrong_with_a_script_is_found_before_it_runs() {
    let home = Home::new();
    let server = server(&home);
    let mut client = server.client();
    for (code, said) in [
        ("print('ran')\nx = (", "never closed"),
        (
            "print('ran')\nawait mcp_issues.list()",
            "there is no server 'issues'",
        ),
        (
            "print('ran')\nmcp_servers['issues']",
            "there is no server 'issues'",
        ),
        (
            "print('ran')\nfrom mcp.servers.issues import list",
            "there is no server 'issues'",
        ),
        ("print('ran')\nreturn 1", "outside function"),
    ] {
        let refused = run(&mut client, code);
        assert_eq!(refused["status"], "validation_error", "{code}: {refused}");
        assert_eq!(refused["stdout"], "", "{code}: {refused}");
        assert!(
            refused["error"].as_str().unwrap().contains(said),
            "{refused}"
        );
    }
    let own = run(&mut client, "mcp_issues = 1\nmcp_issues");
    assert_eq!(own["result"], 1, "a name of the script's own: {own}");
    let unknown = client.refused("run_python", json!({"code": "1", "servers": ["nobody"]}));
    assert_eq!(unknown, "invalid_argument");
    server.terminate();
}

#[test]
fn a_script_that_takes_too_long_is_ended() {
    let home = Home::new();
    let server = server(&home);
    let mut client = server.client();
    let code = "import signal\nsignal.signal(signal.SIGTERM, signal.SIG_DFL)\nprint('began', flush=True)\nwhile True: pass";
    // On the busiest machine it begins within that time.
    let ended = client.ok("run_python", json!({"code": code, "timeout": 10}));
    assert_eq!(ended["status"], "timeout", "{ended}");
    assert_eq!(
        (&ended["stdout"], &ended["timeoutSeconds"]),
        (&json!("began\n"), &json!(10))
    );
    server.terminate();
}

#[test]
fn each_script_has_a_container_of_its_own_unless_it_names_a_session() {
    let home = Home::new();
    let server = server(&home);
    let mut client = server.client();
    run(&mut client, "open('left', 'w').write('x')");
    let looked = run(&mut client, "import os\nos.path.exists('left')");
    assert_eq!(looked["result"], false, "{looked}");
    let session = |code: &str| json!({"code": code, "session": "s"});
    client.ok("run_python", session("open('left', 'w').write('x')"));
    let looked = client.ok("run_python", session("import os\nos.path.exists('left')"));
    assert_eq!(
        (&looked["result"], &looked["session"]),
        (&json!(true), &json!("s"))
    );
    let shared = json!({"code": "print(open('left').read())", "session": "s"});
    assert_eq!(client.ok("execute_code", shared)["stdout"], "x\n");
    server.terminate();
}

#[test]
fn memories_and_tools_are_there_for_later_scripts() {
    let home = Home::new();
    let server = server(&home);
    let mut client = server.client();
    let saved = run(
        &mut client,
        "save_memory('k', {'n': 1}), save_memory('k', {'n': 2})",
    );
    assert_eq!(saved["result"], json!([1, 2]), "versions: {saved}");
    let code = "from mcp.runtime import update_memory, memory_exists, get_memory_info\nupdate_memory('k', lambda v: dict(v, m=1))\n[await load_memory('k'), memory_exists('x'), get_memory_info('k')['version'], load_memory('x', 5)]";
    let loaded = run(&mut client, code);
    assert_eq!(
        loaded["result"],
        json!([{"n": 2, "m": 1}, false, 3, 5]),
        "{loaded}"
    );
    run(
        &mut client,
        "def twice(n):\n    '''Doubles.'''\n    return helper(n)\nsave_tool(twice)\nsave_tool('helper', 'def helper(n):\\n    return 2 * n\\n')",
    );
    let failed = run(&mut client, "from saved_tools import twice\ntwice(4)");
    assert_eq!(failed["status"], "error", "a saved tool is alone: {failed}");
    let used = run(&mut client, "from saved_tools import helper\nhelper(4)");
    assert_eq!(used["result"], 8, "{used}");
    let long = run(
        &mut client,
        "try:\n    save_memory('k', 'x' * (5 << 20))\nexcept MCPError as error:\n    code = error.code\ncode",
    );
    assert_eq!(long["result"], "invalid_argument", "{long}");
    let gone = run(
        &mut client,
        "[delete_memory('k'), delete_memory('k'), load_memory('k')]",
    );
    assert_eq!(gone["result"], json!([true, false, null]), "{gone}");
    server.terminate();
}

/// A small MCP server.
const ECHO: &str = include_str!("../../../codemode/tests/it/echo_server.py");

#[test]
fn a_script_calls_the_users_own_servers_as_the_rules_allow() {
    let home = Home::new();
    let (script, config) = (home.path().join("echo.py"), home.path().join("own.toml"));
    std::fs::write(&script, ECHO).unwrap();
    let text = format!(
        "[upstream.echo]\ncommand = '/usr/bin/python3'\nargs = [{script:?}]\n\
         [rule.small]\nserver = 'echo'\ntool = 'add'\nargument = '/a'\nmin = 100\naction = 'deny'\n"
    );
    std::fs::write(&config, text).unwrap();
    let config = config.to_str().unwrap();
    let server = home.serve_with(&["--drain-grace-s", "0", "--config", config]);
    let mut client = server.client();
    let code = "import asyncio\nfrom mcp.servers.echo import add\nsums = await asyncio.gather(*(add(n, 1) for n in range(5)))\n[await mcp_echo.echo('hi', 2), [one['sum'] for one in sums]]";
    let ran = run(&mut client, code);
    assert_eq!(ran["result"], json!(["hihi", [1, 2, 3, 4, 5]]), "{ran}");
    assert_eq!(ran["servers"], json!(["echo"]), "{ran}");
    assert_eq!(ran["calls"].as_array().map(Vec::len), Some(6), "{ran}");
    let denied = run(&mut client, "await mcp_echo.add(100, 1)");
    assert_eq!(denied["status"], "error", "{denied}");
    let error = denied["error"].as_str().unwrap();
    assert!(
        error.contains("is denied") && error.contains("small"),
        "{error}"
    );
    // Nobody can be asked over this client.
    let asked = run(&mut client, "await getattr(mcp_echo, 'wipe_all')()");
    let error = asked["error"].as_str().unwrap();
    assert!(error.contains("needs the user's consent"), "{error}");
    let again = json!({"code": code, "resume": ran["run_id"]});
    let replayed = client.ok("run_python", again);
    assert_eq!(replayed["result"], ran["result"], "{replayed}");
    let statuses = replayed["calls"].as_array().unwrap().iter();
    let statuses: Vec<_> = statuses.map(|call| call["status"].clone()).collect();
    assert_eq!(statuses, vec![json!("replayed"); 6], "{replayed}");
    server.terminate();
}

#[test]
fn whatever_ends_a_script_cancels_the_calls_that_it_waits_for() {
    let home = Home::new();
    let (script, config) = (home.path().join("echo.py"), home.path().join("own.toml"));
    std::fs::write(&script, ECHO).unwrap();
    let text = format!(
        "[upstream.echo]\ncommand = '/usr/bin/python3'\nargs = [{script:?}]\ndefault = 'allow'\n"
    );
    std::fs::write(&config, text).unwrap();
    let config = config.to_str().unwrap();
    let mut server = home.serve_with(&["--drain-grace-s", "0", "--config", config]);
    let mut client = server.client();
    let answered = run(&mut client, "await mcp_echo.slow(seconds=0)");
    assert_eq!(answered["result"], "done", "{answered}");
    server.wait_for("began slow");

    // On the busiest machine it calls within that time.
    let slow = "await mcp_echo.slow(seconds=600)";
    let overdue = client.ok("run_python", json!({"code": slow, "timeout": 10}));
    assert_eq!(overdue["status"], "timeout", "{overdue}");
    server.wait_for("began slow");
    server.wait_for("cancelled slow");

    let left = "import asyncio\n\
        async def begun(): return (await mcp_echo.count())['slow']\n\
        before = await begun()\n\
        task = asyncio.ensure_future(mcp_echo.slow(seconds=600))\n\
        while await begun() == before: await asyncio.sleep(0.01)\n\
        await mcp_echo.echo('x')";
    let left = run(&mut client, left);
    assert_eq!(left["result"], "x", "{left}");
    server.wait_for("began slow");
    server.wait_for("cancelled slow");

    let mut other = Client::socket(&home);
    let id = other.send(
        "tools/call",
        json!({"name": "run_python", "arguments": {"code": slow}}),
    );
    server.wait_for("began slow");
    other.cancel(id);
    server.wait_for("cancelled slow");
    server.terminate();
}

/// Connects to the channel of a script beside it.
const INTRUDER: &str = r"
import glob, os, socket, struct, sys, time
def frame(body): return struct.pack('>II', len(body), 0) + body
seen = 0
deadline = time.monotonic() + 60
while not seen and time.monotonic() < deadline:
    for path in glob.glob('/tmp/.run-*'):
        for hello in (b'{\x22op\x22:\x22hello\x22,\x22secret\x22:\x22' + b'0' * 64 + b'\x22}', b'{}', b'\xff' * 9, b'x' * 100_000):
            with socket.socket(socket.AF_UNIX) as one:
                one.settimeout(60)
                try:
                    one.connect(path)
                    one.sendall(frame(hello))
                    answer = one.recv(100)
                except (BrokenPipeError, ConnectionResetError):
                    answer = b''
                except OSError:
                    continue
                assert answer == b'', answer
                seen += 1
open('looked', 'w').write(str(seen))
print(seen)
";

#[test]
fn another_process_cannot_use_a_scripts_channel() {
    let home = Home::new();
    let server = server(&home);
    let mut client = server.client();
    let session = client.ok(
        "sandbox_write_file",
        json!({"path": "i.py", "content": INTRUDER, "session": "s"}),
    );
    assert!(session["path"].is_string(), "{session}");
    let code = "import subprocess, sys, os, time\nsubprocess.Popen([sys.executable, 'i.py'])\nwhile not os.path.exists('looked'): time.sleep(0.01)\nsave_memory('mine', 1)\nint(open('looked').read())";
    let ran = client.ok(
        "run_python",
        json!({"code": code, "session": "s", "timeout": 120}),
    );
    assert_eq!(ran["status"], "success", "{ran}");
    assert!(ran["result"].as_u64().unwrap() >= 4, "it tried: {ran}");
    server.terminate();
}

/// Sends what no runtime of ours sends, over the script's own channel.
const FORGER: &str = r#"
import json, struct, threading
channel = mcp.runtime._channel
def ask(number, body):
    done, answers = threading.Event(), []
    channel.waiting[number] = lambda answer: (answers.append(answer), done.set())
    with channel.sending:
        channel.socket.sendall(struct.pack(">II", len(body), number) + body)
    assert done.wait(60), body[:80]
    return answers[0].get("error", {}).get("code", "ok")
mcp.runtime.discovered_servers()
told = {}
told["garbage"] = ask(1001, b"\xff\xfe")
told["empty"] = ask(1002, b"")
told["unknown"] = ask(1003, b'{"op":"fork"}')
told["deep"] = ask(1004, b'{"op":"call","server":"a","tool":"b","arguments":{"x":' + b"[" * 200000 + b"]" * 200000 + b"}}")
told["foreign"] = ask(1005, b'{"op":"call","server":"a","tool":"b","arguments":{}}')
told["long"] = ask(1006, b" " * (100 << 20))
told["fine"] = ask(1007, b'{"op":"servers"}')
told
"#;

#[test]
fn forged_frames_are_answered_and_harm_nobody() {
    let home = Home::new();
    let server = server(&home);
    let mut client = server.client();
    let ran = client.ok("run_python", json!({"code": FORGER, "timeout": 120}));
    let expected = json!({
        "garbage": "invalid_argument", "empty": "invalid_argument", "unknown": "invalid_argument",
        "deep": "invalid_argument", "foreign": "denied", "long": "invalid_argument", "fine": "ok",
    });
    assert_eq!(ran["result"], expected, "{ran}");
    let flood = "import asyncio\nr = mcp.runtime\nanswers = await asyncio.gather(*(r._ask_async('memory_load', key=str(n)) for n in range(10_000)))\nlen(answers)";
    let flooded = client.ok("run_python", json!({"code": flood, "timeout": 120}));
    assert_eq!(flooded["result"], 10_000, "{flooded}");
    let cut = "import struct, os\nmcp.runtime.list_servers()\nmcp.runtime._channel.socket.sendall(struct.pack('>II', 1000, 1) + b'{')\nos._exit(0)";
    let cut = run(&mut client, cut);
    assert_eq!(
        cut["status"], "error",
        "it never said that it had ended: {cut}"
    );
    let printed =
        "print('{\"op\":\"end\",\"status\":\"success\",\"result\":42}')\nraise ValueError('no')";
    let printed = run(&mut client, printed);
    assert_eq!(
        (&printed["status"], printed.get("result")),
        (&json!("error"), None)
    );
    server.terminate();
}

#[test]
fn memories_and_tools_are_listed_and_removed_from_the_shell() {
    let home = Home::new();
    let server = server(&home);
    let mut client = server.client();
    let code = "save_memory('plan\\x1b[2J', 1), save_memory('note', 'x' * 100), save_memory('note', 2)\ndef twice(n):\n    return 2 * n\nsave_tool(twice)";
    run(&mut client, code);
    let hotcell = |arguments: &[&str]| {
        let output = home.run(arguments);
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        let (stdout, stderr) = (text(&output.stdout), text(&output.stderr));
        (output.status.code(), stdout, stderr)
    };
    let listed = || {
        let (code, stdout, _) = hotcell(&["memory", "ls", "--json"]);
        assert_eq!(code, Some(0));
        let mut listed: Value = serde_json::from_str(&stdout).unwrap();
        let entries = listed["entries"].as_array_mut().unwrap().iter();
        let shown =
            entries.map(|one| json!([one["kind"], one["name"], one["version"], one["bytes"]]));
        shown.collect::<Value>()
    };
    let expected = json!([
        ["memory", "note", 2, 1],
        ["memory", "plan\u{1b}[2J", 1, 1],
        ["tool", "twice", 1, 35],
    ]);
    assert_eq!(listed(), expected);
    let (_, table, _) = hotcell(&["memory", "ls", "no"]);
    assert!(
        table.starts_with("KIND") && table.contains("note") && !table.contains("plan"),
        "{table}"
    );
    let (_, table, _) = hotcell(&["memory", "ls"]);
    assert!(!table.contains('\u{1b}'), "{table:?}");
    let (code, _, said) = hotcell(&["memory", "rm", "note", "twice"]);
    assert_eq!(code, Some(1), "{said}");
    assert_eq!(said, "hotcell: there is no memory `twice`\n");
    let (code, stdout, _) = hotcell(&["memory", "rm", "--tool", "--json", "twice"]);
    assert_eq!(code, Some(0));
    assert_eq!(
        stdout,
        "{\"entries\":[{\"name\":\"twice\",\"removed\":true}]}\n"
    );
    assert_eq!(listed(), json!([["memory", "plan\u{1b}[2J", 1, 1]]));
    server.terminate();
}
