//! Where programs keep their servers.

use std::path::{Path, PathBuf};

use super::formats::Format;
use super::is_same_file;
use crate::settings::{Entry, Launch};

/// Files of one directory that are looked at.
const FILES_MAX: usize = 256;

/// Where to look.
#[derive(Debug, Clone, Default)]
pub struct Places {
    /// The working directory.
    pub directory: PathBuf,
    /// The user's home.
    pub home: Option<PathBuf>,
    /// `XDG_CONFIG_HOME`, or `~/.config`.
    pub config: Option<PathBuf>,
    /// `CODEX_HOME`, or `~/.codex`.
    pub codex: Option<PathBuf>,
    /// This very program, whose own entry is skipped; unless it is wanted.
    pub own_program: Option<PathBuf>,
}

/// A file that may be there.
#[derive(Debug)]
pub(super) struct Place {
    pub(super) program: &'static str,
    pub(super) file: PathBuf,
    pub(super) format: Format,
}

impl Places {
    /// Those of this process.
    pub fn of_this_process(is_own_entry_wanted: bool) -> Self {
        let absolute = |name| {
            std::env::var_os(name)
                .map(PathBuf::from)
                .filter(|path| path.is_absolute())
        };
        let home = absolute("HOME");
        let below_home = |name: &str| home.as_ref().map(|home| home.join(name));
        Self {
            directory: std::env::current_dir().unwrap_or_default(),
            config: absolute("XDG_CONFIG_HOME").or_else(|| below_home(".config")),
            codex: absolute("CODEX_HOME").or_else(|| below_home(".codex")),
            own_program: if is_own_entry_wanted {
                None
            } else {
                std::env::current_exe().ok()
            },
            home,
        }
    }

    /// All files, those of this directory first.
    pub(super) fn all(&self) -> Vec<Place> {
        let mut places = Vec::new();
        let mut add = |program, file: Option<PathBuf>, format| {
            places.extend(file.map(|file| Place {
                program,
                file,
                format,
            }));
        };
        let here = |name: &str| Some(self.directory.join(name));
        let home = |name: &str| self.home.as_ref().map(|home| home.join(name));
        let config = |name: &str| self.config.as_ref().map(|config| config.join(name));
        add(".mcp.json", here(".mcp.json"), Format::McpServers);
        add("Cursor", here(".cursor/mcp.json"), Format::McpServers);
        add("VS Code", here(".vscode/mcp.json"), Format::McpServers);
        add("Zed", here(".zed/settings.json"), Format::Zed);
        for file in files_of(here("mcp-servers")) {
            add("mcp-servers", Some(file), Format::McpServers);
        }
        add("Claude Code", home(".claude.json"), Format::ClaudeCode);
        add(
            "Claude Desktop",
            config("Claude/claude_desktop_config.json"),
            Format::McpServers,
        );
        let mac = "Library/Application Support/Claude/claude_desktop_config.json";
        add("Claude Desktop", home(mac), Format::McpServers);
        add("Cursor", home(".cursor/mcp.json"), Format::McpServers);
        add("VS Code", config("Code/User/mcp.json"), Format::McpServers);
        for profile in children(config("Code/User/profiles")) {
            add(
                "VS Code",
                Some(profile.join("mcp.json")),
                Format::McpServers,
            );
        }
        add(
            "Windsurf",
            home(".codeium/windsurf/mcp_config.json"),
            Format::McpServers,
        );
        add("Zed", config("zed/settings.json"), Format::Zed);
        add(
            "Codex",
            self.codex.as_ref().map(|codex| codex.join("config.toml")),
            Format::Codex,
        );
        for file in files_of(config("mcp/servers")) {
            add("mcp/servers", Some(file), Format::McpServers);
        }
        places
    }

    /// Whether an entry is Hotcell itself, which would call itself without end.
    pub(super) fn is_own(&self, entry: &Entry) -> bool {
        let Some(own) = &self.own_program else {
            return false;
        };
        if entry.name.as_str().eq_ignore_ascii_case("hotcell") {
            return true;
        }
        let Launch::Stdio(program) = &entry.launch else {
            return false;
        };
        let words = std::iter::once(&program.command).chain(&program.arguments);
        let is_ours = |word: &Path| {
            word.file_name().is_some_and(|name| name == "hotcell") || is_same_file(word, own)
        };
        words
            .filter_map(|word| word.as_literal())
            .any(|word| is_ours(Path::new(word)))
    }
}

/// The file itself, or the JSON files of the directory.
fn files_of(path: Option<PathBuf>) -> Vec<PathBuf> {
    let Some(path) = path else {
        return Vec::new();
    };
    if !path.is_dir() {
        return vec![path];
    }
    let mut files = children(Some(path));
    files.retain(|file| {
        file.extension()
            .is_some_and(|extension| extension == "json")
    });
    files
}

/// In the order of their names.
fn children(directory: Option<PathBuf>) -> Vec<PathBuf> {
    let entries = directory.and_then(|directory| std::fs::read_dir(directory).ok());
    let entries = entries.into_iter().flatten().flatten().take(FILES_MAX);
    let mut children: Vec<_> = entries.map(|entry| entry.path()).collect();
    children.sort();
    children
}
