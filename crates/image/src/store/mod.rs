//! The image store on disk.
//!
//! ```text
//! DIR/lock              shared by pulls and starting containers, exclusive for removal
//!   refs/HASH.json      what a name refers to
//!   images/HEX.json     configuration and layers of an image, by manifest digest
//!   layers/HEX/         an unpacked layer, by the digest of its archive
//!   blobs/HEX-HEX       partial downloads, by both digests of the layer
//!   new/                files being created or deleted
//!   locks/              one per running fetch
//! ```
//!
//! Everything in `refs`, `images` and `layers` is complete: it is created in `new`, synced, and
//! moved. So a crash at any point leaves only files in `new` and `blobs`, and layers without an
//! image. [`crate::Images::gc`] removes them: blobs after a day, the others at once.

mod gc;
mod lock;
mod record;

use std::fs::{self, File};
use std::io::{self, Write};
use std::os::fd::OwnedFd;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

use hotcell_domain::{Digest, Reference};
use rustix::fs::{CWD, Mode, OFlags};

pub use self::gc::Collected;
pub(crate) use self::lock::Lock;
use self::lock::Locked;
pub use self::record::{Config, Image, Origin};
pub(crate) use self::record::{ImageRecord, RefRecord, now_s};
use crate::ImageError;
use crate::hash::digest_of;

const DIRECTORIES: [&str; 6] = ["refs", "images", "layers", "blobs", "new", "locks"];

/// The store's directory.
#[derive(Debug)]
pub(crate) struct Store {
    dir: PathBuf,
}

/// Prevents the removal of layers. Released when dropped, or when the process dies.
#[derive(Debug)]
pub struct GcHold {
    _lock: Locked,
}

/// A path in `new` that is removed unless it is moved.
pub(crate) struct StagingPath {
    path: PathBuf,
    moved: bool,
}

impl Store {
    /// Opens the store; creates it if it is missing.
    pub(crate) fn open(dir: &Path) -> Result<Self, ImageError> {
        let directory = |path: &Path, mode| {
            let mut builder = fs::DirBuilder::new();
            builder.recursive(true).mode(mode).create(path)
        };
        let dir = std::path::absolute(dir).map_err(ImageError::disk("find the image store"))?;
        let made = directory(&dir, 0o700).and_then(|()| {
            DIRECTORIES
                .iter()
                // Containers need to search these; the parent directory decides who else may.
                .try_for_each(|name| directory(&dir.join(name), 0o755))
        });
        made.map_err(ImageError::disk("make the image store"))?;
        Ok(Self { dir })
    }

    fn lock_file(&self) -> Result<File, ImageError> {
        let mut options = File::options();
        let options = options.create(true).truncate(false).read(true).write(true);
        options
            .open(self.dir.join("lock"))
            .map_err(ImageError::disk("open the image store's lock"))
    }

    /// Prevents all removal until it is dropped.
    pub(crate) fn hold(&self) -> Result<GcHold, ImageError> {
        let lock = self.lock_file()?;
        // Removal holds the lock only briefly: files are moved away first and deleted later.
        let held = rustix::io::retry_on_intr(|| {
            rustix::fs::flock(&lock, rustix::fs::FlockOperation::LockShared)
        });
        held.map_err(ImageError::disk("lock the image store"))?;
        Ok(GcHold {
            _lock: Locked(lock),
        })
    }

    /// Joins whoever fetches the same content; also returns whether it had to wait.
    pub(crate) async fn lock(&self, what: &str) -> Result<(Lock, bool), ImageError> {
        Lock::acquire(&self.dir.join("locks").join(what)).await
    }

    /// The download file of a layer. Its name has both digests, so that the holder of the layer's
    /// lock is the only writer, whatever other images claim about the blob.
    pub(crate) fn blob(&self, digest: &Digest, diff_id: &Digest) -> PathBuf {
        let name = format!("{}-{}", digest.hex(), diff_id.hex());
        self.dir.join("blobs").join(name)
    }

    pub(crate) fn layers(&self) -> PathBuf {
        self.dir.join("layers")
    }

    pub(crate) fn layer(&self, diff_id: &Digest) -> PathBuf {
        self.layers().join(diff_id.hex())
    }

    pub(crate) fn has_layer(&self, diff_id: &Digest) -> bool {
        self.layer(diff_id).is_dir()
    }

    /// An unused name in `new`.
    pub(crate) fn staging_path(&self) -> Result<StagingPath, ImageError> {
        let mut random = [0_u8; 16];
        let filled = getrandom::fill(&mut random);
        filled.map_err(|error| ImageError::disk("draw a name")(io::Error::other(error)))?;
        let name = u128::from_ne_bytes(random);
        Ok(StagingPath {
            path: self.dir.join("new").join(format!("{name:032x}")),
            moved: false,
        })
    }

    fn write(&self, to: &Path, text: &[u8]) -> Result<(), ImageError> {
        let step = "write a record";
        let staging = self.staging_path()?;
        let write = || -> io::Result<()> {
            let mut file = File::create_new(&staging.path)?;
            file.write_all(text)?;
            file.sync_data()
        };
        write().map_err(ImageError::disk(step))?;
        staging.move_to(to)?;
        sync_parent(to).map_err(ImageError::disk(step))
    }

    fn ref_path(&self, reference: &Reference) -> PathBuf {
        let key = digest_of(reference.to_string().as_bytes());
        self.dir.join("refs").join(format!("{}.json", key.hex()))
    }

    fn image_path(&self, manifest: &Digest) -> PathBuf {
        let name = format!("{}.json", manifest.hex());
        self.dir.join("images").join(name)
    }
}

impl StagingPath {
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Creates an empty directory there.
    pub(crate) fn directory(&self) -> Result<OwnedFd, ImageError> {
        let step = "make a directory for a layer";
        let mut builder = fs::DirBuilder::new();
        let made = builder.mode(0o755).create(&self.path);
        made.map_err(ImageError::disk(step))?;
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        rustix::fs::openat(CWD, &self.path, flags, Mode::empty()).map_err(ImageError::disk(step))
    }

    /// Makes a tree visible once it is on disk: after a power cut it is there completely or not at
    /// all. Syncs the whole filesystem, because syncing each file would take far longer.
    pub(crate) fn move_tree_to(self, path: &Path) -> Result<(), ImageError> {
        let step = "bring a layer to the disk";
        let tree = File::open(&self.path).map_err(ImageError::disk(step))?;
        rustix::fs::syncfs(&tree).map_err(ImageError::disk(step))?;
        self.move_to(path)?;
        sync_parent(path).map_err(ImageError::disk(step))
    }

    /// Makes it visible as it is.
    pub(crate) fn move_to(mut self, path: &Path) -> Result<(), ImageError> {
        match fs::rename(&self.path, path) {
            Ok(()) => self.moved = true,
            // Another process was faster, with the same content; ours is removed.
            Err(error) if error.kind() == io::ErrorKind::DirectoryNotEmpty => {}
            Err(error) => return Err(ImageError::disk("move what was made")(error)),
        }
        Ok(())
    }
}

impl Drop for StagingPath {
    fn drop(&mut self) {
        if !self.moved {
            remove(&self.path);
        }
    }
}

/// Syncs the directory entry.
fn sync_parent(path: &Path) -> io::Result<()> {
    File::open(path.parent().unwrap_or(path))?.sync_all()
}

/// Removes a file or a tree; what remains in `new` is removed by the next collection.
fn remove(path: &Path) {
    if fs::remove_file(path).is_err() {
        let _ = fs::remove_dir_all(path);
    }
}
