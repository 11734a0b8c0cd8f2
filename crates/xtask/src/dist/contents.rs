//! The files of an installation, by their paths below `/`.

use std::path::Path;

use anyhow::{Context, Result, ensure};

use super::{Release, archive};

/// A file as it is installed.
#[derive(Debug, Clone)]
pub(super) struct Entry {
    /// Without the first slash.
    pub(super) path: String,
    pub(super) mode: u32,
    pub(super) bytes: Vec<u8>,
}

const PROGRAM: u32 = 0o755;
const DATA: u32 = 0o644;

/// Files of the source and where they are installed.
const COPIED: [(&str, &str); 10] = [
    (
        "crates/hotcell/src/completions/hotcell.bash",
        "usr/share/bash-completion/completions/hotcell",
    ),
    (
        "crates/hotcell/src/completions/hotcell.fish",
        "usr/share/fish/vendor_completions.d/hotcell.fish",
    ),
    (
        "crates/hotcell/src/completions/hotcell.zsh",
        "usr/share/zsh/vendor-completions/_hotcell",
    ),
    (
        "packaging/systemd/hotcell.service",
        "usr/lib/systemd/system/hotcell.service",
    ),
    (
        "packaging/systemd/hotcell.socket",
        "usr/lib/systemd/system/hotcell.socket",
    ),
    (
        "packaging/systemd/hotcell-user.service",
        "usr/lib/systemd/user/hotcell.service",
    ),
    (
        "packaging/debian/copyright",
        "usr/share/doc/hotcell/copyright",
    ),
    ("LICENSE-APACHE", "usr/share/doc/hotcell/LICENSE-APACHE"),
    ("LICENSE-MIT", "usr/share/doc/hotcell/LICENSE-MIT"),
    ("README.md", "usr/share/doc/hotcell/README.md"),
];

/// All files, sorted by path. Manual pages and the changelog are compressed, as Debian has them.
pub(super) fn entries(release: &Release) -> Result<Vec<Entry>> {
    let read = |path: &str| read(&release.source, path);
    let mut entries = vec![Entry {
        path: "usr/bin/hotcell".to_owned(),
        mode: PROGRAM,
        bytes: release.binary.clone(),
    }];
    for (from, to) in COPIED {
        entries.push(Entry {
            path: to.to_owned(),
            mode: DATA,
            bytes: read(from)?,
        });
    }
    let changelog = archive::gzip(&read("CHANGELOG.md")?)?;
    entries.push(Entry {
        path: "usr/share/doc/hotcell/changelog.gz".to_owned(),
        mode: DATA,
        bytes: changelog,
    });
    let manual =
        std::fs::read_dir(release.source.join("docs/man")).context("find the manual pages")?;
    let before = entries.len();
    for page in manual {
        let name = page?
            .file_name()
            .into_string()
            .ok()
            .context("a manual page has an odd name")?;
        let bytes = archive::gzip(&read(&format!("docs/man/{name}"))?)?;
        entries.push(Entry {
            path: format!("usr/share/man/man1/{name}.gz"),
            mode: DATA,
            bytes,
        });
    }
    ensure!(entries.len() > before, "there are no manual pages");
    entries.sort_by(|one, other| one.path.cmp(&other.path));
    Ok(entries)
}

pub(super) fn read(source: &Path, path: &str) -> Result<Vec<u8>> {
    std::fs::read(source.join(path)).with_context(|| format!("read {path}"))
}
