//! One file for each server's definitions and one for those approved, named by a hash of its name.

use std::fs::{self, DirBuilder, File};
use std::io::{self, Read, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use crate::bounds::DEFINITIONS_BYTES_MAX;
use crate::definition::Definitions;
use crate::name::ServerName;

/// The largest file; JSON text may take more than what it was parsed from.
const FILE_BYTES_MAX: u64 = (DEFINITIONS_BYTES_MAX as u64) * 2;
/// What we write. Another format is as good as no file.
const FORMAT: u32 = 1;

/// The directory.
pub(super) struct Directory(PathBuf);

/// Which version of a file was read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Stamp {
    inode: u64,
    changed: (i64, i64),
}

#[derive(Serialize)]
struct Written<'a, T> {
    format: u32,
    server: &'a str,
    content: &'a T,
}

#[derive(Deserialize)]
struct Stored<T> {
    format: u32,
    server: String,
    content: T,
}

impl Directory {
    /// Creates it if it is not there; nobody else may look inside.
    pub(super) fn open(path: &Path) -> io::Result<Self> {
        DirBuilder::new().recursive(true).mode(0o700).create(path)?;
        Ok(Self(path.to_owned()))
    }

    pub(super) fn read(&self, server: &ServerName) -> Option<Definitions> {
        self.load(server, "tools")
    }

    pub(super) fn write(&self, server: &ServerName, definitions: &Definitions) -> io::Result<()> {
        self.store(server, "tools", definitions)
    }

    /// Reads what was stored; something broken is logged and taken as nothing.
    pub(super) fn load<T: DeserializeOwned>(&self, server: &ServerName, kind: &str) -> Option<T> {
        match self.try_load(server, kind) {
            Ok(content) => content,
            Err(error) => {
                tracing::warn!(upstream = %server, kind, %error, "could not read what is known about an MCP server");
                None
            }
        }
    }

    fn try_load<T: DeserializeOwned>(
        &self,
        server: &ServerName,
        kind: &str,
    ) -> io::Result<Option<T>> {
        let file = match File::open(self.path(server, kind)) {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(error),
        };
        let mut text = Vec::new();
        file.take(FILE_BYTES_MAX + 1).read_to_end(&mut text)?;
        if u64::try_from(text.len()).is_ok_and(|length| length > FILE_BYTES_MAX) {
            return Err(io::Error::other("the file is too large"));
        }
        let stored: Stored<T> = serde_json::from_slice(&text)?;
        Ok((stored.format == FORMAT && stored.server == server.as_str()).then_some(stored.content))
    }

    /// Replaces a file as a whole.
    pub(super) fn store<T: Serialize>(
        &self,
        server: &ServerName,
        kind: &str,
        content: &T,
    ) -> io::Result<()> {
        let written = Written {
            format: FORMAT,
            server: server.as_str(),
            content,
        };
        let mut file = tempfile::NamedTempFile::new_in(&self.0)?;
        file.write_all(&serde_json::to_vec(&written)?)?;
        file.persist(self.path(server, kind))?;
        Ok(())
    }

    /// Which version there is now.
    pub(super) fn stamp(&self, server: &ServerName, kind: &str) -> Option<Stamp> {
        let metadata = fs::metadata(self.path(server, kind)).ok()?;
        Some(Stamp {
            inode: metadata.ino(),
            changed: (metadata.ctime(), metadata.ctime_nsec()),
        })
    }

    /// Has one process at a time change what another may change too.
    pub(super) fn lock(&self) -> io::Result<File> {
        let file = File::options()
            .create(true)
            .write(true)
            .truncate(false)
            .open(self.0.join("lock"))?;
        file.lock()?;
        Ok(file)
    }

    fn path(&self, server: &ServerName, kind: &str) -> PathBuf {
        let hash = Sha256::digest(server.as_str().as_bytes());
        let start = u128::from_be_bytes(hash[..16].try_into().expect("SHA-256 has 32 bytes"));
        self.0.join(format!("{start:032x}.{kind}.json"))
    }
}
