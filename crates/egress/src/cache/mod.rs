//! Downloads that are kept on the host and shared between containers.
//!
//! ```text
//!              fresh ──────────────────────────────▶ file ─▶ container
//! request ─▶ find ─┤                                   ▲
//!                  └ none, stale ─▶ one fetch for all ─┴─ 304, or 200 that is written as it comes
//! ```
//!
//! Only the broker writes here, from answers of hosts that it has verified, to requests that it has
//! written itself. What a container sends chooses a key and nothing else, so it cannot change what
//! another one gets.

mod answer;
mod body;
mod entry;
mod fetch;
mod key;
mod store;

use std::collections::HashMap;
use std::fs::File;
use std::os::unix::fs::FileExt as _;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime};

use bytes::Bytes;
use http::{Method, Request, Response, StatusCode, header};
use http_body_util::BodyExt as _;
use hyper::body::Incoming;
use sha2::{Digest as _, Sha256};
use tokio::sync::{OnceCell, watch};
use tokio::time::timeout;

pub(crate) use self::key::Key;

use self::body::{End, Progress};
use self::entry::{Entry, Head, hex};
use self::fetch::Fetcher;
use self::key::Hash;
use self::store::{Found, NewBody, Store};
use crate::broker::Broker;
use crate::http::{Body, Http1};

/// How long a host may pause while it sends a body.
const PAUSE_MAX: Duration = Duration::from_mins(1);

/// How long something stale is given out after its host has failed, before the host is asked again.
const RETRY_TIME: Duration = Duration::from_secs(30);

/// The largest download that is kept, as a part of all that may be kept.
const OBJECT_PART: u64 = 4;

/// Downloads, and those that are under way.
#[derive(Debug)]
pub(crate) struct Cache {
    directory: PathBuf,
    /// Read when it is first used: reading the index of a full cache takes a moment.
    store: OnceCell<Option<Arc<Store>>>,
    fetcher: Fetcher,
    flights: Mutex<HashMap<Hash, watch::Receiver<Flight>>>,
}

/// What those who want the same have to wait for.
#[derive(Clone, Debug, Default)]
enum Flight {
    /// The host has not answered.
    #[default]
    Asked,
    /// Its answer is being written.
    Writing(Arc<Writing>),
}

#[derive(Debug)]
struct Writing {
    head: Head,
    file: Arc<File>,
    progress: watch::Sender<Progress>,
}

/// Ends a flight for all who wait, however it ends.
struct Landing {
    cache: Arc<Cache>,
    key: Hash,
    sender: watch::Sender<Flight>,
}

impl Drop for Landing {
    fn drop(&mut self) {
        self.cache.flights().remove(&self.key);
    }
}

/// One download under way.
struct Download {
    key: Key,
    landing: Landing,
    writing: Arc<Writing>,
    body: NewBody,
    http1: Http1,
}

impl Cache {
    pub(crate) fn new(directory: PathBuf) -> Self {
        Self {
            directory,
            store: OnceCell::new(),
            fetcher: Fetcher::default(),
            flights: Mutex::default(),
        }
    }

    /// Changes how much may be kept. Blocks for as long as removing the rest takes.
    pub(crate) fn set_bytes_max(&self, bytes_max: u64) {
        if let Some(Some(store)) = self.store.get() {
            store.set_bytes_max(bytes_max);
        }
    }

    /// Whether anything of a host is kept, so that it is worth a name although nobody can resolve it.
    pub(crate) async fn has_host(&self, broker: &Broker, host: &str) -> bool {
        let store = self.store(broker).await;
        store.is_some_and(|store| store.has_host(host))
    }

    /// The store; `None` if its directory cannot be used. Then nothing is kept, and all else works.
    async fn store(&self, broker: &Broker) -> Option<Arc<Store>> {
        let opening = || async {
            let directory = self.directory.clone();
            let bytes_max = broker.policy().cache_bytes_max();
            let opened = blocking(move || Store::open(&directory, bytes_max)).await;
            match opened {
                Some(Ok(store)) => Some(Arc::new(store)),
                Some(Err(error)) => {
                    tracing::warn!(%error, "could not open the cache of downloads");
                    None
                }
                None => None,
            }
        };
        self.store.get_or_init(opening).await.clone()
    }

    /// Answers a request; `None` if its sender has to ask the host itself.
    pub(crate) async fn answer(
        self: &Arc<Self>,
        broker: &Arc<Broker>,
        key: &Key,
        request: &Request<Incoming>,
    ) -> Option<Response<Body>> {
        let store = self.store(broker).await?;
        let found = find(&store, key).await;
        if let Some(found) = &found
            && found.entry.is_fresh(SystemTime::now())
        {
            return Some(answer::whole(found, request));
        }
        let has_range = request.headers().contains_key(header::RANGE);
        if found.is_none() && (has_range || request.method() == Method::HEAD) {
            return None;
        }
        match self.join(key) {
            Ok(landing) => self.lead(broker, store, key, landing, found, request).await,
            Err(flight) => follow(flight, &store, key, request).await,
        }
    }

    /// Begins a flight, or gives the one that is under way.
    fn join(self: &Arc<Self>, key: &Key) -> Result<Landing, watch::Receiver<Flight>> {
        let hash = key.hash();
        let mut flights = self.flights();
        if let Some(flight) = flights.get(&hash) {
            return Err(flight.clone());
        }
        let (sender, receiver) = watch::channel(Flight::Asked);
        flights.insert(hash, receiver);
        Ok(Landing {
            cache: Arc::clone(self),
            key: hash,
            sender,
        })
    }

    fn flights(&self) -> MutexGuard<'_, HashMap<Hash, watch::Receiver<Flight>>> {
        self.flights.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Asks the host, for all who want the same.
    async fn lead(
        &self,
        broker: &Arc<Broker>,
        store: Arc<Store>,
        key: &Key,
        landing: Landing,
        found: Option<Found>,
        request: &Request<Incoming>,
    ) -> Option<Response<Body>> {
        let validators = found.as_ref().map(|found| found.entry.validators());
        let validators = validators.unwrap_or_default();
        let fetched = self.fetcher.fetch(broker, key, &validators).await;
        let now = SystemTime::now();
        let failed = match &fetched {
            Ok((response, _)) => response.status().is_server_error(),
            Err(error) => {
                tracing::debug!(host = %key.host, %error, "could not fetch for the cache");
                true
            }
        };
        if let Some(found) = &found
            && failed
        {
            refresh(&store, landing.key, Some(now + RETRY_TIME)).await;
            return Some(answer::whole(found, request));
        }
        let (response, http1) = fetched.ok()?;
        if let Some(found) = &found
            && response.status() == StatusCode::NOT_MODIFIED
        {
            let until = entry::fresh_until(key, response.headers(), now);
            refresh(&store, landing.key, until).await;
            self.fetcher.put_back(key, http1);
            return Some(answer::whole(found, request));
        }
        let head = Head::of(key, response.status(), response.headers(), now);
        let bytes_max = store.bytes_max() / OBJECT_PART;
        let head = head.filter(|head| head.bytes.unwrap_or(0) <= bytes_max);
        let begun = head.zip(store.begin().ok());
        let Some((head, body)) = begun else {
            return Some(pass(&store, landing, response, http1).await);
        };
        Some(write(store, key, landing, head, body, response, http1))
    }
}

/// Passes on what is not kept. A host that no longer has something is believed.
async fn pass(
    store: &Arc<Store>,
    landing: Landing,
    response: Response<Incoming>,
    http1: Http1,
) -> Response<Body> {
    let is_gone = matches!(response.status(), StatusCode::NOT_FOUND | StatusCode::GONE);
    if is_gone {
        let (store, key) = (Arc::clone(store), landing.key);
        blocking(move || store.remove(&key)).await;
    }
    answer::passed(response, http1)
}

/// Begins to write an answer, and gives it out as it comes.
fn write(
    store: Arc<Store>,
    key: &Key,
    landing: Landing,
    head: Head,
    body: NewBody,
    response: Response<Incoming>,
    http1: Http1,
) -> Response<Body> {
    let (progress, reader) = watch::channel(Progress::default());
    let writing = Arc::new(Writing {
        head,
        file: Arc::clone(&body.file),
        progress,
    });
    let flight = Flight::Writing(Arc::clone(&writing));
    landing.sender.send_replace(flight);
    let answer = answer::growing(&writing, reader);
    let download = Download {
        key: key.clone(),
        landing,
        writing,
        body,
        http1,
    };
    tokio::spawn(download.run(store, response.into_body()));
    answer
}

/// Waits for what another request has begun.
async fn follow(
    mut flight: watch::Receiver<Flight>,
    store: &Arc<Store>,
    key: &Key,
    request: &Request<Incoming>,
) -> Option<Response<Body>> {
    let waited = flight.wait_for(|flight| matches!(flight, Flight::Writing(_)));
    let writing = match waited.await.as_deref() {
        Ok(Flight::Writing(writing)) => Some(Arc::clone(writing)),
        Ok(Flight::Asked) | Err(_) => None,
    };
    if let Some(writing) = writing
        && request.method() == Method::GET
        && !request.headers().contains_key(header::RANGE)
    {
        let reader = writing.progress.subscribe();
        return Some(answer::growing(&writing, reader));
    }
    let found = find(store, key).await?;
    Some(answer::whole(&found, request))
}

impl Download {
    /// Writes a body until it ends, then gives it its name.
    async fn run(self, store: Arc<Store>, incoming: Incoming) {
        let bytes_max = store.bytes_max() / OBJECT_PART;
        let progress = self.writing.progress.clone();
        let written = self.write(bytes_max, incoming).await;
        let end = if let Some((digest, bytes)) = written {
            self.finish(store, digest, bytes).await;
            End::Whole
        } else {
            // Those who ask from now on begin anew.
            drop(self.landing);
            End::Failed
        };
        progress.send_modify(|progress| progress.end = Some(end));
    }

    /// The digest of a whole body, and its length. If nobody reads it any more, it stops.
    async fn write(&self, bytes_max: u64, mut incoming: Incoming) -> Option<(Hash, u64)> {
        let (mut hasher, mut written) = (Sha256::new(), 0_u64);
        let progress = &self.writing.progress;
        while progress.receiver_count() > 0 && written <= bytes_max {
            let Some(frame) = timeout(PAUSE_MAX, incoming.frame()).await.ok()? else {
                return Some((hasher.finalize().into(), written));
            };
            let Ok(data) = frame.ok()?.into_data() else {
                continue;
            };
            let count = u64::try_from(data.len()).unwrap_or(u64::MAX);
            let file = Arc::clone(&self.body.file);
            let appended = blocking(move || append(&file, hasher, &data, written));
            hasher = appended.await.flatten()?;
            written += count;
            progress.send_modify(|progress| progress.written = written);
        }
        None
    }

    async fn finish(self, store: Arc<Store>, digest: Hash, bytes: u64) {
        let Self {
            key,
            landing,
            writing,
            body,
            http1,
        } = self;
        let head = &writing.head;
        let promised = key.promised_digest();
        let is_right = promised.is_none_or(|promised| promised == hex(&digest))
            && head.bytes.is_none_or(|expected| expected == bytes);
        if !is_right {
            tracing::warn!(host = %key.host, path = key.path, "a download is not what its name says");
            return;
        }
        let entry = Entry {
            host: key.host.to_string(),
            body: digest,
            bytes,
            fresh_until: head.fresh_until,
            headers: head.headers.clone(),
        };
        let hash = landing.key;
        let kept = blocking(move || store.keep(&hash, entry, &body)).await;
        if let Some(Err(error)) = kept {
            tracing::warn!(%error, "could not keep a download");
        }
        landing.cache.fetcher.put_back(&key, http1);
    }
}

fn append(file: &File, mut hasher: Sha256, data: &Bytes, at: u64) -> Option<Sha256> {
    file.write_all_at(data, at).ok()?;
    hasher.update(data);
    Some(hasher)
}

async fn find(store: &Arc<Store>, key: &Key) -> Option<Found> {
    let (store, hash) = (Arc::clone(store), key.hash());
    blocking(move || store.find(&hash)).await.flatten()
}

async fn refresh(store: &Arc<Store>, key: Hash, until: Option<SystemTime>) {
    let store = Arc::clone(store);
    blocking(move || store.refresh(&key, until)).await;
}

/// Runs what waits for a disk. `None` if it panicked.
async fn blocking<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> Option<T> {
    tokio::task::spawn_blocking(work).await.ok()
}
