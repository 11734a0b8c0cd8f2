//! The few DNS messages that a name server for one container needs.
//!
//! Of a query we read the header and its one question, which cannot be compressed. All else (EDNS,
//! cookies, other sections) is ignored, and no record that we send needs more than this. So this is
//! a hundred lines instead of a DNS library in a program whose size we watch.

use std::net::Ipv4Addr;

use crate::HostName;

/// Largest query that is read.
pub const QUERY_BYTES_MAX: usize = 1232;

/// How long programs inside may remember an answer.
const TTL_SECONDS: u32 = 60;

const HEADER_BYTES: usize = 12;
const CLASS_IN: u16 = 1;
const LABEL_BYTES_MAX: u8 = 63;

/// A query with one question.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Query {
    id: [u8; 2],
    /// RD, which an answer repeats.
    wants_recursion: bool,
    /// The question as it was sent: resolvers compare it, letter case included.
    question: Vec<u8>,
    /// `None` if it asks for something that is no host name.
    pub name: Option<HostName>,
    /// Which records it asks for.
    pub kind: Kind,
}

/// The record types that are answered differently.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// IPv4 addresses.
    A,
    /// The name of an address.
    Ptr,
    /// There are none: IPv6, HTTPS (with its ECH keys), MX, TXT and others.
    Other,
}

/// An answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Answer {
    /// The name has this address.
    Address(Ipv4Addr),
    /// The address has this name.
    Name(HostName),
    /// The name exists, but has no such record.
    NoData,
    /// The name does not exist.
    NoSuchName,
    /// Resolving failed on the host; asking again may help.
    Failed,
    /// More is asked than is allowed.
    Refused,
}

impl Query {
    /// Reads a query. `None` if it is not one: there is nothing to answer, and a sender that is
    /// not a resolver gets no reply.
    pub(crate) fn parse(message: &[u8]) -> Option<Self> {
        let header: &[u8; HEADER_BYTES] = message.get(..HEADER_BYTES)?.try_into().ok()?;
        let is_query = header[2] & 0b1111_1000 == 0;
        let questions = u16::from_be_bytes([header[4], header[5]]);
        if !is_query || questions != 1 {
            return None;
        }
        let (text, name_bytes) = read_name(&message[HEADER_BYTES..])?;
        let end = HEADER_BYTES + name_bytes + 4;
        let question = message.get(HEADER_BYTES..end)?;
        let [kind_high, kind_low, class_high, class_low] = question[name_bytes..] else {
            return None;
        };
        if u16::from_be_bytes([class_high, class_low]) != CLASS_IN {
            return None;
        }
        Some(Self {
            id: [header[0], header[1]],
            wants_recursion: header[2] & 1 == 1,
            question: question.to_vec(),
            name: text.and_then(|text| HostName::parse(&text).ok()),
            kind: match u16::from_be_bytes([kind_high, kind_low]) {
                1 => Kind::A,
                12 => Kind::Ptr,
                _ => Kind::Other,
            },
        })
    }

    /// The message that answers this query.
    pub(crate) fn answer(&self, answer: &Answer) -> Vec<u8> {
        let mut message = Vec::with_capacity(HEADER_BYTES + self.question.len() + 32);
        message.extend(self.id);
        message.push(0b1000_0100 | u8::from(self.wants_recursion));
        message.push(0b1000_0000 | answer.code());
        let record = answer.record();
        let records = u16::from(record.is_some());
        for count in [1, records, 0, 0] {
            message.extend(count.to_be_bytes());
        }
        message.extend(&self.question);
        if let Some((kind, data)) = record {
            message.extend([0xc0, u8::try_from(HEADER_BYTES).unwrap_or_default()]);
            message.extend(kind.to_be_bytes());
            message.extend(CLASS_IN.to_be_bytes());
            message.extend(TTL_SECONDS.to_be_bytes());
            message.extend(u16::try_from(data.len()).unwrap_or_default().to_be_bytes());
            message.extend(data);
        }
        message
    }
}

impl Answer {
    fn code(&self) -> u8 {
        match self {
            Self::Address(_) | Self::Name(_) | Self::NoData => 0,
            Self::Failed => 2,
            Self::NoSuchName => 3,
            Self::Refused => 5,
        }
    }

    fn record(&self) -> Option<(u16, Vec<u8>)> {
        match self {
            Self::Address(address) => Some((1, address.octets().to_vec())),
            Self::Name(name) => Some((12, write_name(name))),
            Self::NoData | Self::NoSuchName | Self::Failed | Self::Refused => None,
        }
    }
}

/// Reads an uncompressed name: its text, if it is ASCII without dots inside labels, and its length.
fn read_name(bytes: &[u8]) -> Option<(Option<String>, usize)> {
    let mut text = Some(String::new());
    let mut at = 0;
    loop {
        let length = *bytes.get(at)?;
        at += 1;
        if length == 0 {
            return Some((text, at));
        }
        if length > LABEL_BYTES_MAX {
            return None;
        }
        let label = bytes.get(at..at + usize::from(length))?;
        at += usize::from(length);
        if at > crate::name::NAME_BYTES_MAX + 2 {
            return None;
        }
        text = text
            .filter(|_| label.is_ascii() && !label.contains(&b'.'))
            .map(|mut text| {
                if !text.is_empty() {
                    text.push('.');
                }
                text.extend(label.iter().map(|byte| char::from(*byte)));
                text
            });
    }
}

fn write_name(name: &HostName) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(name.as_str().len() + 2);
    for label in name.as_str().split('.') {
        bytes.push(u8::try_from(label.len()).unwrap_or_default());
        bytes.extend(label.as_bytes());
    }
    bytes.push(0);
    bytes
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// What glibc sends for `eXample.com`, type `kind`, with an EDNS record behind it.
    fn query(kind: u16) -> Vec<u8> {
        let mut message = vec![0xab, 0xcd, 1, 0x20, 0, 1, 0, 0, 0, 0, 0, 1];
        message.extend(b"\x07eXample\x03com\0");
        message.extend(kind.to_be_bytes());
        message.extend([0, 1]);
        message.extend([0, 0, 41, 0x04, 0xd0, 0, 0, 0, 0, 0, 0]);
        message
    }

    #[test]
    fn a_query_is_answered_with_its_own_question() {
        let query = Query::parse(&query(1)).unwrap();
        assert_eq!(query.name.as_ref().unwrap().as_str(), "example.com");
        assert_eq!(query.kind, Kind::A);
        let answer = query.answer(&Answer::Address(Ipv4Addr::new(127, 77, 0, 1)));
        let mut expected = vec![0xab, 0xcd, 0x85, 0x80, 0, 1, 0, 1, 0, 0, 0, 0];
        expected.extend(b"\x07eXample\x03com\0\0\x01\0\x01");
        expected.extend([0xc0, 12, 0, 1, 0, 1, 0, 0, 0, 60, 0, 4, 127, 77, 0, 1]);
        assert_eq!(answer, expected);
    }

    #[test]
    fn other_record_types_have_no_data() {
        let query = Query::parse(&query(28)).unwrap();
        assert_eq!(query.kind, Kind::Other);
        let answer = query.answer(&Answer::NoData);
        assert_eq!(answer[2..8], [0x85, 0x80, 0, 1, 0, 0]);
        assert_eq!(query.answer(&Answer::NoSuchName)[3], 0x83);
    }

    #[test]
    fn what_is_no_query_has_no_answer() {
        let good = query(1);
        assert!(Query::parse(&good[..20]).is_none());
        for (at, byte) in [
            (2, 0x81),
            (2, 0x09),
            (5, 0),
            (5, 2),
            (12, 0xc0),
            (12, 0x40),
            (28, 3),
        ] {
            let mut bad = good.clone();
            bad[at] = byte;
            assert!(Query::parse(&bad).is_none(), "byte {at} = {byte}");
        }
    }

    #[test]
    fn labels_that_hide_dots_or_zero_bytes_are_no_names() {
        for label in [b"a.b", b"a\0b", b"a b", b"\xc3\xa4b"] {
            let mut message = vec![0, 1, 1, 0, 0, 1, 0, 0, 0, 0, 0, 0];
            message.push(u8::try_from(label.len()).unwrap());
            message.extend(label);
            message.extend(b"\x03com\0\0\x01\0\x01");
            assert_eq!(Query::parse(&message).unwrap().name, None, "{label:?}");
        }
    }

    proptest! {
        #[test]
        fn no_message_confuses_the_parser(message in proptest::collection::vec(any::<u8>(), 0..80)) {
            if let Some(query) = Query::parse(&message) {
                prop_assert!(query.answer(&Answer::Failed).len() <= message.len());
            }
        }
    }
}
