//! Finds the images in an archive.

use hotcell_domain::{Digest, Reference};
use serde::Deserialize;
use std::collections::BTreeMap;

use super::WHAT;
use super::index::{Index, Part};
use crate::ImageError;
use crate::bounds::{ARCHIVE_IMAGES_MAX, Bounds};
use crate::hash::digest_of;
use crate::pull::{Resolved, paired};
use crate::registry::{Descriptor, Manifest, parse_config, parse_manifest};

/// An image, and where its layers are.
pub(super) struct ArchivedImage {
    pub(super) names: Vec<Reference>,
    pub(super) resolved: Resolved,
    /// The position of each layer.
    pub(super) parts: Vec<Part>,
}

/// One entry of `docker save`'s `manifest.json`.
#[derive(Deserialize)]
struct SavedManifest {
    #[serde(rename = "Config")]
    config: String,
    #[serde(rename = "RepoTags")]
    tags: Option<Vec<String>>,
    #[serde(rename = "Layers")]
    layers: Vec<String>,
}

/// An OCI layout's `index.json`.
#[derive(Deserialize)]
struct Layout {
    manifests: Vec<IndexEntry>,
}

#[derive(Deserialize)]
struct IndexEntry {
    digest: String,
    #[serde(default)]
    annotations: BTreeMap<String, String>,
}

/// The annotations of an OCI layout that hold a name: a full one, or only the tag.
const NAMES: [&str; 2] = [
    "io.containerd.image.name",
    "org.opencontainers.image.ref.name",
];

/// Finds all images. Prefers the list of `docker save`, because it has the names.
pub(super) fn images(index: &Index, bounds: &Bounds) -> Result<Vec<ArchivedImage>, ImageError> {
    if let Some(text) = index.small("manifest.json")? {
        let saved: Vec<SavedManifest> = parse(&text)?;
        let saved = saved.iter().take(ARCHIVE_IMAGES_MAX + 1);
        return saved.map(|saved| docker(index, saved, bounds)).collect();
    }
    if let Some(text) = index.small("index.json")? {
        let layout: Layout = parse(&text)?;
        let listed = layout.manifests.iter().take(ARCHIVE_IMAGES_MAX + 1);
        return listed.map(|listed| oci(index, listed, bounds)).collect();
    }
    Err(ImageError::invalid(
        WHAT,
        "it has neither manifest.json nor index.json",
    ))
}

fn docker(
    index: &Index,
    saved: &SavedManifest,
    bounds: &Bounds,
) -> Result<ArchivedImage, ImageError> {
    let names = saved.tags.iter().flatten();
    let names: Vec<_> = names.filter_map(|tag| Reference::parse(tag).ok()).collect();
    if saved.layers.len() > bounds.layers_max || saved.layers.is_empty() {
        return Err(ImageError::invalid(
            WHAT,
            "an image has no layers or too many",
        ));
    }
    let config = index.small(&saved.config)?.ok_or_else(missing)?;
    let digest = digest_of(&config);
    let (config, diff_ids) = parse_config(&config, &shown(&names, &digest)?)?;
    let parts = saved
        .layers
        .iter()
        .map(|path| index.part(path).ok_or_else(missing));
    let parts: Vec<Part> = parts.collect::<Result<_, _>>()?;
    // A layer's file has no digest here; the digest of its unpacked content is verified.
    let blobs = parts
        .iter()
        .zip(&diff_ids)
        .map(|(part, diff_id)| Descriptor {
            digest: diff_id.clone(),
            size: part.size,
        });
    let blobs = blobs.collect::<Vec<_>>();
    let resolved = Resolved {
        manifest: digest.clone(),
        digest,
        config,
        layers: paired(blobs, diff_ids)?,
    };
    Ok(ArchivedImage {
        names,
        resolved,
        parts,
    })
}

fn oci(index: &Index, listed: &IndexEntry, bounds: &Bounds) -> Result<ArchivedImage, ImageError> {
    let digest = Digest::parse(&listed.digest)
        .map_err(|error| ImageError::invalid(WHAT, error.to_string()))?;
    let names = NAMES.iter().filter_map(|key| listed.annotations.get(*key));
    let names: Vec<_> = names
        .filter_map(|name| Reference::parse(name).ok())
        .take(1)
        .collect();
    let about = shown(&names, &digest)?;
    let mut manifest = digest.clone();
    let mut parsed = parse_manifest(&blob(index, &digest)?, &about, bounds)?;
    if let Manifest::Elsewhere(descriptor) = parsed {
        manifest = descriptor.digest;
        parsed = parse_manifest(&blob(index, &manifest)?, &about, bounds)?;
    }
    let Manifest::Image { config, layers } = parsed else {
        return Err(ImageError::invalid(WHAT, "an index lists an index"));
    };
    let (config, diff_ids) = parse_config(&blob(index, &config.digest)?, &about)?;
    let parts = layers
        .iter()
        .map(|layer| index.part(&path_of(&layer.digest)).ok_or_else(missing));
    let parts = parts.collect::<Result<_, _>>()?;
    Ok(ArchivedImage {
        names,
        resolved: Resolved {
            digest,
            manifest,
            config,
            layers: paired(layers, diff_ids)?,
        },
        parts,
    })
}

/// Reads a blob of a layout and verifies it.
fn blob(index: &Index, digest: &Digest) -> Result<Vec<u8>, ImageError> {
    let content = index.small(&path_of(digest))?.ok_or_else(missing)?;
    let found = digest_of(&content);
    if found == *digest {
        return Ok(content);
    }
    Err(ImageError::WrongDigest {
        what: "a part of an image archive",
        expected: digest.clone(),
        found,
    })
}

fn path_of(digest: &Digest) -> String {
    format!("blobs/sha256/{}", digest.hex())
}

/// The name of an image for messages.
fn shown(names: &[Reference], digest: &Digest) -> Result<Reference, ImageError> {
    let anonymous = || Reference::parse(&format!("localhost/image@{digest}"));
    names
        .first()
        .cloned()
        .map_or_else(anonymous, Ok)
        .map_err(|error| ImageError::invalid(WHAT, error.to_string()))
}

fn missing() -> ImageError {
    ImageError::invalid(WHAT, "a part that it lists is missing")
}

fn parse<'a, T: Deserialize<'a>>(text: &'a [u8]) -> Result<T, ImageError> {
    serde_json::from_slice(text)
        .map_err(|_| ImageError::invalid(WHAT, "its list of images cannot be read"))
}
