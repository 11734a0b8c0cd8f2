//! Unpacks a tar stream: untrusted from the first byte.
//!
//! The tar crate only parses, on a blocking thread; `member` decides where a member goes. Content
//! arrives through a bounded channel, and an upload that ends early is an error, never a shorter
//! archive. Everything is unpacked into a `staging` directory and moved in by `merge` once the
//! upload is complete.

use std::cell::Cell;
use std::io::{self, Read};
use std::rc::Rc;

use bytes::{Buf, Bytes};
use hotcell_agent_api::bounds::{CHUNK_BYTES_MAX, IMPORT_BYTES_MAX, IMPORT_ENTRIES_MAX};
use hotcell_agent_api::v1::import_request::Request;
use hotcell_agent_api::v1::{ImportHeader, ImportReply, ImportRequest};
use rustix::io::Errno;
use tokio::sync::{Mutex, mpsc};
use tokio_stream::{Stream, StreamExt};
use tonic::Status;

use super::beneath::Beneath;
use super::blocking::Stop;
use super::error::Error;
use super::member::{Unpacked, Unpacker};
use super::merge::Merge;
use super::path::RelPath;
use super::stage::{Direct, make_directories};
use super::staging::Staging;

/// Chunks buffered for a slow disk.
pub(super) const AHEAD_PIECES_MAX: usize = 8;

/// Bytes allowed between two members: long names, attributes, padding.
const METADATA_BYTES_MAX: u64 = 1 << 20;

/// Bytes allowed after the end of the archive: tar pads its last record.
const TRAILER_BYTES_MAX: usize = 1 << 20;

/// A parsed header.
#[derive(Debug)]
pub(super) struct Import {
    dest: RelPath,
    bytes_max: u64,
    entries_max: u64,
}

/// What the unpacking thread receives.
#[derive(Debug)]
pub(super) enum Piece {
    Data(Bytes),
    /// The upload is complete.
    End,
}

impl Import {
    /// Parses a header. A bound of 0 or above the agent's own means the agent's own.
    pub(super) fn parse(header: &ImportHeader, root: &[u8]) -> Result<Self, Error> {
        let bound = |asked: u64, own: u64| if asked == 0 { own } else { asked.min(own) };
        Ok(Self {
            dest: RelPath::parse(&header.dest, root)?,
            bytes_max: bound(header.bytes_max, IMPORT_BYTES_MAX),
            entries_max: bound(header.entries_max, IMPORT_ENTRIES_MAX),
        })
    }

    /// Unpacks the upload. On `Err` the destination is unchanged.
    pub(super) fn unpack(
        &self,
        root: &Beneath,
        pieces: mpsc::Receiver<Piece>,
        changes: &Mutex<()>,
        stop: &Stop,
    ) -> Result<ImportReply, Error> {
        let before = match root.narrowed(&self.dest) {
            Err(error) if error.is_errno(Errno::NOENT) => None,
            found => Some(found?),
        };
        let staging = Staging::open(root)?;
        let content = staging.content().clone();
        let unpacker = Unpacker::new(content, before, self.bytes_max);
        let (entries, content) = self.unpack_all(unpacker, pieces, stop)?;
        let lock = changes.blocking_lock();
        let moved = self.move_in(root, &staging, &content, stop);
        drop(lock);
        match moved {
            Ok(()) => Ok(ImportReply {
                entries,
                bytes: content.bytes,
            }),
            Err(NotMoved::Undone(error)) => Err(error),
            Err(NotMoved::HalfUndone(error)) => Err(Error::HalfImported {
                source: Box::new(error),
                staging: staging.keep(),
            }),
        }
    }

    /// Unpacks all members and reads the upload to its end.
    fn unpack_all(
        &self,
        mut unpacker: Unpacker,
        pieces: mpsc::Receiver<Piece>,
        stop: &Stop,
    ) -> Result<(u64, Unpacked), Error> {
        let quota = Rc::new(Cell::new(METADATA_BYTES_MAX));
        let incoming = Incoming {
            pieces,
            current: Bytes::new(),
            ended: false,
            quota: quota.clone(),
        };
        let mut archive = tar::Archive::new(incoming);
        let mut entries = archive.entries().map_err(|error| broken(&error))?;
        let mut count = 0;
        loop {
            stop.check()?;
            quota.set(METADATA_BYTES_MAX);
            let Some(entry) = entries.next() else { break };
            let mut entry = entry.map_err(|error| broken(&error))?;
            count += 1;
            if count > self.entries_max {
                return Err(Error::Exhausted("the archive has too many members"));
            }
            unpacker.unpack(&mut entry, &quota, stop)?;
        }
        archive.into_inner().finish()?;
        Ok((count, unpacker.finish()))
    }

    /// Moves all unpacked files into place, or none.
    fn move_in(
        &self,
        root: &Beneath,
        staging: &Staging,
        unpacked: &Unpacked,
        stop: &Stop,
    ) -> Result<(), NotMoved> {
        // Dropped without `keep`, it removes the directories that it created, which are empty
        // again.
        let mut stage = Direct::default();
        let made = make_directories(root, &self.dest, &mut stage);
        let dest = made.and_then(|()| root.narrowed(&self.dest));
        let dest = dest.map_err(NotMoved::Undone)?;
        let journal = staging.begin_merge(&self.dest).map_err(NotMoved::Undone)?;
        let mut merge = Merge::new(staging.content(), dest, journal);
        let moved = merge
            .run(stop)
            .and_then(|()| merge.set_modes(&unpacked.modes))
            .and_then(|()| staging.commit_merge());
        let Err(error) = moved else {
            stage.keep();
            merge.clear();
            return Ok(());
        };
        // A directory without write permission cannot be moved.
        let open = unpacked.modes.iter();
        let open: Vec<_> = open.map(|(path, _)| (path.clone(), 0o700)).collect();
        let _ = merge.set_modes(&open);
        Err(if merge.undo() {
            NotMoved::Undone(error)
        } else {
            NotMoved::HalfUndone(error)
        })
    }
}

/// Why an archive was not moved into place, and whether the destination is unchanged.
enum NotMoved {
    Undone(Error),
    HalfUndone(Error),
}

/// Forwards the upload to the unpacking thread.
pub(super) async fn pump<S>(mut requests: S, sender: mpsc::Sender<Piece>) -> Result<(), Status>
where
    S: Stream<Item = Result<ImportRequest, Status>> + Unpin,
{
    while let Some(request) = requests.next().await {
        let Some(Request::Data(data)) = request?.request else {
            return Err(Error::Invalid("only the first message carries the header").into());
        };
        if data.len() > CHUNK_BYTES_MAX {
            return Err(Error::Invalid("a piece is too large").into());
        }
        if sender.send(Piece::Data(data)).await.is_err() {
            // The thread has failed and reports why.
            return Ok(());
        }
    }
    let _ = sender.send(Piece::End).await;
    Ok(())
}

/// Translates an error while reading the archive.
pub(super) fn broken(error: &io::Error) -> Error {
    if error.kind() == io::ErrorKind::ConnectionAborted {
        Error::Cancelled
    } else if error.kind() == io::ErrorKind::QuotaExceeded {
        Error::Archive("a name or an attribute is too long")
    } else {
        Error::Archive("it is malformed or cut off")
    }
}

/// The upload as a reader, with a quota that the unpacking thread adjusts.
struct Incoming {
    pieces: mpsc::Receiver<Piece>,
    current: Bytes,
    ended: bool,
    quota: Rc<Cell<u64>>,
}

impl Incoming {
    /// Reads until the end of the upload: an archive is complete only if its sender says so.
    fn finish(mut self) -> Result<(), Error> {
        let mut trailer = self.current.len();
        while !self.ended {
            match self.pieces.blocking_recv() {
                Some(Piece::Data(data)) => trailer += data.len(),
                Some(Piece::End) => self.ended = true,
                None => return Err(Error::Cancelled),
            }
            if trailer > TRAILER_BYTES_MAX {
                return Err(Error::Archive("too much follows its end"));
            }
        }
        Ok(())
    }
}

impl Read for Incoming {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        while self.current.is_empty() && !self.ended {
            match self.pieces.blocking_recv() {
                Some(Piece::Data(data)) => self.current = data,
                Some(Piece::End) => self.ended = true,
                None => return Err(io::ErrorKind::ConnectionAborted.into()),
            }
        }
        let count = buffer.len().min(self.current.len());
        let left = self.quota.get().checked_sub(count as u64);
        self.quota.set(left.ok_or(io::ErrorKind::QuotaExceeded)?);
        self.current.copy_to_slice(&mut buffer[..count]);
        Ok(count)
    }
}
