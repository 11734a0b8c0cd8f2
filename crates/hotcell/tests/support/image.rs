//! An image made of Debian's static busybox, as `docker save` would write it.

use std::path::{Path, PathBuf};
use std::process::Command;

use hotcell_domain::{Digest, ImagePolicy};
use hotcell_image::{Images, silent};
use serde_json::json;
use sha2::{Digest as _, Sha256};

/// The name of the image.
pub(crate) const NAME: &str = "localhost/busybox";

const BUSYBOX: &str = "/bin/busybox";

/// Loads the image into `DIR/images`.
pub(crate) async fn busybox(dir: &Path) -> Images {
    let images = Images::open(&dir.join("images")).expect("a store");
    let file = archive(dir);
    let policy = ImagePolicy::default();
    let loaded = images.load(&file, None, &policy, &silent()).await;
    loaded.expect("the image can be loaded");
    images
}

/// Writes the archive; returns its path.
pub(crate) fn archive(dir: &Path) -> PathBuf {
    archive_saying(dir, "yes")
}

/// Like [`archive`], with another value of `FROM_IMAGE`: a different image with the same name.
pub(crate) fn archive_saying(dir: &Path, word: &str) -> PathBuf {
    let layer = layer();
    let config = json!({
        "architecture": architecture(),
        "os": "linux",
        "config": {"Env": ["PATH=/bin", format!("FROM_IMAGE={word}")], "User": "nobody", "WorkingDir": "/srv"},
        "rootfs": {"type": "layers", "diff_ids": [digest(&layer).as_str()]},
    });
    let list = json!([{
        "Config": "config.json",
        "RepoTags": [format!("{NAME}:latest")],
        "Layers": ["layer.tar"],
    }]);
    let files = [
        ("layer.tar", layer),
        ("config.json", config.to_string().into_bytes()),
        ("manifest.json", list.to_string().into_bytes()),
    ];
    let mut builder = tar::Builder::new(Vec::new());
    for (name, content) in &files {
        append(&mut builder, name, content, 0o644);
    }
    let path = dir.join("busybox.tar");
    let bytes = builder.into_inner().expect("memory");
    std::fs::write(&path, bytes).expect("room for an image");
    path
}

/// Busybox under each of its names, and files that only their owner may read.
fn layer() -> Vec<u8> {
    let program = std::fs::read(BUSYBOX).expect("busybox-static is installed");
    let list = Command::new(BUSYBOX).arg("--list").output();
    let list = String::from_utf8(list.expect("busybox runs").stdout).expect("text");
    let mut builder = tar::Builder::new(Vec::new());
    append(&mut builder, "bin/busybox", &program, 0o755);
    append(
        &mut builder,
        "etc/passwd",
        b"root:x:0:0:root:/root:/bin/sh\n",
        0o644,
    );
    append(&mut builder, "etc/secret", b"of root\n", 0o600);
    for name in list.lines().filter(|name| *name != "busybox") {
        let mut header = tar::Header::new_gnu();
        header.set_entry_type(tar::EntryType::Symlink);
        header.set_size(0);
        header.set_mode(0o777);
        let path = format!("bin/{name}");
        builder
            .append_link(&mut header, path, "busybox")
            .expect("memory");
    }
    builder.into_inner().expect("memory")
}

fn append(builder: &mut tar::Builder<Vec<u8>>, path: &str, content: &[u8], mode: u32) {
    let mut header = tar::Header::new_gnu();
    header.set_size(content.len() as u64);
    header.set_mode(mode);
    header.set_uid(0);
    header.set_gid(0);
    builder
        .append_data(&mut header, path, content)
        .expect("memory");
}

pub(crate) fn digest(bytes: &[u8]) -> Digest {
    Digest::from_sha256(Sha256::digest(bytes).into())
}

pub(crate) fn architecture() -> &'static str {
    match std::env::consts::ARCH {
        "x86_64" => "amd64",
        "aarch64" => "arm64",
        other => other,
    }
}
