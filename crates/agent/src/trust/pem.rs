//! Certificates in PEM.

const BEGIN: &[u8] = b"-----BEGIN CERTIFICATE-----";
const END: &[u8] = b"-----END CERTIFICATE-----";

/// The largest certificate; real ones have 1 to 3 KiB.
const CERTIFICATE_BYTES_MAX: usize = 16 << 10;

/// Characters per line of PEM.
const LINE_CHARS: usize = 64;

const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

/// A certificate as DER. Nothing but its outermost length is known to be right.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Certificate(Vec<u8>);

/// The certificates of a text, in their order, until they have `bytes_max` bytes as PEM. What is
/// not a certificate is passed over: one that a library cannot parse would spoil the whole file.
pub(super) fn certificates(text: &[u8], bytes_max: usize) -> Vec<Certificate> {
    let mut found = Vec::new();
    let (mut rest, mut bytes) = (text, 0);
    while let Some(begin) = position(rest, BEGIN) {
        let body = &rest[begin + BEGIN.len()..];
        let Some(end) = position(body, END) else {
            break;
        };
        if let Some(certificate) = Certificate::parse(&body[..end]) {
            bytes += certificate.to_pem().len();
            if bytes > bytes_max {
                break;
            }
            found.push(certificate);
        }
        rest = &body[end + END.len()..];
    }
    found
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

impl Certificate {
    fn parse(base64: &[u8]) -> Option<Self> {
        let der = decode(base64)?;
        (der.len() <= CERTIFICATE_BYTES_MAX && is_sequence(&der)).then_some(Self(der))
    }

    pub(super) fn as_der(&self) -> &[u8] {
        &self.0
    }

    pub(super) fn to_pem(&self) -> String {
        let text = encode(&self.0);
        let mut pem = String::from("-----BEGIN CERTIFICATE-----\n");
        let mut rest = text.as_str();
        while !rest.is_empty() {
            let (line, after) = rest.split_at(rest.len().min(LINE_CHARS));
            pem.push_str(line);
            pem.push('\n');
            rest = after;
        }
        pem.push_str("-----END CERTIFICATE-----\n");
        pem
    }
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

/// Base64 with white space in it; `None` if it is anything else.
fn decode(text: &[u8]) -> Option<Vec<u8>> {
    let digits: Vec<u8> = text
        .iter()
        .copied()
        .filter(|byte| !byte.is_ascii_whitespace())
        .collect();
    if digits.is_empty() || !digits.len().is_multiple_of(4) {
        return None;
    }
    let padding = digits
        .iter()
        .rev()
        .take_while(|byte| **byte == b'=')
        .count();
    let (digits, _) = digits.split_at(digits.len() - padding);
    let mut bytes = Vec::with_capacity(digits.len());
    for group in digits.chunks(4) {
        let mut bits = 0_u32;
        for digit in group {
            bits = (bits << 6) | u32::from(value(*digit)?);
        }
        bits <<= 6 * (4 - group.len());
        let whole = bits.to_be_bytes();
        bytes.extend_from_slice(&whole[1..group.len()]);
    }
    (padding <= 2).then_some(bytes)
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

fn encode(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(bytes.len().div_ceil(3) * 4);
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
    text
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn block(der: &[u8]) -> String {
        Certificate(der.to_vec()).to_pem()
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
        let found = certificates(text.concat().as_bytes(), 1 << 20);
        assert_eq!(
            found,
            [Certificate(first.into()), Certificate(second.into())]
        );
    }

    #[test]
    fn no_more_is_taken_than_there_is_room_for() {
        let one = block(&[0x30, 1, 7]);
        let text = one.repeat(9);
        assert_eq!(certificates(text.as_bytes(), one.len() * 4 + 1).len(), 4);
    }

    proptest! {
        #[test]
        fn what_is_encoded_is_decoded(bytes in proptest::collection::vec(any::<u8>(), 1..200)) {
            prop_assert_eq!(decode(encode(&bytes).as_bytes()), Some(bytes));
        }

        #[test]
        fn no_text_is_too_strange(text in proptest::collection::vec(any::<u8>(), 0..400)) {
            let text = [BEGIN, &text[..], END].concat();
            prop_assert!(certificates(&text, 1 << 20).len() <= 1);
        }
    }
}
