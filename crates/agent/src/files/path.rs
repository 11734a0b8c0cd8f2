//! Validated paths.
//!
//! A `RelPath` is relative to the root, has no empty or `.` component and no NUL, and is within
//! both length bounds. It may contain `..`, but not so many that it leaves the root textually.
//! Through a symlink, only the kernel knows where `..` leads, and `beneath` keeps that inside.

use hotcell_agent_api::bounds::{NAME_BYTES_MAX, PATH_BYTES_MAX};

use super::error::Error;

/// A path relative to the root; empty for the root itself.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct RelPath(Vec<u8>);

/// One component of a path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Name(Vec<u8>);

impl RelPath {
    /// Parses a caller's path: relative, or absolute and beneath `root`.
    pub(super) fn parse(raw: &[u8], root: &[u8]) -> Result<Self, Error> {
        if raw.len() > PATH_BYTES_MAX {
            return Err(Error::Invalid("the path is too long"));
        }
        let relative = if raw.starts_with(b"/") {
            beneath_root(raw, root)?
        } else {
            components(raw).collect()
        };
        if leaves(&relative) {
            return Err(Error::Denied("the path leads out of the root"));
        }
        Self::from_components(relative.into_iter())
    }

    /// Parses a path that must be relative and must not contain `..`.
    pub(super) fn parse_inner(raw: &[u8]) -> Result<Self, Error> {
        if raw.len() > PATH_BYTES_MAX {
            return Err(Error::Invalid("the path is too long"));
        }
        if raw.starts_with(b"/") {
            return Err(Error::Denied("an absolute path is not allowed here"));
        }
        if components(raw).any(|component| component == b"..") {
            return Err(Error::Denied("`..` is not allowed here"));
        }
        Self::from_components(components(raw))
    }

    /// Empty for the root.
    pub(super) fn as_bytes(&self) -> &[u8] {
        &self.0
    }

    /// For system calls: `.` for the root.
    pub(super) fn to_open(&self) -> &[u8] {
        if self.0.is_empty() { b"." } else { &self.0 }
    }

    pub(super) fn is_root(&self) -> bool {
        self.0.is_empty()
    }

    pub(super) fn components(&self) -> impl DoubleEndedIterator<Item = &[u8]> {
        components(&self.0)
    }

    /// Splits off the last component.
    ///
    /// Fails for the root, and for a path that ends in `..`: neither names an entry that could be
    /// changed.
    pub(super) fn split(&self) -> Result<(Self, Name), Error> {
        let (dir, name) = match self.0.iter().rposition(|byte| *byte == b'/') {
            Some(slash) => (&self.0[..slash], &self.0[slash + 1..]),
            None => (&b""[..], &self.0[..]),
        };
        match name {
            b"" => Err(Error::Denied("the root is protected")),
            b".." => Err(Error::Denied("the path must end in a name")),
            name => Ok((Self(dir.to_vec()), Name(name.to_vec()))),
        }
    }

    /// Appends a name that the kernel listed.
    pub(super) fn child(&self, name: &[u8]) -> Self {
        let mut joined = self.0.clone();
        if !joined.is_empty() {
            joined.push(b'/');
        }
        joined.extend_from_slice(name);
        Self(joined)
    }

    /// Resolves the target of a symlink in this directory.
    pub(super) fn through(&self, target: &[u8]) -> Result<Self, Error> {
        if target.starts_with(b"/") {
            return Err(Error::Denied("the symlink is absolute"));
        }
        if self.0.len() + target.len() >= PATH_BYTES_MAX {
            return Err(Error::Invalid(
                "the symlink leads to a path that is too long",
            ));
        }
        Self::from_components(self.components().chain(components(target)))
    }

    fn from_components<'a>(parts: impl Iterator<Item = &'a [u8]>) -> Result<Self, Error> {
        let mut path = Vec::new();
        for part in parts {
            if part.len() > NAME_BYTES_MAX {
                return Err(Error::Invalid("a name in the path is too long"));
            }
            if part.contains(&0) {
                return Err(Error::Invalid("the path contains a NUL"));
            }
            if !path.is_empty() {
                path.push(b'/');
            }
            path.extend_from_slice(part);
        }
        Ok(Self(path))
    }
}

impl Name {
    pub(super) fn as_bytes(&self) -> &[u8] {
        &self.0
    }

    /// A name that the kernel listed.
    pub(super) fn listed(name: &[u8]) -> Self {
        Self(name.to_vec())
    }

    /// A name that we generated.
    pub(super) fn own(name: String) -> Self {
        Self(name.into_bytes())
    }
}

/// Strips the root's components from an absolute path.
fn beneath_root<'a>(raw: &'a [u8], root: &[u8]) -> Result<Vec<&'a [u8]>, Error> {
    let mut left = components(raw);
    for wanted in components(root) {
        if left.next() != Some(wanted) {
            return Err(Error::Denied("the path is outside the root"));
        }
    }
    Ok(left.collect())
}

/// Whether the path textually goes above its start.
fn leaves(parts: &[&[u8]]) -> bool {
    let mut depth = 0_usize;
    for part in parts {
        if *part != b".." {
            depth += 1;
        } else if depth == 0 {
            return true;
        } else {
            depth -= 1;
        }
    }
    false
}

fn components(raw: &[u8]) -> impl DoubleEndedIterator<Item = &[u8]> {
    raw.split(|byte| *byte == b'/')
        .filter(|part| !part.is_empty() && *part != b".")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(raw: &str) -> Option<Vec<u8>> {
        RelPath::parse(raw.as_bytes(), b"/workspace")
            .ok()
            .map(|path| path.as_bytes().to_vec())
    }

    #[test]
    fn an_absolute_path_counts_only_beneath_the_root() {
        assert_eq!(parsed("/workspace"), Some(vec![]));
        assert_eq!(parsed("/workspace//a/./b/"), Some(b"a/b".to_vec()));
        assert_eq!(parsed("/workspace2"), None);
        assert_eq!(parsed("/"), None);
        assert_eq!(parsed("/etc/passwd"), None);
    }

    #[test]
    fn a_path_that_goes_above_the_root_is_denied_whatever_exists() {
        for raw in [
            "..",
            "../x",
            "nope/../../x",
            "a/b/../../..",
            "/workspace/../etc",
        ] {
            let parsed = RelPath::parse(raw.as_bytes(), b"/workspace");
            assert!(matches!(parsed, Err(Error::Denied(_))), "{raw}");
        }
        assert_eq!(parsed("a/../b"), Some(b"a/../b".to_vec()));
    }

    #[test]
    fn a_name_keeps_its_bytes_and_its_bounds() {
        assert_eq!(parsed("a\nb/|"), Some(b"a\nb/|".to_vec()));
        assert_eq!(parsed(&"x".repeat(255)).map(|path| path.len()), Some(255));
        assert_eq!(parsed(&"x".repeat(256)), None);
        assert_eq!(parsed("a\0b"), None);
    }

    #[test]
    fn neither_the_root_nor_dot_dot_is_a_name() {
        let split =
            |raw: &str| RelPath::parse(raw.as_bytes(), b"/workspace").and_then(|path| path.split());
        assert!(matches!(split("."), Err(Error::Denied(_))));
        assert!(matches!(split("a/.."), Err(Error::Denied(_))));
    }
}
