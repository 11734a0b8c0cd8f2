//! Segments: the files of the ledger.
//!
//! A segment begins with a header line that gives its position in the chain, and is named after its
//! first event. A sealed one is compressed: zstd frames of a bounded size, one after another, which
//! `zstdcat` reads.

use std::fs::{self, File};
use std::io::{self, BufRead, BufReader, Read};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use ruzstd::decoding::StreamingDecoder;

use crate::chain::{Hash, Link};

/// The longest line; a longer one is damaged.
pub(crate) const LINE_BYTES_MAX: usize = 32 << 10;

const OPEN_SUFFIX: &str = ".jsonl";
const SEALED_SUFFIX: &str = ".jsonl.zst";
const NEW_SUFFIX: &str = ".jsonl.zst.new";

/// The sequence number of a segment's first event, which names it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct SegmentId(pub(crate) u64);

/// The header line of a segment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Header {
    /// The event before its first one, with its hash.
    pub(crate) before: Link,
    /// When it was created.
    pub(crate) unix_ms: u64,
}

impl SegmentId {
    pub(crate) fn open_path(self, directory: &Path) -> PathBuf {
        directory.join(format!("{:020}{OPEN_SUFFIX}", self.0))
    }

    pub(crate) fn sealed_path(self, directory: &Path) -> PathBuf {
        directory.join(format!("{:020}{SEALED_SUFFIX}", self.0))
    }

    pub(crate) fn new_path(self, directory: &Path) -> PathBuf {
        directory.join(format!("{:020}{NEW_SUFFIX}", self.0))
    }

    fn of(name: &str) -> Option<Self> {
        let number = name
            .strip_suffix(SEALED_SUFFIX)
            .or_else(|| name.strip_suffix(OPEN_SUFFIX))?;
        let is_ours = number.len() == 20 && number.bytes().all(|byte| byte.is_ascii_digit());
        is_ours.then(|| number.parse().ok().map(Self))?
    }
}

/// The segments in a directory, oldest first. One that is being sealed is listed once.
pub(crate) fn list(directory: &Path) -> io::Result<Vec<SegmentId>> {
    let mut found = Vec::new();
    for entry in fs::read_dir(directory)? {
        let name = entry?.file_name();
        found.extend(name.to_str().and_then(SegmentId::of));
    }
    found.sort_unstable();
    found.dedup();
    Ok(found)
}

/// Whether this is the name of a segment, sealed or not.
pub fn is_segment_name(name: &str) -> bool {
    SegmentId::of(name).is_some()
}

/// Visits each segment's file, oldest first, with its name and the length of its complete lines. A
/// server may be writing. If retention removes a segment meanwhile, that is an error.
pub fn segment_files<E: From<io::Error>>(
    directory: &Path,
    mut visit: impl FnMut(&str, File, u64) -> Result<(), E>,
) -> Result<(), E> {
    for id in list(directory)? {
        // It may be sealed between the two attempts.
        let (path, file) = match File::open(id.open_path(directory)) {
            Ok(file) => (id.open_path(directory), file),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                let path = id.sealed_path(directory);
                let file = File::open(&path)?;
                (path, file)
            }
            Err(error) => return Err(error.into()),
        };
        let length = file.metadata()?.len();
        let name = path.file_name().and_then(|name| name.to_str());
        let name = name.unwrap_or_default();
        let whole = if name.ends_with(SEALED_SUFFIX) {
            length
        } else {
            whole_lines(&file, length)?
        };
        visit(name, file, whole)?;
    }
    Ok(())
}

/// The length of a file without an incomplete last line.
fn whole_lines(file: &File, length: u64) -> io::Result<u64> {
    let from = length.saturating_sub(LINE_BYTES_MAX as u64 + 1);
    let mut end = vec![0; usize::try_from(length - from).unwrap_or(0)];
    file.read_exact_at(&mut end, from)?;
    let newline = end.iter().rposition(|&byte| byte == b'\n');
    Ok(newline.map_or(0, |at| from + at as u64 + 1))
}

impl Header {
    /// Formats the header.
    pub(crate) fn line(&self) -> String {
        format!(
            "{{\"ledger\":1,\"after_seq\":{},\"after_hash\":\"{}\",\"time\":\"{}\"}}\n",
            self.before.seq,
            self.before.hash,
            hotcell_domain::rfc3339(self.unix_ms)
        )
    }

    /// Parses the header without its newline.
    pub(crate) fn parse(line: &[u8]) -> Option<Self> {
        let json: serde_json::Value = serde_json::from_slice(line).ok()?;
        if json["ledger"] != 1 {
            return None;
        }
        let seq = json["after_seq"].as_u64()?;
        let hash = Hash::parse(json["after_hash"].as_str()?.as_bytes())?;
        Some(Self {
            before: Link { seq, hash },
            unix_ms: hotcell_domain::parse_rfc3339(json["time"].as_str()?)?,
        })
    }
}

/// Reads the lines of a segment.
pub(crate) struct SegmentReader {
    lines: BufReader<Box<dyn Read>>,
    line: Vec<u8>,
    is_sealed: bool,
}

/// The result of reading a line.
pub(crate) enum Found<'a> {
    /// A line, without its newline.
    Line(&'a [u8]),
    /// The last line is incomplete: its writer died, or is writing it now.
    Torn(usize),
    /// A line that is too long to be valid.
    TooLong,
    End,
}

impl SegmentReader {
    /// Opens a segment, sealed or not.
    pub(crate) fn open(directory: &Path, id: SegmentId) -> io::Result<Self> {
        // It may be sealed between the two attempts.
        let not_found = |error: &io::Error| error.kind() == io::ErrorKind::NotFound;
        match File::open(id.open_path(directory)) {
            Ok(file) => Ok(Self::new(Box::new(file), false)),
            Err(error) if not_found(&error) => {
                let file = File::open(id.sealed_path(directory))?;
                Ok(Self::new(Box::new(Frames::new(BufReader::new(file))), true))
            }
            Err(error) => Err(error),
        }
    }

    fn new(bytes: Box<dyn Read>, is_sealed: bool) -> Self {
        Self {
            lines: BufReader::with_capacity(128 << 10, bytes),
            line: Vec::new(),
            is_sealed,
        }
    }

    /// Whether it is sealed, so that nothing more is written to it.
    pub(crate) fn is_sealed(&self) -> bool {
        self.is_sealed
    }

    /// The next line.
    pub(crate) fn next(&mut self) -> io::Result<Found<'_>> {
        self.line.clear();
        let mut limited = (&mut self.lines).take(LINE_BYTES_MAX as u64 + 1);
        limited.read_until(b'\n', &mut self.line)?;
        Ok(match self.line.split_last() {
            None => Found::End,
            Some((b'\n', line)) => Found::Line(line),
            Some(_) if self.line.len() > LINE_BYTES_MAX => Found::TooLong,
            Some(_) => Found::Torn(self.line.len()),
        })
    }
}

/// Decodes consecutive zstd frames.
struct Frames<R: BufRead> {
    bytes: Option<R>,
    frame: Option<StreamingDecoder<R, ruzstd::decoding::FrameDecoder>>,
}

impl<R: BufRead> Frames<R> {
    fn new(bytes: R) -> Self {
        Self {
            bytes: Some(bytes),
            frame: None,
        }
    }

    /// Begins the next frame; false if there is none.
    fn begin(&mut self) -> io::Result<bool> {
        let Some(mut bytes) = self.bytes.take() else {
            return Ok(false);
        };
        if bytes.fill_buf()?.is_empty() {
            return Ok(false);
        }
        let frame = StreamingDecoder::new(bytes).map_err(io::Error::other)?;
        self.frame = Some(frame);
        Ok(true)
    }
}

impl<R: BufRead> Read for Frames<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        loop {
            if self.frame.is_none() && !self.begin()? {
                return Ok(0);
            }
            let Some(frame) = &mut self.frame else {
                return Ok(0);
            };
            let read = frame.read(buffer)?;
            if read > 0 || buffer.is_empty() {
                return Ok(read);
            }
            self.bytes = self.frame.take().map(StreamingDecoder::into_inner);
        }
    }
}
