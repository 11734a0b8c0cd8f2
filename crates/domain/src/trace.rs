//! The W3C trace context of a request.

use std::fmt;

/// The longest `traceparent` that is parsed. Later versions may append to the 55 characters of the
/// current one.
const TRACEPARENT_BYTES_MAX: usize = 256;

/// The length of the current `traceparent`: version, trace, parent and flags.
const TRACEPARENT_BYTES: usize = 55;

/// Identifies a trace across all services that a request passes.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct TraceId([u8; 16]);

/// The caller's trace context.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct TraceContext {
    /// The trace.
    pub trace_id: TraceId,
    /// The caller's span; zeros if the trace begins here.
    pub parent_id: [u8; 8],
    /// Whether the caller records the trace.
    pub is_sampled: bool,
}

impl TraceId {
    /// The raw bytes.
    pub fn as_bytes(&self) -> &[u8; 16] {
        &self.0
    }
}

impl TraceContext {
    /// Whether the trace begins here.
    pub fn is_new(&self) -> bool {
        self.parent_id == [0; 8]
    }

    /// A new trace with a random id.
    pub fn new(random: [u8; 16]) -> Self {
        Self {
            trace_id: TraceId(random),
            parent_id: [0; 8],
            is_sampled: false,
        }
    }

    /// Parses a `traceparent`, such as `00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01`.
    /// As the standard says, a malformed one is ignored.
    pub fn parse(text: &str) -> Option<Self> {
        if text.len() > TRACEPARENT_BYTES_MAX || !text.is_ascii() {
            return None;
        }
        let (now, later) = text.split_at_checked(TRACEPARENT_BYTES)?;
        let mut parts = now.split('-');
        let [version] = hex(parts.next()?)?;
        let trace_id = hex(parts.next()?)?;
        let parent_id = hex(parts.next()?)?;
        let [flags] = hex(parts.next()?)?;
        let is_whole = match version {
            0 => later.is_empty(),
            0xff => false,
            _ => later.is_empty() || later.starts_with('-'),
        };
        let is_valid = is_whole && parts.next().is_none() && trace_id != [0; 16];
        (is_valid && parent_id != [0; 8]).then_some(Self {
            trace_id: TraceId(trace_id),
            parent_id,
            is_sampled: flags & 1 == 1,
        })
    }
}

/// Parses exactly `N` bytes in lower-case hexadecimal digits.
fn hex<const N: usize>(text: &str) -> Option<[u8; N]> {
    let is_digit = |byte: u8| matches!(byte, b'0'..=b'9' | b'a'..=b'f');
    if text.len() != 2 * N || !text.bytes().all(is_digit) {
        return None;
    }
    let mut bytes = [0; N];
    for (index, byte) in bytes.iter_mut().enumerate() {
        *byte = u8::from_str_radix(text.get(2 * index..2 * index + 2)?, 16).ok()?;
    }
    Some(bytes)
}

impl fmt::Display for TraceId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for TraceId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const GOOD: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";

    #[test]
    fn a_traceparent_names_its_trace() {
        let trace = TraceContext::parse(GOOD).unwrap();
        let id = "4bf92f3577b34da6a3ce929d0e0e4736";
        assert_eq!(
            (trace.trace_id.to_string(), trace.is_sampled),
            (id.into(), true)
        );
        assert_eq!(
            trace.parent_id,
            [0, 0xf0, 0x67, 0xaa, 0x0b, 0xa9, 0x02, 0xb7]
        );
        let later = GOOD.replacen("00", "01", 1) + "-more";
        assert_eq!(TraceContext::parse(&later), Some(trace));
    }

    #[test]
    fn a_malformed_traceparent_is_as_none() {
        let zeros = |at: std::ops::Range<usize>| {
            let mut text = GOOD.to_owned();
            text.replace_range(at.clone(), &"0".repeat(at.len()));
            text
        };
        for text in [
            String::new(),
            "00".to_owned(),
            GOOD.to_uppercase(),
            format!("{GOOD}-more"),
            format!(" {GOOD}"),
            GOOD.replacen("00", "ff", 1),
            GOOD.replacen("00", "0g", 1),
            GOOD.replace('-', "_"),
            zeros(3..35),
            zeros(36..52),
            format!("01{}{}", &GOOD[2..], "x".repeat(10)),
            format!("01{}-{}", &GOOD[2..], "x".repeat(1000)),
            "é".repeat(28),
        ] {
            assert_eq!(TraceContext::parse(&text), None, "{text}");
        }
    }

    proptest! {
        #[test]
        fn no_text_is_too_odd(text in ".{0,80}") {
            let _ = TraceContext::parse(&text);
        }
    }
}
