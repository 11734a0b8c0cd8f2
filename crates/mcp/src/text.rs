//! Cutting text to a bound.

/// Cuts a text at the last character that ends within `bytes_max`.
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
