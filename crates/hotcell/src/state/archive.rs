//! The format of a copy of a state directory in one file.
//!
//! ```text
//! logs/e_….head …        output logs
//! hotcell.db             the database
//! audit/….jsonl …        the audit log
//! tokens.json …          see `FILES`
//! manifest.json          the last: a list of the files, with sizes and digests
//! ```
//!
//! It is a tar archive. Without a manifest it is incomplete. Any other name is rejected, so an
//! archive cannot write outside of the state directory.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::io::{self, Read};

use anyhow::{Result, bail};
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

/// The version of this format.
pub(super) const FORMAT: u32 = 1;

pub(super) const DATABASE: &str = "hotcell.db";

/// The list of files in the archive.
pub(super) const MANIFEST: &str = "manifest.json";

/// Other files of a state directory, if they exist: hashes of tokens and their last uses, the label
/// of our containers in Docker or Podman, and the list of images that were pulled there for us.
pub(super) const FILES: [&str; 4] = [
    "tokens.json",
    "token-uses.json",
    "scope",
    "pulled-images.json",
];

/// A manifest has about 150 bytes per file, and there are two files per exec.
pub(super) const MANIFEST_BYTES_MAX: u64 = 64 << 20;

/// The content of an archive.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Manifest {
    pub(super) format: u32,
    /// The version of Hotcell that wrote it.
    pub(super) hotcell: String,
    /// The schema of the database.
    pub(super) schema: u32,
    pub(super) created_at: String,
    pub(super) files: BTreeMap<String, Entry>,
}

/// A file of an archive.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Entry {
    pub(super) bytes: u64,
    pub(super) sha256: String,
}

/// Rejects names that a state directory does not have.
pub(super) fn check_name(name: &str) -> Result<()> {
    let is_known = match name.split_once('/') {
        None => name == DATABASE || FILES.contains(&name),
        Some(("logs", file)) => hotcell_store::is_log_name(file),
        Some(("audit", file)) => hotcell_ledger::is_segment_name(file),
        Some(_) => false,
    };
    if !is_known {
        bail!("it contains a file that does not belong there: {name:?}");
    }
    Ok(())
}

/// Reads exactly the given number of bytes and hashes them. If a log that is being written was
/// replaced meanwhile, the rest is zeros, which a log ignores.
pub(super) struct Hashing<R> {
    reader: R,
    left: u64,
    bytes: u64,
    hash: Sha256,
    pads: bool,
}

impl<R: Read> Hashing<R> {
    pub(super) fn new(reader: R, bytes: u64) -> Self {
        Self {
            reader,
            left: bytes,
            bytes,
            hash: Sha256::new(),
            pads: false,
        }
    }

    /// Fills up with zeros if there is less to read.
    pub(super) fn padded(self) -> Self {
        Self { pads: true, ..self }
    }

    pub(super) fn entry(self) -> Entry {
        let mut sha256 = String::with_capacity(64);
        for byte in self.hash.finalize() {
            // Writing to a string cannot fail.
            let _ = write!(sha256, "{byte:02x}");
        }
        Entry {
            bytes: self.bytes - self.left,
            sha256,
        }
    }
}

impl<R: Read> Read for Hashing<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let room = usize::try_from(self.left)
            .unwrap_or(usize::MAX)
            .min(buffer.len());
        let buffer = &mut buffer[..room];
        let mut read = self.reader.read(buffer)?;
        if read == 0 && self.pads {
            buffer.fill(0);
            read = room;
        }
        self.hash.update(&buffer[..read]);
        self.left -= read as u64;
        Ok(read)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_files_of_a_state_directory_are_taken() {
        let exec = hotcell_domain::ExecId::from_parts(1, [7; 10]);
        let log = format!("logs/{exec}.head");
        for good in [
            "hotcell.db",
            "tokens.json",
            "scope",
            &log,
            "audit/00000000000000000001.jsonl",
        ] {
            assert!(check_name(good).is_ok(), "{good}");
        }
        let deeper = format!("logs/../{exec}.head");
        for odd in [
            "",
            "/",
            "..",
            "hotcell.sock",
            "server.lock",
            "run/ids/1",
            "../hotcell.db",
            "/hotcell.db",
            "./hotcell.db",
            "logs/x",
            "logs/",
            "audit/../x",
            "audit/1.jsonl",
            "manifest.json",
            &deeper,
        ] {
            assert!(check_name(odd).is_err(), "{odd}");
        }
    }

    #[test]
    fn what_is_shorter_than_it_was_is_filled_with_zeros() {
        let mut read = Vec::new();
        let mut hashing = Hashing::new(&b"ab"[..], 4).padded();
        hashing.read_to_end(&mut read).expect("it reads");
        assert_eq!(read, b"ab\0\0");
        let padded = hashing.entry();
        let mut whole = Hashing::new(&b"ab\0\0and more"[..], 4);
        io::copy(&mut whole, &mut io::sink()).expect("it reads");
        assert_eq!(padded, whole.entry());
    }
}
