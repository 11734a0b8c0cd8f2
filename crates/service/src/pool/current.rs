//! Handing out nothing but what the image's name stands for now.
//!
//! A tag can move while containers of what it stood for are ready. Their engine is asked
//! before one is handed out, and from time to time while nobody asks; those of another image
//! are removed, and others are made. No registry is asked: what counts is what this host has.

use std::sync::Arc;
use std::time::Duration;

use super::{Pool, Warm};

/// How long an engine may take to say what a name stands for. It takes a millisecond or two.
const IMAGE_TIMEOUT: Duration = Duration::from_secs(2);

/// What the name of a stock's image stands for.
pub(super) struct Current {
    image_id: Option<String>,
}

impl Current {
    /// Whether a container is of it.
    pub(super) fn fits(&self, warm: &Warm) -> bool {
        warm.container.image_id == self.image_id
    }
}

impl Pool {
    /// What the image of a stock is now; `None` if its engine does not say.
    pub(super) async fn current(&self, stock: usize) -> Option<Current> {
        let spec = &self.stocks[stock].spec;
        let asked = self.environment.engine.image_id(spec);
        let image = &spec.value().image;
        match tokio::time::timeout(IMAGE_TIMEOUT, asked).await {
            Ok(Ok(image_id)) => Some(Current { image_id }),
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

    /// Takes the oldest container that is ready and of the current image. Those of another
    /// are removed.
    pub(super) fn take(self: &Arc<Self>, stock: usize, current: &Current) -> Option<Arc<Warm>> {
        let (stale, taken) = {
            let mut places = self.shelf();
            (places.lose_unfit(stock, current), places.take(stock))
        };
        self.remove_stale(stale);
        taken
    }

    /// Looks again and again whether what is ready is of the current image.
    pub(super) async fn keep_current(self: Arc<Self>, stock: usize) {
        loop {
            tokio::time::sleep(self.environment.settings.warm_check_interval).await;
            if self.shelf().ready(stock) == 0 {
                continue;
            }
            if let Some(current) = self.current(stock).await {
                let stale = self.shelf().lose_unfit(stock, &current);
                self.remove_stale(stale);
            }
        }
    }

    fn remove_stale(self: &Arc<Self>, stale: Vec<Arc<Warm>>) {
        for warm in stale {
            let image = &self.stocks[warm.stock].spec.value().image;
            tracing::info!(container.id = %warm.id, %image, "a warm container is of an older image");
            self.remove_in_background(warm.id.clone(), warm.stock);
        }
    }
}
