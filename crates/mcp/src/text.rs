//! Cutting text to a bound.

/// Truncates a text to `bytes_max`, between characters.
pub(crate) fn truncate(text: &str, bytes_max: usize) -> &str {
    &text[..text.floor_char_boundary(bytes_max)]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cut_never_splits_a_character() {
        assert_eq!(truncate("aäb", 2), "a");
        assert_eq!(truncate("aäb", 9), "aäb");
    }
}
