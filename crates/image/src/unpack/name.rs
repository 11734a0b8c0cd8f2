//! Names of members: bytes that an image chose.

use super::UnpackError;
use crate::bounds::{DEPTH_MAX, PATH_BYTES_MAX};

const NAME_BYTES_MAX: usize = 255;

/// The prefix of whiteout files, which mark deletions.
const WHITEOUT: &[u8] = b".wh.";

/// A path beneath the layer's directory: no `..`, no empty component, never absolute.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct MemberPath<'a> {
    parts: Vec<&'a [u8]>,
}

/// The meaning of a member's name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Mark<'a> {
    /// An ordinary file.
    Plain,
    /// A whiteout of this name.
    Deleted(&'a [u8]),
    /// An opaque directory: its lower content is hidden.
    Opaque,
    /// A marker of AUFS, ignored.
    Foreign,
}

impl<'a> MemberPath<'a> {
    /// Parses a name; `/a`, `./a` and `a/` are all `a`.
    pub(super) fn parse(bytes: &'a [u8]) -> Result<Self, UnpackError> {
        let refused = |reason| Err(UnpackError::Malformed(reason));
        if bytes.len() > PATH_BYTES_MAX || bytes.contains(&0) {
            return refused("a name is too long or holds a NUL byte");
        }
        let parts = bytes.split(|byte| *byte == b'/');
        let parts = parts.filter(|part| !part.is_empty() && *part != b".");
        let parts: Vec<&[u8]> = parts.collect();
        if parts.contains(&&b".."[..]) {
            return refused("a name holds `..`");
        }
        if parts.len() > DEPTH_MAX || parts.iter().any(|part| part.len() > NAME_BYTES_MAX) {
            return refused("a name is too long or too deep");
        }
        Ok(Self { parts })
    }

    /// Directory and file name; `None` for the root.
    pub(super) fn split(&self) -> Option<(&[&'a [u8]], &'a [u8])> {
        let (name, parents) = self.parts.split_last()?;
        Some((parents, name))
    }

    pub(super) fn joined(&self) -> Vec<u8> {
        self.parts.join(&b'/')
    }
}

pub(super) fn mark(name: &[u8]) -> Result<Mark<'_>, UnpackError> {
    let Some(rest) = name.strip_prefix(WHITEOUT) else {
        return Ok(Mark::Plain);
    };
    match rest {
        b".wh..opq" => Ok(Mark::Opaque),
        b"" | b"." | b".." => Err(UnpackError::Malformed("a deletion names nothing")),
        rest if rest.starts_with(WHITEOUT) => Ok(Mark::Foreign),
        rest => Ok(Mark::Deleted(rest)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_always_beneath() {
        for (raw, clean) in [
            (&b"a/b"[..], &b"a/b"[..]),
            (b"/etc/passwd", b"etc/passwd"),
            (b"./a//b/./c/", b"a/b/c"),
            (b"\xff\xfe", b"\xff\xfe"),
            (b"", b""),
            (b"./", b""),
            (b"...", b"..."),
        ] {
            assert_eq!(MemberPath::parse(raw).unwrap().joined(), clean);
        }
        for raw in [&b"../a"[..], b"a/../b", b"a/..", b"a\0b", b"/.."] {
            assert!(MemberPath::parse(raw).is_err());
        }
    }

    #[test]
    fn deletions_are_told_from_files() {
        assert_eq!(mark(b"wh.a").unwrap(), Mark::Plain);
        assert_eq!(mark(b".wh.a").unwrap(), Mark::Deleted(b"a"));
        assert_eq!(mark(b".wh..hidden").unwrap(), Mark::Deleted(b".hidden"));
        assert_eq!(mark(b".wh..wh..opq").unwrap(), Mark::Opaque);
        assert_eq!(mark(b".wh..wh.plnk").unwrap(), Mark::Foreign);
        for name in [&b".wh."[..], b".wh..", b".wh..."] {
            assert!(mark(name).is_err());
        }
    }
}
