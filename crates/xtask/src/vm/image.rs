//! The machine's kernel and root disk. `tests/vm/image` builds and caches them, because `./test` has it do so
//! before there is an xtask.

use std::path::PathBuf;
use std::process::{Command, Stdio};

use anyhow::{Context, Result, ensure};

/// The directory with `vmlinuz`, `initrd` and `root.ext4`; builds it if necessary.
pub(crate) fn ready() -> Result<PathBuf> {
    let script = crate::workspace::root().join("tests/vm/image");
    let output = Command::new(script)
        .arg(crate::workspace::target().join("vm"))
        .stderr(Stdio::inherit())
        .output()
        .context("run tests/vm/image")?;
    ensure!(
        output.status.success(),
        "tests/vm/image failed: {}",
        output.status
    );
    let path = String::from_utf8(output.stdout).context("the path of the image")?;
    let image = PathBuf::from(path.trim_end());
    ensure!(image.is_dir(), "tests/vm/image printed {path:?}");
    Ok(image)
}

/// The search path including the administrator's programs, which ordinary users often lack.
pub(crate) fn search_path() -> String {
    let path = std::env::var("PATH").unwrap_or_default();
    format!("{path}:/usr/local/sbin:/usr/sbin:/sbin")
}
