//! Certificates in PEM.

const BEGIN: &[u8] = b"-----BEGIN CERTIFICATE-----";
const END: &[u8] = b"-----END CERTIFICATE-----";

/// The largest certificate; real ones have 1 to 3 KiB.
const CERTIFICATE_BYTES_MAX: usize = 16 << 10;

/// A line of PEM has 64 characters.
const LINE_BYTES: usize = 48;

/// The last group of base64 may lack two of its three bytes.
const PADDING_MAX: usize = 2;

const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

/// The certificates of a text as DER, in their order. What is not a certificate is passed over: one that
/// a library cannot parse would spoil the whole file. Of each, nothing but its outermost length is known
/// to be right.
///
/// All of them share one buffer: a hundred small ones would leave holes in the memory of an agent.
pub(super) struct Certificates<'a> {
    rest: &'a [u8],
    der: Vec<u8>,
}

impl<'a> Certificates<'a> {
    pub(super) fn of(text: &'a [u8]) -> Self {
        Self {
            rest: text,
            der: Vec::new(),
        }
    }

    pub(super) fn next(&mut self) -> Option<&[u8]> {
        loop {
            let begin = position(self.rest, BEGIN)?;
            let body = &self.rest[begin + BEGIN.len()..];
            let end = position(body, END)?;
            self.rest = &body[end + END.len()..];
            if decode(&body[..end], &mut self.der).is_some() && is_certificate(&self.der) {
                return Some(&self.der);
            }
        }
    }
}

/// Appends a certificate.
pub(super) fn write(der: &[u8], pem: &mut String) {
    pem.push_str("-----BEGIN CERTIFICATE-----\n");
    for line in der.chunks(LINE_BYTES) {
        encode(line, pem);
        pem.push('\n');
    }
    pem.push_str("-----END CERTIFICATE-----\n");
}

/// At least as long as [`write()`] makes a certificate.
pub(super) fn length_max(der: &[u8]) -> usize {
    let lines = der.len().div_ceil(LINE_BYTES) + 2;
    lines * (LINE_BYTES / 3 * 4 + 1)
}

/// Both sought texts begin with a dash, which base64 never contains.
fn position(text: &[u8], sought: &[u8]) -> Option<usize> {
    let mut at = 0;
    loop {
        at += text.get(at..)?.iter().position(|byte| *byte == b'-')?;
        if text[at..].starts_with(sought) {
            return Some(at);
        }
        at += 1;
    }
}

fn is_certificate(der: &[u8]) -> bool {
    der.len() <= CERTIFICATE_BYTES_MAX && is_sequence(der)
}

/// Whether these bytes are one DER sequence and nothing else.
fn is_sequence(der: &[u8]) -> bool {
    let [0x30, first, rest @ ..] = der else {
        return false;
    };
    match usize::from(*first) {
        length @ ..0x80 => rest.len() == length,
        long => {
            let count = long - 0x80;
            let Some((length, rest)) = rest.split_at_checked(count) else {
                return false;
            };
            let value = length
                .iter()
                .fold(0, |all, byte| (all << 8) | usize::from(*byte));
            (1..=3).contains(&count) && rest.len() == value
        }
    }
}

/// Base64 with white space in it; `None` if it is anything else. Replaces the bytes.
fn decode(text: &[u8], bytes: &mut Vec<u8>) -> Option<()> {
    bytes.clear();
    let (mut bits, mut digits, mut padding) = (0_u32, 0_usize, 0);
    for digit in text.iter().filter(|byte| !byte.is_ascii_whitespace()) {
        bits <<= 6;
        if *digit == b'=' {
            padding += 1;
        } else {
            bits |= u32::from(value(*digit)?);
        }
        let is_padding_last = padding == 0 || *digit == b'=';
        if !is_padding_last || padding > PADDING_MAX {
            return None;
        }
        digits += 1;
        if digits.is_multiple_of(4) {
            bytes.extend_from_slice(&bits.to_be_bytes()[1..4 - padding]);
            bits = 0;
        }
    }
    (digits > 0 && digits.is_multiple_of(4)).then_some(())
}

/// What a digit of base64 stands for. The first exec of a container waits for some 300,000 of them.
fn value(digit: u8) -> Option<u8> {
    match digit {
        b'A'..=b'Z' => Some(digit - b'A'),
        b'a'..=b'z' => Some(digit - b'a' + 26),
        b'0'..=b'9' => Some(digit - b'0' + 52),
        b'+' => Some(62),
        b'/' => Some(63),
        _ => None,
    }
}

fn encode(bytes: &[u8], text: &mut String) {
    for group in bytes.chunks(3) {
        let mut whole = [0; 4];
        whole[1..=group.len()].copy_from_slice(group);
        let bits = u32::from_be_bytes(whole);
        for place in 0..4_usize {
            if place > group.len() {
                text.push('=');
                continue;
            }
            let value = (bits >> (18 - 6 * place)) & 0x3f;
            text.push(char::from(ALPHABET[value as usize]));
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn block(der: &[u8]) -> String {
        let mut pem = String::new();
        write(der, &mut pem);
        assert!(pem.len() <= length_max(der));
        pem
    }

    fn certificates(text: &[u8]) -> Vec<Vec<u8>> {
        let mut found = Vec::new();
        let mut certificates = Certificates::of(text);
        while let Some(der) = certificates.next() {
            found.push(der.to_vec());
        }
        found
    }

    #[test]
    fn what_is_no_certificate_is_passed_over() {
        let (first, second) = ([0x30, 1, 7], [0x30, 2, 8, 9]);
        let text = [
            "# a comment\n",
            &block(&first),
            "-----BEGIN CERTIFICATE-----\n!!!!\n-----END CERTIFICATE-----\n",
            "-----BEGIN PRIVATE KEY-----\nMAEH\n-----END PRIVATE KEY-----\n",
            &block(&[0x30, 5, 1]),
            &block(&second),
            "-----BEGIN CERTIFICATE-----\nMAEH",
        ];
        let found = certificates(text.concat().as_bytes());
        assert_eq!(found, [&first[..], &second]);
    }

    proptest! {
        #[test]
        fn what_is_encoded_is_decoded(bytes in proptest::collection::vec(any::<u8>(), 1..200)) {
            let (mut text, mut decoded) = (String::new(), Vec::new());
            encode(&bytes, &mut text);
            prop_assert_eq!(decode(text.as_bytes(), &mut decoded), Some(()));
            prop_assert_eq!(decoded, bytes);
        }

        #[test]
        fn no_text_is_too_strange(text in proptest::collection::vec(any::<u8>(), 0..400)) {
            let text = [BEGIN, &text[..], END].concat();
            prop_assert!(certificates(&text).len() <= 1);
        }

        #[test]
        fn padding_is_only_at_the_end(text in "[A-D=]{0,9}") {
            let is_right = text.len() % 4 == 0
                && !text.is_empty()
                && text.trim_end_matches('=').len() + PADDING_MAX >= text.len()
                && !text.trim_end_matches('=').contains('=');
            prop_assert_eq!(decode(text.as_bytes(), &mut Vec::new()).is_some(), is_right);
        }
    }
}
