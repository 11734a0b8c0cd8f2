//! Tar archives whose bytes depend on nothing but their content, and the release archive.

use std::collections::BTreeSet;
use std::io::Write;

use anyhow::{Context, Result};
use flate2::Compression;
use flate2::write::GzEncoder;
use tar::{Builder, EntryType, Header};

use super::contents::{self, Entry};
use super::{Product, Release};

/// The archive for systems without a package: unpack it anywhere.
pub(super) fn release(release: &Release) -> Result<Product> {
    let root = format!("hotcell-{}-x86_64-linux", release.version);
    let entries = contents::entries(release)?.into_iter().map(|entry| {
        let path = entry.path.strip_prefix("usr/").unwrap_or(&entry.path);
        Entry {
            path: format!("{root}/{path}"),
            ..entry
        }
    });
    let tar = tar(&entries.collect::<Vec<_>>(), release.epoch_s)?;
    Ok(Product {
        name: format!("{root}.tar.gz"),
        bytes: gzip(&tar)?,
    })
}

/// Compressed without a name or a time.
pub(super) fn gzip(bytes: &[u8]) -> Result<Vec<u8>> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::best());
    encoder.write_all(bytes).context("compress")?;
    encoder.finish().context("compress")
}

/// The entries in their order, each after the directories that it is in. All belong to root.
pub(super) fn tar(entries: &[Entry], epoch_s: u64) -> Result<Vec<u8>> {
    let mut builder = Builder::new(Vec::new());
    let mut made = BTreeSet::new();
    for entry in entries {
        for (end, _) in entry.path.match_indices('/') {
            let directory = &entry.path[..end];
            if made.insert(directory.to_owned()) {
                let mut header = header(EntryType::Directory, 0o755, 0, epoch_s);
                append(&mut builder, &mut header, &format!("{directory}/"), &[])?;
            }
        }
        let mut header = header(EntryType::Regular, entry.mode, entry.bytes.len(), epoch_s);
        append(&mut builder, &mut header, &entry.path, &entry.bytes)?;
    }
    builder.into_inner().context("end the archive")
}

/// A directory or a file of root's.
pub(super) fn header(kind: EntryType, mode: u32, size: usize, epoch_s: u64) -> Header {
    let mut header = Header::new_gnu();
    header.set_entry_type(kind);
    header.set_mode(mode);
    header.set_size(size as u64);
    header.set_mtime(epoch_s);
    header.set_uid(0);
    header.set_gid(0);
    header
}

fn append(
    builder: &mut Builder<Vec<u8>>,
    header: &mut Header,
    path: &str,
    bytes: &[u8],
) -> Result<()> {
    builder
        .append_data(header, path, bytes)
        .with_context(|| format!("pack {path}"))
}
