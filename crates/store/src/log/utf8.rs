//! Where a text may be cut.

/// The number of bytes (0 to 3) at the end of `bytes` that begin an incomplete UTF-8 character.
/// Bytes that cannot become a character are not counted.
pub(super) fn unfinished(bytes: &[u8]) -> usize {
    let is_lead = |byte: &u8| *byte >= 0xc0;
    let is_inside = |byte: &u8| (0x80..0xc0).contains(byte);
    let inside = bytes
        .iter()
        .rev()
        .take(3)
        .take_while(|byte| is_inside(byte))
        .count();
    let Some(from) = bytes.len().checked_sub(inside + 1) else {
        return 0;
    };
    let last = &bytes[from..];
    if !last.first().is_some_and(is_lead) {
        return 0;
    }
    match std::str::from_utf8(last) {
        // Too short, but valid so far.
        Err(error) if error.error_len().is_none() => last.len(),
        _ => 0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn only_what_may_become_a_character_is_unfinished() {
        for (bytes, count) in [
            (&b""[..], 0),
            (b"abc", 0),
            ("ä".as_bytes(), 0),
            (b"a\xc3", 1),
            (b"\xe2\x82", 2),
            (b"\xf0\x9f\xa6", 3),
            (b"\xf0\x9f", 2),
            (b"\x80\x80\x80\x80", 0),
            (b"\xe0\x80", 0),
            (b"\xed\xa0", 0),
            (b"\xf5", 0),
            (b"\xc0", 0),
            (b"\xff\xfe", 0),
            (b"\xc3\xc3", 1),
        ] {
            assert_eq!(unfinished(bytes), count, "{bytes:x?}");
        }
    }

    proptest! {
        #[test]
        fn a_text_cut_anywhere_ends_with_a_whole_character(text: String, at: prop::sample::Index) {
            let cut = &text.as_bytes()[..at.index(text.len() + 1)];
            let kept = &cut[..cut.len() - unfinished(cut)];
            prop_assert!(std::str::from_utf8(kept).is_ok());
        }
    }
}
