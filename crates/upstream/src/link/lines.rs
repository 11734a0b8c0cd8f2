//! Lines of a stream, none longer than a bound.

use tokio::io::{AsyncBufRead, AsyncBufReadExt};

/// What is kept of both ends of a line that is too long.
const ENDS_BYTES: usize = 256;

/// A line.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Line {
    /// A whole one, without its end, is in the buffer.
    Whole,
    /// It was too long and was thrown away, except for its start and its end.
    TooLong { start: Vec<u8>, end: Vec<u8> },
    /// There are no more.
    End,
}

/// Reads the next line into `buffer`, which never holds more than `bytes_max`.
pub(crate) async fn read_line<R: AsyncBufRead + Unpin>(
    reader: &mut R,
    buffer: &mut Vec<u8>,
    bytes_max: usize,
) -> std::io::Result<Line> {
    buffer.clear();
    loop {
        let available = reader.fill_buf().await?;
        if available.is_empty() {
            let line = if buffer.is_empty() {
                Line::End
            } else {
                Line::Whole
            };
            return Ok(line);
        }
        let newline = available.iter().position(|byte| *byte == b'\n');
        let part = newline.unwrap_or(available.len());
        if buffer.len() + part > bytes_max {
            return discard(reader, buffer).await;
        }
        buffer.extend_from_slice(&available[..part]);
        reader.consume(part + usize::from(newline.is_some()));
        if newline.is_some() {
            if buffer.last() == Some(&b'\r') {
                buffer.pop();
            }
            return Ok(Line::Whole);
        }
    }
}

/// Throws the rest of a line away.
async fn discard<R: AsyncBufRead + Unpin>(
    reader: &mut R,
    buffer: &mut Vec<u8>,
) -> std::io::Result<Line> {
    let start = buffer[..buffer.len().min(ENDS_BYTES)].to_vec();
    let mut end = buffer[buffer.len().saturating_sub(ENDS_BYTES)..].to_vec();
    // It may be huge, and the next line rarely is.
    *buffer = Vec::new();
    loop {
        let available = reader.fill_buf().await?;
        let newline = available.iter().position(|byte| *byte == b'\n');
        let part = newline.unwrap_or(available.len());
        end.extend_from_slice(&available[part.saturating_sub(ENDS_BYTES)..part]);
        end.drain(..end.len().saturating_sub(ENDS_BYTES));
        let is_end = available.is_empty() || newline.is_some();
        reader.consume(part + usize::from(newline.is_some()));
        if is_end {
            return Ok(Line::TooLong { start, end });
        }
    }
}

/// The request that a line too long to be read answers, if it is written as usual: the id at its
/// start or at its end. A server that lies here fails only calls of its own.
pub(crate) fn answered_id(start: &[u8], end: &[u8]) -> Option<u64> {
    let (start, end) = (String::from_utf8_lossy(start), String::from_utf8_lossy(end));
    let start: String = start.chars().filter(|c| !c.is_whitespace()).collect();
    let first = start
        .strip_prefix(r#"{"jsonrpc":"2.0","id":"#)
        .or_else(|| start.strip_prefix(r#"{"id":"#));
    let digits = |text: &str| {
        text.split(|c: char| !c.is_ascii_digit())
            .next()
            .and_then(|id| id.parse().ok())
    };
    if let Some(id) = first.and_then(digits) {
        return Some(id);
    }
    let end: String = end.chars().filter(|c| !c.is_whitespace()).collect();
    let end = end.strip_suffix('}')?;
    let end = end.strip_suffix(r#","jsonrpc":"2.0""#).unwrap_or(end);
    let (_, id) = end.rsplit_once(r#""id":"#)?;
    id.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::io::BufReader;

    async fn lines(text: &[u8], bytes_max: usize) -> Vec<String> {
        let mut reader = BufReader::with_capacity(3, text);
        let (mut buffer, mut lines) = (Vec::new(), Vec::new());
        loop {
            match read_line(&mut reader, &mut buffer, bytes_max)
                .await
                .unwrap()
            {
                Line::Whole => lines.push(String::from_utf8_lossy(&buffer).into_owned()),
                Line::TooLong { start, end } => {
                    let (start, end) = (
                        String::from_utf8_lossy(&start).into_owned(),
                        String::from_utf8_lossy(&end).into_owned(),
                    );
                    lines.push(format!(
                        "<{} {}>",
                        start.len(),
                        &end[end.len().saturating_sub(2)..]
                    ));
                }
                Line::End => return lines,
            }
        }
    }

    #[tokio::test]
    async fn lines_are_cut_at_their_ends_and_long_ones_thrown_away() {
        assert_eq!(
            lines(b"a\r\nbcdefg\n\nh", 8).await,
            ["a", "bcdefg", "", "h"]
        );
        assert_eq!(lines(b"12345678\nb\n", 8).await, ["12345678", "b"]);
        assert_eq!(lines(b"123456789\nb\n", 8).await, ["<6 89>", "b"]);
        let mut long = vec![b'x'; 5000];
        long.extend_from_slice(b"yz\nb");
        assert_eq!(lines(&long, 1000).await, ["<256 yz>", "b"]);
    }

    #[test]
    fn the_id_of_a_long_answer_is_found_where_it_usually_is() {
        assert_eq!(
            answered_id(br#"{"jsonrpc":"2.0","id":17,"result":{"#, b"x"),
            Some(17)
        );
        assert_eq!(
            answered_id(br#"{"jsonrpc": "2.0", "id": 17, "result""#, b"x"),
            Some(17)
        );
        assert_eq!(
            answered_id(br#"{"result":{"id":3"#, br#"xx"},"jsonrpc":"2.0","id":18}"#),
            Some(18)
        );
        assert_eq!(
            answered_id(br#"{"result":"#, br#""},"id":19,"jsonrpc":"2.0"}"#),
            Some(19)
        );
        assert_eq!(answered_id(b"xxxx", b"yyyy"), None);
    }
}
