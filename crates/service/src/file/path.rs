//! Paths of callers.

use hotcell_agent_client::bounds::PATH_BYTES_MAX;

use crate::ServiceError;

/// The workspace, as callers and commands see it.
pub(crate) const WORKSPACE: &str = "/workspace";

/// A path below `/workspace`, absolute or relative to it. It has no NUL and is not too long; the
/// agent checks that it stays below.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FilePath(Vec<u8>);

impl FilePath {
    /// Validates a caller's path.
    pub fn parse(path: &[u8]) -> Result<Self, ServiceError> {
        let is_legal = (1..PATH_BYTES_MAX).contains(&path.len()) && !path.contains(&0);
        is_legal
            .then(|| Self(path.to_vec()))
            .ok_or_else(|| ServiceError::Invalid {
                reason: format!(
                    "a path must have 1 to {} bytes and no NUL; `.` is the workspace itself",
                    PATH_BYTES_MAX - 1
                ),
            })
    }

    /// The path.
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }

    /// The path in the agent's form: relative if it is below the workspace, whose path the agent
    /// chooses.
    pub(super) fn for_agent(&self) -> &[u8] {
        let below = self.0.strip_prefix(WORKSPACE.as_bytes());
        match below {
            Some([]) => b".",
            Some([b'/', rest @ ..]) => {
                let start = rest.iter().position(|byte| *byte != b'/');
                start.map_or(b".", |start| &rest[start..])
            }
            Some(_) | None => &self.0,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_is_bounded() {
        for path in [&b""[..], b"a\0b", &[b'x'; PATH_BYTES_MAX]] {
            let refused = FilePath::parse(path);
            assert!(matches!(refused, Err(ServiceError::Invalid { .. })));
        }
        assert!(FilePath::parse(b"a\nb|c \xff").is_ok());
    }

    #[test]
    fn what_is_below_the_workspace_is_relative_to_it_and_nothing_else_is() {
        let cases = [
            ("/workspace", "."),
            ("/workspace/", "."),
            ("/workspace//a/b", "a/b"),
            ("/workspace2", "/workspace2"),
            ("/workspace/../etc/passwd", "../etc/passwd"),
            ("/etc/passwd", "/etc/passwd"),
            ("a/b", "a/b"),
        ];
        for (path, expected) in cases {
            let path = FilePath::parse(path.as_bytes()).unwrap();
            assert_eq!(path.for_agent(), expected.as_bytes());
        }
    }
}
