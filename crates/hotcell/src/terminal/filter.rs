//! Makes a container's output harmless for a terminal.
//!
//! A terminal obeys escape sequences: they set its title, fill the clipboard, or make it answer
//! into the shell's input as if the user had typed that. Colours and the like (SGR), line ends,
//! tabs, carriage returns and backspaces pass. Other control characters are shown as visible
//! characters.

/// Shown for an escape character that is not obeyed: U+241B.
const ESCAPE_PICTURE: &str = "␛";

/// The longest colour sequence that passes, and so the most that is held back.
const COLOUR_BYTES_MAX: usize = 64;

/// The longest character in UTF-8.
const CHARACTER_BYTES_MAX: usize = 4;

const ESCAPE: u8 = 0x1b;
const BACKSPACE: u8 = 0x08;
const DELETE: u8 = 0x7f;

/// The visible forms of control characters start at U+2400.
const PICTURES: u32 = 0x2400;
const DELETE_PICTURE: char = '␡';

/// Resets colours.
const PLAIN: &[u8] = b"\x1b[0m";

/// Filters one stream in chunks. The result does not depend on how it is split into chunks.
#[derive(Debug, Default)]
pub(crate) struct TerminalFilter {
    /// The beginning of a sequence or a character that the next chunk may complete.
    pending: Vec<u8>,
    is_coloured: bool,
}

impl TerminalFilter {
    /// The displayable form of the next chunk.
    pub(crate) fn filter(&mut self, data: &[u8]) -> Vec<u8> {
        let mut input = std::mem::take(&mut self.pending);
        input.extend_from_slice(data);
        let mut shown = Vec::with_capacity(input.len());
        let mut rest = input.as_slice();
        while let Some(taken) = self.take(rest, &mut shown) {
            rest = &rest[taken..];
        }
        self.pending = rest.to_vec();
        shown
    }

    /// The displayable form of the rest, and a colour reset if necessary.
    pub(crate) fn finish(&mut self) -> Vec<u8> {
        let mut shown = Vec::new();
        if let Some((&first, others)) = self.pending.split_first() {
            if first == ESCAPE {
                shown.extend_from_slice(ESCAPE_PICTURE.as_bytes());
                shown.extend_from_slice(others);
            } else {
                push(char::REPLACEMENT_CHARACTER, &mut shown);
            }
        }
        if self.is_coloured {
            shown.extend_from_slice(PLAIN);
        }
        *self = Self::default();
        shown
    }

    /// Shows the first character or sequence; returns its length, or `None` if it is incomplete.
    fn take(&mut self, rest: &[u8], shown: &mut Vec<u8>) -> Option<usize> {
        match *rest.first()? {
            byte @ (b'\n' | b'\r' | b'\t' | BACKSPACE | b' '..=b'~') => {
                shown.push(byte);
                Some(1)
            }
            ESCAPE => self.take_escape(rest, shown),
            DELETE => {
                push(DELETE_PICTURE, shown);
                Some(1)
            }
            byte @ 0..b' ' => {
                let picture = char::from_u32(PICTURES + u32::from(byte));
                push(picture.unwrap_or(char::REPLACEMENT_CHARACTER), shown);
                Some(1)
            }
            0x80.. => take_character(rest, shown),
        }
    }

    /// A colour sequence is `ESC [`, numbers, `m`; with anything else in between it is a different
    /// sequence.
    fn take_escape(&mut self, rest: &[u8], shown: &mut Vec<u8>) -> Option<usize> {
        let is_csi = match rest.get(1) {
            None => return None,
            Some(second) => *second == b'[',
        };
        let numbers = rest.iter().skip(2);
        let numbers = numbers
            .take_while(|byte| matches!(byte, b'0'..=b'9' | b';' | b':'))
            .count();
        let end = 2 + numbers;
        if is_csi && end < COLOUR_BYTES_MAX {
            match rest.get(end) {
                None => return None,
                Some(b'm') => {
                    shown.extend_from_slice(&rest[..=end]);
                    self.is_coloured = !matches!(&rest[2..end], b"" | b"0");
                    return Some(end + 1);
                }
                Some(_) => {}
            }
        }
        // The rest is shown as plain text.
        shown.extend_from_slice(ESCAPE_PICTURE.as_bytes());
        Some(1)
    }
}

fn take_character(rest: &[u8], shown: &mut Vec<u8>) -> Option<usize> {
    let most = &rest[..rest.len().min(CHARACTER_BYTES_MAX)];
    let chunk = most.utf8_chunks().next()?;
    if let Some(character) = chunk.valid().chars().next() {
        push(harmless(character), shown);
        return Some(character.len_utf8());
    }
    let invalid = chunk.invalid();
    let may_go_on = std::str::from_utf8(invalid).is_err_and(|error| error.error_len().is_none());
    if may_go_on && invalid.len() == rest.len() {
        return None;
    }
    push(char::REPLACEMENT_CHARACTER, shown);
    Some(invalid.len())
}

fn push(character: char, to: &mut Vec<u8>) {
    to.extend_from_slice(
        character
            .encode_utf8(&mut [0; CHARACTER_BYTES_MAX])
            .as_bytes(),
    );
}

/// Replaces 8-bit control characters (U+009B also starts a sequence) and those that change the text
/// direction, which could make text read as something else.
fn harmless(character: char) -> char {
    match character {
        '\u{80}'..='\u{9f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}' => {
            char::REPLACEMENT_CHARACTER
        }
        other => other,
    }
}

/// Our own text that may contain a container's words: no control characters or colours, only line
/// ends stay.
pub(crate) fn plain(text: &str) -> String {
    let shown = |character: char| match character {
        '\n' => '\n',
        '\u{1b}' => '␛',
        other if other.is_control() => char::REPLACEMENT_CHARACTER,
        other => harmless(other),
    };
    text.chars().map(shown).collect()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn filtered(pieces: &[&[u8]]) -> String {
        let mut filter = TerminalFilter::default();
        let mut shown: Vec<u8> = Vec::new();
        for piece in pieces {
            shown.extend(filter.filter(piece));
        }
        shown.extend(filter.finish());
        String::from_utf8(shown).expect("only text is shown")
    }

    #[test]
    fn text_and_colours_pass() {
        let text = "snow\u{2603}\tman\r\nab\x08c \x1b[1;38:5:196mred\x1b[0m \x1b[m\u{1f600}\n";
        assert_eq!(filtered(&[text.as_bytes()]), text);
    }

    #[test]
    fn what_a_terminal_would_obey_is_shown_instead() {
        for (written, shown) in [
            ("\x1b]0;title\x07", "␛]0;title␇"),
            ("\x1b]52;c;cm0gLXJm\x1b\\", "␛]52;c;cm0gLXJm␛\\"),
            ("\x1b[6n\x1b[c\x1b[>c\x1b[21t", "␛[6n␛[c␛[>c␛[21t"),
            ("\x1b[2J\x1b[1;1H\x1b[?1049h", "␛[2J␛[1;1H␛[?1049h"),
            // These end like colour sequences but are not.
            ("\x1b[>4;2m\x1b[?4m\x1b[ m", "␛[>4;2m␛[?4m␛[ m"),
            ("\x1bP+q544e\x1b\\\x1b_x\x1bc\x1b(0", "␛P+q544e␛\\␛_x␛c␛(0"),
            ("a\0b\x0bc\x0cd\x7fe\x05", "a␀b␋c␌d␡e␅"),
            ("\u{9b}6n\u{9d}0;t\u{9c}", "\u{fffd}6n\u{fffd}0;t\u{fffd}"),
            ("\u{202e}gpj.exe\u{2069}", "\u{fffd}gpj.exe\u{fffd}"),
        ] {
            assert_eq!(filtered(&[written.as_bytes()]), shown);
        }
        assert_eq!(
            filtered(&[b"\x9b6n\xff\xc3("]),
            "\u{fffd}6n\u{fffd}\u{fffd}("
        );
    }

    #[test]
    fn what_is_cut_is_put_together_again_and_what_never_ends_is_shown() {
        assert_eq!(
            filtered(&[b"\x1b", b"[3", b"1", b"mx\x1b[0m"]),
            "\x1b[31mx\x1b[0m"
        );
        assert_eq!(filtered(&[b"\x1b", b"]0;x", b"\x07"]), "␛]0;x␇");
        assert_eq!(filtered(&[b"\xe2\x98", b"\x83"]), "\u{2603}");
        assert_eq!(filtered(&[b"\xc2", b"\x9b", b"6n"]), "\u{fffd}6n");
        assert_eq!(filtered(&[b"a\x1b[3"]), "a␛[3");
        assert_eq!(filtered(&[b"a\xe2\x98"]), "a\u{fffd}");
        let endless = [b"\x1b[".as_slice(), &[b'1'; 1000]].concat();
        assert_eq!(filtered(&[&endless]), format!("␛[{}", "1".repeat(1000)));
    }

    #[test]
    fn colours_end_with_the_output() {
        assert_eq!(filtered(&[b"\x1b[31mred"]), "\x1b[31mred\x1b[0m");
    }

    #[test]
    fn our_own_texts_have_no_colours_either() {
        assert_eq!(
            plain("a\x1b[31mb\tc\r\nd\u{9b}\u{202e}"),
            "a␛[31mb\u{fffd}c\u{fffd}\nd\u{fffd}\u{fffd}"
        );
    }

    /// Bytes that are likely to be parts of sequences.
    fn output() -> impl Strategy<Value = Vec<u8>> {
        let byte = prop_oneof![
            Just(ESCAPE),
            Just(b'['),
            Just(b'm'),
            Just(b'1'),
            Just(b';'),
            Just(b']'),
            Just(0x07),
            Just(0xc2),
            Just(0x9b),
            any::<u8>(),
        ];
        prop::collection::vec(byte, 0..200)
    }

    proptest! {
        #[test]
        fn nothing_but_text_and_colours_comes_out(output in output()) {
            let shown = filtered(&[&output]);
            let without_colours = shown.split('\x1b').skip(1).all(|rest| {
                let inner = rest.strip_prefix('[').and_then(|rest| rest.split_once('m'));
                inner.is_some_and(|(numbers, _)| numbers.bytes().all(|byte| b"0123456789;:".contains(&byte)))
            });
            prop_assert!(without_colours, "{shown:?}");
            let obeyed = |c: char| c.is_control() && !"\n\r\t\x08\x1b".contains(c);
            prop_assert!(!shown.contains(obeyed), "{shown:?}");
        }

        #[test]
        fn pieces_make_no_difference(output in output(), cut in 0..200_usize) {
            let cut = cut.min(output.len());
            let (first, second) = output.split_at(cut);
            prop_assert_eq!(filtered(&[first, second]), filtered(&[&output]));
        }

        #[test]
        fn plain_text_is_left_alone(text in "[ -~\u{e4}\u{4e00}-\u{4eff}\n\t]*") {
            prop_assert_eq!(filtered(&[text.as_bytes()]), text);
        }
    }
}
