//! The clients: where each keeps its servers, in which language, and how it writes one. A new
//! client is a row here and a directory of golden files.

use super::node::Node;
use super::server::{AUTHORIZATION_VARIABLE, Server, Token};

/// A client.
#[derive(Debug)]
pub(super) struct Client {
    /// As `--client` has it.
    pub(super) name: &'static str,
    pub(super) aliases: &'static [&'static str],
    /// As its makers have it.
    pub(super) title: &'static str,
    pub(super) places: Places,
    pub(super) language: Language,
    pub(super) entry: fn(&Server, &str) -> Node,
    /// How to make a running client see the entry.
    pub(super) next: &'static str,
}

/// Where a client keeps its servers. Those of other systems are for people, who run the client there.
#[derive(Debug)]
pub(super) struct Places {
    pub(super) base: Base,
    /// Below the base.
    pub(super) path: &'static str,
    /// Below a project's directory, if the client has such a file.
    pub(super) project: Option<&'static str>,
    pub(super) mac: &'static str,
    pub(super) windows: &'static str,
}

/// The directory that a path is below.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Base {
    Home,
    /// `XDG_CONFIG_HOME`, or `~/.config`.
    Config,
    /// `CODEX_HOME`, or `~/.codex`.
    Codex,
}

/// What a client's file is written in, and the key below which the servers are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Language {
    Json {
        key: &'static str,
    },
    Toml {
        key: &'static str,
    },
    /// A mapping from names to servers.
    YamlTable {
        key: &'static str,
    },
    /// A list of servers, each with its `name`; a new file begins with the heading.
    YamlList {
        key: &'static str,
        heading: &'static str,
    },
}

const SERVERS: Language = Language::Json { key: "mcpServers" };

/// All clients, in the order of the help.
pub(super) const CLIENTS: [Client; 10] = [
    Client {
        name: "claude-code",
        aliases: &["claude"],
        title: "Claude Code",
        places: Places {
            base: Base::Home,
            path: ".claude.json",
            project: Some(".mcp.json"),
            mac: "~/.claude.json",
            windows: "%USERPROFILE%\\.claude.json",
        },
        language: SERVERS,
        entry: typed,
        next: "start Claude Code again; /mcp lists its servers",
    },
    Client {
        name: "claude-desktop",
        aliases: &[],
        title: "Claude Desktop",
        places: Places {
            base: Base::Config,
            path: "Claude/claude_desktop_config.json",
            project: None,
            mac: "~/Library/Application Support/Claude/claude_desktop_config.json",
            windows: "%APPDATA%\\Claude\\claude_desktop_config.json",
        },
        language: SERVERS,
        entry: |server, _| match server {
            Server::Program { .. } => plain(server, "url"),
            Server::Remote { .. } => bridged(server),
        },
        next: "quit Claude Desktop and start it again",
    },
    Client {
        name: "cursor",
        aliases: &[],
        title: "Cursor",
        places: Places {
            base: Base::Home,
            path: ".cursor/mcp.json",
            project: Some(".cursor/mcp.json"),
            mac: "~/.cursor/mcp.json",
            windows: "%USERPROFILE%\\.cursor\\mcp.json",
        },
        language: SERVERS,
        entry: |server, _| plain(server, "url"),
        next: "switch the server on in Cursor's settings, under MCP",
    },
    Client {
        name: "vscode",
        aliases: &["vs-code"],
        title: "VS Code",
        places: Places {
            base: Base::Config,
            path: "Code/User/mcp.json",
            project: Some(".vscode/mcp.json"),
            mac: "~/Library/Application Support/Code/User/mcp.json",
            windows: "%APPDATA%\\Code\\User\\mcp.json",
        },
        language: Language::Json { key: "servers" },
        entry: typed,
        next: "run `MCP: List Servers` from the command palette and start it",
    },
    Client {
        name: "windsurf",
        aliases: &[],
        title: "Windsurf",
        places: Places {
            base: Base::Home,
            path: ".codeium/windsurf/mcp_config.json",
            project: None,
            mac: "~/.codeium/windsurf/mcp_config.json",
            windows: "%USERPROFILE%\\.codeium\\windsurf\\mcp_config.json",
        },
        language: SERVERS,
        entry: |server, _| plain(server, "serverUrl"),
        next: "press the refresh button of Cascade's MCP servers",
    },
    Client {
        name: "zed",
        aliases: &[],
        title: "Zed",
        places: Places {
            base: Base::Config,
            path: "zed/settings.json",
            project: Some(".zed/settings.json"),
            mac: "~/.config/zed/settings.json",
            windows: "%APPDATA%\\Zed\\settings.json",
        },
        language: Language::Json {
            key: "context_servers",
        },
        entry: zed,
        next: "Zed reads the file when it is saved; the agent panel shows the server",
    },
    Client {
        name: "codex",
        aliases: &[],
        title: "Codex",
        places: Places {
            base: Base::Codex,
            path: "config.toml",
            project: Some(".codex/config.toml"),
            mac: "~/.codex/config.toml",
            windows: "%USERPROFILE%\\.codex\\config.toml",
        },
        language: Language::Toml { key: "mcp_servers" },
        entry: codex,
        next: "start Codex again; /mcp lists its servers",
    },
    Client {
        name: "gemini",
        aliases: &["gemini-cli"],
        title: "Gemini CLI",
        places: Places {
            base: Base::Home,
            path: ".gemini/settings.json",
            project: Some(".gemini/settings.json"),
            mac: "~/.gemini/settings.json",
            windows: "%USERPROFILE%\\.gemini\\settings.json",
        },
        language: SERVERS,
        entry: |server, _| plain(server, "httpUrl"),
        next: "start Gemini CLI again; /mcp lists its servers",
    },
    Client {
        name: "goose",
        aliases: &[],
        title: "Goose",
        places: Places {
            base: Base::Config,
            path: "goose/config.yaml",
            project: None,
            mac: "~/.config/goose/config.yaml",
            windows: "%APPDATA%\\Block\\goose\\config\\config.yaml",
        },
        language: Language::YamlTable { key: "extensions" },
        entry: goose,
        next: "start a new session of Goose",
    },
    Client {
        name: "continue",
        aliases: &[],
        title: "Continue",
        places: Places {
            base: Base::Home,
            path: ".continue/config.yaml",
            project: None,
            mac: "~/.continue/config.yaml",
            windows: "%USERPROFILE%\\.continue\\config.yaml",
        },
        language: Language::YamlList {
            key: "mcpServers",
            heading: "name: Local config\nversion: 1.0.0\nschema: v1\n",
        },
        entry: continue_dev,
        next: "reload the editor's window; tools are available in agent mode",
    },
];

/// The client of this name or alias.
pub(super) fn by_name(name: &str) -> Option<&'static Client> {
    CLIENTS
        .iter()
        .find(|client| client.name == name || client.aliases.contains(&name))
}

type Fields = Vec<(&'static str, Node)>;

fn program(command: &str, arguments: &[String]) -> Fields {
    vec![
        ("command", Node::text(command)),
        ("args", Node::List(arguments.to_vec())),
    ]
}

fn headers(token: Option<&Token>) -> Option<Node> {
    let token = token?;
    Some(Node::Table(vec![(
        "Authorization",
        Node::Text(token.authorization()),
    )]))
}

/// `command` and `args`, or an address below `key`.
fn plain(server: &Server, key: &'static str) -> Node {
    Node::Table(match server {
        Server::Program { command, arguments } => program(command, arguments),
        Server::Remote { url, token } => {
            let mut fields = vec![(key, Node::text(url.as_str()))];
            fields.extend(headers(token.as_ref()).map(|headers| ("headers", headers)));
            fields
        }
    })
}

/// The same, with the transport as `type`.
fn typed(server: &Server, _name: &str) -> Node {
    let transport = match server {
        Server::Program { .. } => "stdio",
        Server::Remote { .. } => "http",
    };
    with_first("type", Node::text(transport), plain(server, "url"))
}

fn with_first(key: &'static str, value: Node, rest: Node) -> Node {
    let mut fields = vec![(key, value)];
    if let Node::Table(rest) = rest {
        fields.extend(rest);
    }
    Node::Table(fields)
}

/// For a client whose file knows programs only: `mcp-remote` connects it.
fn bridged(server: &Server) -> Node {
    let Server::Remote { url, token } = server else {
        return plain(server, "url");
    };
    let mut arguments: Vec<String> = ["-y", "mcp-remote", url.as_str()]
        .map(str::to_owned)
        .to_vec();
    if !url.is_encrypted() {
        arguments.push("--allow-http".to_owned());
    }
    let mut environment = None;
    if let Some(token) = token {
        arguments.push("--header".to_owned());
        // No space: some systems split arguments at it.
        arguments.push(format!("Authorization:${{{AUTHORIZATION_VARIABLE}}}"));
        environment = Some(Node::Table(vec![(
            AUTHORIZATION_VARIABLE,
            Node::Text(token.authorization()),
        )]));
    }
    let mut fields = program("npx", &arguments);
    fields.extend(environment.map(|environment| ("env", environment)));
    Node::Table(fields)
}

/// Older versions of Zed ask for a `source`.
fn zed(server: &Server, _name: &str) -> Node {
    match server {
        Server::Program { .. } => with_first("source", Node::text("custom"), plain(server, "url")),
        Server::Remote { .. } => plain(server, "url"),
    }
}

fn codex(server: &Server, _name: &str) -> Node {
    let Server::Remote { url, token } = server else {
        return plain(server, "url");
    };
    let mut fields = vec![("url", Node::text(url.as_str()))];
    fields.extend(headers(token.as_ref()).map(|headers| ("http_headers", headers)));
    Node::Table(fields)
}

/// Seconds that Goose waits for a call.
const GOOSE_TIMEOUT_S: u32 = 300;

fn goose(server: &Server, name: &str) -> Node {
    let transport = match server {
        Server::Program { .. } => "stdio",
        Server::Remote { .. } => "streamable_http",
    };
    let mut fields = vec![
        ("enabled", Node::Flag(true)),
        ("type", Node::text(transport)),
        ("name", Node::text(name)),
        ("description", Node::text("Sealed Linux containers")),
    ];
    match server {
        Server::Program { command, arguments } => {
            fields.push(("cmd", Node::text(command)));
            fields.push(("args", Node::List(arguments.clone())));
        }
        Server::Remote { url, token } => {
            fields.push(("uri", Node::text(url.as_str())));
            fields.push((
                "headers",
                headers(token.as_ref()).unwrap_or(Node::Table(Vec::new())),
            ));
        }
    }
    fields.push(("envs", Node::Table(Vec::new())));
    fields.push(("timeout", Node::Number(GOOSE_TIMEOUT_S)));
    Node::Table(fields)
}

fn continue_dev(server: &Server, name: &str) -> Node {
    let mut fields = vec![("name", Node::text(name))];
    match server {
        Server::Program { command, arguments } => fields.extend(program(command, arguments)),
        Server::Remote { url, token } => {
            fields.push(("type", Node::text("streamable-http")));
            fields.push(("url", Node::text(url.as_str())));
            let headers =
                headers(token.as_ref()).map(|headers| Node::Table(vec![("headers", headers)]));
            fields.extend(headers.map(|options| ("requestOptions", options)));
        }
    }
    Node::Table(fields)
}
