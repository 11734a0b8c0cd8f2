//! The machine's kernel and root disk, built by `tests/vm/build` and cached in `target/vm` under
//! the hash of the recipe: only a changed recipe is built again.

use std::hash::{DefaultHasher, Hasher};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};

/// The files that define the image. The guest's other scripts are on the second disk.
const RECIPE: [&str; 3] = ["build", "fetch-kernel", "initrd-init"];

/// Attempts at building it: the packages come from the network.
const BUILD_TRIES_MAX: u32 = 3;

/// Delay before the second attempt; doubles each time.
const BUILD_PAUSE: Duration = Duration::from_secs(10);

/// The directory with `vmlinuz`, `initrd` and `root.ext4`; builds it if necessary.
pub(crate) fn ready() -> Result<PathBuf> {
    let recipe = crate::workspace::root().join("tests/vm");
    let cache = crate::workspace::target().join("vm");
    let image = cache.join(format!("image-{:016x}", key(&recipe)?));
    if !image.is_dir() {
        build_at_last(&recipe, &cache, &image)?;
    }
    Ok(image)
}

fn build_at_last(recipe: &Path, cache: &Path, image: &Path) -> Result<()> {
    for attempt in 1..BUILD_TRIES_MAX {
        match build(recipe, cache, image) {
            Ok(()) => return Ok(()),
            Err(error) => eprintln!("{error:#}; once more"),
        }
        std::thread::sleep(BUILD_PAUSE * attempt);
    }
    build(recipe, cache, image)
}

/// The search path including the administrator's programs, which ordinary users often lack.
pub(crate) fn search_path() -> String {
    let path = std::env::var("PATH").unwrap_or_default();
    format!("{path}:/usr/local/sbin:/usr/sbin:/sbin")
}

/// Builds beside the cache and moves the result, so that an interrupted build leaves no image.
fn build(recipe: &Path, cache: &Path, image: &Path) -> Result<()> {
    let partial = cache.join(format!("partial-{}", std::process::id()));
    std::fs::create_dir_all(&partial)?;
    eprintln!("building the test machine");
    let start = Instant::now();
    let status = as_root(&recipe.join("build"))
        .arg(&partial)
        .env("PATH", search_path())
        .status()
        .context("run tests/vm/build")?;
    if !status.success() {
        std::fs::remove_dir_all(&partial)?;
    }
    ensure!(status.success(), "tests/vm/build failed: {status}");
    std::fs::rename(&partial, image)?;
    eprintln!("built it in {} s", start.elapsed().as_secs());
    remove_older(cache, image)
}

fn as_root(program: &Path) -> Command {
    use std::os::unix::fs::MetadataExt as _;
    let is_root = std::fs::metadata("/proc/self").is_ok_and(|me| me.uid() == 0);
    if is_root {
        return Command::new(program);
    }
    let mut command = Command::new("sudo");
    command.arg("-n").arg(program);
    command
}

fn remove_older(cache: &Path, image: &Path) -> Result<()> {
    for entry in std::fs::read_dir(cache)? {
        let path = entry?.path();
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        if name.starts_with("image-") && path != image {
            std::fs::remove_dir_all(&path)?;
        }
    }
    Ok(())
}

fn key(recipe: &Path) -> Result<u64> {
    let mut hasher = DefaultHasher::new();
    for name in RECIPE {
        let text = std::fs::read(recipe.join(name)).with_context(|| format!("read {name}"))?;
        hasher.write_usize(text.len());
        hasher.write(&text);
    }
    Ok(hasher.finish())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_changed_recipe_has_another_key() {
        let recipe = tempfile::tempdir().unwrap();
        for name in RECIPE {
            std::fs::write(recipe.path().join(name), name).unwrap();
        }
        let before = key(recipe.path()).unwrap();
        assert_eq!(before, key(recipe.path()).unwrap());
        std::fs::write(recipe.path().join("initrd-init"), "other").unwrap();
        assert_ne!(before, key(recipe.path()).unwrap());
    }
}
