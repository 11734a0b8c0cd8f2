//! What the operator chose of the protocol's side.

use std::time::Duration;

use hotcell_domain::Caller;

use crate::tools;
use crate::transport::{ANSWER_WAIT_MAX, ANSWERS_BYTES_MAX};

/// A group of tools that are served together or not at all.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Toolset {
    /// Containers, execs and files.
    Workspace,
    /// Snippets of code.
    Code,
    /// Scripts that call other servers.
    Codemode,
    /// The operator's.
    Admin,
}

/// The groups that are served.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Toolsets([bool; 4]);

/// A word that names no group that could be served.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ToolsetError {
    /// It names none.
    #[error("`{0}` is not a group of tools; there are workspace, code, codemode and admin")]
    Unknown(String),
    /// It names one that this version has no tools for.
    #[error("the group `{}` has no tools in this version; leave it out", .0.as_str())]
    Empty(Toolset),
}

/// What a [`crate::Server`] is told beside its service.
#[derive(Debug, Clone)]
pub struct Options {
    /// The groups of tools that are served.
    pub toolsets: Toolsets,
    /// Who asks where the transport does not say it: over stdio and the unix socket.
    pub caller: Caller,
    /// Where `/v1` is found, such as `http://127.0.0.1:8000`, if there is HTTP.
    pub public_url: Option<String>,
    /// The version that clients are told.
    pub version: String,
    /// Replies that are not small and that their clients have not read yet, together.
    pub answers_bytes_max: usize,
    /// How long a caller waits for others to read theirs.
    pub answer_wait_max: Duration,
}

impl Toolset {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::Workspace, Self::Code, Self::Codemode, Self::Admin];

    /// The word on the command line.
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

    /// Reads words with commas between them. A group without tools is refused: whoever names
    /// it expects something of it.
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
    /// Everything, for whoever is on this machine, without HTTP.
    fn default() -> Self {
        Self {
            toolsets: Toolsets::ALL,
            caller: Caller::local(),
            public_url: None,
            version: env!("CARGO_PKG_VERSION").to_owned(),
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
        assert!(!Toolsets::parse("admin").unwrap().has(Toolset::Workspace));
        assert_eq!(
            Toolsets::parse("workspace,files").unwrap_err().to_string(),
            "`files` is not a group of tools; there are workspace, code, codemode and admin"
        );
    }

    #[test]
    fn a_group_without_tools_is_refused() {
        for group in ["code", "codemode"] {
            let refused = Toolsets::parse(&format!("workspace,{group}")).unwrap_err();
            assert_eq!(
                refused.to_string(),
                format!("the group `{group}` has no tools in this version; leave it out")
            );
        }
    }
}
