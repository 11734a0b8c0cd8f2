//! One record: what one `append` added.
//!
//! ```text
//! length u32 | check u32 | agent_seq u64 | seq u64 | unix_ms 48, flags 8, 0 8 | other 3, 0 | payload
//! flags: stream 1 | own carry 2 | other carry 2
//! ```
//!
//! All numbers are little-endian; `check` is over everything behind it, and `length`.

use hotcell_domain::Stream;

pub(super) const HEADER_BYTES: usize = 36;

/// The largest payload: far more than an agent sends at once.
pub(super) const PAYLOAD_BYTES_MAX: usize = 8 << 20;

/// The longest incomplete character.
const CARRY_BYTES_MAX: usize = 3;

const UNIX_MS_MAX: u64 = (1 << 48) - 1;

/// The beginning of a character whose rest may still come.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Carry {
    bytes: [u8; CARRY_BYTES_MAX],
    len: usize,
}

/// A record without its payload.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Header {
    /// The agent's number of this payload.
    pub(super) agent_seq: u64,
    /// The number of this message or, if the record delivers nothing, of the one before it.
    pub(super) seq: u64,
    pub(super) stream: Stream,
    pub(super) unix_ms: u64,
    /// Bytes at the end of the payload that this record does not deliver.
    pub(super) carry_bytes: usize,
    /// The undelivered bytes of the other stream.
    pub(super) other: Carry,
}

impl Carry {
    /// From the end of a text, see [`super::utf8::unfinished`].
    pub(super) fn new(end: &[u8]) -> Self {
        let mut bytes = [0; CARRY_BYTES_MAX];
        bytes[..end.len()].copy_from_slice(end);
        let len = end.len();
        Self { bytes, len }
    }

    pub(super) fn as_slice(&self) -> &[u8] {
        &self.bytes[..self.len]
    }
}

impl Header {
    /// Appends the record with this payload to `out`.
    pub(super) fn write(&self, payload: [&[u8]; 2], out: &mut Vec<u8>) {
        let from = out.len();
        let length: usize = payload.iter().map(|part| part.len()).sum();
        let length = u32::try_from(length).expect("the writer has bounded it");
        let stream = u64::from(self.stream == Stream::Stderr);
        let flags = stream | (self.carry_bytes as u64) << 1 | (self.other.len as u64) << 3;
        let when = self.unix_ms.min(UNIX_MS_MAX) | flags << 48;
        out.extend_from_slice(&length.to_le_bytes());
        out.extend_from_slice(&[0; 4]);
        out.extend_from_slice(&self.agent_seq.to_le_bytes());
        out.extend_from_slice(&self.seq.to_le_bytes());
        out.extend_from_slice(&when.to_le_bytes());
        out.extend_from_slice(&self.other.bytes);
        out.push(0);
        for part in payload {
            out.extend_from_slice(part);
        }
        let check = check(length, &out[from + 8..]);
        out[from + 4..from + 8].copy_from_slice(&check.to_le_bytes());
    }

    /// Parses a whole record; `None` if its checksum is wrong.
    pub(super) fn read(record: &[u8]) -> Option<Self> {
        let (header, payload) = record.split_at_checked(HEADER_BYTES)?;
        let length = length(record)?;
        if payload.len() + HEADER_BYTES != length {
            return None;
        }
        let payload_bytes = u32::try_from(payload.len()).ok()?;
        if check(payload_bytes, &record[8..]) != u32_at(header, 4)? {
            return None;
        }
        let when = u64_at(header, 24)?;
        let flags = when >> 48;
        let carry_bytes = usize::try_from(flags >> 1 & 3).ok()?;
        let other_bytes = usize::try_from(flags >> 3 & 3).ok()?;
        Some(Self {
            agent_seq: u64_at(header, 8)?,
            seq: u64_at(header, 16)?,
            stream: if flags & 1 == 0 {
                Stream::Stdout
            } else {
                Stream::Stderr
            },
            unix_ms: when & UNIX_MS_MAX,
            carry_bytes: (carry_bytes <= payload.len()).then_some(carry_bytes)?,
            other: Carry::new(&header[32..32 + other_bytes]),
        })
    }
}

/// The length of the record that begins here, with header and payload; `None` if it cannot be one.
/// `bytes` contains at least a header.
pub(super) fn length(bytes: &[u8]) -> Option<usize> {
    let length = usize::try_from(u32_at(bytes, 0)?).ok()?;
    (1..=PAYLOAD_BYTES_MAX)
        .contains(&length)
        .then_some(length + HEADER_BYTES)
}

/// A checksum that distinguishes a whole record from a torn one. It protects against accidents, not
/// against attackers: whoever can write here owns the server.
pub(super) fn check(seed: u32, bytes: &[u8]) -> u32 {
    const FACTOR: u64 = 0x9e37_79b9_7f4a_7c15;
    let mix = |state: u64, word: u64| (state.rotate_left(23) ^ word).wrapping_mul(FACTOR);
    let (words, rest) = bytes.as_chunks::<8>();
    let start = mix(FACTOR, u64::from(seed));
    let state = words
        .iter()
        .fold(start, |state, word| mix(state, u64::from_le_bytes(*word)));
    let mut last = [0; 8];
    last[..rest.len()].copy_from_slice(rest);
    let state = mix(state, u64::from_le_bytes(last));
    u32::try_from(mix(state ^ state >> 29, 1) >> 32).expect("half of the bits are left")
}

pub(super) fn u64_at(bytes: &[u8], at: usize) -> Option<u64> {
    let bytes = bytes.get(at..at + 8)?;
    Some(u64::from_le_bytes(bytes.try_into().ok()?))
}

pub(super) fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    let bytes = bytes.get(at..at + 4)?;
    Some(u32::from_le_bytes(bytes.try_into().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn header() -> impl Strategy<Value = Header> {
        let numbers = (any::<u64>(), any::<u64>(), 0..=UNIX_MS_MAX);
        let carries = (0..=3_usize, prop::collection::vec(any::<u8>(), 0..=3));
        (numbers, carries, any::<bool>()).prop_map(
            |((agent_seq, seq, unix_ms), (carry_bytes, other), is_stderr)| Header {
                agent_seq,
                seq,
                stream: if is_stderr {
                    Stream::Stderr
                } else {
                    Stream::Stdout
                },
                unix_ms,
                carry_bytes,
                other: Carry::new(&other),
            },
        )
    }

    fn payload() -> impl Strategy<Value = Vec<u8>> {
        prop::collection::vec(any::<u8>(), 3..100)
    }

    proptest! {
        #[test]
        fn what_is_written_is_read_back(header in header(), payload in payload(), cut in 0..4_usize) {
            let (front, data) = payload.split_at(cut.min(payload.len()));
            let mut record = Vec::new();
            header.write([front, data], &mut record);
            prop_assert_eq!(length(&record), Some(record.len()));
            prop_assert_eq!(&record[HEADER_BYTES..], &payload);
            prop_assert_eq!(Header::read(&record), Some(header));
        }

        #[test]
        fn a_record_with_a_changed_byte_is_not_read(
            header in header(), payload in payload(), at: prop::sample::Index, flip in 1..=255_u8,
        ) {
            let mut record = Vec::new();
            header.write([&payload, &[]], &mut record);
            let at = at.index(record.len());
            record[at] ^= flip;
            prop_assert_eq!(Header::read(&record), None);
        }

        #[test]
        fn no_bytes_make_reading_panic(bytes: Vec<u8>) {
            let _ = length(&bytes);
            let _ = Header::read(&bytes);
        }
    }

    #[test]
    fn zeros_are_no_record() {
        assert_eq!(length(&[0; 100]), None);
        assert_eq!(Header::read(&[0; 100]), None);
    }
}
