//! Images from a file: the output of `docker save`, or an OCI image layout as a tar.
//!
//! The file is read once to index it; then its parts are read in place.

mod index;
mod layout;

use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom};
use std::path::Path;

use hotcell_domain::{ImagePolicy, PolicyError, Reference};
use tokio::task::spawn_blocking;

use self::index::{Index, Part};
use self::layout::ArchivedImage;
use crate::bounds::ARCHIVE_IMAGES_MAX;
use crate::layer::Unpacker;
use crate::store::{Image, Origin};
use crate::{ImageError, Images, Progress, Report};

const WHAT: &str = "an image archive";

impl Images {
    /// Loads the images of a file under their own names, or its only image as `name`. Policy must
    /// admit each name, and must allow local images.
    pub async fn load(
        &self,
        file: &Path,
        name: Option<&Reference>,
        policy: &ImagePolicy,
        report: &Report,
    ) -> Result<Vec<Image>, ImageError> {
        let _hold = self.store.hold()?;
        let opened = File::open(file).map_err(ImageError::disk("open the image archive"))?;
        if opened.metadata().is_ok_and(|it| it.is_dir()) {
            let reason = "it is a directory; make a tar of what is in it";
            return Err(ImageError::invalid("an image archive", reason));
        }
        let (store, bounds) = (std::sync::Arc::clone(&self.store), self.bounds);
        // Indexing may have to decompress the file.
        let permit = self.permits.unpack().await?;
        let read = move || {
            let _permit = permit;
            let index = Index::read(opened, &store, &bounds)?;
            let found = layout::images(&index, &bounds)?;
            Ok::<_, ImageError>((index, found))
        };
        let read = spawn_blocking(read).await.unwrap_or_else(|error| {
            Err(ImageError::disk("read the image archive")(
                io::Error::other(error),
            ))
        });
        let (index, found) = read?;
        let mut images = Vec::new();
        for (image, reference) in named(&found, name)? {
            allow(policy, &reference)?;
            image.resolved.check_digest_of(&reference)?;
            images.push(self.load_one(&index, image, &reference, report).await?);
        }
        Ok(images)
    }

    async fn load_one(
        &self,
        index: &Index,
        found: &ArchivedImage,
        reference: &Reference,
        report: &Report,
    ) -> Result<Image, ImageError> {
        report(found.resolved.announced());
        let unpacker = Unpacker::new(self, report);
        for (layer, part) in found.resolved.layers.iter().zip(&found.parts) {
            let diff_id = &layer.diff_id;
            let name = format!("layer-{}", diff_id.hex());
            let (_lock, _) = self.store.lock(&name).await?;
            if self.store.has_layer(diff_id) {
                let layer = diff_id.clone();
                report(Progress::Shared { layer });
                continue;
            }
            unpacker.unpack(index.open(part)?, diff_id).await?;
        }
        self.keep(reference, &found.resolved, Origin::File)
    }
}

fn allow(policy: &ImagePolicy, reference: &Reference) -> Result<(), ImageError> {
    let admitted = policy.admit(reference.clone())?;
    if admitted.value().local {
        return Ok(());
    }
    let reference = reference.clone();
    Err(PolicyError::LocalImage { reference }.into())
}

/// Assigns names to images.
fn named<'a>(
    found: &'a [ArchivedImage],
    name: Option<&Reference>,
) -> Result<Vec<(&'a ArchivedImage, Reference)>, ImageError> {
    if found.len() > ARCHIVE_IMAGES_MAX {
        return Err(ImageError::TooLarge {
            what: "the number of images in an archive",
            max: ARCHIVE_IMAGES_MAX as u64,
        });
    }
    match (found, name) {
        ([one], Some(name)) => Ok(vec![(one, name.clone())]),
        (_, Some(_)) => Err(ImageError::invalid(
            WHAT,
            "it holds several images; one name is not enough",
        )),
        (found, None) => {
            let names = found
                .iter()
                .flat_map(|image| image.names.iter().map(move |name| (image, name.clone())));
            let names: Vec<_> = names.collect();
            if names.is_empty() {
                return Err(ImageError::invalid(
                    WHAT,
                    "its images have no names; give one",
                ));
            }
            Ok(names)
        }
    }
}

/// Reads a part of a file.
struct PartReader {
    file: File,
    at: u64,
    left: u64,
}

impl PartReader {
    fn new(file: &File, part: &Part) -> io::Result<Self> {
        Ok(Self {
            file: file.try_clone()?,
            at: part.offset,
            left: part.size,
        })
    }
}

impl Read for PartReader {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        use std::os::unix::fs::FileExt;
        let want = usize::try_from(self.left).unwrap_or(usize::MAX);
        let want = want.min(buffer.len());
        let len = self.file.read_at(&mut buffer[..want], self.at)?;
        self.at += len as u64;
        self.left -= len as u64;
        Ok(len)
    }
}

/// Whether the file is not compressed.
fn is_plain(file: &mut File) -> io::Result<bool> {
    let mut start = [0_u8; 4];
    let len = file.read(&mut start)?;
    file.seek(SeekFrom::Start(0))?;
    let start = &start[..len];
    Ok(!start.starts_with(&[0x1f, 0x8b]) && !start.starts_with(&[0x28, 0xb5, 0x2f, 0xfd]))
}
