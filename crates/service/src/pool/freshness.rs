//! Makes sure that only containers of the image's current version are handed out.
//!
//! A tag can move while containers of the old image are ready. The engine is asked before one is
//! handed out, and periodically; containers of an old image are removed and replaced. No registry
//! is asked: only the images on this host count.

use std::sync::Arc;
use std::time::Duration;

use hotcell_engine::{Abandonment, EngineError, Pull};

use super::{Pool, WarmContainer};

/// How long an engine may take to resolve an image name. It usually takes a millisecond or two.
const IMAGE_TIMEOUT: Duration = Duration::from_secs(2);

/// The image that a set's image name resolves to now.
pub(super) struct CurrentImage {
    image_id: Option<String>,
}

impl CurrentImage {
    /// Whether a container was created from this image.
    pub(super) fn is_of(&self, warm: &WarmContainer) -> bool {
        warm.container.image_id == self.image_id
    }
}

impl Pool {
    /// Resolves the image of a set; `None` if the engine does not answer.
    pub(super) async fn current_image(&self, set: usize) -> Option<CurrentImage> {
        let spec = &self.sets[set].spec;
        let stays = Abandonment::default();
        let engine = &self.environment.engine;
        let asked = engine.fetch_image(spec, Pull::Never, &stays);
        let image = &spec.value().image;
        match tokio::time::timeout(IMAGE_TIMEOUT, asked).await {
            Ok(Ok(found)) => Some(CurrentImage {
                image_id: found.id().map(str::to_owned),
            }),
            Ok(Err(EngineError::NoImage { .. })) => Some(CurrentImage { image_id: None }),
            Ok(Err(error)) => {
                tracing::warn!(%image, %error, "the engine does not say what an image is");
                None
            }
            Err(_) => {
                tracing::warn!(%image, "the engine does not say in time what an image is");
                None
            }
        }
    }

    /// Claims the oldest ready container of the current image. Stale ones are removed.
    pub(super) fn take(
        self: &Arc<Self>,
        set: usize,
        current: &CurrentImage,
    ) -> Option<Arc<WarmContainer>> {
        let (stale, taken) = {
            let mut slots = self.slots();
            (slots.evict_stale(set, current), slots.take(set))
        };
        self.remove_stale(stale);
        taken
    }

    /// Checks periodically that ready containers are of the current image.
    pub(super) async fn keep_fresh(self: Arc<Self>, set: usize) {
        loop {
            tokio::time::sleep(self.environment.settings().warm_check_interval).await;
            if self.slots().ready(set) == 0 {
                continue;
            }
            if let Some(current) = self.current_image(set).await {
                let stale = self.slots().evict_stale(set, &current);
                self.remove_stale(stale);
            }
        }
    }

    fn remove_stale(self: &Arc<Self>, stale: Vec<Arc<WarmContainer>>) {
        for warm in stale {
            let image = &self.sets[warm.set].spec.value().image;
            tracing::info!(container.id = %warm.id, %image, "a warm container is of an older image");
            self.remove_in_background(warm.id.clone(), warm.set);
        }
    }
}
