use std::fs;

use tempfile::TempDir;

use super::*;
use crate::settings::Launch;

/// A home, a working directory and files in them.
fn found(files: &[(&str, &str)]) -> (Settings, TempDir) {
    let root = TempDir::new().unwrap();
    for (name, text) in files {
        let path = root.path().join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(
            path,
            text.replace("$HERE", root.path().join("work").to_str().unwrap()),
        )
        .unwrap();
    }
    fs::create_dir_all(root.path().join("work")).unwrap();
    let settings = discovered(&places(&root));
    (settings, root)
}

fn places(root: &TempDir) -> Places {
    let home = root.path().join("home");
    Places {
        directory: root.path().join("work"),
        config: Some(home.join(".config")),
        codex: Some(home.join(".codex")),
        home: Some(home),
        own_program: Some(PathBuf::from("/usr/local/bin/hotcell")),
    }
}

/// Each server in a line: whose, its name, how it is reached.
fn shown(settings: &Settings) -> Vec<String> {
    let servers = settings.servers.iter().map(|entry| {
        let launch = match &entry.launch {
            Launch::Stdio(program) => {
                let words = std::iter::once(&program.command).chain(&program.arguments);
                let words: Vec<_> = words.map(|word| word.as_literal().unwrap_or("$")).collect();
                let names: Vec<_> = program
                    .environment
                    .iter()
                    .map(|(name, _)| name.as_str())
                    .collect();
                format!("{} {}", words.join(" "), names.join(","))
            }
            Launch::Http(endpoint) | Launch::Sse(endpoint) => {
                let names: Vec<_> = endpoint
                    .headers
                    .iter()
                    .map(|(name, _)| name.as_str())
                    .collect();
                let kind = entry.launch.kind().as_str();
                format!(
                    "{kind} {} {}",
                    endpoint.url.as_literal().unwrap_or("$"),
                    names.join(",")
                )
            }
        };
        assert_eq!(entry.principals, Principals::local());
        format!(
            "{}: {} = {}",
            entry.source.program,
            entry.name,
            launch.trim()
        )
    });
    servers.collect()
}

fn findings(settings: &Settings) -> Vec<String> {
    let shown = settings.findings.iter().map(|finding| {
        let entry = finding
            .entry
            .as_ref()
            .map(|entry| format!(" {entry}"))
            .unwrap_or_default();
        format!("{}{entry}: {}", finding.source.program, finding.message)
    });
    shown.collect()
}

#[test]
fn every_program_s_file_is_read() {
    let (settings, _root) = found(&[
        (
            "work/.mcp.json",
            r#"{"mcpServers": {"project": {"command": "npx", "args": ["-y", "x"], "env": {"A": "${A}"}}}}"#,
        ),
        (
            "work/.cursor/mcp.json",
            r#"{"mcpServers": {"cursor-here": {"url": "https://c.example/mcp", "headers": {"X": "${env:X}"}}}}"#,
        ),
        (
            "work/.vscode/mcp.json",
            "{ // comment\n \"servers\": {\"code\": {\"type\": \"sse\", \"url\": \"https://v.example/sse\",}}, }",
        ),
        ("work/mcp-servers/one.json", r#"{"command": "one"}"#),
        (
            "home/.claude.json",
            r#"{"history": [1], "mcpServers": {"global": {"type": "http", "url": "https://g.example"}},
            "projects": {"/elsewhere": {"mcpServers": {"other": {"command": "o"}}}, "$HERE": {"mcpServers": {"mine": {"command": "m"}}}}}"#,
        ),
        (
            "home/.config/Claude/claude_desktop_config.json",
            r#"{"mcpServers": {"desktop": {"command": "d"}}}"#,
        ),
        (
            "home/.cursor/mcp.json",
            r#"{"mcpServers": {"cursor": {"command": "c"}}}"#,
        ),
        (
            "home/.config/Code/User/mcp.json",
            r#"{"servers": {"code-user": {"command": "u"}}}"#,
        ),
        (
            "home/.config/Code/User/profiles/p/mcp.json",
            r#"{"servers": {"code-profile": {"command": "p"}}}"#,
        ),
        (
            "home/.codeium/windsurf/mcp_config.json",
            r#"{"mcpServers": {"wind": {"serverUrl": "https://w.example"}}}"#,
        ),
        (
            "home/.config/zed/settings.json",
            "{\n// x\n\"context_servers\": {\"zed-old\": {\"command\": {\"path\": \"z\", \"args\": [\"a\"], \"env\": {\"B\": \"1\"}}}, \"zed\": {\"source\": \"custom\", \"command\": \"z2\"}}}",
        ),
        (
            "home/.codex/config.toml",
            "[mcp_servers.codex]\ncommand = 'k'\nargs = ['a']\nstartup_timeout_sec = 20\n[mcp_servers.codex-http]\nurl = 'https://k.example'\nbearer_token_env_var = 'K'\n",
        ),
        (
            "home/.config/mcp/servers/two.json",
            r#"{"mcpServers": {"two": {"command": "t"}}}"#,
        ),
    ]);
    assert_eq!(findings(&settings), Vec::<String>::new());
    assert_eq!(
        shown(&settings),
        [
            ".mcp.json: project = npx -y x A",
            "Cursor: cursor-here = http https://c.example/mcp X",
            "VS Code: code = sse https://v.example/sse",
            "mcp-servers: one = one",
            "Claude Code: mine = m",
            "Claude Code: global = http https://g.example",
            "Claude Code: other = o",
            "Claude Desktop: desktop = d",
            "Cursor: cursor = c",
            "VS Code: code-user = u",
            "VS Code: code-profile = p",
            "Windsurf: wind = http https://w.example",
            "Zed: zed = z2",
            "Zed: zed-old = z a B",
            "Codex: codex = k a",
            "Codex: codex-http = http https://k.example authorization",
            "mcp/servers: two = t",
        ]
    );
    let codex = settings
        .servers
        .iter()
        .find(|entry| entry.name.as_str() == "codex")
        .unwrap();
    assert_eq!(codex.timeouts.start.as_secs(), 20);
}

#[test]
fn broken_files_and_entries_are_found_and_change_nothing_else() {
    let huge = format!("{{\"x\": \"{}\"}}", "x".repeat(17 << 20));
    let (settings, _root) = found(&[
        (
            "work/.mcp.json",
            r#"{"mcpServers": {"hotcell": {"command": "x"}, "me": {"command": "/opt/hotcell", "args": ["serve"]},
            "off": {"command": "x", "disabled": true}, "bad name\n": {"command": "x"}, "none": {}, "seven": 7,
            "ask": {"command": "x", "env": {"K": "${input:k}"}}, "good": {"command": "g"}}}"#,
        ),
        ("work/.cursor/mcp.json", "{"),
        ("work/.vscode/mcp.json", "[]"),
        ("home/.claude.json", &huge),
        ("home/.codex/config.toml", "x = ["),
        ("home/.config/mcp/servers/a.json", "\u{0}"),
    ]);
    assert_eq!(shown(&settings), [".mcp.json: good = g"]);
    let mut found = findings(&settings);
    found.sort();
    assert_eq!(
        found,
        [
            ".mcp.json ask: `env` is wrong: `${input:…}` means something only to the program whose file this is",
            ".mcp.json bad name\\n: a server's name is 1 to 64 letters, digits, spaces or characters of `-_.@/:`, and begins with a letter or digit",
            ".mcp.json hotcell: skipped, because it is Hotcell itself",
            ".mcp.json me: skipped, because it is Hotcell itself",
            ".mcp.json none: it has neither a `command` nor a `url`",
            ".mcp.json off: it is disabled",
            ".mcp.json seven: it is not an object",
            "Claude Code: it is larger than 16777216 bytes",
            "Codex: it is not the TOML that it should be",
            "Cursor: it is not the JSON that it should be",
            "VS Code: it is not the JSON that it should be",
            "mcp/servers: it is not the JSON that it should be",
        ]
    );
}

#[test]
fn the_variable_names_a_file_or_is_json() {
    let root = TempDir::new().unwrap();
    let places = places(&root);
    let inline = configured(r#" {"mcpServers": {"a": {"command": "x"}}}"#, &places);
    assert_eq!(inline.servers[0].name.as_str(), "a");
    assert_eq!(inline.servers[0].principals, Principals::all());
    let file = root.path().join("servers.json");
    fs::write(&file, r#"{"mcpServers": {"b": {"command": "x"}}}"#).unwrap();
    assert_eq!(
        configured(file.to_str().unwrap(), &places).servers[0]
            .name
            .as_str(),
        "b"
    );
    let none = configured("/no/such/file", &places);
    assert_eq!(
        findings(&none),
        ["MCP_SERVERS_CONFIG: there is no such file"]
    );
}

#[test]
fn an_entry_of_ours_is_strict() {
    let said = |text: &str| {
        let Value::Object(fields) = serde_json::from_str(text).unwrap() else {
            panic!("{text}")
        };
        let source = Source {
            program: "hotcell.toml",
            is_discovered: false,
            file: None,
        };
        match parse_entry(ServerName::parse("a").unwrap(), &fields, source) {
            Ok(entry) => entry
                .map_or("disabled", |entry| entry.launch.kind().as_str())
                .to_owned(),
            Err(error) => error.to_string(),
        }
    };
    assert_eq!(
        said(r#"{"command": "x", "args": ["${ENV:A}"], "env": {"B": 1}, "call_timeout_s": 0.5}"#),
        "stdio"
    );
    assert_eq!(
        said(r#"{"url": "https://x", "bearer_token": "${ENV:T}"}"#),
        "http"
    );
    assert_eq!(said(r#"{"command": "x", "enabled": false}"#), "disabled");
    assert_eq!(
        said(r#"{"command": "x", "comand": 1}"#),
        "`comand` is not a key of an MCP server"
    );
    assert_eq!(said(r#"{"command": "x", "default": "ask"}"#), "stdio");
    assert_eq!(
        said(r#"{"command": "x", "default": "maybe"}"#),
        "`default` must be allow, ask or deny"
    );
    assert_eq!(
        said(r#"{"command": "x", "url": "y"}"#),
        "`url` and `command` exclude each other"
    );
    assert_eq!(
        said(r#"{"url": "x", "transport": "stdio"}"#),
        "`transport` must be `http` or `sse` where there is a `url`"
    );
    assert_eq!(
        said(r#"{"command": "x", "args": [1]}"#),
        "`args` must be a list of strings"
    );
    assert_eq!(
        said(r#"{"command": "x", "start_timeout_s": 0}"#),
        "`start_timeout_s` must be more than 0 and at most 86400 seconds"
    );
    assert_eq!(
        said(r#"{"command": "x", "env": {"A": "${ENV:}"}}"#),
        "`env` is wrong: `${ENV:NAME}` needs the name of an environment variable"
    );
}
