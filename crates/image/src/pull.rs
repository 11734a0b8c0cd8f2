//! Pulling: look the name up, fetch what is missing, make it visible when all of it is here.

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

/// What a name stands for.
pub(crate) struct Resolved {
    pub(crate) digest: Digest,
    pub(crate) manifest: Digest,
    pub(crate) config: Config,
    pub(crate) layers: Vec<Layer>,
}

/// A layer as it is sent and as it is kept.
#[derive(Clone)]
pub(crate) struct Layer {
    pub(crate) blob: Descriptor,
    pub(crate) diff_id: Digest,
}

impl Images {
    /// Looks a name up in its registry and fetches what is missing.
    ///
    /// Those who pull the same at once, in this process or another, wait for the first and
    /// share what it fetched. On `Err`, and when dropped, the name means what it meant
    /// before.
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
        // Collected, because a future with that closure in it could not change its thread.
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
            // Either it is not needed any more, or it is no use.
            let _ = std::fs::remove_file(&path);
        }
        outcome
    }

    /// Makes an image visible whose layers are all here.
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
    /// The layers without repetitions. Of several that are the same only the topmost
    /// counts: it hides all of the others, and overlayfs takes each directory once.
    pub(crate) fn unique(&self) -> Vec<Layer> {
        let mut seen = BTreeSet::new();
        let is_new = |layer: &&Layer| seen.insert(layer.diff_id.clone());
        let mut layers: Vec<_> = self.layers.iter().rev().filter(is_new).cloned().collect();
        layers.reverse();
        layers
    }

    /// A name with a digest stands for that alone, whoever gave the name.
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

    /// What is told before anything is fetched.
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

/// The manifest and the configuration list the same layers, each in its own way.
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
