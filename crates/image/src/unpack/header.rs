//! Reads the members of an archive one by one, with our own bounds.
//!
//! The tar crate parses the blocks. Its archive reader is not used, because it reads long names of
//! any length into memory.

use std::io::{self, Read};

use tar::{EntryType, Header};

use super::pax::records;
use super::{Meter, UnpackError};
use crate::bounds::METADATA_BYTES_MAX;

const BLOCK: usize = 512;
const BLOCK_BYTES: u64 = BLOCK as u64;

/// One member, without its content.
#[derive(Debug)]
pub(crate) struct Member {
    pub(crate) kind: EntryType,
    pub(crate) path: Vec<u8>,
    pub(crate) link: Vec<u8>,
    pub(crate) size: u64,
    pub(crate) mode: u32,
    pub(crate) uid: u64,
    pub(crate) gid: u64,
    pub(crate) mtime_s: i64,
}

/// Records that precede a member and modify it.
#[derive(Default)]
struct Overrides {
    path: Option<Vec<u8>>,
    link: Option<Vec<u8>>,
    size: Option<u64>,
    uid: Option<u64>,
    gid: Option<u64>,
    mtime_s: Option<i64>,
}

/// The members of the archive in `inner`.
pub(crate) struct Members<'a, R> {
    inner: R,
    meter: &'a Meter<'a>,
    /// Unread content and padding of the current member.
    content_left: u64,
    padding_left: u64,
}

impl<'a, R: Read> Members<'a, R> {
    pub(crate) fn new(inner: R, meter: &'a Meter<'a>) -> Self {
        Self {
            inner,
            meter,
            content_left: 0,
            padding_left: 0,
        }
    }

    pub(crate) fn source(&self) -> &R {
        &self.inner
    }

    pub(crate) fn into_inner(self) -> R {
        self.inner
    }

    /// The next member; `None` at the end of the archive. Skips the rest of the current member's
    /// content.
    pub(crate) fn next(&mut self) -> Result<Option<Member>, UnpackError> {
        let mut overrides = Overrides::default();
        loop {
            self.skip()?;
            let Some(header) = self.header()? else {
                return Ok(None);
            };
            self.meter.entry()?;
            let kind = header.entry_type();
            let size = number(header.entry_size(), &header.as_old().size)?;
            self.expect(size)?;
            if kind.is_gnu_longname() {
                overrides.path = Some(trimmed(self.metadata()?));
            } else if kind.is_gnu_longlink() {
                overrides.link = Some(trimmed(self.metadata()?));
            } else if kind.is_pax_local_extensions() {
                overrides.pax(&self.metadata()?)?;
            } else if kind.is_pax_global_extensions() {
                self.metadata()?;
            } else {
                return self.member(&header, overrides).map(Some);
            }
        }
    }

    fn member(&mut self, header: &Header, over: Overrides) -> Result<Member, UnpackError> {
        if let Some(size) = over.size {
            self.expect(size)?;
        }
        self.meter.bytes(self.content_left)?;
        let old = header.as_old();
        let link = || header.link_name_bytes().map(std::borrow::Cow::into_owned);
        let mtime = || i64::try_from(header.mtime().unwrap_or(0)).unwrap_or(0);
        Ok(Member {
            kind: header.entry_type(),
            path: over
                .path
                .unwrap_or_else(|| header.path_bytes().into_owned()),
            link: over.link.or_else(link).unwrap_or_default(),
            size: self.content_left,
            mode: header.mode().map_err(malformed)?,
            uid: over
                .uid
                .map_or_else(|| number(header.uid(), &old.uid), Ok)?,
            gid: over
                .gid
                .map_or_else(|| number(header.gid(), &old.gid), Ok)?,
            mtime_s: over.mtime_s.unwrap_or_else(mtime),
        })
    }

    fn expect(&mut self, size: u64) -> Result<(), UnpackError> {
        let blocks = size.checked_next_multiple_of(BLOCK_BYTES);
        let blocks = blocks.ok_or(UnpackError::Malformed("a member's size cannot be"))?;
        (self.content_left, self.padding_left) = (size, blocks - size);
        Ok(())
    }

    /// Reads and checks a header; `None` at the first empty block or at end of file.
    fn header(&mut self) -> Result<Option<Header>, UnpackError> {
        let mut header = Header::new_old();
        let block = header.as_mut_bytes();
        let mut filled = 0;
        while filled < BLOCK {
            match self.inner.read(&mut block[filled..])? {
                0 if filled == 0 => return Ok(None),
                0 => return Err(UnpackError::Truncated),
                len => filled += len,
            }
        }
        if block.iter().all(|byte| *byte == 0) {
            return Ok(None);
        }
        let sum = |block: &[u8]| block.iter().map(|byte| u32::from(*byte)).sum::<u32>();
        // The checksum treats its own field as spaces.
        let wanted = sum(&block[..148]) + sum(&block[156..]) + 8 * u32::from(b' ');
        match header.cksum() {
            Ok(found) if found == wanted => Ok(Some(header)),
            _ => Err(UnpackError::Malformed("a header's checksum is wrong")),
        }
    }

    fn metadata(&mut self) -> Result<Vec<u8>, UnpackError> {
        if self.content_left > METADATA_BYTES_MAX {
            return Err(UnpackError::Malformed("a name or attribute is too long"));
        }
        self.meter.bytes(self.content_left)?;
        let mut bytes = Vec::new();
        self.by_ref().read_to_end(&mut bytes)?;
        Ok(bytes)
    }

    fn skip(&mut self) -> Result<(), UnpackError> {
        io::copy(self, &mut io::sink())?;
        let mut padding = [0_u8; BLOCK];
        let len = usize::try_from(self.padding_left).unwrap_or(0);
        self.inner.read_exact(&mut padding[..len])?;
        self.padding_left = 0;
        Ok(())
    }
}

/// Reads the content of the current member. An archive that ends in the middle is an error.
impl<R: Read> Read for Members<'_, R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let want = usize::try_from(self.content_left).unwrap_or(usize::MAX);
        let want = want.min(buffer.len());
        if want == 0 {
            return Ok(0);
        }
        let len = self.inner.read(&mut buffer[..want])?;
        if len == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        self.content_left -= len as u64;
        Ok(len)
    }
}

impl Overrides {
    fn pax(&mut self, bytes: &[u8]) -> Result<(), UnpackError> {
        for record in records(bytes) {
            let (key, value) = record?;
            match key {
                b"path" => self.path = Some(value.to_vec()),
                b"linkpath" => self.link = Some(value.to_vec()),
                b"size" => self.size = Some(decimal(value)?),
                b"uid" => self.uid = Some(decimal(value)?),
                b"gid" => self.gid = Some(decimal(value)?),
                b"mtime" => self.mtime_s = Some(seconds(value)),
                key if key.starts_with(b"GNU.sparse.") => {
                    return Err(UnpackError::Malformed("a sparse file is not supported"));
                }
                // Extended attributes are ignored too: an image that could set those of overlayfs
                // could reach beyond its layer.
                _ => {}
            }
        }
        Ok(())
    }
}

/// An empty field is 0, as other implementations have it.
fn number(parsed: io::Result<u64>, field: &[u8]) -> Result<u64, UnpackError> {
    let is_empty = field.iter().all(|byte| matches!(byte, 0 | b' '));
    if is_empty {
        return Ok(0);
    }
    parsed.map_err(malformed)
}

fn decimal(value: &[u8]) -> Result<u64, UnpackError> {
    let text = std::str::from_utf8(value).ok();
    text.and_then(|text| text.parse().ok())
        .ok_or(UnpackError::Malformed("a number is none"))
}

/// Whole seconds; an invalid time is 1970.
fn seconds(value: &[u8]) -> i64 {
    let text = std::str::from_utf8(value).unwrap_or_default();
    let whole = text.split('.').next().unwrap_or_default();
    whole.parse().unwrap_or(0)
}

fn trimmed(mut bytes: Vec<u8>) -> Vec<u8> {
    if let Some(end) = bytes.iter().position(|byte| *byte == 0) {
        bytes.truncate(end);
    }
    bytes
}

fn malformed(_: io::Error) -> UnpackError {
    UnpackError::Malformed("a header is damaged")
}
