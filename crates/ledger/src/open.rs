//! Finds the end of the chain at start.
//!
//! An incomplete last line was never acknowledged: it is cut off. If the files do not end where the
//! anchor says, the chain continues after the anchor, in a new segment: the gap stays in the files,
//! and `verify` reports it as long as they are kept.

use std::collections::VecDeque;
use std::fs::{self, DirBuilder, File};
use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::Path;
use std::sync::Arc;

use crate::anchor::{Anchor, AnchorError};
use crate::chain::{Link, Parts};
use crate::segment::{Found, Header, SegmentId, SegmentReader, list};
use crate::writer::Current;

/// Why the ledger cannot be opened.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// A disk error.
    #[error("could not {step} of the audit log")]
    Io {
        /// Completes "could not … of the audit log".
        step: &'static str,
        /// The error of the system call.
        source: io::Error,
    },
    /// The anchor cannot be read.
    #[error("could not find out how far the audit log was")]
    Anchor(#[source] AnchorError),
}

/// What was found at the start.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Resumed {
    /// Bytes of an incomplete last line, which were cut off.
    pub torn_bytes: u64,
    /// Whether the files do not end where the anchor says; `verify` reports the details.
    pub is_broken: bool,
}

/// The end of the chain.
pub(crate) struct Opened {
    pub(crate) last: Link,
    pub(crate) current: Option<Current>,
    pub(crate) unsealed: VecDeque<SegmentId>,
    pub(crate) resumed: Resumed,
}

/// The contents of the last segment.
struct End {
    header: Header,
    last: Link,
    length: u64,
    /// Number of events in it, including an incomplete one.
    lines: u64,
    torn_bytes: u64,
    is_whole: bool,
    /// Whether it agrees with the anchor: it has the anchor's event with the same hash, or the
    /// anchor points elsewhere.
    has_anchor: bool,
}

pub(crate) fn open(directory: &Path, anchor: Option<Anchor>) -> Result<Opened, OpenError> {
    let failed = |step| move |source| OpenError::Io { step, source };
    make(directory).map_err(failed("make the directory"))?;
    let segments = begun(directory).map_err(failed("list the segments"))?;
    let is_open = |id: &SegmentId| id.open_path(directory).exists();
    let mut unsealed: VecDeque<_> = segments.iter().copied().filter(is_open).collect();
    let anchored = anchor.map_or(Link::START, |anchor| anchor.last);
    let end = match segments.last() {
        None => None,
        Some(last) => read_end(directory, *last, anchored).map_err(failed("read the end"))?,
    };
    let newest = end.as_ref().map(|end| end.header.before.seq + end.lines);
    let newest = newest.or(segments.last().map(|id| id.0)).unwrap_or(0);
    let Some(end) =
        end.filter(|end| end.is_whole && end.has_anchor && end.last.seq >= anchored.seq)
    else {
        return Ok(broken(anchored, newest, unsealed));
    };
    let id = SegmentId(end.header.before.seq + 1);
    let torn_bytes = end.torn_bytes;
    let current = match unsealed.back() {
        Some(last) if *last == id && !id.sealed_path(directory).exists() => {
            unsealed.pop_back();
            Some(append_to(directory, id, &end).map_err(failed("open the last segment"))?)
        }
        Some(_) | None => None,
    };
    let resumed = Resumed {
        torn_bytes,
        is_broken: false,
    };
    Ok(Opened {
        last: end.last,
        current,
        unsealed,
        resumed,
    })
}

/// The segments with at least a header. One without it was left by a server that died.
fn begun(directory: &Path) -> io::Result<Vec<SegmentId>> {
    let mut segments = list(directory)?;
    while let Some(last) = segments.last() {
        match SegmentReader::open(directory, *last)?.next()? {
            Found::Torn(_) | Found::End => fs::remove_file(last.open_path(directory))?,
            Found::Line(_) | Found::TooLong => break,
        }
        segments.pop();
    }
    Ok(segments)
}

/// Continues the chain after the anchor and after all existing events.
fn broken(anchored: Link, newest: u64, unsealed: VecDeque<SegmentId>) -> Opened {
    let is_broken = anchored.seq > 0 || newest > 0;
    if is_broken {
        tracing::error!(
            anchor = anchored.seq,
            "the audit log was changed or cut off while no server wrote it; `hotcell audit verify` tells where"
        );
    }
    let last = Link {
        seq: anchored.seq.max(newest),
        hash: anchored.hash,
    };
    Opened {
        last,
        current: None,
        unsealed,
        resumed: Resumed {
            torn_bytes: 0,
            is_broken,
        },
    }
}

fn make(directory: &Path) -> io::Result<()> {
    DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(directory)
}

/// Reads the last segment to its end; `None` if it does not begin with a header.
fn read_end(directory: &Path, id: SegmentId, anchor: Link) -> io::Result<Option<End>> {
    let mut reader = SegmentReader::open(directory, id)?;
    let header = match reader.next()? {
        Found::Line(line) => Header::parse(line).map(|header| (header, line.len() as u64 + 1)),
        Found::Torn(_) | Found::TooLong | Found::End => None,
    };
    let Some((header, length)) = header.filter(|(header, _)| header.before.seq + 1 == id.0) else {
        return Ok(None);
    };
    let mut end = End {
        header,
        last: header.before,
        length,
        lines: 0,
        torn_bytes: 0,
        is_whole: true,
        has_anchor: anchor.seq < header.before.seq || header.before == anchor,
    };
    loop {
        match reader.next()? {
            Found::Line(line) => {
                end.lines += 1;
                let parts = Parts::of(line).filter(|parts| {
                    parts.link.seq == end.last.seq + 1 && parts.follows(&end.last.hash)
                });
                let Some(parts) = parts else {
                    end.is_whole = false;
                    continue;
                };
                end.last = parts.link;
                end.length += line.len() as u64 + 1;
                end.has_anchor |= end.last == anchor;
            }
            Found::Torn(bytes) => {
                end.torn_bytes = bytes as u64;
                return Ok(Some(end));
            }
            Found::TooLong => {
                end.is_whole = false;
                return Ok(Some(end));
            }
            Found::End => return Ok(Some(end)),
        }
    }
}

fn append_to(directory: &Path, id: SegmentId, end: &End) -> io::Result<Current> {
    let file = File::options().append(true).open(id.open_path(directory))?;
    if end.torn_bytes > 0 {
        tracing::info!(
            bytes = end.torn_bytes,
            "cut off the unfinished last line of the audit log"
        );
        file.set_len(end.length)?;
    }
    Ok(Current {
        id,
        file: Arc::new(file),
        length: end.length,
        room: 0,
        is_torn: false,
        begun_unix_ms: end.header.unix_ms,
    })
}
