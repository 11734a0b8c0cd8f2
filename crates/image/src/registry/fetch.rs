//! Downloads a blob into a file and resumes an earlier attempt.
//!
//! The file is hashed while it is written, so it is read again only if another process began it.

use std::fs::{self, File};
use std::io::{self, Read, Seek, Write};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use bytes::Bytes;
use hotcell_domain::Digest;
use reqwest::header::CONTENT_RANGE;
use reqwest::{Response, StatusCode};
use tokio::sync::mpsc;
use tokio::task::spawn_blocking;

use super::{Descriptor, Registry, back_off};
use crate::ImageError;
use crate::bounds::{BLOB_TRIES_MAX, PIECES_MAX, PROGRESS_STEP_BYTES, RATE_BYTES_S_MIN, TRIES_MAX};
use crate::hash::Hasher;
use crate::store::Lock;

const STEP: &str = "write what was fetched";

/// A partial download.
struct Partial {
    path: PathBuf,
    file: File,
    /// The writing thread may outlive its caller, so it holds the lock too.
    _lock: Lock,
    hasher: Hasher,
    len: u64,
}

impl Registry {
    /// Downloads a blob into a file whose lock we hold. On `Ok` the file is complete and verified;
    /// on `Err` it may contain a part that the next attempt resumes.
    pub(crate) async fn blob(
        &self,
        blob: &Descriptor,
        (path, lock): (&Path, &Lock),
        report: &(dyn Fn(u64) + Send + Sync),
    ) -> Result<(), ImageError> {
        let mut partial = Partial::open(path, lock, blob.size).await?;
        let was_begun = partial.len > 0;
        report(partial.len);
        partial = self.complete(blob, partial, report).await?;
        match partial.verified(&blob.digest) {
            // The part that an earlier process left may be corrupt.
            Err(ImageError::WrongDigest { .. }) if was_begun => {
                let fresh = Partial::open(path, lock, blob.size).await?;
                let complete = self.complete(blob, fresh, report).await?;
                complete.verified(&blob.digest)
            }
            other => other,
        }
    }

    async fn complete(
        &self,
        blob: &Descriptor,
        mut partial: Partial,
        report: &(dyn Fn(u64) + Send + Sync),
    ) -> Result<Partial, ImageError> {
        let (mut tries, mut vain) = (1, 1);
        while partial.len < blob.size {
            let before = partial.len;
            let outcome;
            (partial, outcome) = self.go_on(blob, partial, report).await?;
            let Err(error) = outcome else { continue };
            vain = if partial.len > before { 1 } else { vain + 1 };
            tries += 1;
            if !error.is_passing() || vain > TRIES_MAX || tries > BLOB_TRIES_MAX {
                return Err(error);
            }
            tracing::debug!(%error, tries, "a layer is fetched on");
            tokio::time::sleep(back_off(vain)).await;
        }
        Ok(partial)
    }

    /// One request, from where the last one ended.
    async fn go_on(
        &self,
        blob: &Descriptor,
        mut partial: Partial,
        report: &(dyn Fn(u64) + Send + Sync),
    ) -> Result<(Partial, Result<(), ImageError>), ImageError> {
        let offset = Some(partial.len);
        let response = match self.get("blobs", blob.digest.as_str(), offset).await {
            Ok(response) => response,
            Err(error) => return Ok((partial, Err(error))),
        };
        if !continues(&response, partial.len) {
            partial.restart()?;
        }
        if response.status() == StatusCode::RANGE_NOT_SATISFIABLE {
            let error = self.unreachable("it has less of a layer than we");
            return Ok((partial, Err(error)));
        }
        let (pieces, queue) = mpsc::channel(PIECES_MAX);
        let writer = spawn_blocking(move || partial.take(queue));
        let received = self.receive(response, blob.size, &pieces, report).await;
        drop(pieces);
        let (partial, written) = writer
            .await
            .map_err(|error| ImageError::disk(STEP)(io::Error::other(error)))?;
        written.map_err(ImageError::disk(STEP))?;
        let short = || self.unreachable("it sent less of a layer than it has");
        let is_whole = partial.len == blob.size;
        let received = received.and_then(|()| if is_whole { Ok(()) } else { Err(short()) });
        Ok((partial, received))
    }

    async fn receive(
        &self,
        mut response: Response,
        size: u64,
        pieces: &mpsc::Sender<(u64, Bytes)>,
        report: &(dyn Fn(u64) + Send + Sync),
    ) -> Result<(), ImageError> {
        let mut at = match response.status() {
            StatusCode::PARTIAL_CONTENT => range_start(&response).unwrap_or(0),
            _ => 0,
        };
        let mut reported = at;
        let mut rate = TransferRate::new();
        while let Some(piece) = self.within(response.chunk()).await? {
            let start = at;
            at += piece.len() as u64;
            if rate.is_too_slow(piece.len(), self.bounds.stall_timeout) {
                let reason = format!("less than {RATE_BYTES_S_MIN} bytes in a second");
                return Err(self.too_slow(&reason));
            }
            if at > size {
                return Err(ImageError::invalid(
                    "a layer",
                    "it is longer than its manifest says",
                ));
            }
            if pieces.send((start, piece)).await.is_err() {
                // The disk failed; the writer reports how.
                return Ok(());
            }
            if at - reported >= PROGRESS_STEP_BYTES || at == size {
                reported = at;
                report(at);
            }
        }
        Ok(())
    }
}

/// Measures the download rate per time span, so that one pause in a fast download does not matter.
struct TransferRate {
    since: Instant,
    bytes: usize,
}

impl TransferRate {
    fn new() -> Self {
        let (since, bytes) = (Instant::now(), 0);
        Self { since, bytes }
    }

    /// Counts a chunk; at the end of each `span`, reports whether it was too slow.
    fn is_too_slow(&mut self, bytes: usize, span: Duration) -> bool {
        self.bytes += bytes;
        let elapsed = self.since.elapsed();
        if elapsed < span {
            return false;
        }
        #[expect(
            clippy::cast_precision_loss,
            reason = "it is compared with a rough bound"
        )]
        let rate = self.bytes as f64 / elapsed.as_secs_f64();
        *self = Self::new();
        rate < RATE_BYTES_S_MIN
    }
}

/// Whether a response starts at our position.
fn continues(response: &Response, len: u64) -> bool {
    match response.status() {
        StatusCode::PARTIAL_CONTENT => range_start(response) == Some(len),
        _ => len == 0,
    }
}

/// The first byte of a partial response: `bytes 100-199/200`.
fn range_start(response: &Response) -> Option<u64> {
    let range = response.headers().get(CONTENT_RANGE)?.to_str().ok()?;
    let range = range.strip_prefix("bytes ")?;
    range.split_once('-')?.0.trim().parse().ok()
}

impl Partial {
    /// Opens an earlier part; discards it if it is too long.
    async fn open(path: &Path, lock: &Lock, size: u64) -> Result<Self, ImageError> {
        let (path, lock) = (path.to_owned(), lock.clone());
        let open = move || -> io::Result<Self> {
            let mut options = File::options();
            let options = options.create(true).truncate(false).read(true).write(true);
            let mut file = options.open(&path)?;
            let mut this_len = file.metadata()?.len();
            if this_len > size {
                file.set_len(0)?;
                this_len = 0;
            }
            let hasher = hash(&mut file)?;
            Ok(Self {
                path,
                file,
                _lock: lock,
                hasher,
                len: this_len,
            })
        };
        spawn_blocking(open)
            .await
            .unwrap_or_else(|error| Err(io::Error::other(error)))
            .map_err(ImageError::disk(STEP))
    }

    fn restart(&mut self) -> Result<(), ImageError> {
        let cut = self.file.set_len(0).and_then(|()| self.file.rewind());
        cut.map_err(ImageError::disk(STEP))?;
        (self.hasher, self.len) = (Hasher::default(), 0);
        Ok(())
    }

    /// Writes chunks until the queue is closed.
    fn take(mut self, mut queue: mpsc::Receiver<(u64, Bytes)>) -> (Self, io::Result<()>) {
        while let Some((start, piece)) = queue.blocking_recv() {
            if start != self.len {
                break;
            }
            if let Err(error) = self.file.write_all(&piece) {
                // It is unknown how much was written.
                let _ = self.restart();
                return (self, Err(error));
            }
            self.hasher.update(&piece);
            self.len += piece.len() as u64;
        }
        (self, Ok(()))
    }

    /// Removes the file if its digest is wrong.
    fn verified(self, expected: &Digest) -> Result<(), ImageError> {
        let found = self.hasher.finish();
        if found == *expected {
            return Ok(());
        }
        let _ = fs::remove_file(&self.path);
        Err(ImageError::WrongDigest {
            what: "a layer",
            expected: expected.clone(),
            found,
        })
    }
}

/// Hashes the existing part; leaves the position at its end.
fn hash(file: &mut File) -> io::Result<Hasher> {
    let mut hasher = Hasher::default();
    let mut buffer = vec![0; 256 << 10];
    loop {
        let len = file.read(&mut buffer)?;
        if len == 0 {
            return Ok(hasher);
        }
        hasher.update(&buffer[..len]);
    }
}
