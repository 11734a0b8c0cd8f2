//! Server-sent events of a response, each within a bound.

use bytes::BytesMut;
use reqwest::Response;

use crate::bounds::RESULT_BYTES_MAX;
use crate::rpc::Failure;

/// The longest name of an event, and the longest id.
const FIELD_BYTES_MAX: usize = 1 << 10;

/// An event.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Event {
    /// `message`, if it does not say.
    pub(super) name: String,
    pub(super) data: String,
}

/// The events of a response.
pub(super) struct Events {
    response: Response,
    parser: Parser,
}

/// What has arrived and is not an event yet.
#[derive(Default)]
struct Parser {
    buffer: BytesMut,
    /// So much of the buffer has no end of a line.
    searched: usize,
    event: Event,
    has_data: bool,
    last_id: Option<String>,
    retry_ms: Option<u64>,
}

impl Events {
    pub(super) fn of(response: Response) -> Self {
        Self {
            response,
            parser: Parser::default(),
        }
    }

    /// The next event; none when the server has ended the stream.
    pub(super) async fn next(&mut self) -> Result<Option<Event>, Failure> {
        loop {
            if let Some(event) = self.parser.next()? {
                return Ok(Some(event));
            }
            match self.response.chunk().await {
                Ok(Some(chunk)) => self.parser.buffer.extend_from_slice(&chunk),
                Ok(None) => return Ok(None),
                Err(_) => return Err(Failure::Closed("its connection was lost".into())),
            }
        }
    }

    /// Where to go on after the stream was interrupted, and when.
    pub(super) fn resumption(&self) -> Option<(&str, Option<u64>)> {
        self.parser
            .last_id
            .as_deref()
            .map(|id| (id, self.parser.retry_ms))
    }
}

impl Parser {
    fn next(&mut self) -> Result<Option<Event>, Failure> {
        while let Some(length) = self.line_length() {
            let line = self.buffer.split_to(length + 1);
            self.searched = 0;
            let line = line.strip_suffix(b"\n").unwrap_or(&line);
            let line = line.strip_suffix(b"\r").unwrap_or(line);
            let line = std::str::from_utf8(line)
                .map_err(|_| Failure::Protocol("its events are not UTF-8"))?;
            if line.is_empty() {
                let event = std::mem::take(&mut self.event);
                if std::mem::take(&mut self.has_data) {
                    return Ok(Some(event));
                }
                continue;
            }
            self.field(line)?;
        }
        if self.buffer.len() + self.event.data.len() > RESULT_BYTES_MAX {
            return Err(Failure::TooLarge);
        }
        Ok(None)
    }

    fn line_length(&mut self) -> Option<usize> {
        let found = self.buffer[self.searched..]
            .iter()
            .position(|byte| *byte == b'\n');
        let length = found.map(|position| self.searched + position);
        self.searched = self.buffer.len();
        length
    }

    fn field(&mut self, line: &str) -> Result<(), Failure> {
        let (name, value) = line.split_once(':').unwrap_or((line, ""));
        let value = value.strip_prefix(' ').unwrap_or(value);
        match name {
            "data" => {
                if self.event.data.len() + value.len() > RESULT_BYTES_MAX {
                    return Err(Failure::TooLarge);
                }
                if std::mem::replace(&mut self.has_data, true) {
                    self.event.data.push('\n');
                }
                self.event.data.push_str(value);
            }
            "event" if value.len() <= FIELD_BYTES_MAX => value.clone_into(&mut self.event.name),
            "id" if value.len() <= FIELD_BYTES_MAX && !value.contains('\0') => {
                self.last_id = Some(value.to_owned());
            }
            "retry" => self.retry_ms = value.parse().ok(),
            _ => {}
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The events of a text that arrives in pieces of this size.
    fn events(text: &str, size: usize) -> (Vec<(String, String)>, Parser) {
        let (mut parser, mut events) = (Parser::default(), Vec::new());
        for piece in text.as_bytes().chunks(size) {
            parser.buffer.extend_from_slice(piece);
            while let Some(event) = parser.next().unwrap() {
                events.push((event.name, event.data));
            }
        }
        (events, parser)
    }

    #[test]
    fn events_are_read_however_they_are_cut() {
        let text = ": hello\r\n\r\nevent: endpoint\ndata: /x\n\nid: 7\nretry: 20\ndata: a\ndata: b\n\ndata\n\ndata: unfinished";
        let wanted = [("endpoint", "/x"), ("", "a\nb"), ("", "")];
        let wanted = wanted.map(|(name, data)| (name.to_owned(), data.to_owned()));
        for size in [1, 2, 3, 7, 1000] {
            let (events, parser) = events(text, size);
            assert_eq!(events, wanted, "{size}");
            assert_eq!(
                (parser.last_id.as_deref(), parser.retry_ms),
                (Some("7"), Some(20))
            );
        }
    }

    #[test]
    fn an_event_without_end_is_too_large() {
        let mut parser = Parser::default();
        let piece = vec![b'x'; 8 << 20];
        let mut outcome = Ok(None);
        for _ in 0..9 {
            parser.buffer.extend_from_slice(&piece);
            outcome = parser.next();
        }
        assert!(matches!(outcome, Err(Failure::TooLarge)));
    }
}
