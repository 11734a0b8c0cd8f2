//! An OCI image layout with nothing in it but the program, which runs as a user without privileges.
//! `skopeo copy oci-archive:FILE docker-daemon:hotcell:VERSION` loads it.

use anyhow::Result;
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use super::contents::Entry;
use super::{Product, Release, archive, hex};

/// The user in the image; nobody's on most systems.
const UID: u32 = 65532;

const STATE: &str = "var/lib/hotcell";

/// The layout as one tar, `hotcell-VERSION-oci.tar`.
pub(super) fn layout(release: &Release) -> Result<Product> {
    let tar = root(release)?;
    let diff_id = digest(&tar);
    let layer = archive::gzip(&tar)?;
    let created = rfc3339(release.epoch_s);
    let config = json!({
        "architecture": "amd64", "os": "linux", "created": created,
        "config": {
            "User": format!("{UID}:{UID}"),
            "Entrypoint": ["/usr/bin/hotcell"], "Cmd": ["serve"],
            "Env": [format!("HOTCELL_STATE_DIR=/{STATE}"), "HOTCELL_HOST=0.0.0.0", "HOTCELL_AUTH=bearer", "PATH=/usr/bin", format!("HOME=/{STATE}")],
            "ExposedPorts": { "8000/tcp": {} }, "Volumes": { format!("/{STATE}"): {} }, "StopSignal": "SIGTERM",
            "Labels": { "org.opencontainers.image.title": "hotcell", "org.opencontainers.image.version": release.version, "org.opencontainers.image.licenses": "MIT OR Apache-2.0" },
        },
        "rootfs": { "type": "layers", "diff_ids": [diff_id] },
        "history": [{ "created": created, "created_by": "cargo xtask dist" }],
    });
    let config = config.to_string().into_bytes();
    let manifest = json!({
        "schemaVersion": 2, "mediaType": "application/vnd.oci.image.manifest.v1+json",
        "config": descriptor("application/vnd.oci.image.config.v1+json", &config),
        "layers": [descriptor("application/vnd.oci.image.layer.v1.tar+gzip", &layer)],
    });
    let manifest = manifest.to_string().into_bytes();
    let mut top = descriptor("application/vnd.oci.image.manifest.v1+json", &manifest);
    top["annotations"] = json!({ "org.opencontainers.image.ref.name": release.version });
    let index = json!({ "schemaVersion": 2, "mediaType": "application/vnd.oci.image.index.v1+json", "manifests": [top] });
    let mut entries: Vec<Entry> = [config, manifest, layer].map(blob).into_iter().collect();
    entries.push(file("index.json", index.to_string().into_bytes()));
    entries.push(file(
        "oci-layout",
        br#"{"imageLayoutVersion":"1.0.0"}"#.to_vec(),
    ));
    entries.sort_by(|one, other| one.path.cmp(&other.path));
    let bytes = archive::tar(&entries, release.epoch_s)?;
    Ok(Product {
        name: format!("hotcell-{}-oci.tar", release.version),
        bytes,
    })
}

/// The file system: the program, its user, and a state directory of that user's.
fn root(release: &Release) -> Result<Vec<u8>> {
    let users = format!(
        "root:x:0:0:root:/:/sbin/nologin\nhotcell:x:{UID}:{UID}:hotcell:/{STATE}:/sbin/nologin\n"
    );
    let groups = format!("root:x:0:\nhotcell:x:{UID}:\n");
    let entries = [
        file("etc/group", groups.into_bytes()),
        file("etc/passwd", users.into_bytes()),
        Entry {
            path: "usr/bin/hotcell".to_owned(),
            mode: 0o755,
            bytes: release.binary.clone(),
        },
    ];
    let mut builder = tar::Builder::new(Vec::new());
    let mut state = archive::header(tar::EntryType::Directory, 0o700, 0, release.epoch_s);
    state.set_uid(UID.into());
    state.set_gid(UID.into());
    let mut scratch = archive::header(tar::EntryType::Directory, 0o1777, 0, release.epoch_s);
    builder.append_data(&mut state, format!("{STATE}/"), &[][..])?;
    builder.append_data(&mut scratch, "tmp/", &[][..])?;
    let mut special = builder.into_inner()?;
    // Without the two empty blocks that end an archive: more follows.
    special.truncate(special.len() - 1024);
    special.extend(archive::tar(&entries, release.epoch_s)?);
    Ok(special)
}

fn file(path: &str, bytes: Vec<u8>) -> Entry {
    Entry {
        path: path.to_owned(),
        mode: 0o644,
        bytes,
    }
}

fn blob(bytes: Vec<u8>) -> Entry {
    file(
        &format!("blobs/sha256/{}", hex(&Sha256::digest(&bytes))),
        bytes,
    )
}

fn digest(bytes: &[u8]) -> String {
    format!("sha256:{}", hex(&Sha256::digest(bytes)))
}

fn descriptor(media_type: &str, bytes: &[u8]) -> Value {
    json!({ "mediaType": media_type, "digest": digest(bytes), "size": bytes.len() })
}

/// The time as OCI images and bills of materials write it.
pub(super) fn rfc3339(epoch_s: u64) -> String {
    hotcell_domain::rfc3339(epoch_s.saturating_mul(1000))
}
