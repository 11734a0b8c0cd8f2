//! Pulls in progress: concurrent requests for the same image share one pull, its progress and its
//! result. It stops when the last of them is gone.

use std::collections::HashMap;
use std::io;
use std::sync::{Arc, Mutex, PoisonError, Weak};

use hotcell_domain::{Reference, Source};
use hotcell_image::ImageError;
use tokio::sync::watch;
use tokio::task::AbortHandle;

use crate::progress::{Progress, ProgressReceiver};
use crate::{Abandonment, EngineError, ImageFault};

/// Pulls in progress, by source. Bounded by the number of waiting requests.
#[derive(Debug, Default)]
pub(crate) struct Pulls(Mutex<HashMap<Source, Weak<Pull>>>);

/// The result of a pull.
type PullResult = Result<(), Arc<EngineError>>;

#[derive(Debug)]
struct Pull {
    updates: ProgressReceiver,
    /// `None` until it has ended.
    end: watch::Receiver<Option<PullResult>>,
    work: AbortHandle,
}

impl Drop for Pull {
    fn drop(&mut self) {
        self.work.abort();
    }
}

impl Pulls {
    /// Waits for a pull of this image that is in progress, or else runs `pull`, which reports its
    /// progress to its argument.
    pub(crate) async fn join<W>(
        &self,
        source: &Source,
        progress: &Progress,
        abandonment: &Abandonment,
        pull: impl FnOnce(Progress) -> W,
    ) -> Result<(), EngineError>
    where
        W: Future<Output = Result<(), EngineError>> + Send + 'static,
    {
        let shared = self.find_or_start(source, pull);
        let (mut updates, mut end) = (shared.updates.clone(), shared.end.clone());
        let pass_on = async {
            loop {
                if let Some(pulling) = updates.borrow_and_update().clone() {
                    progress.send(pulling);
                }
                if updates.changed().await.is_err() {
                    return std::future::pending().await;
                }
            }
        };
        let ended = tokio::select! {
            biased;
            ended = end.wait_for(Option::is_some) => ended.ok().and_then(|end| end.clone()),
            () = abandonment.abandoned() => return Err(EngineError::Abandoned),
            () = pass_on => unreachable!("it passes on for ever"),
        };
        match ended {
            Some(Ok(())) => Ok(()),
            Some(Err(error)) => Err(EngineError::shared(error)),
            None => Err(EngineError::engine("pull the image")(
                "the pull ended early",
            )),
        }
    }

    fn find_or_start<W>(&self, source: &Source, pull: impl FnOnce(Progress) -> W) -> Arc<Pull>
    where
        W: Future<Output = Result<(), EngineError>> + Send + 'static,
    {
        let mut pulls = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        pulls.retain(|_, pull| pull.strong_count() > 0);
        let under_way = pulls.get(source).and_then(Weak::upgrade);
        if let Some(pull) = under_way.filter(|pull| pull.end.borrow().is_none()) {
            return pull;
        }
        let (progress, updates) = Progress::channel();
        let (ended, end) = watch::channel(None);
        let work = pull(progress);
        let work = tokio::spawn(async move {
            let end = work.await.map_err(Arc::new);
            ended.send_replace(Some(end));
        });
        let work = work.abort_handle();
        let pull = Arc::new(Pull { updates, end, work });
        pulls.insert(source.clone(), Arc::downgrade(&pull));
        pull
    }
}

/// Translates an image error for a caller who requested a container.
pub(crate) fn pull_error(reference: &Reference, error: ImageError) -> EngineError {
    let fault = match &error {
        ImageError::NotHere { .. } => {
            let image = reference.to_string();
            return EngineError::NoImage { image };
        }
        ImageError::Disk { source, .. } if is_full(source) => {
            let resource = "disk space for images";
            return EngineError::Exhausted { resource };
        }
        ImageError::Disk { .. } | ImageError::Busy | ImageError::Cancelled => {
            return EngineError::engine("pull the image")(error);
        }
        ImageError::NotFound { .. } => ImageFault::Unknown,
        ImageError::Unreachable { .. } | ImageError::TooSlow { .. } | ImageError::Status { .. } => {
            ImageFault::Unreachable
        }
        ImageError::Denied { .. } | ImageError::Credentials { .. } | ImageError::Refused(_) => {
            ImageFault::Forbidden
        }
        ImageError::WrongDigest { .. }
        | ImageError::Invalid { .. }
        | ImageError::TooLarge { .. }
        | ImageError::Platform { .. }
        | ImageError::InUse { .. } => ImageFault::Unusable,
    };
    EngineError::Image {
        image: reference.to_string(),
        fault,
        reason: for_callers(&error),
        source: Some(error.into()),
    }
}

/// The reason for callers. Text from resolvers, sockets or credential helpers stays in the source,
/// for the log.
fn for_callers(error: &ImageError) -> String {
    if let ImageError::Unreachable { registry, .. } = error {
        return format!("registry {registry} cannot be reached from this host");
    }
    if let ImageError::Credentials { registry, .. } = error {
        return format!("the operator's credentials for {registry} cannot be read");
    }
    error.to_string()
}

fn is_full(error: &io::Error) -> bool {
    let full = [io::ErrorKind::StorageFull, io::ErrorKind::QuotaExceeded];
    full.contains(&error.kind())
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use hotcell_domain::{ImagePolicy, Reference};
    use tokio::sync::{Notify, oneshot};

    use super::*;
    use crate::progress::PullProgress;

    fn source() -> Source {
        let reference = Reference::parse("a").expect("a reference");
        let admitted = ImagePolicy::default().admit(reference).expect("admitted");
        admitted.value().clone()
    }

    fn pulling() -> PullProgress {
        PullProgress {
            image: source().reference,
            done_bytes: 1,
            total_bytes: 2,
        }
    }

    #[test]
    fn what_a_resolver_said_is_for_the_log() {
        let error = ImageError::Unreachable {
            registry: "registry.example".to_owned(),
            reason: "failed to lookup address information: Name or service not known".to_owned(),
        };
        let reference = Reference::parse("registry.example/a").expect("a reference");
        let told = pull_error(&reference, error);
        assert!(!told.to_string().contains("lookup"), "{told}");
        assert!(
            told.to_string()
                .contains("registry.example cannot be reached")
        );
        let cause = std::error::Error::source(&told).expect("the log has it");
        assert!(cause.to_string().contains("lookup"), "{cause}");
    }

    #[tokio::test]
    async fn those_who_want_the_same_share_one_pull_its_progress_and_its_failure() {
        let (pulls, starts, go) = (Pulls::default(), AtomicUsize::new(0), Notify::new());
        let go = Arc::new(go);
        let start = |progress: Progress| {
            starts.fetch_add(1, Ordering::Relaxed);
            let go = Arc::clone(&go);
            async move {
                progress.send(pulling());
                go.notified().await;
                let image = "a".to_owned();
                Err(EngineError::NoImage { image })
            }
        };
        let source = source();
        let (first, mut first_updates) = Progress::channel();
        let (second, mut second_updates) = Progress::channel();
        let heard = async {
            for updates in [&mut first_updates, &mut second_updates] {
                let told = updates.wait_for(Option::is_some).await;
                assert_eq!(*told.expect("told"), Some(pulling()));
            }
            go.notify_one();
        };
        let stays = Abandonment::default();
        let (one, other, ()) = tokio::join!(
            pulls.join(&source, &first, &stays, start),
            pulls.join(&source, &second, &stays, start),
            heard
        );
        for end in [one, other] {
            assert!(matches!(end, Err(EngineError::NoImage { .. })), "{end:?}");
        }
        assert_eq!(starts.load(Ordering::Relaxed), 1);
        go.notify_one();
        let nobody = Progress::default();
        let third = pulls.join(&source, &nobody, &stays, start).await;
        assert!(third.is_err(), "what has ended is not joined");
        assert_eq!(starts.load(Ordering::Relaxed), 2);
    }

    #[tokio::test]
    async fn a_pull_goes_on_until_the_last_who_wants_it_is_gone() {
        let pulls = Pulls::default();
        let (dropped, mut was_dropped) = oneshot::channel::<()>();
        let start = |progress: Progress| async move {
            let _dropped = dropped;
            progress.send(pulling());
            std::future::pending().await
        };
        let source = source();
        let (first, mut updates) = Progress::channel();
        let (stays, leaves) = (Abandonment::default(), Abandonment::default());
        let mut one = Box::pin(pulls.join(&source, &first, &stays, start));
        let never = |_: Progress| async { unreachable!("one is under way") };
        let second = Progress::default();
        let mut other = Box::pin(pulls.join(&source, &second, &leaves, never));
        tokio::select! {
            biased;
            _ = &mut one => unreachable!("it never ends"),
            _ = &mut other => unreachable!("it never ends"),
            told = updates.wait_for(Option::is_some) => assert!(told.is_ok()),
        }
        drop(one);
        tokio::task::yield_now().await;
        assert!(was_dropped.try_recv() == Err(oneshot::error::TryRecvError::Empty));
        leaves.abandon();
        let abandoned = other.await;
        assert!(
            matches!(abandoned, Err(EngineError::Abandoned)),
            "{abandoned:?}"
        );
        assert!(was_dropped.await.is_err(), "the pull was dropped");
    }
}
