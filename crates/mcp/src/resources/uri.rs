//! Resource URIs.
//!
//! `workspace://{container_id}/{path}`, `logs://{exec_id}`, `stats://{container_id}`. Paths are
//! percent-encoded, so every file has a URI, even if its name is not UTF-8.

use hotcell_domain::{ContainerRef, ExecId};
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, percent_decode_str, percent_encode};

use crate::tools::{ToolError, container_ref, exec_id};

/// Characters that are not encoded in a path.
const PATH: &AsciiSet = &NON_ALPHANUMERIC
    .remove(b'/')
    .remove(b'-')
    .remove(b'_')
    .remove(b'.')
    .remove(b'~');

/// A path with every byte encoded fits.
const URI_BYTES_MAX: usize = 16 << 10;

/// A parsed URI.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum ResourceUri {
    /// A file or a directory.
    Workspace(ContainerRef, Vec<u8>),
    /// The output of an exec.
    Logs(ExecId),
    /// A container's statistics.
    Stats(ContainerRef),
    /// How to write scripts and which servers they can call, or the tools of one of these.
    Capabilities(Option<String>),
    /// What containers may reach.
    Egress,
}

impl ResourceUri {
    /// Parses a URI from a client.
    pub(super) fn parse(uri: &str) -> Result<Self, ToolError> {
        let unknown = || ToolError::not_found("resource", uri);
        if uri.len() > URI_BYTES_MAX {
            return Err(unknown());
        }
        let (scheme, rest) = uri.split_once("://").ok_or_else(unknown)?;
        let (host, path) = rest.split_once('/').unwrap_or((rest, ""));
        match (scheme, path) {
            ("workspace", _) => {
                let path: Vec<u8> = percent_decode_str(path).collect();
                let path = if path.is_empty() { b".".to_vec() } else { path };
                Ok(Self::Workspace(container_ref(&decoded(host))?, path))
            }
            ("logs", "") => Ok(Self::Logs(exec_id(&decoded(host))?)),
            ("hotcell", _) if host == "capabilities" => Ok(Self::Capabilities(
                (!path.is_empty()).then(|| decoded(path)),
            )),
            ("hotcell", "") if host == "egress" => Ok(Self::Egress),
            ("stats", "") => Ok(Self::Stats(container_ref(&decoded(host))?)),
            _ => Err(unknown()),
        }
    }
}

fn decoded(host: &str) -> String {
    percent_decode_str(host).decode_utf8_lossy().into_owned()
}

/// Percent-encodes a path.
pub(crate) fn encoded_path(path: &[u8]) -> String {
    percent_encode(path, PATH).to_string()
}

pub(crate) fn workspace_uri(container: &str, path: &[u8]) -> String {
    format!("workspace://{container}/{}", encoded_path(path))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn any_path_can_be_named(path in proptest::collection::vec(1_u8.., 1..64)) {
            let named = ResourceUri::parse(&workspace_uri("app", &path)).unwrap();
            let app = container_ref("app").unwrap();
            prop_assert_eq!(named, ResourceUri::Workspace(app, path));
        }

        #[test]
        fn no_text_makes_parse_panic(uri in ".*") {
            let _ = ResourceUri::parse(&uri);
        }
    }

    #[test]
    fn a_path_may_be_encoded_as_one_piece() {
        let named = ResourceUri::parse("workspace://app/src%2Fmain.rs").unwrap();
        assert!(matches!(named, ResourceUri::Workspace(_, path) if path == b"src/main.rs"));
    }

    #[test]
    fn other_names_mean_nothing() {
        for uri in [
            "",
            "file:///etc/passwd",
            "logs://x",
            "stats://app/x",
            "workspace:///a",
            "workspace",
        ] {
            assert!(ResourceUri::parse(uri).is_err(), "{uri}");
        }
    }
}
