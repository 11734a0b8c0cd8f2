//! Builds images byte by byte.

#![expect(missing_docs, reason = "what a test calls reads as what it does")]

use std::io::Write;

use flate2::Compression;
use flate2::write::GzEncoder;
use hotcell_domain::Digest;
use serde_json::json;
use sha2::{Digest as _, Sha256};

pub fn digest(bytes: &[u8]) -> Digest {
    Digest::from_sha256(Sha256::digest(bytes).into())
}

/// A layer as a tar and in compressed form.
#[derive(Clone)]
pub struct Layer {
    pub tar: Vec<u8>,
    pub blob: Vec<u8>,
}

/// A layer with these files.
pub fn layer(files: &[(&str, &[u8])]) -> Layer {
    let mut builder = tar::Builder::new(Vec::new());
    for (path, content) in files {
        let mut header = tar::Header::new_gnu();
        header.set_size(content.len() as u64);
        header.set_mode(0o755);
        builder
            .append_data(&mut header, path, *content)
            .expect("a member");
    }
    let tar = builder.into_inner().expect("an archive");
    let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
    encoder.write_all(&tar).expect("memory");
    let blob = encoder.finish().expect("memory");
    Layer { tar, blob }
}

/// Incompressible bytes.
pub fn noise(len: usize) -> Vec<u8> {
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    let next = |_| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state.to_le_bytes()[0]
    };
    (0..len).map(next).collect()
}

/// An image for this platform, or for another.
pub struct Made {
    pub layers: Vec<Layer>,
    pub config: Vec<u8>,
    pub manifest: Vec<u8>,
}

pub fn architecture() -> &'static str {
    match std::env::consts::ARCH {
        "x86_64" => "amd64",
        "aarch64" => "arm64",
        other => other,
    }
}

pub fn image(layers: &[Layer]) -> Made {
    image_for(layers, architecture())
}

pub fn image_for(layers: &[Layer], architecture: &str) -> Made {
    let diff_ids: Vec<_> = layers
        .iter()
        .map(|one| digest(&one.tar).to_string())
        .collect();
    let config = json!({
        "architecture": architecture,
        "os": "linux",
        "config": {
            "Env": ["PATH=/opt/bin:/bin", "MADE=by a test", "broken"],
            "WorkingDir": "/srv",
            "User": "app",
            "Entrypoint": ["/bin/false"],
        },
        "rootfs": {"type": "layers", "diff_ids": diff_ids},
    });
    let config = config.to_string().into_bytes();
    let described: Vec<_> = layers
        .iter()
        .map(|one| {
            json!({
                "mediaType": "application/vnd.oci.image.layer.v1.tar+gzip",
                "digest": digest(&one.blob).as_str(),
                "size": one.blob.len(),
            })
        })
        .collect();
    let manifest = json!({
        "schemaVersion": 2,
        "mediaType": "application/vnd.oci.image.manifest.v1+json",
        "config": {
            "mediaType": "application/vnd.oci.image.config.v1+json",
            "digest": digest(&config).as_str(),
            "size": config.len(),
        },
        "layers": described,
    });
    Made {
        layers: layers.to_vec(),
        config,
        manifest: manifest.to_string().into_bytes(),
    }
}

/// An index with these manifests for these architectures.
pub fn index(entries: &[(&Made, &str)]) -> Vec<u8> {
    let manifests: Vec<_> = entries
        .iter()
        .map(|(made, architecture)| {
            json!({
                "mediaType": "application/vnd.oci.image.manifest.v1+json",
                "digest": digest(&made.manifest).as_str(),
                "size": made.manifest.len(),
                "platform": {"architecture": architecture, "os": "linux"},
            })
        })
        .collect();
    let index = json!({
        "schemaVersion": 2,
        "mediaType": "application/vnd.oci.image.index.v1+json",
        "manifests": manifests,
    });
    index.to_string().into_bytes()
}
