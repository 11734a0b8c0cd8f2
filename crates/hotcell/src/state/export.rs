//! `hotcell state export`: a consistent copy while the server runs.
//!
//! The database is copied first, in one transaction of a connection of our own. Everything else is
//! read afterwards, so that nothing is missing that the rows refer to: output logs only grow, and
//! the audit log is at least as far as the anchor in the database. Memory usage does not depend on
//! the amount of data.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, IsTerminal, Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::SystemTime;

use anyhow::{Context, Result, bail};
use hotcell_domain::rfc3339;

use super::archive::{DATABASE, Entry, FILES, FORMAT, Hashing, MANIFEST, Manifest};
use crate::audit;
use crate::cli::StateExportArgs;

/// Only for its owner: it contains what the state directory contains.
const MODE: u32 = 0o600;

/// The file name that means stdout.
const STDOUT: &str = "-";

/// Writes the copy; on failure, leaves nothing behind but what stdout has.
pub(super) fn run(arguments: &StateExportArgs) -> Result<ExitCode> {
    let (files, schema) = if arguments.file == Path::new(STDOUT) {
        to_stdout(arguments)?
    } else {
        to_file(arguments, &arguments.file)?
    };
    eprintln!(
        "{files} files, with schema {schema}; containers, their workspaces and images are not in the copy"
    );
    Ok(ExitCode::SUCCESS)
}

fn to_file(arguments: &StateExportArgs, file: &Path) -> Result<(usize, u32)> {
    if file.symlink_metadata().is_ok() {
        bail!("{} exists already", file.display());
    }
    let database = Scratch::create(beside(file, "db.new"))?;
    let archive = Scratch::create(beside(file, "new"))?;
    let copied = copy(arguments, &database, &archive.file)?;
    archive
        .file
        .sync_all()
        .context("write the copy to the disk")?;
    archive.keep_as(file)?;
    Ok(copied)
}

/// A copy that is cut off has no manifest, and `import` refuses it.
fn to_stdout(arguments: &StateExportArgs) -> Result<(usize, u32)> {
    let stdout = io::stdout().lock();
    if stdout.is_terminal() {
        bail!("stdout is a terminal; name a file, or send the copy to a pipe");
    }
    let name = format!("hotcell-export-{}", std::process::id());
    let database = Scratch::create(beside(&std::env::temp_dir().join(name), "db.new"))?;
    copy(arguments, &database, stdout)
}

/// Writes the copy; returns the number of its files and the schema of the database.
fn copy(
    arguments: &StateExportArgs,
    database: &Scratch,
    archive: impl Write,
) -> Result<(usize, u32)> {
    let directory = super::directory(arguments.place.state.state_dir.clone())?;
    let schema = hotcell_store::copy_database(&directory, &database.path)?;
    let mut writer = ArchiveWriter::new(archive);
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
    Ok((writer.finish(schema)?, schema))
}

fn add_audit_log(writer: &mut ArchiveWriter<impl Write>, directory: &Path) -> Result<()> {
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

/// The path with a suffix added to its name.
fn beside(file: &Path, suffix: &str) -> PathBuf {
    let mut path = file.as_os_str().to_owned();
    path.push(".");
    path.push(suffix);
    path.into()
}

/// A temporary file that is removed unless it is kept.
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

    /// Gives the file its final name, unless that has been taken meanwhile.
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

struct ArchiveWriter<W: Write> {
    archive: tar::Builder<io::BufWriter<W>>,
    entries: BTreeMap<String, Entry>,
    unix_ms: u64,
}

impl<W: Write> ArchiveWriter<W> {
    fn new(archive: W) -> Self {
        let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
        Self {
            archive: tar::Builder::new(io::BufWriter::new(archive)),
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

    /// Adds the manifest; returns the number of files.
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
