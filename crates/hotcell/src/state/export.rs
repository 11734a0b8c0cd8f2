//! `hotcell state export`: a consistent copy while the server runs.
//!
//! The database is copied first, in one transaction of a connection of our own. Everything else is
//! read afterwards, so nothing is missing that its rows speak of: output logs only grow, and the
//! audit log is at least as far as the anchor in the database. Memory does not depend on how much
//! there is.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::SystemTime;

use anyhow::{Context, Result, bail};
use hotcell_domain::rfc3339;

use super::archive::{DATABASE, Entry, FILES, FORMAT, Hashing, MANIFEST, Manifest};
use crate::audit;
use crate::cli::StateExportArgs;

/// For its owner alone: it holds what the state directory holds.
const MODE: u32 = 0o600;

/// Writes the copy, or leaves nothing.
pub(super) fn run(arguments: &StateExportArgs) -> Result<ExitCode> {
    let directory = super::directory(arguments.place.state.state_dir.clone())?;
    let file = &arguments.file;
    if file.symlink_metadata().is_ok() {
        bail!("{} exists already", file.display());
    }
    let database = Scratch::create(beside(file, "db.new"))?;
    let archive = Scratch::create(beside(file, "new"))?;
    let schema = hotcell_store::copy_database(&directory, &database.path)?;
    let mut writer = ArchiveWriter::new(&archive.file);
    let copied = hotcell_store::copy_logs(&directory, &database.path, |name, log, bytes| {
        let log = Hashing::new(log, bytes).padded();
        writer.add(&format!("logs/{name}"), log, bytes)
    });
    copied.context("copy the output logs")?;
    writer.add_file(DATABASE, &database.path)?;
    add_audit_log(&mut writer, &audit::place(&arguments.place)?)?;
    for name in FILES {
        let path = directory.join(name);
        if path.exists() {
            writer.add_file(name, &path)?;
        }
    }
    let files = writer.finish(schema)?;
    archive
        .file
        .sync_all()
        .context("write the copy to the disk")?;
    archive.keep_as(file)?;
    eprintln!("{files} files, with schema {schema}");
    Ok(ExitCode::SUCCESS)
}

fn add_audit_log(writer: &mut ArchiveWriter<'_>, directory: &Path) -> Result<()> {
    if !directory.is_dir() {
        return Ok(());
    }
    let copied = hotcell_ledger::segment_files(directory, |name, segment, bytes| {
        writer.add(
            &format!("audit/{name}"),
            Hashing::new(segment, bytes),
            bytes,
        )
    });
    copied.context("copy the audit log; if retention removed a part of it just now, try again")
}

/// The path with this added to its name.
fn beside(file: &Path, suffix: &str) -> PathBuf {
    let mut path = file.as_os_str().to_owned();
    path.push(".");
    path.push(suffix);
    path.into()
}

/// A file that is removed again, unless it is kept.
struct Scratch {
    path: PathBuf,
    file: File,
}

impl Scratch {
    fn create(path: PathBuf) -> Result<Self> {
        let mut options = File::options();
        let options = options.read(true).write(true).create_new(true).mode(MODE);
        let file = options.open(&path);
        let file = file.with_context(|| format!("create {}", path.display()))?;
        Ok(Self { path, file })
    }

    /// Gives it its name, which nobody else has taken meanwhile.
    fn keep_as(self, path: &Path) -> Result<()> {
        let linked = std::fs::hard_link(&self.path, path);
        linked.with_context(|| format!("create {}", path.display()))
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.path);
    }
}

struct ArchiveWriter<'a> {
    archive: tar::Builder<io::BufWriter<&'a File>>,
    entries: BTreeMap<String, Entry>,
    unix_ms: u64,
}

impl<'a> ArchiveWriter<'a> {
    fn new(file: &'a File) -> Self {
        let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
        Self {
            archive: tar::Builder::new(io::BufWriter::new(file)),
            entries: BTreeMap::new(),
            unix_ms: now.map_or(0, |now| u64::try_from(now.as_millis()).unwrap_or(0)),
        }
    }

    fn add<R: Read>(&mut self, name: &str, mut data: Hashing<R>, bytes: u64) -> Result<()> {
        self.append(name, &mut data, bytes)?;
        let entry = data.entry();
        if entry.bytes != bytes {
            bail!("{name} became shorter while it was copied; try again");
        }
        self.entries.insert(name.to_owned(), entry);
        Ok(())
    }

    fn add_file(&mut self, name: &str, path: &Path) -> Result<()> {
        let read = || format!("read {}", path.display());
        let file = File::open(path).with_context(read)?;
        let bytes = file.metadata().with_context(read)?.len();
        self.add(name, Hashing::new(file, bytes), bytes)
    }

    fn append(&mut self, name: &str, data: &mut impl Read, bytes: u64) -> Result<()> {
        let mut header = tar::Header::new_ustar();
        header.set_mode(MODE);
        header.set_mtime(self.unix_ms / 1000);
        header.set_size(bytes);
        let added = self.archive.append_data(&mut header, name, data);
        added.with_context(|| format!("copy {name}"))
    }

    /// Adds the manifest; returns how many files there are.
    fn finish(mut self, schema: u32) -> Result<usize> {
        let manifest = Manifest {
            format: FORMAT,
            hotcell: env!("CARGO_PKG_VERSION").to_owned(),
            schema,
            created_at: rfc3339(self.unix_ms),
            files: std::mem::take(&mut self.entries),
        };
        let text = serde_json::to_vec(&manifest)?;
        self.append(MANIFEST, &mut text.as_slice(), text.len() as u64)?;
        let mut buffered = self.archive.into_inner().context("finish the copy")?;
        buffered.flush().context("finish the copy")?;
        Ok(manifest.files.len())
    }
}
