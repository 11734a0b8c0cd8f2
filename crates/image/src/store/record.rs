//! Records of images, as JSON files.
//!
//! An unreadable record counts as missing: the image is fetched again.

use std::fs;
use std::io::{self, Read};
use std::path::Path;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use hotcell_domain::{Digest, Reference};
use serde::{Deserialize, Serialize};

use super::Store;
use crate::ImageError;
use crate::accounts::Accounts;

/// A record contains an image's environment and accounts.
const RECORD_BYTES_MAX: u64 = 8 << 20;

/// A complete image in the store.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Image {
    /// The name under which it was found.
    pub reference: Reference,
    /// What the name resolved to: the digest for a pinned reference.
    pub digest: Digest,
    /// The manifest for this host; equal to `digest` unless that is a multi-platform index.
    pub manifest: Digest,
    /// Its layers without duplicates, lowest first.
    pub layers: Vec<Digest>,
    /// Its process settings.
    pub config: Config,
    /// Compressed size of its layers.
    pub size_bytes: u64,
    /// Where it came from.
    pub origin: Origin,
    /// When the name was last resolved.
    pub pulled_at: SystemTime,
    /// When a container was last created from it.
    pub used_at: SystemTime,
    /// `/etc/passwd` and `/etc/group`, with an entry for the container's user.
    pub accounts: Accounts,
}

/// Process settings of an image. User and entry point are informational only: everything runs as
/// the container's user, and callers choose what runs.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Config {
    /// Environment variables; those of the container take precedence.
    pub env: Vec<(String, String)>,
    /// Its working directory.
    pub workdir: Option<String>,
    /// Its user.
    pub user: Option<String>,
}

/// Where an image came from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Origin {
    /// The registry in its name.
    Registry,
    /// A file: `hotcell pull --from`.
    File,
}

/// The record of a name.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct RefRecord {
    pub(crate) reference: String,
    pub(crate) digest: String,
    pub(crate) manifest: String,
    pub(crate) origin: Origin,
    pub(crate) pulled_at_s: u64,
}

/// The record of a manifest.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct ImageRecord {
    pub(crate) layers: Vec<String>,
    pub(crate) config: Config,
    pub(crate) size_bytes: u64,
    pub(crate) accounts: Accounts,
}

impl Store {
    /// The image behind a name, if it is complete.
    pub(crate) fn find(&self, reference: &Reference) -> Option<Image> {
        let record: RefRecord = read(&self.ref_path(reference))?;
        self.complete(&record)
            .filter(|image| image.reference == *reference)
    }

    /// All images, by name.
    pub(crate) fn list(&self) -> Result<Vec<Image>, ImageError> {
        let mut images: Vec<Image> = self
            .records("refs")?
            .iter()
            .filter_map(|path| self.complete(&read(path)?))
            .collect();
        images.sort_by(|a, b| a.reference.cmp(&b.reference));
        Ok(images)
    }

    fn complete(&self, record: &RefRecord) -> Option<Image> {
        let manifest = Digest::parse(&record.manifest).ok()?;
        let path = self.image_path(&manifest);
        let image: ImageRecord = read(&path)?;
        let layers = parse_all(&image.layers)?;
        if !layers.iter().all(|layer| self.has_layer(layer)) {
            return None;
        }
        let reference = Reference::parse(&record.reference).ok()?;
        let digest = Digest::parse(&record.digest).ok()?;
        // A name with a digest must not refer to other content.
        if reference.digest().is_some_and(|pinned| *pinned != digest) {
            return None;
        }
        Some(Image {
            reference,
            digest,
            manifest,
            layers,
            config: image.config,
            size_bytes: image.size_bytes,
            origin: record.origin,
            pulled_at: UNIX_EPOCH + Duration::from_secs(record.pulled_at_s),
            used_at: fs::metadata(path).and_then(|it| it.modified()).ok()?,
            accounts: image.accounts,
        })
    }

    /// Makes an image visible under a name; its layers are here.
    pub(crate) fn save(
        &self,
        record: &RefRecord,
        image: &ImageRecord,
    ) -> Result<Image, ImageError> {
        let text =
            |error: serde_json::Error| ImageError::disk("write a record")(io::Error::other(error));
        let reference = Reference::parse(&record.reference)
            .map_err(|error| ImageError::invalid("a name", error.to_string()))?;
        let manifest = Digest::parse(&record.manifest)
            .map_err(|error| ImageError::invalid("a digest", error.to_string()))?;
        let image = serde_json::to_vec(image).map_err(text)?;
        self.write(&self.image_path(&manifest), &image)?;
        let record = serde_json::to_vec(record).map_err(text)?;
        self.write(&self.ref_path(&reference), &record)?;
        self.find(&reference)
            .ok_or(ImageError::NotHere { reference })
    }

    /// Records that a container was created from it.
    pub(crate) fn touch(&self, manifest: &Digest) {
        // Only the garbage collector reads this, so failure is harmless.
        let _ = fs::File::open(self.image_path(manifest))
            .and_then(|file| file.set_modified(SystemTime::now()));
    }

    /// The records in one of our directories.
    pub(super) fn records(&self, directory: &str) -> Result<Vec<std::path::PathBuf>, ImageError> {
        let entries = fs::read_dir(self.dir.join(directory)).and_then(|entries| {
            entries
                .map(|entry| Ok(entry?.path()))
                .collect::<io::Result<Vec<_>>>()
        });
        entries.map_err(ImageError::disk("list the image store"))
    }
}

pub(super) fn layers_of(record: &Path) -> Option<Vec<Digest>> {
    parse_all(&read::<ImageRecord>(record)?.layers)
}

pub(super) fn read<T: serde::de::DeserializeOwned>(path: &Path) -> Option<T> {
    let mut text = Vec::new();
    let file = fs::File::open(path).ok()?;
    file.take(RECORD_BYTES_MAX).read_to_end(&mut text).ok()?;
    serde_json::from_slice(&text).ok()
}

fn parse_all(digests: &[String]) -> Option<Vec<Digest>> {
    digests
        .iter()
        .map(|digest| Digest::parse(digest).ok())
        .collect()
}

pub(crate) fn now_s() -> u64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    now.map_or(0, |now| now.as_secs())
}
