//! How long a pull takes, beside podman's. Run by hand, on a quiet machine and optimised:
//!
//! ```text
//! cargo test --release -p hotcell-image --test speed -- --ignored --nocapture
//! ```

#![expect(
    clippy::unwrap_used,
    reason = "a test ends where its ground is missing"
)]

mod support;

use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use hotcell_image::Bounds;
use support::made::{Layer, image, layer, noise};
use support::registry::Registry;
use support::{Ground, is_installed};

/// Pulls of each; they take turns.
const ROUNDS: usize = 5;

/// Files of the layer, and what each of them holds: half of it does not compress.
const FILES: usize = 2000;
const HALF_BYTES: usize = 50_000;

fn large_layer() -> Layer {
    let noise = noise(FILES * 64 + HALF_BYTES);
    let text = b"the quick brown fox jumps over the lazy dog\n".repeat(HALF_BYTES / 44 + 1);
    let files: Vec<_> = (0..FILES)
        .map(|n| {
            let random = &noise[n * 64..n * 64 + HALF_BYTES];
            let mut content = random.to_vec();
            // Files that share no block with each other.
            for byte in &mut content {
                *byte = byte.wrapping_add(n.to_le_bytes()[0]);
            }
            content.extend_from_slice(&text[..HALF_BYTES]);
            (format!("usr/share/d{}/f{n}", n % 50), content)
        })
        .collect();
    let files: Vec<_> = files
        .iter()
        .map(|(path, content)| (path.as_str(), &content[..]))
        .collect();
    layer(&files)
}

fn podman(dir: &Path, name: &str) -> Duration {
    let policy = dir.join("policy.json");
    std::fs::write(
        &policy,
        r#"{"default": [{"type": "insecureAcceptAnything"}]}"#,
    )
    .unwrap();
    let start = Instant::now();
    let status = Command::new("podman")
        .arg("--root")
        .arg(dir.join("root"))
        .arg("--runroot")
        .arg(dir.join("run"))
        .args(["--storage-driver", "overlay", "--runtime", "runc"])
        .args([
            "pull",
            "--quiet",
            "--tls-verify=false",
            "--signature-policy",
        ])
        .arg(&policy)
        .arg(name)
        .stdout(Stdio::null())
        .status();
    assert!(status.unwrap().success());
    start.elapsed()
}

fn middle(mut times: Vec<Duration>) -> Duration {
    times.sort_unstable();
    times[times.len() / 2]
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "a measurement"]
async fn image_speed() {
    let Some(registry) = Registry::start(false).await else {
        return;
    };
    let large = large_layer();
    let (packed, unpacked) = (large.blob.len() / 1_000_000, large.tar.len() / 1_000_000);
    let name = registry.push("large", &image(&[large])).await;
    let (mut ours, mut theirs) = (Vec::new(), Vec::new());
    for _ in 0..ROUNDS {
        let ground = Ground::with(Bounds::default());
        let start = Instant::now();
        ground.pull(&name).await.unwrap();
        ours.push(start.elapsed());
        drop(ground);
        if is_installed("podman") {
            let dir = tempfile::tempdir().unwrap();
            theirs.push(podman(dir.path(), &name));
        }
    }
    let theirs = if theirs.is_empty() {
        "absent".to_owned()
    } else {
        format!("{} ms", middle(theirs).as_millis())
    };
    let ours = middle(ours).as_millis();
    eprintln!("layer of {packed} MB, {unpacked} MB unpacked: ours {ours} ms, podman {theirs}");
}
