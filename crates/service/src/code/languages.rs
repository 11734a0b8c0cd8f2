//! Which languages an image can run: probed once in a container of the image.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use hotcell_domain::{Command, Language};

use crate::container::LiveContainer;
use crate::{Inner, ServiceError};

/// Cached images; when there are more, the cache is cleared.
const IMAGES_MAX: usize = 256;

/// How long the probe may take.
const PROBE_TIMEOUT_S: f64 = 20.0;

/// More than the names of all languages.
const PROBE_BYTES_MAX: usize = 4096;

/// The languages of images, by digest, or by name if there is no digest.
#[derive(Debug, Default)]
pub(crate) struct Languages(Mutex<HashMap<String, Known>>);

#[derive(Debug, Clone)]
struct Known {
    image: String,
    languages: Vec<&'static Language>,
}

impl Languages {
    /// The known languages of each image, by its name.
    pub(crate) fn all(&self) -> Vec<(String, Vec<&'static str>)> {
        let known = self.lock();
        let names = |known: &Known| -> Vec<&'static str> {
            known.languages.iter().map(|one| one.name).collect()
        };
        let all = known
            .values()
            .map(|known| (known.image.clone(), names(known)));
        let mut all: Vec<_> = all.collect();
        all.sort_unstable();
        all
    }

    fn has(&self, key: &str, language: &'static Language) -> bool {
        let known = self.lock();
        known
            .get(key)
            .is_some_and(|known| known.languages.contains(&language))
    }

    fn note(&self, key: String, known: Known) {
        let mut all = self.lock();
        if all.len() >= IMAGES_MAX && !all.contains_key(&key) {
            all.clear();
        }
        all.insert(key, known);
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<String, Known>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Inner {
    /// Rejects a language that a container cannot run. If the language is not known to be present,
    /// the image is probed again: the files of the `host` image may change.
    pub(super) async fn require(
        &self,
        container: &LiveContainer,
        language: &'static Language,
    ) -> Result<(), ServiceError> {
        if self.languages.has(&key(container), language) {
            return Ok(());
        }
        match self.probe(container).await? {
            // Without a shell it cannot be probed. Languages that do not need one are tried.
            None if !language.needs_shell() => Ok(()),
            Some(found) if found.contains(&language) => Ok(()),
            found => Err(lacking(container, language, &found.unwrap_or_default())),
        }
    }

    /// The error for a language whose program turned out not to be there.
    pub(super) async fn lacks(
        &self,
        container: &LiveContainer,
        language: &'static Language,
    ) -> ServiceError {
        match self.probe(container).await {
            Ok(found) => lacking(container, language, &found.unwrap_or_default()),
            Err(error) => error,
        }
    }

    /// Probes a container and caches the result for its image; `None` if it has no shell.
    async fn probe(
        &self,
        container: &LiveContainer,
    ) -> Result<Option<Vec<&'static Language>>, ServiceError> {
        let script = Language::probe_script();
        let argv = ["sh", "-c", &script].map(str::to_owned).to_vec();
        let mut command = Command::new(argv)?;
        command.set_timeout_s(PROBE_TIMEOUT_S)?;
        command.ends_background = true;
        let execs = container.execs();
        let Some(output) = execs.run_unlisted(&command, PROBE_BYTES_MAX).await? else {
            return Ok(None);
        };
        let languages = Language::probed(&String::from_utf8_lossy(&output));
        let known = Known {
            image: container.row.spec.image.to_string(),
            languages: languages.clone(),
        };
        self.languages.note(key(container), known);
        Ok(Some(languages))
    }
}

/// The cache key of a container's image.
fn key(container: &LiveContainer) -> String {
    let digest = container.image_digest();
    let digest = digest.or(container.row.image_digest.as_deref());
    digest.map_or_else(|| container.row.spec.image.to_string(), str::to_owned)
}

fn lacking(
    container: &LiveContainer,
    language: &Language,
    found: &[&'static Language],
) -> ServiceError {
    let names: Vec<&str> = found.iter().map(|one| one.name).collect();
    let (image, name) = (&container.row.spec.image, language.name);
    let there = match names.as_slice() {
        [] => "none of the known languages".to_owned(),
        names => names.join(", "),
    };
    ServiceError::Invalid {
        reason: format!("image {image} cannot run {name}; it has {there}"),
    }
}
