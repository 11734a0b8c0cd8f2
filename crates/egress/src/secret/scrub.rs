//! Keeps a secret out of what a host answers.
//!
//! Every form of the value is replaced by as many asterisks, so lengths stay what headers say they
//! are. A form may be split over any number of pieces: an end that could begin one is held back
//! until it is known. If reading fails, what is held back is dropped and not passed on.

use std::ops::Range;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use bytes::{Bytes, BytesMut};
use http::{HeaderMap, HeaderName};
use http_body::{Body, Frame, SizeHint};
use memchr::memmem;

use super::value::{self, Value};

const MASK: u8 = b'*';

/// The forms of one value.
pub(crate) struct Scrub {
    forms: Vec<value::Bytes>,
}

impl Scrub {
    pub(super) fn new(value: &Value, credential: &[u8]) -> Self {
        let mut forms = value.forms();
        forms.push(value::Bytes::new(credential.to_vec()));
        forms.sort_by(|first, second| first.as_slice().cmp(second));
        forms.dedup();
        Self { forms }
    }

    /// Removes headers that repeat the value.
    pub(crate) fn headers(&self, headers: &mut HeaderMap) {
        let repeats = |text: &[u8]| {
            self.forms
                .iter()
                .any(|form| memmem::find(text, form).is_some())
        };
        let named: Vec<HeaderName> = headers
            .iter()
            .filter(|(_, value)| repeats(value.as_bytes()))
            .map(|(name, _)| name.clone())
            .collect();
        for name in named {
            headers.remove(name);
        }
    }

    /// Where forms stand in a text, also where they overlap.
    fn found(&self, text: &[u8]) -> Vec<Range<usize>> {
        let mut found = Vec::new();
        for form in &self.forms {
            let finder = memmem::Finder::new(&**form);
            let mut from = 0;
            while let Some(at) = finder.find(&text[from..]) {
                let start = from + at;
                found.push(start..start + form.len());
                from = start + 1;
            }
        }
        found
    }

    /// How many bytes at the end of a text could be the beginning of a form.
    fn unfinished(&self, text: &[u8]) -> usize {
        let longest = self.forms.iter().map(|form| form.len()).max();
        let longest = longest.unwrap_or(1).min(text.len() + 1);
        let begins = |end: &[u8]| {
            let mut forms = self.forms.iter();
            forms.any(|form| form.len() > end.len() && form.starts_with(end))
        };
        let mut lengths = (1..longest).rev();
        lengths
            .find(|length| begins(&text[text.len() - length..]))
            .unwrap_or(0)
    }
}

/// A stream of bytes without the secret.
struct Scrubber {
    scrub: Arc<Scrub>,
    /// As it came, and not yet passed on.
    held: BytesMut,
    /// How many of its first bytes belong to a form whose beginning is gone.
    masked: usize,
}

impl Scrubber {
    /// Takes a piece; gives what can be passed on.
    fn push(&mut self, piece: &[u8]) -> Bytes {
        self.held.extend_from_slice(piece);
        let keep = self.scrub.unfinished(&self.held);
        self.release(self.held.len() - keep)
    }

    /// Passes on what is held: no more will come.
    fn finish(&mut self) -> Bytes {
        self.release(self.held.len())
    }

    fn release(&mut self, count: usize) -> Bytes {
        let found = self.scrub.found(&self.held);
        let mut passed = self.held.split_to(count);
        let masked = std::mem::take(&mut self.masked);
        for range in found.into_iter().chain(std::iter::once(0..masked)) {
            let end = range.end.min(count);
            if range.start < end {
                passed[range.start..end].fill(MASK);
            }
            self.masked = self.masked.max(range.end.saturating_sub(count));
        }
        passed.freeze()
    }
}

/// A response's body without the secret.
pub(crate) struct ScrubbedBody<B> {
    body: B,
    scrubber: Scrubber,
    /// Trailers that wait for the last bytes to be taken.
    trailers: Option<HeaderMap>,
    has_ended: bool,
}

impl<B> ScrubbedBody<B> {
    pub(crate) fn new(body: B, scrub: Arc<Scrub>) -> Self {
        Self {
            body,
            scrubber: Scrubber {
                scrub,
                held: BytesMut::new(),
                masked: 0,
            },
            trailers: None,
            has_ended: false,
        }
    }
}

impl<B> Body for ScrubbedBody<B>
where
    B: Body<Data = Bytes> + Unpin,
{
    type Data = Bytes;
    type Error = B::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, B::Error>>> {
        let this = &mut *self;
        while !this.has_ended {
            let piece = match ready!(Pin::new(&mut this.body).poll_frame(cx)) {
                Some(Ok(frame)) => match frame.into_data() {
                    Ok(data) => this.scrubber.push(&data),
                    Err(frame) => {
                        this.trailers = frame.into_trailers().ok();
                        this.has_ended = true;
                        this.scrubber.finish()
                    }
                },
                Some(Err(error)) => {
                    this.has_ended = true;
                    this.scrubber.held.clear();
                    return Poll::Ready(Some(Err(error)));
                }
                None => {
                    this.has_ended = true;
                    this.scrubber.finish()
                }
            };
            if !piece.is_empty() {
                return Poll::Ready(Some(Ok(Frame::data(piece))));
            }
        }
        Poll::Ready(this.trailers.take().map(|mut trailers| {
            this.scrubber.scrub.headers(&mut trailers);
            Ok(Frame::trailers(trailers))
        }))
    }

    fn is_end_stream(&self) -> bool {
        self.trailers.is_none()
            && self.scrubber.held.is_empty()
            && (self.has_ended || self.body.is_end_stream())
    }

    /// What is replaced keeps its length.
    fn size_hint(&self) -> SizeHint {
        let held = u64::try_from(self.scrubber.held.len()).unwrap_or_default();
        let hint = self.body.size_hint();
        let mut own = SizeHint::new();
        own.set_lower(hint.lower().saturating_add(held));
        if let Some(upper) = hint.upper() {
            own.set_upper(upper.saturating_add(held));
        }
        own
    }
}

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;

    use http_body_util::BodyExt as _;
    use proptest::prelude::*;

    use super::*;

    const VALUE: &str = "tok_abcabcabd";

    fn scrub() -> Arc<Scrub> {
        let value = Value::parse(VALUE.as_bytes()).unwrap();
        Arc::new(Scrub::new(&value, b"dXNlcjp0b2tfYWJjYWJjYWJk"))
    }

    fn scrubber() -> Scrubber {
        Scrubber {
            scrub: scrub(),
            held: BytesMut::new(),
            masked: 0,
        }
    }

    /// What comes out if a text arrives in pieces that end at these places.
    fn scrubbed(text: &str, ends: &[usize]) -> String {
        let mut scrubber = scrubber();
        let (mut out, mut from) = (Vec::new(), 0);
        for end in ends.iter().copied().chain([text.len()]) {
            let end = end.clamp(from, text.len());
            out.extend(scrubber.push(&text.as_bytes()[from..end]));
            from = end;
        }
        out.extend(scrubber.finish());
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn a_value_is_replaced_wherever_it_is_split() {
        let text = format!("a {VALUE} b {VALUE}{VALUE} tok_abcabc");
        let stars = "*".repeat(VALUE.len());
        let expected = format!("a {stars} b {stars}{stars} tok_abcabc");
        for first in 0..text.len() {
            for second in first..text.len() {
                assert_eq!(scrubbed(&text, &[first, second]), expected);
            }
        }
        let bytewise: Vec<usize> = (0..text.len()).collect();
        assert_eq!(scrubbed(&text, &bytewise), expected);
    }

    #[test]
    fn what_cannot_begin_the_value_is_passed_on_at_once() {
        let mut scrubber = scrubber();
        assert_eq!(scrubber.push(b"data: 1\n\n"), &b"data: 1\n\n"[..]);
        assert_eq!(scrubber.push(b"data: tok_"), &b"data: "[..]);
        assert_eq!(scrubber.push(b"x"), &b"tok_x"[..]);
    }

    #[test]
    fn headers_that_repeat_the_value_go() {
        let mut headers = HeaderMap::new();
        headers.insert("x-plain", VALUE.parse().unwrap());
        headers.append("x-two", "harmless".parse().unwrap());
        headers.append("x-two", format!("a={VALUE}").parse().unwrap());
        headers.insert("x-basic", "Basic dXNlcjp0b2tfYWJjYWJjYWJk".parse().unwrap());
        headers.insert("x-other", "tok_".parse().unwrap());
        scrub().headers(&mut headers);
        let left: Vec<&str> = headers.keys().map(HeaderName::as_str).collect();
        assert_eq!(left, ["x-other"]);
    }

    /// Gives frames, the last of which may be an error.
    struct Frames(VecDeque<Result<Frame<Bytes>, &'static str>>);

    impl Body for Frames {
        type Data = Bytes;
        type Error = &'static str;

        fn poll_frame(
            mut self: Pin<&mut Self>,
            _: &mut Context<'_>,
        ) -> Poll<Option<Result<Frame<Bytes>, &'static str>>> {
            Poll::Ready(self.0.pop_front())
        }
    }

    #[tokio::test]
    async fn if_reading_fails_nothing_that_is_held_back_gets_out() {
        let frames = [
            Ok(Frame::data(Bytes::from_static(b"begin tok_abcabc"))),
            Err("broken"),
            Ok(Frame::data(Bytes::from_static(b"abd"))),
        ];
        let mut body = ScrubbedBody::new(Frames(frames.into()), scrub());
        let first = body.frame().await.unwrap().unwrap();
        assert_eq!(first.into_data().unwrap(), &b"begin "[..]);
        assert_eq!(body.frame().await.unwrap().unwrap_err(), "broken");
        assert!(body.frame().await.is_none());
    }

    #[tokio::test]
    async fn trailers_are_scrubbed_and_come_last() {
        let mut trailers = HeaderMap::new();
        trailers.insert("grpc-status", "0".parse().unwrap());
        trailers.insert("grpc-message", VALUE.parse().unwrap());
        let frames = [
            Ok(Frame::data(Bytes::from_static(b"x tok_"))),
            Ok(Frame::trailers(trailers)),
        ];
        let body = ScrubbedBody::new(Frames(frames.into()), scrub());
        let whole = body.collect().await.unwrap();
        let trailers = whole.trailers().unwrap();
        assert_eq!(trailers.len(), 1);
        assert_eq!(trailers["grpc-status"], "0");
        assert_eq!(whole.to_bytes(), &b"x tok_"[..]);
    }

    proptest! {
        #[test]
        fn no_split_lets_the_value_through(
            before in "[tok_abcd]{0,20}",
            after in "[tok_abcd]{0,20}",
            ends in proptest::collection::vec(0_usize..60, 0..6),
        ) {
            let text = format!("{before}{VALUE}{after}");
            let mut ends = ends;
            ends.sort_unstable();
            let out = scrubbed(&text, &ends);
            prop_assert_eq!(out.len(), text.len());
            prop_assert!(!out.contains(VALUE));
            prop_assert_eq!(out, scrubbed(&text, &[]));
        }
    }

    #[test]
    fn a_body_without_the_value_stays_what_it_is() {
        let text = "the quick brown fox ".repeat(50);
        assert_eq!(scrubbed(&text, &[7, 100, 101]), text);
    }
}
