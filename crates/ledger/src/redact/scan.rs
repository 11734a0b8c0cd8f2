//! Redacts a text in one pass.

use super::HIDDEN;
use super::keys::{is_header, is_sensitive};
use super::values::{is_run, is_secret};

const BEGIN_PEM: &str = "-----BEGIN ";
const PRIVATE: &str = "PRIVATE KEY";
const END_PEM: &str = "-----END ";
const DASHES: &str = "-----";

/// Authentication schemes, which are followed by a credential.
const SCHEMES: [&str; 3] = ["bearer", "basic", "digest"];

/// The shortest credential after a scheme: `basic` is also an ordinary word.
const CREDENTIAL_BYTES_MIN: usize = 8;

/// In URLs of Slack webhooks, everything after this is secret.
const SLACK_HOOK: &str = "hooks.slack.com/";

struct Scan<'a> {
    text: &'a str,
    at: usize,
    hidden: String,
    /// The quote that is currently open, if any.
    quote: Option<u8>,
}

/// Returns the text with secrets redacted.
pub(super) fn hide(text: &str) -> String {
    let mut scan = Scan {
        text,
        at: 0,
        hidden: String::with_capacity(text.len()),
        quote: None,
    };
    while scan.at < text.len() {
        scan.step();
    }
    scan.hidden
}

impl<'a> Scan<'a> {
    fn rest(&self) -> &'a str {
        &self.text[self.at..]
    }

    fn step(&mut self) {
        let rest = self.rest();
        let Some(&byte) = rest.as_bytes().first() else {
            return;
        };
        if let Some(length) = private_key(rest) {
            return self.hide(length);
        }
        if rest.starts_with("://") {
            return self.url();
        }
        if rest.starts_with(SLACK_HOOK) {
            self.keep(SLACK_HOOK.len());
            return self.hide(self.word_length());
        }
        if is_run(byte) {
            return self.run();
        }
        if matches!(byte, b'"' | b'\'' | b'`') {
            self.quote = if self.quote == Some(byte) {
                None
            } else {
                self.quote.or(Some(byte))
            };
        }
        self.keep(rest.chars().next().map_or(1, char::len_utf8));
    }

    fn keep(&mut self, length: usize) {
        let end = (self.at + length).min(self.text.len());
        self.hidden.push_str(&self.text[self.at..end]);
        self.at = end;
    }

    fn hide(&mut self, length: usize) {
        if length > 0 {
            self.hidden.push_str(HIDDEN);
            self.at = (self.at + length).min(self.text.len());
        }
    }

    /// Handles a name, a word, a number or a key.
    fn run(&mut self) {
        let rest = self.rest();
        let length = rest.bytes().take_while(|&byte| is_run(byte)).count();
        let run = &rest[..length];
        // It may be at the end of a sentence.
        let bare = run.trim_start_matches('-').trim_end_matches('.');
        if is_secret(bare) {
            let dashes = length - run.trim_start_matches('-').len();
            self.keep(dashes);
            return self.hide(bare.len());
        }
        let is_flag = run.starts_with('-');
        let (is_key, is_scheme) = (is_sensitive(run), is_scheme(run));
        let is_header = is_key && is_header(run);
        self.keep(length);
        if is_scheme && self.rest().starts_with(' ') {
            self.credential();
        } else if is_key {
            self.value(is_flag, is_header);
        }
    }

    /// Handles the value after the name of a secret.
    fn value(&mut self, is_flag: bool, is_header: bool) {
        let rest = self.rest();
        let Some((gap, by_space)) = separator(rest) else {
            return;
        };
        if by_space && !is_flag {
            return;
        }
        let after = &rest[gap..];
        if by_space && after.starts_with('-') {
            return;
        }
        // Then the quote that closes the JSON name has been passed.
        if rest.starts_with(['"', '\'']) && self.quote.is_some() {
            self.quote = None;
        }
        self.keep(gap);
        self.hide_value(is_header);
    }

    fn hide_value(&mut self, is_header: bool) {
        let rest = self.rest();
        let opening = rest
            .bytes()
            .next()
            .filter(|byte| matches!(byte, b'"' | b'\'' | b'`'));
        match opening {
            Some(quote) if self.quote != Some(quote) => {
                self.keep(1);
                self.hide(quoted_length(self.rest(), quote));
            }
            _ if is_header => self.hide(self.line_length()),
            _ => {
                // In `password: Bearer abc` the scheme is not secret, but what follows is.
                let word = self.word_length();
                if is_scheme(&self.rest()[..word]) {
                    self.keep(word);
                    return self.credential();
                }
                self.hide(word);
            }
        }
    }

    /// Handles the credential after `Bearer`.
    fn credential(&mut self) {
        let rest = self.rest();
        let gap = rest.bytes().take_while(|&byte| byte == b' ').count();
        if gap == 0 {
            return;
        }
        let credential = rest[gap..]
            .bytes()
            .take_while(|&byte| is_run(byte) || matches!(byte, b'+' | b'/' | b'=' | b'~'))
            .count();
        if credential >= CREDENTIAL_BYTES_MIN {
            self.keep(gap);
            self.hide(credential);
        }
    }

    /// Handles a URL from `://` on: redacts credentials before its host.
    fn url(&mut self) {
        let is_web = self.hidden.ends_with("http") || self.hidden.ends_with("https");
        self.keep(3);
        let rest = self.rest();
        let end = rest
            .find(|c: char| c.is_whitespace() || "/?#\"'`<>".contains(c))
            .unwrap_or(rest.len());
        // A password may contain an unescaped `/`.
        let authority = if rest[..end].contains('@') {
            &rest[..end]
        } else {
            &rest[..self.word_length()]
        };
        let Some(at) = authority
            .rfind('@')
            .filter(|&at| !authority[..at].contains(['?', '#']))
        else {
            return;
        };
        match authority[..at].find(':') {
            Some(colon) if end > at || is_password(&authority[colon + 1..at]) => {
                self.keep(colon + 1);
                self.hide(at - colon - 1);
            }
            None if end > at && (is_web || is_secret(&authority[..at])) => self.hide(at),
            Some(_) | None => {}
        }
    }

    /// The length of an unquoted word.
    fn word_length(&self) -> usize {
        let is_end = |c: char| c.is_whitespace() || "\"'`,;&|)}]<>".contains(c);
        self.rest().find(is_end).unwrap_or(self.rest().len())
    }

    /// The length up to the end of the line or of the open quote.
    fn line_length(&self) -> usize {
        let quote = self.quote.map(char::from);
        let is_end = |c: char| c == '\n' || c == '\r' || Some(c) == quote;
        self.rest().find(is_end).unwrap_or(self.rest().len())
    }
}

/// Whether the text after the colon in `http://host:8080/x@y` is not a port.
fn is_password(text: &str) -> bool {
    let port = text.split('/').next().unwrap_or_default();
    port.is_empty() || !port.bytes().all(|byte| byte.is_ascii_digit())
}

fn is_scheme(word: &str) -> bool {
    SCHEMES
        .iter()
        .any(|scheme| word.eq_ignore_ascii_case(scheme))
}

/// The length of the text between a name and its value, and whether it is only whitespace.
fn separator(rest: &str) -> Option<(usize, bool)> {
    // The name may be quoted.
    let name_end = usize::from(rest.starts_with(['"', '\'']));
    let spaces = |text: &str| {
        text.bytes()
            .take_while(|byte| matches!(byte, b' ' | b'\t'))
            .count()
    };
    let before = name_end + spaces(&rest[name_end..]);
    let sign = rest[before..]
        .bytes()
        .take_while(|byte| matches!(byte, b'=' | b':' | b'>'))
        .count();
    let after = before + sign + spaces(&rest[before + sign..]);
    if sign == 0 && (name_end > 0 || before == 0) {
        return None;
    }
    (after < rest.len()).then_some((after, sign == 0))
}

/// The length up to the closing quote that is not escaped.
fn quoted_length(rest: &str, quote: u8) -> usize {
    let mut is_escaped = false;
    for (at, byte) in rest.bytes().enumerate() {
        match byte {
            _ if is_escaped => is_escaped = false,
            b'\\' => is_escaped = true,
            _ if byte == quote => return at,
            _ => {}
        }
    }
    rest.len()
}

/// The length of a private key block, up to its end or that of the text.
fn private_key(rest: &str) -> Option<usize> {
    let title = rest.strip_prefix(BEGIN_PEM)?;
    let title_end = title.find(DASHES)?;
    if !title[..title_end].contains(PRIVATE) {
        return None;
    }
    let Some(end) = rest.find(END_PEM) else {
        return Some(rest.len());
    };
    let after = end + END_PEM.len();
    let close = rest[after..]
        .find(DASHES)
        .map(|at| after + at + DASHES.len());
    Some(close.unwrap_or(rest.len()))
}
