//! Files that code has put into `/workspace/artifacts`, saved where a person finds them.
//!
//! Their names and contents are a container's: a file is always new, plain and directly in the
//! chosen directory, and its name is made of harmless characters.

use std::fs::File;
use std::io::{ErrorKind, Write};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};

/// Files that are saved of one run.
pub(crate) const FILES_MAX: usize = 64;

/// The largest file that is saved.
pub(crate) const FILE_BYTES_MAX: u64 = 256 << 20;

/// Bytes of a file's name.
const NAME_BYTES_MAX: usize = 100;

/// Files that may already have the same name.
const SAME_NAME_MAX: usize = 10_000;

/// Digits that tell the figures of one call from those of another.
const CALL_DIGITS: usize = 16;

/// Where files are saved. It is created with the first of them.
pub(crate) struct ArtifactDirectory(PathBuf);

/// A file that is being saved. Dropped before it is complete, it is removed.
pub(crate) struct NewArtifact {
    file: File,
    path: PathBuf,
    bytes: u64,
    is_complete: bool,
}

impl ArtifactDirectory {
    pub(crate) fn new(path: &Path) -> Self {
        Self(path.to_owned())
    }

    /// Creates a file for what the container calls `path`.
    pub(crate) fn create(&self, path: &str) -> Result<NewArtifact> {
        let (directory, name) = (self.0.as_path(), harmless_name(path));
        let shown = directory.display();
        std::fs::create_dir_all(directory).with_context(|| format!("create {shown}"))?;
        for number in 1..=SAME_NAME_MAX {
            let path = directory.join(numbered(&name, number));
            match File::create_new(&path) {
                Ok(file) => {
                    return Ok(NewArtifact {
                        file,
                        path,
                        bytes: 0,
                        is_complete: false,
                    });
                }
                Err(error) if error.kind() == ErrorKind::AlreadyExists => {}
                Err(error) => return Err(error).with_context(|| format!("save to {shown}")),
            }
        }
        bail!("{shown} has {SAME_NAME_MAX} files named like {name}")
    }
}

impl NewArtifact {
    pub(crate) fn write(&mut self, data: &[u8]) -> Result<()> {
        self.bytes += data.len() as u64;
        if self.bytes > FILE_BYTES_MAX {
            bail!("it has more than {FILE_BYTES_MAX} bytes");
        }
        let written = self.file.write_all(data);
        written.with_context(|| format!("write {}", self.path.display()))
    }

    /// All of it is there; returns where.
    pub(crate) fn complete(mut self) -> PathBuf {
        self.is_complete = true;
        self.path.clone()
    }
}

impl Drop for NewArtifact {
    fn drop(&mut self) {
        if !self.is_complete {
            let _ = std::fs::remove_file(&self.path);
        }
    }
}

/// A name for a file of `/workspace/artifacts`, whatever that is called.
fn harmless_name(path: &str) -> String {
    let path = path.strip_prefix("/workspace/").unwrap_or(path);
    let path = path.strip_prefix("artifacts/").unwrap_or(path);
    let harmless = |c: char| match c {
        c if c.is_alphanumeric() || "._-".contains(c) => c,
        _ => '_',
    };
    let mut name: String = path.chars().map(harmless).collect();
    if let Some(rest) = without_call(&name) {
        name = rest;
    }
    if name.is_empty() || name.starts_with(['.', '-']) {
        name.insert(0, '_');
    }
    // The end tells what kind of file it is.
    let mut start = name.len().saturating_sub(NAME_BYTES_MAX);
    while !name.is_char_boundary(start) {
        start += 1;
    }
    name.split_off(start)
}

/// The name of a figure without the number of the call that made it, which says nothing to a
/// person.
fn without_call(name: &str) -> Option<String> {
    let rest = name.strip_prefix("figure-")?;
    let (call, rest) = rest.split_at_checked(CALL_DIGITS)?;
    let is_number = call.bytes().all(|digit| digit.is_ascii_hexdigit());
    (is_number && rest.starts_with('-')).then(|| format!("figure{rest}"))
}

/// `a.png`, then `a-2.png` and so on.
fn numbered(name: &str, number: usize) -> String {
    if number == 1 {
        return name.to_owned();
    }
    match name.rsplit_once('.') {
        Some((stem, ending)) if !stem.is_empty() => format!("{stem}-{number}.{ending}"),
        Some(_) | None => format!("{name}-{number}"),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_figure_loses_the_number_of_its_call_and_nothing_else_does() {
        for (path, name) in [
            (
                "/workspace/artifacts/figure-00ff00ff00ff00ff-01.png",
                "figure-01.png",
            ),
            ("artifacts/figure-01.png", "figure-01.png"),
            ("artifacts/a b/c\u{1b}[2J.csv", "a_b_c__2J.csv"),
            ("artifacts/../../etc/passwd", "_.._.._etc_passwd"),
            ("artifacts/-rf", "_-rf"),
            ("artifacts/\u{202e}gnp.exe", "_gnp.exe"),
        ] {
            assert_eq!(harmless_name(path), name);
        }
    }

    #[test]
    fn no_file_is_replaced_and_none_is_left_half_written() {
        let home = tempfile::tempdir().expect("a directory");
        let place = home.path().join("new/place");
        let directory = ArtifactDirectory::new(&place);
        for name in ["a.png", "a-2.png", "a-3.png"] {
            let mut file = directory.create("artifacts/a.png").expect("a file");
            file.write(name.as_bytes()).expect("it is written");
            assert_eq!(file.complete(), place.join(name));
            let kept = std::fs::read_to_string(place.join(name)).expect("it is there");
            assert_eq!(kept, name);
        }
        // Not even one that leads elsewhere.
        std::os::unix::fs::symlink(home.path().join("target"), place.join("b.png"))
            .expect("a link");
        let file = directory.create("artifacts/b.png").expect("a file");
        assert_eq!(file.path, place.join("b-2.png"));
        drop(file);
        assert!(!place.join("b-2.png").exists() && !home.path().join("target").exists());
    }

    proptest! {
        #[test]
        fn a_name_is_short_and_stays_in_its_directory(path in any::<String>()) {
            let name = harmless_name(&path);
            prop_assert!((1..=NAME_BYTES_MAX).contains(&name.len()), "{name:?}");
            prop_assert!(!name.contains('/') && !name.contains(char::is_control));
            prop_assert!(name != "." && name != "..");
        }
    }
}
