//! The `Range` header.

use http::HeaderMap;
use http::header::RANGE;

/// The requested part of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum RequestedRange {
    All,
    /// From an offset to another (inclusive), or to the end.
    From(u64, Option<u64>),
    /// The last bytes.
    Last(u64),
}

/// The part that exists.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct ByteSpan {
    pub(super) offset: u64,
    pub(super) length: u64,
}

impl RequestedRange {
    /// Parses the header. Anything but a single range of bytes is ignored.
    pub(super) fn parse(headers: &HeaderMap) -> Self {
        let mut values = headers.get_all(RANGE).iter();
        let (Some(value), None) = (values.next(), values.next()) else {
            return Self::All;
        };
        let range = value
            .to_str()
            .ok()
            .and_then(|value| value.strip_prefix("bytes="));
        range.and_then(Self::parse_one).unwrap_or(Self::All)
    }

    fn parse_one(range: &str) -> Option<Self> {
        let (first, last) = range.trim().split_once('-')?;
        match (number(first), number(last)) {
            (Some(first), Some(last)) if first <= last => Some(Self::From(first, Some(last))),
            (Some(first), None) if last.is_empty() => Some(Self::From(first, None)),
            (None, Some(count)) if first.is_empty() => Some(Self::Last(count)),
            _ => None,
        }
    }

    /// The existing part in a file of this size; `None` if there is none.
    pub(super) fn of(self, size: u64) -> Option<ByteSpan> {
        let (offset, end) = match self {
            Self::All => {
                return Some(ByteSpan {
                    offset: 0,
                    length: size,
                });
            }
            Self::From(first, last) => (first, last.map_or(size, |last| size.min(last + 1))),
            Self::Last(count) => (size.saturating_sub(count), size),
        };
        let length = end.checked_sub(offset).filter(|length| *length > 0)?;
        Some(ByteSpan { offset, length })
    }
}

/// Only digits, and no overflow when one is added.
fn number(text: &str) -> Option<u64> {
    let is_number = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    let number = is_number.then(|| text.parse::<u64>().ok())??;
    (number < u64::MAX).then_some(number)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn part(range: &str, size: u64) -> Option<(u64, u64)> {
        let mut headers = HeaderMap::new();
        headers.insert(RANGE, range.parse().unwrap());
        RequestedRange::parse(&headers)
            .of(size)
            .map(|part| (part.offset, part.length))
    }

    #[test]
    fn a_range_is_cut_at_the_end_of_the_file() {
        assert_eq!(part("bytes=0-0", 10), Some((0, 1)));
        assert_eq!(part("bytes=2-5", 10), Some((2, 4)));
        assert_eq!(part("bytes=2-", 10), Some((2, 8)));
        assert_eq!(part("bytes=9-99", 10), Some((9, 1)));
        assert_eq!(part("bytes=-3", 10), Some((7, 3)));
        assert_eq!(part("bytes=-30", 10), Some((0, 10)));
    }

    #[test]
    fn a_range_behind_the_end_is_nothing() {
        assert_eq!(part("bytes=10-", 10), None);
        assert_eq!(part("bytes=10-20", 10), None);
        assert_eq!(part("bytes=-0", 10), None);
        assert_eq!(part("bytes=0-", 0), None);
    }

    #[test]
    fn what_is_no_single_range_of_bytes_is_ignored() {
        for range in [
            "bytes=5-2",
            "bytes=1-2,4-5",
            "lines=1-2",
            "bytes=",
            "bytes=-",
            "bytes=a-b",
            "bytes=+1-2",
            "bytes=18446744073709551615-",
            "bytes=0-99999999999999999999",
        ] {
            assert_eq!(part(range, 10), Some((0, 10)), "{range}");
        }
    }
}
