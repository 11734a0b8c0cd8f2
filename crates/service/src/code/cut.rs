//! Shortens a long text to its beginning and its end.

/// A text whose middle may be left out. Bytes that are not UTF-8 are shown as U+FFFD.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct CutText {
    /// The whole text, or its beginning.
    pub head: String,
    /// The end of the text, if the middle was left out.
    pub tail: Option<String>,
    /// Number of bytes left out between the two.
    pub left_out_bytes: u64,
    /// Whether everything that is shown was valid UTF-8.
    pub is_utf8: bool,
}

/// Collects a text piece by piece, keeping only what will be shown.
#[derive(Debug)]
pub(super) struct Cutter {
    head: Vec<u8>,
    tail: Vec<u8>,
    total_bytes: u64,
    chars_max: usize,
}

/// Bytes of a UTF-8 character.
const CHAR_BYTES_MAX: usize = 4;

impl Cutter {
    /// Shows at most this many characters.
    pub(super) fn new(chars_max: usize) -> Self {
        Self {
            head: Vec::new(),
            tail: Vec::new(),
            total_bytes: 0,
            chars_max,
        }
    }

    pub(super) fn push(&mut self, data: &[u8]) {
        let kept_bytes_max = self.chars_max * CHAR_BYTES_MAX;
        self.total_bytes += data.len() as u64;
        let room = kept_bytes_max - self.head.len();
        let (head, rest) = data.split_at(data.len().min(room));
        self.head.extend_from_slice(head);
        // Of a long piece, only the end can be shown.
        let rest = &rest[rest.len().saturating_sub(kept_bytes_max)..];
        self.tail.extend_from_slice(rest);
        // Trimmed rarely, so that each byte is moved about once.
        if self.tail.len() > 2 * kept_bytes_max {
            self.tail.drain(..self.tail.len() - kept_bytes_max);
        }
    }

    /// The shortened text. `total_bytes`: its full size, if not all of it was passed to this
    /// cutter.
    pub(super) fn finish(mut self, total_bytes: Option<u64>) -> CutText {
        let total_bytes = total_bytes.unwrap_or(self.total_bytes);
        let is_all_here = (self.head.len() + self.tail.len()) as u64 == total_bytes;
        if is_all_here {
            self.head.append(&mut self.tail);
            if chars(&self.head) <= self.chars_max {
                return CutText {
                    is_utf8: std::str::from_utf8(&self.head).is_ok(),
                    head: lossy(&self.head),
                    ..CutText::default()
                };
            }
        }
        let half = self.chars_max / 2;
        let (head, rest) = self.head.split_at(prefix_bytes(&self.head, half));
        let tail = if self.tail.is_empty() {
            rest
        } else {
            &self.tail[..]
        };
        let skipped = chars(tail).saturating_sub(self.chars_max - half);
        let tail = &tail[prefix_bytes(tail, skipped)..];
        let shown = (head.len() + tail.len()) as u64;
        CutText {
            head: lossy(head),
            tail: Some(lossy(tail)),
            left_out_bytes: total_bytes.saturating_sub(shown),
            is_utf8: std::str::from_utf8(head).is_ok() && std::str::from_utf8(tail).is_ok(),
        }
    }
}

fn lossy(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// The number of characters that the bytes are shown as.
fn chars(bytes: &[u8]) -> usize {
    let chunks = bytes.utf8_chunks();
    chunks
        .map(|chunk| chunk.valid().chars().count() + usize::from(!chunk.invalid().is_empty()))
        .sum()
}

/// The number of bytes that the first `count` characters have.
fn prefix_bytes(bytes: &[u8], count: usize) -> usize {
    let (mut left, mut end) = (count, 0);
    for chunk in bytes.utf8_chunks() {
        for c in chunk.valid().chars() {
            if left == 0 {
                return end;
            }
            (left, end) = (left - 1, end + c.len_utf8());
        }
        if !chunk.invalid().is_empty() {
            if left == 0 {
                return end;
            }
            (left, end) = (left - 1, end + chunk.invalid().len());
        }
    }
    end
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cut(pieces: &[&[u8]], chars_max: usize) -> CutText {
        let mut cutter = Cutter::new(chars_max);
        for piece in pieces {
            cutter.push(piece);
        }
        cutter.finish(None)
    }

    #[test]
    fn a_text_that_fits_is_whole() {
        let whole = cut(&["aä".as_bytes(), "€😀".as_bytes()], 4);
        assert_eq!((whole.head.as_str(), whole.tail), ("aä€😀", None));
        assert!(whole.is_utf8 && whole.left_out_bytes == 0);
    }

    #[test]
    fn what_is_left_out_is_counted_exactly() {
        let letters: Vec<u8> = (b'a'..=b'z').collect();
        // Less than what is kept, more, and far more.
        for repeated in [1, 3, 5000] {
            let all = letters.repeat(repeated);
            for piece in [1, 7, all.len()] {
                let pieces: Vec<&[u8]> = all.chunks(piece).collect();
                let cut = cut(&pieces, 10);
                assert_eq!(cut.head, "abcde");
                assert_eq!(cut.tail.as_deref(), Some("vwxyz"));
                assert_eq!(cut.left_out_bytes, all.len() as u64 - 10);
            }
        }
    }

    #[test]
    fn characters_stay_whole_and_broken_ones_count_as_one() {
        let text = "ä".repeat(100);
        let shown = cut(&[text.as_bytes()], 4);
        assert_eq!(
            (shown.head.as_str(), shown.tail.as_deref()),
            ("ää", Some("ää"))
        );
        assert_eq!(shown.left_out_bytes, 192);
        let broken = cut(&[b"a\xffb"], 3);
        assert_eq!(
            (broken.head.as_str(), broken.is_utf8),
            ("a\u{fffd}b", false)
        );
    }

    #[test]
    fn what_never_came_is_left_out_too() {
        let mut cutter = Cutter::new(4);
        cutter.push(b"abcdef");
        let cut = cutter.finish(Some(1_000_000));
        assert_eq!((cut.head.as_str(), cut.tail.as_deref()), ("ab", Some("ef")));
        assert_eq!(cut.left_out_bytes, 999_996);
    }
}
