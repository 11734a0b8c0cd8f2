//! Pulls an image: resolve the name, fetch what is missing, make it visible once it is complete.

use std::collections::BTreeSet;

use futures_util::{StreamExt, TryStreamExt};
use hotcell_domain::{Admitted, Digest, Reference, Source, Transport};

use crate::accounts::Accounts;
use crate::bounds::PULL_DOWNLOADS_MAX;
use crate::hash::digest_of;
use crate::layer::{self, Unpacker};
use crate::registry::{Credentials, Descriptor, Manifest, Registry, parse_config, parse_manifest};
use crate::store::{Config, Image, ImageRecord, Origin, RefRecord, now_s};
use crate::{ImageError, Images, Progress, Report};

/// A resolved name.
pub(crate) struct Resolved {
    pub(crate) digest: Digest,
    pub(crate) manifest: Digest,
    pub(crate) config: Config,
    pub(crate) layers: Vec<Layer>,
}

/// A layer with its compressed and its unpacked digest.
#[derive(Clone)]
pub(crate) struct Layer {
    pub(crate) blob: Descriptor,
    pub(crate) diff_id: Digest,
}

impl Images {
    /// Resolves a name in its registry and fetches what is missing.
    ///
    /// Concurrent pulls of the same image, in this process or another, wait for the first one and
    /// share its result. On `Err`, and if dropped, the name refers to what it did before.
    pub async fn pull(
        &self,
        source: &Admitted<Source>,
        credentials: &Credentials,
        report: &Report,
    ) -> Result<Image, ImageError> {
        let source = source.value();
        let reference = &source.reference;
        if source.transport == Transport::Nowhere {
            let reference = reference.clone();
            return Err(ImageError::NotHere { reference });
        }
        let _hold = self.store.hold()?;
        let asked_at_s = now_s();
        let key = digest_of(reference.to_string().as_bytes());
        let (_lock, has_waited) = self.store.lock(&format!("ref-{}", key.hex())).await?;
        let fresh = |image: &Image| has_waited && image.pulled_since(asked_at_s);
        if let Some(image) = self.store.find(reference).filter(fresh) {
            return Ok(image);
        }
        let login = credentials.login(reference.registry()).await?;
        let registry = Registry::connect(source, login, self.bounds).await?;
        let resolved = self.resolve(&registry, reference).await?;
        report(resolved.announced());
        self.fetch(&registry, &resolved, report).await?;
        self.keep(reference, &resolved, Origin::Registry)
    }

    async fn resolve(
        &self,
        registry: &Registry,
        reference: &Reference,
    ) -> Result<Resolved, ImageError> {
        let bytes = registry.manifest(reference.digest()).await?;
        let digest = digest_of(&bytes);
        let mut manifest = digest.clone();
        let mut parsed = parse_manifest(&bytes, reference, &self.bounds)?;
        if let Manifest::Elsewhere(descriptor) = parsed {
            let bytes = registry.manifest(Some(&descriptor.digest)).await?;
            parsed = parse_manifest(&bytes, reference, &self.bounds)?;
            manifest = descriptor.digest;
        }
        let Manifest::Image { config, layers } = parsed else {
            return Err(ImageError::invalid("a manifest", "an index lists an index"));
        };
        let bytes = registry.config(&config.digest).await?;
        let (config, diff_ids) = parse_config(&bytes, reference)?;
        Ok(Resolved {
            digest,
            manifest,
            config,
            layers: paired(layers, diff_ids)?,
        })
    }

    async fn fetch(
        &self,
        registry: &Registry,
        resolved: &Resolved,
        report: &Report,
    ) -> Result<(), ImageError> {
        let unpacker = Unpacker::new(self, report);
        let layers = resolved.unique();
        // Collected first, because a future that contains this closure is not `Send`.
        let fetched: Vec<_> = layers
            .iter()
            .map(|layer| self.layer(registry, layer, &unpacker, report))
            .collect();
        futures_util::stream::iter(fetched)
            .buffer_unordered(PULL_DOWNLOADS_MAX)
            .try_collect()
            .await
    }

    async fn layer(
        &self,
        registry: &Registry,
        layer: &Layer,
        unpacker: &Unpacker,
        report: &Report,
    ) -> Result<(), ImageError> {
        let diff_id = &layer.diff_id;
        let name = format!("layer-{}", diff_id.hex());
        let (lock, _) = self.store.lock(&name).await?;
        if self.store.has_layer(diff_id) {
            let layer = diff_id.clone();
            report(Progress::Shared { layer });
            return Ok(());
        }
        let path = self.store.blob(&layer.blob.digest, diff_id);
        let downloading = |bytes| {
            report(Progress::Downloading {
                layer: diff_id.clone(),
                bytes,
                total: layer.blob.size,
            });
        };
        let permit = self.permits.download().await?;
        let file = (path.as_path(), &lock);
        registry.blob(&layer.blob, file, &downloading).await?;
        drop(permit);
        let blob = layer::open(&path)?;
        let outcome = unpacker.unpack(blob, diff_id).await;
        if !matches!(outcome, Err(ImageError::Cancelled)) {
            // Either it is no longer needed, or it is unusable.
            let _ = std::fs::remove_file(&path);
        }
        outcome
    }

    /// Makes an image visible; all its layers must be here.
    pub(crate) fn keep(
        &self,
        reference: &Reference,
        resolved: &Resolved,
        origin: Origin,
    ) -> Result<Image, ImageError> {
        resolved.check_digest_of(reference)?;
        let layers = resolved.unique();
        let paths: Vec<_> = layers
            .iter()
            .map(|layer| self.store.layer(&layer.diff_id))
            .collect();
        let record = RefRecord {
            reference: reference.to_string(),
            digest: resolved.digest.to_string(),
            manifest: resolved.manifest.to_string(),
            origin,
            pulled_at_s: now_s(),
        };
        let image = ImageRecord {
            layers: layers
                .iter()
                .map(|layer| layer.diff_id.to_string())
                .collect(),
            config: resolved.config.clone(),
            size_bytes: layers.iter().map(|layer| layer.blob.size).sum(),
            accounts: Accounts::of_layers(&paths),
        };
        self.store.save(&record, &image)
    }
}

impl Resolved {
    /// The layers without duplicates. Of equal layers only the topmost counts: it hides the others,
    /// and overlayfs accepts each directory once.
    pub(crate) fn unique(&self) -> Vec<Layer> {
        let mut seen = BTreeSet::new();
        let is_new = |layer: &&Layer| seen.insert(layer.diff_id.clone());
        let mut layers: Vec<_> = self.layers.iter().rev().filter(is_new).cloned().collect();
        layers.reverse();
        layers
    }

    /// A name with a digest must refer to exactly that content.
    pub(crate) fn check_digest_of(&self, reference: &Reference) -> Result<(), ImageError> {
        match reference.digest() {
            Some(expected) if *expected != self.digest => Err(ImageError::WrongDigest {
                what: "an image that is named by its digest",
                expected: expected.clone(),
                found: self.digest.clone(),
            }),
            _ => Ok(()),
        }
    }

    /// The progress report before anything is fetched.
    pub(crate) fn announced(&self) -> Progress {
        let layers = self.unique();
        let layers = layers
            .iter()
            .map(|one| (one.diff_id.clone(), one.blob.size));
        Progress::Resolved {
            digest: self.manifest.clone(),
            layers: layers.collect(),
        }
    }
}

/// Pairs the layers of the manifest with those of the configuration, which lists other digests.
pub(crate) fn paired(
    blobs: Vec<Descriptor>,
    diff_ids: Vec<Digest>,
) -> Result<Vec<Layer>, ImageError> {
    if blobs.len() != diff_ids.len() {
        let reason = "its configuration and its manifest list different layers";
        return Err(ImageError::invalid("an image", reason));
    }
    let pairs = blobs.into_iter().zip(diff_ids);
    Ok(pairs
        .map(|(blob, diff_id)| Layer { blob, diff_id })
        .collect())
}

impl Image {
    fn pulled_since(&self, seconds: u64) -> bool {
        let since = std::time::UNIX_EPOCH + std::time::Duration::from_secs(seconds);
        self.pulled_at >= since
    }
}
