//! `hotcell state import`: restores a copy into a state directory.
//!
//! ```text
//! read all of it: names, sizes, digests, manifest ─▶ write DIRECTORY.import-PID ─▶ check it
//!   ─▶ rename it to DIRECTORY, which must be empty or missing
//! ```
//!
//! The rename is the only visible step: before it nothing has changed, after it everything is
//! there.

use std::collections::BTreeMap;
use std::fs::{DirBuilder, File};
use std::io::{self, Read, Seek};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, Result, bail};
use hotcell_store::SCHEMA;

use super::archive::{
    DATABASE, Entry, FORMAT, Hashing, MANIFEST, MANIFEST_BYTES_MAX, Manifest, check_name,
};
use crate::cli::StateImportArgs;
use crate::serve::anchor_of;

/// Restores the copy; on failure, changes nothing.
pub(super) fn run(arguments: &StateImportArgs) -> Result<ExitCode> {
    let directory = super::directory(arguments.state.state_dir.clone())?;
    refuse_used(&directory)?;
    let shown = arguments.file.display();
    let mut file = File::open(&arguments.file).with_context(|| format!("open {shown}"))?;
    let manifest = verify(&file).with_context(|| format!("{shown} cannot be restored"))?;
    let staging = Staging::create(&directory)?;
    refuse_without_room(&staging.path, &manifest)?;
    file.rewind().context("read the copy again")?;
    extract(&file, &manifest, &staging.path)?;
    check(&staging.path)?;
    staging.become_state(&directory)?;
    eprintln!(
        "{} files of {}, written by Hotcell {}, are in {}",
        manifest.files.len(),
        manifest.created_at,
        manifest.hotcell,
        directory.display()
    );
    Ok(ExitCode::SUCCESS)
}

/// Refuses to replace a directory that is in use. A running server holds a lock in it.
fn refuse_used(directory: &Path) -> Result<()> {
    let mut entries = match std::fs::read_dir(directory) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        entries => entries.with_context(|| format!("look into {}", directory.display()))?,
    };
    if entries.next().is_none() {
        return Ok(());
    }
    bail!(
        "{} is not empty: a server uses it, or did. Stop the server and move the directory aside, or name another \
         with --state-dir",
        directory.display()
    );
}

/// Reads a whole archive and compares it with its manifest.
fn verify(file: &File) -> Result<Manifest> {
    let mut found = BTreeMap::new();
    let mut manifest = None;
    let mut archive = tar::Archive::new(io::BufReader::new(file));
    for entry in archive.entries().context("read it")? {
        let entry = entry.context("it is no copy of a state directory")?;
        let name = name(&entry)?;
        if manifest.is_some() {
            bail!("something follows its manifest");
        }
        if name == MANIFEST {
            manifest = Some(read_manifest(entry)?);
            continue;
        }
        check_name(&name)?;
        let mut data = Hashing::new(entry, u64::MAX);
        io::copy(&mut data, &mut io::sink()).with_context(|| format!("read {name}"))?;
        if found.insert(name.clone(), data.entry()).is_some() {
            bail!("it contains {name} twice");
        }
    }
    let Some(manifest) = manifest else {
        bail!("it has no manifest: the copy was not finished");
    };
    compare(&manifest, &found)?;
    Ok(manifest)
}

fn name<R: Read>(entry: &tar::Entry<'_, R>) -> Result<String> {
    if !entry.header().entry_type().is_file() {
        bail!("it contains something else than files");
    }
    let name = entry.path_bytes();
    let name = std::str::from_utf8(&name).context("a name in it is no text")?;
    Ok(name.to_owned())
}

fn read_manifest<R: Read>(entry: tar::Entry<'_, R>) -> Result<Manifest> {
    let mut text = Vec::new();
    let mut entry = entry.take(MANIFEST_BYTES_MAX);
    entry.read_to_end(&mut text).context("read its manifest")?;
    serde_json::from_slice(&text).context("its manifest cannot be read")
}

fn compare(manifest: &Manifest, found: &BTreeMap<String, Entry>) -> Result<()> {
    if manifest.format != FORMAT || manifest.schema > SCHEMA {
        bail!(
            "it was written by a newer Hotcell, {} (format {}, schema {}; this one knows {FORMAT} and {SCHEMA})",
            manifest.hotcell,
            manifest.format,
            manifest.schema
        );
    }
    if !manifest.files.contains_key(DATABASE) {
        bail!("it has no database");
    }
    for (name, entry) in &manifest.files {
        match found.get(name) {
            Some(found) if found == entry => {}
            Some(_) => bail!("{name} in it is damaged: it is not what its manifest says"),
            None => bail!("{name} is missing in it"),
        }
    }
    match found
        .keys()
        .find(|name| !manifest.files.contains_key(*name))
    {
        Some(name) => bail!("its manifest does not know {name}"),
        None => Ok(()),
    }
}

fn refuse_without_room(directory: &Path, manifest: &Manifest) -> Result<()> {
    let disk = rustix::fs::statvfs(directory).context("look at the disk")?;
    let free_bytes = disk.f_bavail.saturating_mul(disk.f_frsize);
    let wanted_bytes = manifest.files.values().map(|entry| entry.bytes).sum();
    if free_bytes < wanted_bytes {
        bail!("it needs {wanted_bytes} bytes of disk, and {free_bytes} are free");
    }
    Ok(())
}

/// Writes all files. Everything is verified once more, because the archive may have changed since
/// the first pass.
fn extract(file: &File, manifest: &Manifest, to: &Path) -> Result<()> {
    for directory in ["logs", "audit"] {
        private_directory(&to.join(directory))?;
    }
    let mut archive = tar::Archive::new(io::BufReader::new(file));
    for entry in archive.entries().context("read the copy again")? {
        let entry = entry.context("read the copy again")?;
        let name = name(&entry)?;
        let Some(expected) = manifest.files.get(&name) else {
            continue;
        };
        check_name(&name)?;
        let mut options = File::options();
        let options = options.write(true).create_new(true).mode(0o600);
        let write = || format!("write {name}");
        let mut written = options.open(to.join(&name)).with_context(write)?;
        let mut data = Hashing::new(entry, expected.bytes);
        io::copy(&mut data, &mut written).with_context(write)?;
        written.sync_all().with_context(write)?;
        if data.entry() != *expected {
            bail!("{name} was changed while the copy was read");
        }
    }
    for directory in ["logs", "audit", ""] {
        let synced = File::open(to.join(directory)).and_then(|opened| opened.sync_all());
        synced.context("write the copy to the disk")?;
    }
    Ok(())
}

/// Checks that the restored state is consistent. It contains no containers.
fn check(directory: &Path) -> Result<()> {
    let Some(found) = hotcell_store::check(directory)? else {
        bail!("the database in the copy is empty");
    };
    if let Some(fault) = found.faults.first() {
        bail!(
            "the copy disagrees with itself: {} {}",
            fault.subject,
            fault.found
        );
    }
    let anchor = found.anchor.as_ref().map(anchor_of).transpose()?;
    let verdict = hotcell_ledger::verify(&directory.join("audit"), anchor);
    let verdict = verdict.context("read the audit log of the copy")?;
    if let Some(fault) = verdict.faults.first() {
        bail!("the audit log of the copy is not whole: {fault}");
    }
    // Files that reading the database left behind.
    for suffix in ["-wal", "-shm"] {
        let _ = std::fs::remove_file(directory.join(format!("{DATABASE}{suffix}")));
    }
    Ok(())
}

fn private_directory(path: &Path) -> Result<()> {
    let made = DirBuilder::new().recursive(true).mode(0o700).create(path);
    made.with_context(|| format!("make {}", path.display()))
}

/// A directory beside the target, which is removed unless it is renamed to the target.
struct Staging {
    path: PathBuf,
}

impl Staging {
    fn create(directory: &Path) -> Result<Self> {
        let (Some(parent), Some(name)) = (directory.parent(), directory.file_name()) else {
            bail!("{} cannot be a state directory", directory.display());
        };
        private_directory(parent)?;
        let mut staging = name.to_owned();
        staging.push(format!(".import-{}", std::process::id()));
        let path = parent.join(staging);
        let made = DirBuilder::new().mode(0o700).create(&path);
        made.with_context(|| format!("make {}", path.display()))?;
        Ok(Self { path })
    }

    fn become_state(self, directory: &Path) -> Result<()> {
        let renamed = std::fs::rename(&self.path, directory);
        renamed.with_context(|| {
            format!(
                "move what was restored to {}, which must be empty and no mount point",
                directory.display()
            )
        })?;
        let parent = directory.parent().unwrap_or(Path::new("/"));
        let synced = File::open(parent).and_then(|parent| parent.sync_all());
        synced.context("write the directory to the disk")
    }
}

impl Drop for Staging {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.path);
    }
}
