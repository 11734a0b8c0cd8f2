//! Reads events, for people and programs.

use std::collections::VecDeque;
use std::fs::File;
use std::io::{self, Read};
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};

use crate::segment::{Found, LINE_BYTES_MAX, SegmentId, SegmentReader, list};

/// Bytes read at a time while following a segment.
const PIECE_BYTES: usize = 64 << 10;

/// Visits every event, oldest first, until `visit` breaks. Unreadable lines are skipped:
/// [`verify`](crate::verify()) reports them.
pub fn events(directory: &Path, mut visit: impl FnMut(&[u8]) -> ControlFlow<()>) -> io::Result<()> {
    for id in list(directory)? {
        if read(directory, id, &mut visit)?.is_break() {
            break;
        }
    }
    Ok(())
}

fn read(
    directory: &Path,
    id: SegmentId,
    visit: &mut impl FnMut(&[u8]) -> ControlFlow<()>,
) -> io::Result<ControlFlow<()>> {
    let mut reader = match SegmentReader::open(directory, id) {
        // Retention has removed it meanwhile.
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            return Ok(ControlFlow::Continue(()));
        }
        opened => opened?,
    };
    let mut is_header = true;
    loop {
        match reader.next()? {
            Found::Line(_) if std::mem::take(&mut is_header) => {}
            Found::Line(line) => {
                if visit(line).is_break() {
                    return Ok(ControlFlow::Break(()));
                }
            }
            Found::TooLong => {}
            Found::Torn(_) | Found::End => return Ok(ControlFlow::Continue(())),
        }
    }
}

/// The newest `count` events, oldest first, and a [`Tail`] that continues after them.
pub fn newest(directory: &Path, count: usize) -> io::Result<(Vec<Vec<u8>>, Tail)> {
    let tail = Tail::at_end(directory)?;
    let mut found: VecDeque<Vec<u8>> = VecDeque::new();
    for id in list(directory)?.into_iter().rev() {
        let wanted = count - found.len();
        if wanted == 0 {
            break;
        }
        let mut lines: VecDeque<Vec<u8>> = VecDeque::new();
        let is_followed = tail
            .current
            .as_ref()
            .is_some_and(|(followed, _)| *followed == id);
        let mut left = if is_followed { tail.lines } else { u64::MAX };
        let _ = read(directory, id, &mut |line| {
            if left == 0 {
                return ControlFlow::Break(());
            }
            left -= 1;
            lines.push_back(line.to_vec());
            if lines.len() > wanted {
                lines.pop_front();
            }
            ControlFlow::Continue(())
        })?;
        lines.append(&mut found);
        found = lines;
    }
    Ok((found.into(), tail))
}

/// Follows the ledger while it is written.
#[derive(Debug)]
pub struct Tail {
    directory: PathBuf,
    current: Option<(SegmentId, File)>,
    /// Bytes of an incomplete line.
    partial: Vec<u8>,
    /// Number of events read from the segment.
    lines: u64,
    is_at_header: bool,
}

impl Tail {
    fn at_end(directory: &Path) -> io::Result<Self> {
        let mut tail = Self {
            directory: directory.to_owned(),
            current: None,
            partial: Vec::new(),
            lines: 0,
            is_at_header: true,
        };
        if let Some(id) = list(directory)?.pop() {
            tail.open(id)?;
            tail.drain(&mut |_| {})?;
        }
        Ok(tail)
    }

    fn open(&mut self, id: SegmentId) -> io::Result<()> {
        match File::open(id.open_path(&self.directory)) {
            Ok(file) => {
                self.current = Some((id, file));
                self.partial.clear();
                self.lines = 0;
                self.is_at_header = true;
                Ok(())
            }
            // It has been sealed: new events are in the next segment.
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
            Err(error) => Err(error),
        }
    }

    /// Visits the events since the last call.
    pub fn more(&mut self, mut visit: impl FnMut(&[u8])) -> io::Result<()> {
        loop {
            self.drain(&mut visit)?;
            let current = self.current.as_ref().map_or(0, |(id, _)| id.0);
            let next = list(&self.directory)?.into_iter().find(|id| id.0 > current);
            let Some(next) = next else { return Ok(()) };
            // The segment may have received its last lines meanwhile.
            self.drain(&mut visit)?;
            let before = current;
            self.open(next)?;
            if self.current.as_ref().is_none_or(|(id, _)| id.0 == before) {
                // It is already sealed: read it as a whole.
                let _ = read(&self.directory, next, &mut |line| {
                    visit(line);
                    ControlFlow::Continue(())
                })?;
                self.skip_to(next)?;
            }
        }
    }

    /// Moves to the end of a sealed segment.
    fn skip_to(&mut self, id: SegmentId) -> io::Result<()> {
        let file = File::open(id.sealed_path(&self.directory))?;
        io::copy(&mut &file, &mut io::sink())?;
        self.current = Some((id, file));
        self.partial.clear();
        Ok(())
    }

    fn drain(&mut self, visit: &mut impl FnMut(&[u8])) -> io::Result<()> {
        let Some((_, file)) = &mut self.current else {
            return Ok(());
        };
        let mut piece = vec![0; PIECE_BYTES];
        loop {
            let read = file.read(&mut piece)?;
            if read == 0 {
                return Ok(());
            }
            self.partial.extend_from_slice(&piece[..read]);
            while let Some(end) = self.partial.iter().position(|&byte| byte == b'\n') {
                let line: Vec<u8> = self.partial.drain(..=end).collect();
                if !std::mem::take(&mut self.is_at_header) {
                    self.lines += 1;
                    visit(&line[..end]);
                }
            }
            if self.partial.len() > LINE_BYTES_MAX {
                self.partial.clear();
            }
        }
    }
}
