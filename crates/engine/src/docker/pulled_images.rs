//! The images that we pulled: only these are removed when nobody uses them.
//!
//! The engine is shared, and all other images belong to somebody else. The record is a file in the
//! state directory. It contains an image only if the engine did not have it before our pull.

use std::fs;
use std::io::{self, Read as _, Write as _};
use std::path::PathBuf;
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use bollard::query_parameters::{ListContainersOptionsBuilder, RemoveImageOptionsBuilder};
use serde::{Deserialize, Serialize};

use super::client::{FaultKind, optional};
use super::create::DockerInner;
use super::dialect;
use crate::{EngineError, SweepMode, Swept};

/// Images in the record. The one unused for longest is forgotten first, and then stays in the
/// engine.
const IMAGES_MAX: usize = 1024;

/// A use is recorded only if the last recorded one is older than this.
const USE_PRECISION_S: u64 = 60 * 60;

/// A record is a few hundred bytes for each image.
const RECORD_BYTES_MAX: u64 = 4 << 20;

/// The images that we pulled.
#[derive(Debug, Default)]
pub(super) struct PulledImages {
    path: OnceLock<PathBuf>,
    images: Mutex<Vec<PulledImage>>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct PulledImage {
    reference: String,
    /// The engine's id of the image that the reference stood for.
    id: String,
    used_unix_s: u64,
    /// The engine did not have it before.
    is_ours: bool,
}

impl PulledImages {
    /// Keeps the record in a file, and reads what an earlier server wrote there. If it cannot be
    /// read, its images are never removed.
    pub(super) fn keep_in(&self, path: PathBuf) {
        let mut text = Vec::new();
        let read = fs::File::open(&path)
            .and_then(|file| file.take(RECORD_BYTES_MAX).read_to_end(&mut text));
        match read {
            Ok(_) => *self.images() = serde_json::from_slice(&text).unwrap_or_default(),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => tracing::warn!(%error, "which images were pulled is not known"),
        }
        let _ = self.path.set(path);
    }

    /// Records a pull.
    pub(super) fn note(&self, reference: &str, id: &str, is_ours: bool) {
        let mut images = self.images();
        let is_it = |image: &PulledImage| image.reference == reference && image.id == id;
        let was_ours = images.iter().any(|image| is_it(image) && image.is_ours);
        images.retain(|image| !is_it(image));
        if images.len() >= IMAGES_MAX {
            images.sort_by_key(|image| std::cmp::Reverse(image.used_unix_s));
            images.truncate(IMAGES_MAX - 1);
        }
        images.push(PulledImage {
            reference: reference.to_owned(),
            id: id.to_owned(),
            used_unix_s: now_unix_s(),
            is_ours: is_ours || was_ours,
        });
        self.save(&images);
    }

    /// Whether we pulled it.
    pub(super) fn has(&self, reference: &str, id: &str) -> bool {
        let images = self.images();
        let mut images = images.iter();
        images.any(|image| image.reference == reference && image.id == id)
    }

    /// Records that a container is created from an image, under whatever name.
    pub(super) fn note_use(&self, id: &str) {
        let now_unix_s = now_unix_s();
        let mut images = self.images();
        let mut is_news = false;
        for image in images.iter_mut().filter(|image| image.id == id) {
            if image.used_unix_s.saturating_add(USE_PRECISION_S) <= now_unix_s {
                image.used_unix_s = now_unix_s;
                is_news = true;
            }
        }
        if is_news {
            self.save(&images);
        }
    }

    /// Images in the record that were unused for this long.
    fn idle(&self, idle: Duration) -> Vec<PulledImage> {
        let before = now_unix_s().saturating_sub(idle.as_secs());
        let images = self.images();
        let is_idle = |image: &&PulledImage| image.is_ours && image.used_unix_s <= before;
        images.iter().filter(is_idle).cloned().collect()
    }

    fn forget(&self, gone: &PulledImage) {
        let mut images = self.images();
        images.retain(|image| image != gone);
        self.save(&images);
    }

    /// Writes the whole record. If it is lost, its images are not removed.
    fn save(&self, images: &[PulledImage]) {
        let Some(path) = self.path.get() else {
            return;
        };
        let write = || -> io::Result<()> {
            let new = path.with_extension("new");
            let mut file = fs::File::create(&new)?;
            file.write_all(&serde_json::to_vec(images)?)?;
            fs::rename(new, path)
        };
        if let Err(error) = write() {
            tracing::warn!(%error, "which images were pulled is not noted");
        }
    }

    fn images(&self) -> MutexGuard<'_, Vec<PulledImage>> {
        self.images.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl DockerInner {
    /// See [`crate::Garbage::Images`]. Removes images that we pulled, that no container uses (ours
    /// or not), and that have no other tag.
    pub(super) async fn sweep_images(
        &self,
        unused_for: Option<Duration>,
        mode: SweepMode,
    ) -> Result<Swept, EngineError> {
        let mut swept = Swept::default();
        let Some(idle) = unused_for else {
            return Ok(swept);
        };
        for image in self.pulled().idle(idle) {
            match self.needed(&image).await? {
                Needed::Gone => self.pulled().forget(&image),
                Needed::Yes => {}
                Needed::No if mode == SweepMode::Count => swept.images += 1,
                Needed::No => swept.images += usize::from(self.remove_image(&image).await?),
            }
        }
        Ok(swept)
    }

    async fn needed(&self, image: &PulledImage) -> Result<Needed, EngineError> {
        let step = "look for an image that nobody uses";
        let found = self.client().call(step, |api| api.inspect_image(&image.id));
        let Some(found) = optional(found.await)? else {
            return Ok(Needed::Gone);
        };
        let tags = found.repo_tags.unwrap_or_default();
        if tags.iter().any(|tag| !is_name_of(tag, &image.reference)) {
            return Ok(Needed::Yes);
        }
        let filter = [("ancestor".to_owned(), vec![image.id.clone()])].into();
        let options = ListContainersOptionsBuilder::default()
            .all(true)
            .filters(&filter)
            .build();
        let users = self.client().call(step, async |api| {
            dialect::listed(api.list_containers(Some(options)).await)
        });
        if users.await?.is_empty() {
            return Ok(Needed::No);
        }
        // The image was in use until now, however old its container is.
        self.pulled().note_use(&image.id);
        Ok(Needed::Yes)
    }

    /// Removes an image and returns whether it is gone. The engine refuses if it is in use.
    async fn remove_image(&self, image: &PulledImage) -> Result<bool, EngineError> {
        let options = RemoveImageOptionsBuilder::default().force(false).build();
        let step = "remove an image that nobody uses";
        let removed = self
            .client()
            .call(step, |api| api.remove_image(&image.id, Some(options), None));
        match removed.await {
            Ok(_) => {}
            Err(fault) if matches!(fault.kind, FaultKind::Conflict | FaultKind::Refused) => {
                return Ok(false);
            }
            Err(fault) if fault.kind == FaultKind::Missing => {}
            Err(fault) => return Err(fault.into()),
        }
        tracing::info!(
            image = image.reference,
            "an image that nobody uses was removed"
        );
        self.pulled().forget(image);
        Ok(true)
    }
}

/// Whether an image may be removed.
enum Needed {
    Gone,
    Yes,
    No,
}

/// Whether an engine's tag is the reference: Docker leaves out the name of its own registry.
fn is_name_of(tag: &str, reference: &str) -> bool {
    let short = reference.strip_prefix("docker.io/").unwrap_or(reference);
    let shorter = short.strip_prefix("library/").unwrap_or(short);
    [reference, short, shorter].contains(&tag)
}

fn now_unix_s() -> u64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    now.map_or(0, |now| now.as_secs())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_next_server_knows_what_was_pulled_and_by_whom() {
        let directory = tempfile::tempdir().unwrap();
        let open = || {
            let pulled = PulledImages::default();
            pulled.keep_in(directory.path().join("pulled.json"));
            pulled
        };
        let first = open();
        first.note("a:1", "sha256:a", true);
        first.note("b:1", "sha256:b", false);
        let next = open();
        assert!(next.has("a:1", "sha256:a") && next.has("b:1", "sha256:b"));
        assert!(!next.has("a:1", "sha256:b"));
        let idle: Vec<_> = next.idle(Duration::ZERO);
        assert_eq!(idle.len(), 1, "what was there before is not ours: {idle:?}");
        assert_eq!(idle[0].reference, "a:1");
        assert_eq!(next.idle(Duration::from_hours(1)), []);
        next.forget(&idle[0]);
        assert!(!open().has("a:1", "sha256:a"));
    }

    #[test]
    fn pulling_again_does_not_make_ours_anothers_nor_the_other_way_round() {
        let pulled = PulledImages::default();
        pulled.note("a:1", "sha256:a", true);
        pulled.note("a:1", "sha256:a", false);
        pulled.note("b:1", "sha256:b", false);
        let idle = pulled.idle(Duration::ZERO);
        assert_eq!(idle.len(), 1);
        assert_eq!(idle[0].id, "sha256:a");
    }

    #[test]
    fn the_record_is_bounded_and_nonsense_is_none() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("pulled.json");
        fs::write(&path, "{").unwrap();
        let pulled = PulledImages::default();
        pulled.keep_in(path);
        for number in 0..IMAGES_MAX + 10 {
            pulled.note(&number.to_string(), "sha256:a", true);
        }
        assert_eq!(pulled.images().len(), IMAGES_MAX);
    }

    #[test]
    fn dockers_short_names_are_known() {
        let full = "docker.io/library/python:3.12";
        for tag in [full, "library/python:3.12", "python:3.12"] {
            assert!(is_name_of(tag, full), "{tag}");
        }
        assert!(!is_name_of("mine/python:3.12", full));
    }
}
