//! Writes a log without blocking the async runtime.

use std::sync::{Arc, Mutex, PoisonError};

use bytes::Bytes;
use hotcell_domain::{ExecId, Stream};

use super::Logs;
use super::file_writer::FileWriter;
use crate::{StoreError, blocking};

/// What the agent sent under one number, or under several consecutive ones. It becomes one record.
#[derive(Debug, Clone)]
pub struct LogPiece {
    /// The agent's number of its last part. Number 0 is for text that does not come from the agent
    /// and is always added.
    pub agent_seq: u64,
    /// The stream it was written to.
    pub stream: Stream,
    /// When the container wrote it.
    pub unix_ms: u64,
    /// The bytes.
    pub data: Bytes,
}

/// Writes the log of one exec. The file is created with the first output: an exec without output
/// costs no file.
///
/// Disk work runs on the blocking pool, one call at a time. A call whose future is dropped still
/// takes effect; the next call waits for it and sees its result.
#[derive(Debug)]
pub struct LogWriter {
    file: Arc<Mutex<LazyFile>>,
    seen: Seen,
    /// A call was begun whose outcome is not in `seen`.
    is_behind: bool,
}

#[derive(Debug)]
struct LazyFile {
    logs: Arc<Logs>,
    id: ExecId,
    output_bytes_max: u64,
    writer: Option<FileWriter>,
}

/// The state of the file's writer after the last completed call.
#[derive(Debug, Clone, Copy, Default)]
struct Seen {
    agent_seq: u64,
    last_seq: u64,
    has_carry: bool,
}

impl LogWriter {
    pub(super) fn new(logs: Arc<Logs>, id: &ExecId, output_bytes_max: u64) -> Self {
        let file = LazyFile {
            logs,
            id: id.clone(),
            output_bytes_max,
            writer: None,
        };
        Self {
            file: Arc::new(Mutex::new(file)),
            seen: Seen::default(),
            is_behind: false,
        }
    }

    /// Recovers what an earlier server wrote, up to the last whole record.
    pub async fn open(&mut self) -> Result<(), StoreError> {
        self.run(|file| file.open().map(drop)).await
    }

    /// Appends what the agent sent, in this order; returns the number of the newest message. After
    /// `Ok` all of it may be acknowledged to the agent. After `Err` the log has some of the first
    /// pieces or none, and the call can be repeated: a number that is already in the log is not
    /// added again.
    ///
    /// Each call is handed to another thread, so whatever is here together should be appended
    /// together.
    pub async fn append(&mut self, pieces: Vec<LogPiece>) -> Result<u64, StoreError> {
        self.run(move |file| {
            let writer = file.open()?;
            for piece in pieces {
                writer.append(piece.agent_seq, piece.stream, piece.unix_ms, &piece.data)?;
            }
            Ok(writer.last_seq())
        })
        .await
    }

    /// Appends incomplete characters that were held back; returns the number of the newest message.
    /// Can be repeated. The agent's number is unchanged: a server that dies before it has stored
    /// the exit resumes at a point where the agent sends the exit again.
    pub async fn finish(&mut self, unix_ms: u64) -> Result<u64, StoreError> {
        if !self.is_behind && !self.seen.has_carry {
            return Ok(self.seen.last_seq);
        }
        self.run(move |file| match &mut file.writer {
            Some(writer) => writer.finish(writer.agent_seq(), unix_ms),
            None => Ok(0),
        })
        .await
    }

    /// The agent's number up to which everything is stored: where to resume.
    pub fn agent_seq(&self) -> u64 {
        self.seen.agent_seq
    }

    /// The number of the newest message.
    pub fn last_seq(&self) -> u64 {
        self.seen.last_seq
    }

    async fn run<T: Send + 'static>(
        &mut self,
        work: impl FnOnce(&mut LazyFile) -> Result<T, StoreError> + Send + 'static,
    ) -> Result<T, StoreError> {
        self.is_behind = true;
        let file = Arc::clone(&self.file);
        let (done, seen) = blocking("write an output log", move || {
            // The writer changes its state only after the write, so the state is valid even after a
            // panic.
            let mut file = file.lock().unwrap_or_else(PoisonError::into_inner);
            let done = work(&mut file);
            Ok((done, file.seen()))
        })
        .await?;
        self.seen = seen;
        self.is_behind = false;
        done
    }
}

impl LazyFile {
    fn open(&mut self) -> Result<&mut FileWriter, StoreError> {
        let opened = match self.writer.take() {
            Some(writer) => writer,
            None => FileWriter::open(Arc::clone(&self.logs), &self.id, self.output_bytes_max)?,
        };
        Ok(self.writer.insert(opened))
    }

    fn seen(&self) -> Seen {
        let writer = self.writer.as_ref();
        writer.map_or_else(Seen::default, |writer| Seen {
            agent_seq: writer.agent_seq(),
            last_seq: writer.last_seq(),
            has_carry: writer.has_carry(),
        })
    }
}

#[cfg(test)]
mod tests {
    use std::task::{Context, Poll, Waker};

    use super::*;
    use crate::samples::{exec, store};

    fn piece(agent_seq: u64, data: &'static [u8]) -> LogPiece {
        LogPiece {
            agent_seq,
            stream: Stream::Stdout,
            unix_ms: 1,
            data: Bytes::from_static(data),
        }
    }

    #[tokio::test]
    async fn an_exec_that_writes_nothing_costs_no_file() {
        let (directory, store) = store();
        let mut log = store.log_writer(&exec(1).id, 1000);
        assert_eq!(log.finish(1).await.unwrap(), 0);
        let files = || directory.path().join("logs").read_dir().unwrap().count();
        assert_eq!(files(), 0);
        log.append(vec![piece(1, b"hello")]).await.unwrap();
        assert_eq!(files(), 1);
    }

    #[tokio::test]
    async fn what_was_being_written_when_its_future_was_dropped_is_written_once() {
        let (_directory, store) = store();
        let id = exec(1).id;
        let mut log = store.log_writer(&id, 1000);
        let text = "half \u{e4}".as_bytes();
        let half = &text[..text.len() - 1];
        {
            let file = Arc::clone(&log.file);
            // Whoever writes waits for this.
            let held = file.lock().unwrap();
            let mut begun = Box::pin(log.append(vec![piece(7, half)]));
            let polled = begun.as_mut().poll(&mut Context::from_waker(Waker::noop()));
            assert!(polled.is_pending());
            drop((begun, held));
        }
        assert_eq!(log.agent_seq(), 0);
        // The end comes after it, and so does a repeated end.
        assert_eq!(log.finish(2).await.unwrap(), 2);
        assert_eq!((log.agent_seq(), log.last_seq()), (7, 2));
        assert_eq!(log.append(vec![piece(7, half)]).await.unwrap(), 2);
        let page = store.read_log(&id, 0, 100).await.unwrap();
        let data: Vec<_> = page.messages.iter().map(|one| one.data.to_vec()).collect();
        assert_eq!(data, [&text[..5], &text[5..6]]);
    }

    #[tokio::test]
    async fn pieces_that_come_together_are_records_of_their_own_and_come_once() {
        let (_directory, store) = store();
        let id = exec(1).id;
        let mut log = store.log_writer(&id, 1000);
        let error = LogPiece {
            stream: Stream::Stderr,
            ..piece(5, b"error")
        };
        let pieces = vec![piece(2, b"one"), error, piece(6, b"two")];
        assert_eq!(log.append(pieces.clone()).await.unwrap(), 3);
        assert_eq!((log.agent_seq(), log.last_seq()), (6, 3));
        // As after a failure: the first of them are here, the last is not.
        let again = pieces.into_iter().chain([piece(7, b"three")]).collect();
        assert_eq!(log.append(again).await.unwrap(), 4);
        let page = store.read_log(&id, 0, 100).await.unwrap();
        let data: Vec<_> = page.messages.iter().map(|one| &one.data[..]).collect();
        assert_eq!(data, [&b"one"[..], b"error", b"two", b"three"]);
    }

    #[test]
    fn an_open_log_without_news_is_read_without_the_disk() {
        let mut builder = tokio::runtime::Builder::new_current_thread();
        let runtime = builder.max_blocking_threads(1).build().unwrap();
        runtime.block_on(async {
            let (_directory, store) = store();
            let id = exec(1).id;
            let mut log = store.log_writer(&id, 1000);
            log.append(vec![piece(1, b"hello")]).await.unwrap();
            // From here on nothing that needs the blocking pool can be done.
            let (let_go, held) = std::sync::mpsc::channel::<()>();
            let occupied = tokio::task::spawn_blocking(move || held.recv());
            let at_once = async |after_seq| {
                let mut reading = Box::pin(store.read_log(&id, after_seq, 100));
                std::future::poll_fn(|cx| Poll::Ready(reading.as_mut().poll(cx))).await
            };
            let Poll::Ready(page) = at_once(1).await else {
                panic!("it went to the blocking pool");
            };
            let page = page.unwrap();
            assert_eq!((page.messages.len(), page.next_seq), (0, 1));
            assert!(at_once(0).await.is_pending());
            drop(let_go);
            assert!(occupied.await.unwrap().is_err(), "it was let go");
        });
    }
}
