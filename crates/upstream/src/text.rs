//! Text of an upstream on its way to a log or a model.

use std::borrow::Cow;
use std::fmt::Write;

/// `text` with everything escaped that could steer a terminal or hide from a reader: control
/// characters other than line feed and tab, invisible ones, and those that change the direction
/// of writing. At most `bytes_max` bytes of it, with an ellipsis for the rest.
pub fn quoted(text: &str, bytes_max: usize) -> Cow<'_, str> {
    let is_long = text.len() > bytes_max;
    if !is_long && !text.chars().any(is_dangerous) {
        return Cow::Borrowed(text);
    }
    let mut shown = String::with_capacity(text.len().min(bytes_max));
    for c in text.chars() {
        if shown.len() + c.len_utf8() > bytes_max {
            shown.push('…');
            break;
        }
        if is_dangerous(c) {
            // It cannot fail: a string grows.
            let _ = write!(shown, "\\u{{{:x}}}", u32::from(c));
        } else {
            shown.push(c);
        }
    }
    Cow::Owned(shown)
}

/// The same on one line.
pub(crate) fn on_one_line(text: &str, bytes_max: usize) -> String {
    let cut = quoted(text, bytes_max);
    cut.replace('\n', "\\n").replace('\t', " ")
}

fn is_dangerous(c: char) -> bool {
    let is_invisible = matches!(c, '\u{ad}' | '\u{61c}' | '\u{180e}' | '\u{200b}'..='\u{200f}'
        | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{feff}'
        | '\u{fff9}'..='\u{fffb}' | '\u{e0000}'..='\u{e0fff}');
    is_invisible || (c.is_control() && !"\n\t".contains(c))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_could_steer_a_terminal_or_hide_is_escaped_and_the_rest_is_kept() {
        assert_eq!(quoted("größe\n\tx", 99), "größe\n\tx");
        assert_eq!(quoted("a\u{1b}[2Jb\r", 99), "a\\u{1b}[2Jb\\u{d}");
        assert_eq!(quoted("a\u{202e}b\u{e0041}", 99), "a\\u{202e}b\\u{e0041}");
        assert_eq!(on_one_line("a\nb", 99), "a\\nb");
    }

    #[test]
    fn long_text_is_cut_between_characters() {
        assert_eq!(quoted("äää", 4), "ää…");
        assert_eq!(quoted("äää", 5), "ää…");
        assert_eq!(quoted("äää", 6), "äää");
    }
}
