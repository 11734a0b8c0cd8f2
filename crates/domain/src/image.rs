//! The root filesystem of a container.

use std::fmt;
use std::path::{Component, Path, PathBuf};

use crate::Reference;

/// Selects the root filesystem of a container.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum ImageRef {
    /// The host's own `/usr`, read-only, and nothing else of the host.
    Host,
    /// An unpacked root filesystem on the host.
    Rootfs(PathBuf),
    /// An image from a registry, or one that was loaded under such a name.
    Oci(Reference),
}

/// Why a reference is invalid.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ImageError {
    /// Empty, too long, or with invalid characters.
    #[error(
        "not an image reference; write for example `host` or `docker.io/library/python:3.12-slim`"
    )]
    NotAReference,
    /// The path of a root filesystem is not absolute, or contains `..`.
    #[error("the path of a root filesystem must be absolute and without `..`")]
    RootfsPath,
}

impl ImageRef {
    /// Parses `host`, `rootfs:/path` or an OCI reference.
    pub fn parse(text: &str) -> Result<Self, ImageError> {
        if text == "host" {
            return Ok(Self::Host);
        }
        if let Some(path) = text.strip_prefix("rootfs:") {
            let path = Path::new(path);
            let plain = |part| matches!(part, Component::RootDir | Component::Normal(_));
            if path.is_absolute() && path.components().all(plain) && !text.contains('\0') {
                return Ok(Self::Rootfs(path.to_owned()));
            }
            return Err(ImageError::RootfsPath);
        }
        Reference::parse(text).map(Self::Oci)
    }
}

impl fmt::Display for ImageRef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Host => f.write_str("host"),
            Self::Rootfs(path) => write!(f, "rootfs:{}", path.display()),
            Self::Oci(reference) => fmt::Display::fmt(reference, f),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn references_are_told_apart() {
        assert_eq!(ImageRef::parse("host"), Ok(ImageRef::Host));
        assert_eq!(
            ImageRef::parse("rootfs:/srv/x"),
            Ok(ImageRef::Rootfs("/srv/x".into()))
        );
        let python = ImageRef::parse("python:3.12-slim").map(|image| image.to_string());
        assert_eq!(python.as_deref(), Ok("docker.io/library/python:3.12-slim"));
    }

    #[test]
    fn a_rootfs_path_with_dots_or_none_is_refused() {
        for text in [
            "rootfs:",
            "rootfs:srv",
            "rootfs:/srv/../etc",
            "rootfs:/a\0b",
        ] {
            assert_eq!(ImageRef::parse(text), Err(ImageError::RootfsPath), "{text}");
        }
    }

    #[test]
    fn what_no_reference_looks_like_is_refused() {
        for text in ["", "a b", "a\n", "ä", "$(x)"] {
            assert_eq!(
                ImageRef::parse(text),
                Err(ImageError::NotAReference),
                "{text}"
            );
        }
    }
}
