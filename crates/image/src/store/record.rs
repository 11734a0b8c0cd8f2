//! What is known of an image, and how it is written down.
//!
//! A record that cannot be read is as good as none: the image is fetched again.

use std::fs;
use std::io::{self, Read};
use std::path::Path;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use hotcell_domain::{Digest, Reference};
use serde::{Deserialize, Serialize};

use super::Store;
use crate::ImageError;
use crate::accounts::Accounts;

/// A record holds an image's environment and its accounts.
const RECORD_BYTES_MAX: u64 = 8 << 20;

/// An image that is here, complete.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Image {
    /// The name it was asked for by.
    pub reference: Reference,
    /// What the name stands for: what a pinned reference would say.
    pub digest: Digest,
    /// The manifest for this host; the same as `digest` unless that is of many platforms.
    pub manifest: Digest,
    /// Its layers, the lowest first, each once.
    pub layers: Vec<Digest>,
    /// What it says about its processes.
    pub config: Config,
    /// The bytes of its layers as they were sent.
    pub size_bytes: u64,
    /// Where it came from.
    pub origin: Origin,
    /// When it was looked up.
    pub pulled_at: SystemTime,
    /// When a container was last made of it.
    pub used_at: SystemTime,
    /// `/etc/passwd` and `/etc/group`, with an entry for the container's user.
    pub accounts: Accounts,
}

/// What an image says about its processes. Its user and its entry point are for
/// information: everything runs as the container's user, and what runs is asked for.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Config {
    /// Variables, below those of the container.
    pub env: Vec<(String, String)>,
    /// Where its processes would start.
    pub workdir: Option<String>,
    /// Whom its processes would run as.
    pub user: Option<String>,
}

/// Where an image came from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Origin {
    /// From the registry in its name.
    Registry,
    /// From a file.
    File,
}

/// What a name stands for.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct RefRecord {
    pub(crate) reference: String,
    pub(crate) digest: String,
    pub(crate) manifest: String,
    pub(crate) origin: Origin,
    pub(crate) pulled_at_s: u64,
}

/// An image by its manifest.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct ImageRecord {
    pub(crate) layers: Vec<String>,
    pub(crate) config: Config,
    pub(crate) size_bytes: u64,
    pub(crate) accounts: Accounts,
}

impl Store {
    /// What a name stands for, if all of it is here.
    pub(crate) fn find(&self, reference: &Reference) -> Option<Image> {
        let record: RefRecord = read(&self.ref_path(reference))?;
        self.complete(&record)
            .filter(|image| image.reference == *reference)
    }

    /// Every image that is here, by name.
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
        // A name that says which content it means is never that of other content.
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

    /// Makes an image visible under a name. Its layers are here.
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

    /// Remembers that a container was made of it.
    pub(crate) fn touch(&self, manifest: &Digest) {
        // Only what collects unused images wants to know.
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

/// The layers of an image, by its record.
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

/// Now, as it is written down.
pub(crate) fn now_s() -> u64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    now.map_or(0, |now| now.as_secs())
}
