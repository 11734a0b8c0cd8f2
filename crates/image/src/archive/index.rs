//! The index of an image archive: which file is where.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, BufReader, Read};

use tar::EntryType;

use super::{PartReader, WHAT, is_plain};
use crate::ImageError;
use crate::bounds::{ARCHIVE_SMALL_BYTES_MAX, Bounds, PATH_BYTES_MAX};
use crate::store::Store;
use crate::unpack::{Members, Meter, UnpackError, decompressed};

/// The longest chain of links.
const LINKS_MAX: usize = 4;

/// The position of some content.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Part {
    pub(super) offset: u64,
    pub(super) size: u64,
}

enum Entry {
    File(Part),
    Link(String),
}

/// The files of an archive.
pub(super) struct Index {
    file: File,
    entries: BTreeMap<String, Entry>,
}

/// Counts the bytes read.
struct Counting<R> {
    inner: R,
    at: u64,
}

impl<R: Read> Read for Counting<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let len = self.inner.read(buffer)?;
        self.at += len as u64;
        Ok(len)
    }
}

impl Index {
    /// Reads a whole archive, which may be compressed.
    pub(super) fn read(mut file: File, store: &Store, bounds: &Bounds) -> Result<Self, ImageError> {
        let step = "read the image archive";
        if !is_plain(&mut file).map_err(ImageError::disk(step))? {
            file = unfold(file, store, bounds)?;
        }
        let source = file.try_clone().map_err(ImageError::disk(step))?;
        let counting = Counting {
            inner: BufReader::with_capacity(1 << 20, source),
            at: 0,
        };
        let meter = Meter::of_image_archive();
        let mut members = Members::new(counting, &meter);
        let mut entries = BTreeMap::new();
        while let Some(member) = members.next().map_err(malformed)? {
            if member.path.len().max(member.link.len()) > PATH_BYTES_MAX {
                return Err(ImageError::invalid(WHAT, "a name is too long"));
            }
            let part = Part {
                offset: members.source().at,
                size: member.size,
            };
            let path = plain(&member.path);
            let kind = member.kind;
            if kind.is_file() || kind == EntryType::Continuous {
                entries.insert(path, Entry::File(part));
            } else if kind.is_hard_link() {
                entries.insert(path, Entry::Link(plain(&member.link)));
            } else if kind.is_symlink() {
                let target = relative(&path, &plain(&member.link));
                entries.insert(path, Entry::Link(target));
            }
        }
        Ok(Self { file, entries })
    }

    /// The position of a file; follows links within the archive.
    pub(super) fn part(&self, path: &str) -> Option<Part> {
        let mut path = path.to_owned();
        for _ in 0..=LINKS_MAX {
            match self.entries.get(&path)? {
                Entry::File(part) => return Some(*part),
                Entry::Link(target) => path.clone_from(target),
            }
        }
        None
    }

    /// The content of a file that must be small.
    pub(super) fn small(&self, path: &str) -> Result<Option<Vec<u8>>, ImageError> {
        let Some(part) = self.part(path) else {
            return Ok(None);
        };
        if part.size > ARCHIVE_SMALL_BYTES_MAX {
            return Err(ImageError::TooLarge {
                what: "a file of an image archive",
                max: ARCHIVE_SMALL_BYTES_MAX,
            });
        }
        let mut content = Vec::new();
        self.open(&part)?
            .read_to_end(&mut content)
            .map_err(ImageError::disk("read the image archive"))?;
        Ok(Some(content))
    }

    pub(super) fn open(&self, part: &Part) -> Result<PartReader, ImageError> {
        PartReader::new(&self.file, part).map_err(ImageError::disk("read the image archive"))
    }
}

/// Decompresses an archive into an unnamed file.
fn unfold(file: File, store: &Store, bounds: &Bounds) -> Result<File, ImageError> {
    let step = "decompress the image archive";
    let staging = store.staging_path()?;
    let mut options = File::options();
    let options = options.create_new(true).read(true).write(true);
    let mut plain = options
        .open(staging.path())
        .map_err(ImageError::disk(step))?;
    let max = bounds.unpacked_bytes_max;
    let archive = decompressed(file).map_err(ImageError::disk(step))?;
    let copied = io::copy(&mut archive.take(max + 1), &mut plain);
    if copied.map_err(ImageError::disk(step))? > max {
        return Err(ImageError::TooLarge { what: WHAT, max });
    }
    io::Seek::rewind(&mut plain).map_err(ImageError::disk(step))?;
    Ok(plain)
}

fn malformed(error: UnpackError) -> ImageError {
    if matches!(error, UnpackError::TooLarge { .. }) {
        return error.into();
    }
    ImageError::invalid(WHAT, error.to_string())
}

/// Normalizes a path; only compared with other paths of the archive.
fn plain(path: &[u8]) -> String {
    let text = String::from_utf8_lossy(path);
    text.trim_start_matches("./").trim_matches('/').to_owned()
}

/// Resolves a link's target relative to `path`.
fn relative(path: &str, target: &str) -> String {
    let mut parts: Vec<&str> = path.split('/').collect();
    parts.pop();
    for part in target.split('/') {
        match part {
            "" | "." => {}
            ".." => drop(parts.pop()),
            part => parts.push(part),
        }
    }
    parts.join("/")
}
