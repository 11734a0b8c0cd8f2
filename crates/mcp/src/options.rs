//! Settings of the protocol side.

use std::time::Duration;

use hotcell_codemode::CodeMode;
use hotcell_domain::Caller;

use crate::reload::Reload;
use crate::tools;
use crate::transport::{ANSWER_WAIT_MAX, ANSWERS_BYTES_MAX};

/// A group of tools that can be enabled together.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Toolset {
    /// Containers, execs and files.
    Workspace,
    /// Code snippets.
    Code,
    /// Scripts that call other MCP servers.
    Codemode,
    /// For the operator.
    Admin,
}

/// The enabled groups.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Toolsets([bool; 4]);

/// Why a list of groups is invalid.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ToolsetError {
    /// There is no such group.
    #[error("`{0}` is not a group of tools; there are workspace, code, codemode and admin")]
    Unknown(String),
    /// The group has no tools in this version.
    #[error("the group `{}` has no tools in this version; leave it out", .0.as_str())]
    Empty(Toolset),
}

/// Settings of a [`crate::Server`].
#[derive(Debug, Clone)]
pub struct Options {
    /// The enabled groups of tools.
    pub toolsets: Toolsets,
    /// The caller where the transport does not determine one: stdio and the unix socket.
    pub caller: Caller,
    /// The base URL of `/v1`, such as `http://127.0.0.1:8000`, if there is HTTP.
    pub public_url: Option<String>,
    /// The version reported to clients.
    pub version: String,
    /// Reads the configuration again, if there is one.
    pub reload: Option<Reload>,
    /// Other MCP servers that scripts can call, and what they may do.
    pub codemode: CodeMode,
    /// Memory for all large answers that clients have not read yet.
    pub answers_bytes_max: usize,
    /// How long a request waits for others to release that memory.
    pub answer_wait_max: Duration,
}

impl Toolset {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::Workspace, Self::Code, Self::Codemode, Self::Admin];

    /// The name on the command line.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Workspace => "workspace",
            Self::Code => "code",
            Self::Codemode => "codemode",
            Self::Admin => "admin",
        }
    }
}

impl Toolsets {
    /// Every group.
    pub const ALL: Self = Self([true; 4]);

    /// Parses a comma-separated list. A group without tools is an error: whoever names it expects
    /// something from it.
    pub fn parse(text: &str) -> Result<Self, ToolsetError> {
        let mut sets = Self([false; 4]);
        for word in text.split(',').map(str::trim) {
            let set = Toolset::ALL.into_iter().find(|set| set.as_str() == word);
            let unknown = || ToolsetError::Unknown(word.chars().take(64).collect());
            let set = set.ok_or_else(unknown)?;
            if !tools::has_any(set) {
                return Err(ToolsetError::Empty(set));
            }
            sets.0[set as usize] = true;
        }
        Ok(sets)
    }

    /// Whether a group is served.
    pub fn has(self, set: Toolset) -> bool {
        self.0[set as usize]
    }
}

impl Default for Options {
    /// All groups, the local caller, no HTTP.
    fn default() -> Self {
        Self {
            toolsets: Toolsets::ALL,
            caller: Caller::local(),
            public_url: None,
            version: env!("CARGO_PKG_VERSION").to_owned(),
            reload: None,
            codemode: CodeMode::default(),
            answers_bytes_max: ANSWERS_BYTES_MAX,
            answer_wait_max: ANSWER_WAIT_MAX,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn groups_are_read_as_people_write_them() {
        let sets = Toolsets::parse("workspace, admin").unwrap();
        assert!(sets.has(Toolset::Workspace) && sets.has(Toolset::Admin));
        assert!(!sets.has(Toolset::Code));
        assert!(Toolsets::parse("code").unwrap().has(Toolset::Code));
        assert!(!Toolsets::parse("admin").unwrap().has(Toolset::Workspace));
        assert_eq!(
            Toolsets::parse("workspace,files").unwrap_err().to_string(),
            "`files` is not a group of tools; there are workspace, code, codemode and admin"
        );
    }

    #[test]
    fn every_group_has_tools() {
        for set in Toolset::ALL {
            assert!(Toolsets::parse(set.as_str()).unwrap().has(set));
        }
    }
}
