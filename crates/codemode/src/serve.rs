//! A script's connection: frames in, answers out, many requests at a time.
//!
//! Reading stops while as much is in flight as may be, so a script that floods waits for itself.
//! When the connection ends, all that it asked for is dropped, which cancels it.

use std::collections::HashMap;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use serde_json::{Value, json};
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt as _};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc};
use tokio::task::{AbortHandle, JoinSet};

use crate::frame::{self, FRAME_BYTES_MAX, Frame, HELLO_BYTES_MAX};
use crate::request::Request;
use crate::{Failure, Run};

/// Requests of one script at a time.
const REQUESTS_MAX: usize = 1024;

/// Memory for requests and answers of one script, in KiB.
const MEMORY_KIB: usize = 192 << 10;

/// How long a connection may take to say whose it is.
const HELLO_TIMEOUT: Duration = Duration::from_secs(10);

/// Frames that wait to be written.
const ANSWERS_MAX: usize = 64;

/// Short answers are written together.
const WRITE_BYTES: usize = 32 << 10;

/// An answer, with the memory that it holds.
struct Answer {
    frame: Vec<u8>,
    _memory: Option<OwnedSemaphorePermit>,
}

/// Sends answers of one connection.
#[derive(Clone)]
pub(crate) struct Answers {
    frames: mpsc::Sender<Answer>,
    memory: Arc<Semaphore>,
}

type Running = Arc<Mutex<HashMap<u32, AbortHandle>>>;

impl Run {
    /// Serves a connection until it ends. One that does not know the secret is closed, and so is a
    /// second one.
    pub async fn serve<S: AsyncRead + AsyncWrite + Send + Unpin>(self: &Arc<Self>, stream: S) {
        let (mut reader, mut writer) = tokio::io::split(stream);
        let Some(is_welcome) = self.hello(&mut reader).await else {
            tracing::debug!(run.id = %self.id, "a connection that is not the script's is closed");
            return;
        };
        let (frames, waiting) = mpsc::channel(ANSWERS_MAX);
        let answers = Answers {
            frames,
            memory: Arc::new(Semaphore::new(MEMORY_KIB)),
        };
        if !is_welcome {
            let welcome = frame::encode(0, self.welcome().as_bytes());
            if writer.write_all(&welcome).await.is_err() {
                return;
            }
        }
        tokio::select! {
            () = self.read(&mut reader, &answers) => {}
            () = write(&mut writer, waiting) => {}
        }
        self.is_told.store(true, Ordering::Release);
        self.told.notify_waiters();
    }

    /// Whether the script has its welcome; `None` if it is not the script.
    async fn hello<R: AsyncRead + Unpin>(&self, reader: &mut R) -> Option<bool> {
        let hello = async {
            let header = frame::read_header(reader).await.ok()??;
            let body = frame::read_body(reader, header, HELLO_BYTES_MAX)
                .await
                .ok()?;
            let Frame::Whole(_, body) = body else {
                return None;
            };
            match Request::parse(&body) {
                Ok(Request::Hello { secret, is_welcome }) => Some((secret, is_welcome)),
                Ok(_) | Err(_) => None,
            }
        };
        let said = tokio::time::timeout(HELLO_TIMEOUT, hello).await;
        let (secret, is_welcome) = said.ok()??;
        self.admits(&secret).then_some(is_welcome)
    }

    /// Reads requests until the script says that it has ended, or the connection does.
    async fn read<R: AsyncRead + Unpin>(self: &Arc<Self>, reader: &mut R, answers: &Answers) {
        let mut tasks = JoinSet::new();
        let running = Running::default();
        let places = Arc::new(Semaphore::new(REQUESTS_MAX));
        while let Some((number, request, memory)) = next(reader, answers).await {
            while tasks.try_join_next().is_some() {}
            let request = match request {
                Ok(Request::End(end)) => return self.reporter.ended(end),
                Ok(Request::Cancel {}) => {
                    if let Some(task) = lock(&running).remove(&number) {
                        task.abort();
                    }
                    continue;
                }
                request => request,
            };
            let Ok(place) = Arc::clone(&places).acquire_owned().await else {
                return;
            };
            let (run, answers) = (Arc::clone(self), answers.clone());
            let done = Arc::clone(&running);
            // Locked until it is in the table: it removes itself from there.
            let mut all = lock(&running);
            let task = tasks.spawn(async move {
                let answer = match request {
                    Ok(request) => run.answer(number, request, &answers).await,
                    Err(failure) => Err(failure),
                };
                answers.send(number, answer, memory).await;
                lock(&done).remove(&number);
                drop(place);
            });
            all.insert(number, task);
        }
    }
}

/// The next request, or why it is none, with memory for it; `None` at the end.
async fn next<R: AsyncRead + Unpin>(
    reader: &mut R,
    answers: &Answers,
) -> Option<(u32, Result<Request, Failure>, OwnedSemaphorePermit)> {
    let header = frame::read_header(reader).await.ok()??;
    let memory = answers.reserve(header.0.min(FRAME_BYTES_MAX)).await?;
    let frame = frame::read_body(reader, header, FRAME_BYTES_MAX).await;
    let (number, request) = match frame.ok()? {
        Frame::Whole(number, body) => (number, Request::parse(&body)),
        Frame::TooLong(number, bytes) => {
            let failure = Failure::invalid(format!(
                "the request has {bytes} bytes; {FRAME_BYTES_MAX} are allowed"
            ));
            return Some((number, Err(failure), memory));
        }
    };
    let request =
        request.map_err(|error| Failure::invalid(format!("this is not a request: {error}")));
    Some((number, request, memory))
}

impl Answers {
    /// Memory for so many bytes; waits for it.
    async fn reserve(&self, bytes: usize) -> Option<OwnedSemaphorePermit> {
        let kib = u32::try_from(bytes.div_ceil(1024).min(MEMORY_KIB)).ok()?;
        let memory = Arc::clone(&self.memory);
        memory.acquire_many_owned(kib).await.ok()
    }

    /// Sends an answer. What the request took of the memory is for the answer now.
    async fn send(
        &self,
        number: u32,
        answer: Result<Value, Failure>,
        request: OwnedSemaphorePermit,
    ) {
        let body = body(answer);
        drop(request);
        let memory = self.reserve(body.len()).await;
        let frame = frame::encode(number, &body);
        let answer = Answer {
            frame,
            _memory: memory,
        };
        let _ = self.frames.send(answer).await;
    }

    /// Sends the progress of a request; what finds no room is left out.
    pub(crate) fn progress(&self, number: u32, progress: &Value) {
        let body = json!({"progress": progress}).to_string();
        let _ = self.frames.try_send(Answer {
            frame: frame::encode(number, body.as_bytes()),
            _memory: None,
        });
    }
}

fn body(answer: Result<Value, Failure>) -> Vec<u8> {
    let told = match answer {
        Ok(value) => serde_json::to_vec(&json!({ "ok": value })).unwrap_or_default(),
        Err(failure) => failed(&failure),
    };
    if told.len() <= FRAME_BYTES_MAX {
        return told;
    }
    failed(&Failure::exhausted(format!(
        "the result has {} bytes; {FRAME_BYTES_MAX} are allowed",
        told.len()
    )))
}

fn failed(failure: &Failure) -> Vec<u8> {
    let told = json!({"error": {"code": failure.code, "message": failure.message}});
    told.to_string().into_bytes()
}

/// Writes answers until the connection fails.
async fn write<W: AsyncWrite + Unpin>(writer: &mut W, mut answers: mpsc::Receiver<Answer>) {
    let mut batch = Vec::new();
    while let Some(first) = answers.recv().await {
        let mut held = vec![first];
        let mut bytes = held[0].frame.len();
        while bytes < WRITE_BYTES
            && let Ok(next) = answers.try_recv()
        {
            bytes += next.frame.len();
            held.push(next);
        }
        let written = if let [alone] = &held[..] {
            writer.write_all(&alone.frame).await
        } else {
            batch.clear();
            for answer in &held {
                batch.extend_from_slice(&answer.frame);
            }
            writer.write_all(&batch).await
        };
        if written.is_err() {
            return;
        }
    }
}

fn lock(running: &Running) -> std::sync::MutexGuard<'_, HashMap<u32, AbortHandle>> {
    running.lock().unwrap_or_else(PoisonError::into_inner)
}
