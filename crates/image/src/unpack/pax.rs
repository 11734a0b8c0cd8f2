//! Records of an extended header: `LENGTH KEY=VALUE\n`. The length is explicit because a value may
//! be any bytes.

use super::UnpackError;

/// Digits of a record's length; an extended header is far shorter than this allows.
const DIGITS_MAX: usize = 10;

/// Key and value.
pub(super) type Record<'a> = (&'a [u8], &'a [u8]);

/// The records, up to the first malformed one.
pub(super) fn records(bytes: &[u8]) -> impl Iterator<Item = Result<Record<'_>, UnpackError>> {
    let mut rest = bytes;
    std::iter::from_fn(move || {
        if rest.is_empty() {
            return None;
        }
        let Some((record, after)) = first(rest) else {
            rest = &[];
            return Some(Err(UnpackError::Malformed("a header is damaged")));
        };
        rest = after;
        Some(Ok(record))
    })
}

/// The first record, and the rest.
fn first(bytes: &[u8]) -> Option<(Record<'_>, &[u8])> {
    let digits = bytes.iter().take(DIGITS_MAX + 1);
    let digits = digits.take_while(|byte| byte.is_ascii_digit()).count();
    let len: usize = std::str::from_utf8(&bytes[..digits]).ok()?.parse().ok()?;
    let (record, after) = bytes.split_at_checked(len)?;
    let record = record.get(digits..)?.strip_prefix(b" ")?;
    let record = record.strip_suffix(b"\n")?;
    let equals = record.iter().position(|byte| *byte == b'=')?;
    (equals > 0).then(|| ((&record[..equals], &record[equals + 1..]), after))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(bytes: &[u8]) -> Option<Vec<Record<'_>>> {
        records(bytes).map(Result::ok).collect()
    }

    #[test]
    fn records_are_as_long_as_they_say() {
        assert_eq!(read(b""), Some(vec![]));
        let two = b"9 a=1\n23\n13 path=a\nb=\n";
        let wanted: [Record<'_>; 2] = [(b"a", b"1\n23"), (b"path", b"a\nb=")];
        assert_eq!(read(two), Some(wanted.to_vec()));
        assert_eq!(read(b"6 k=v\n"), Some(vec![(&b"k"[..], &b"v"[..])]));
        assert_eq!(read(b"5 k=\n"), Some(vec![(&b"k"[..], &b""[..])]));
    }

    #[test]
    fn records_that_lie_about_their_length_are_damaged() {
        for bytes in [
            &b"7 k=v\n"[..],
            b"5 k=v\n",
            b"0 k=v\n",
            b"1 k=v\n",
            b"2 k=v\n",
            b" k=v\n",
            b"k=v\n",
            b"-6 k=v\n",
            b"+6 k=v\n",
            b"6",
            b"6\tk=v\n",
            b"6 =vv\n",
            b"6 kvv\n",
            b"7 k=v\nx",
            b"6 k=v\n\n",
            b"99999999999999999999 k=v\n",
            b"18446744073709551615 k=v\n",
        ] {
            let text = String::from_utf8_lossy(bytes);
            assert_eq!(read(bytes), None, "{text}");
        }
    }
}
