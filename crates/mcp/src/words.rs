//! How times, sizes and file types are written.

mod mime;
mod time;

pub(crate) use mime::{mime_type, shown_image};
pub(crate) use time::rfc3339;

/// Cuts a text at the last character that ends within `bytes_max`.
pub(crate) fn head(text: &str, bytes_max: usize) -> &str {
    &text[..text.floor_char_boundary(bytes_max)]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cut_never_splits_a_character() {
        assert_eq!(head("aäb", 2), "a");
        assert_eq!(head("aäb", 9), "aäb");
    }
}
