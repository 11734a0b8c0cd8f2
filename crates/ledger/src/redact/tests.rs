//! The corpus, and what holds for every text.

use proptest::prelude::*;

use super::*;

const CORPUS: &str = include_str!("corpus.txt");

/// Fewer would be a mistake in reading the corpus.
const CASES_MIN: usize = 60;

fn cases() -> Vec<&'static str> {
    let is_case = |line: &&str| !line.is_empty() && !line.starts_with('#');
    CORPUS.lines().filter(is_case).collect()
}

/// A text of the corpus without its marks.
fn plain(text: &str) -> String {
    text.replace(['«', '»'], "").replace("\\n", "\n")
}

/// A text of the corpus with what must be hidden replaced.
fn expected(text: &str) -> String {
    let mut expected = String::new();
    let mut rest = text;
    while let Some((before, after)) = rest.split_once('«') {
        let (_, after) = after.split_once('»').expect("each mark is closed");
        expected.push_str(before);
        expected.push_str(HIDDEN);
        rest = after;
    }
    expected.push_str(rest);
    expected.replace("\\n", "\n")
}

#[test]
fn the_corpus_is_hidden_where_it_must_be_and_stays_elsewhere() {
    let cases = cases();
    let hidden = cases.iter().filter(|case| case.contains('«')).count();
    assert!(
        hidden >= CASES_MIN && cases.len() - hidden >= 20,
        "{hidden} of {}",
        cases.len()
    );
    let mut wrong = Vec::new();
    for case in cases {
        let (shown, expected) = if case.starts_with("[\"") {
            let words: Vec<String> = serde_json::from_str(case).expect("a list of words");
            let plain: Vec<String> = words.iter().map(|word| plain(word)).collect();
            let shown = redact_argv(plain.iter().map(String::as_str));
            let expected: Vec<String> = words.iter().map(|word| expected(word)).collect();
            (format!("{shown:?}"), format!("{expected:?}"))
        } else {
            (redact(&plain(case)).into_owned(), expected(case))
        };
        if shown != expected {
            wrong.push(format!("shown    {shown}\nexpected {expected}"));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n\n"));
}

#[test]
fn a_secret_at_the_edge_of_the_window_is_not_cut_in_half() {
    let secret = "ghp_0123456789abcdefghijklmnopqrstuvwxyz";
    for before in WINDOW_BYTES - 60..WINDOW_BYTES + 10 {
        let text = format!("{} {secret} {}", "x".repeat(before), "y".repeat(9000));
        let shown = redact(&text);
        assert!(!shown.contains("ghp_"), "{before}");
        assert!(shown.ends_with("bytes"), "{before}");
    }
}

#[test]
fn a_long_text_is_searched_in_linear_time() {
    for piece in [
        "password=",
        "https://a:b@c ",
        "-----BEGIN PRIVATE KEY",
        "\"token\": ",
        "-p ",
        "é:@ ",
    ] {
        let text = piece.repeat(100_000 / piece.len());
        assert!(redact(&text).len() <= 2 * WINDOW_BYTES + 64);
    }
}

proptest! {
    #[test]
    fn a_password_is_hidden_wherever_it_stands(
        before in "[ a-z0-9/.é]{0,40}",
        secret in "[A-Z0-9]{12,30}",
        after in "[ a-z0-9/.é]{0,40}",
    ) {
        for text in [
            format!("{before} password={secret} {after}"),
            format!("{before} --token {secret} {after}"),
            format!("{before} {{\"api_key\": \"{secret}\"}} {after}"),
            format!("{before} postgres://u:{secret}@host/{after}"),
            format!("{before}\nAuthorization: Bearer {secret}\n{after}"),
        ] {
            let shown = redact(&text);
            prop_assert!(!shown.contains(&secret), "{shown}");
            prop_assert!(shown.contains(after.trim()), "{shown}");
        }
    }

    #[test]
    fn any_text_and_any_words_are_taken(text in "\\PC{0,300}", words in proptest::collection::vec("\\PC{0,60}", 0..6)) {
        let _ = redact(&text);
        prop_assert_eq!(redact_argv(words.iter().map(String::as_str)).len(), words.len());
    }
}
