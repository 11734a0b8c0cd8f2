//! Frames of a script's channel: length and number in four bytes each, then JSON.
//!
//! A frame that is too long is skipped and answered; one that is much too long ends the channel.

use std::io;

use tokio::io::{AsyncRead, AsyncReadExt as _};

/// The longest frame in either direction: arguments and results have 64 MiB, and a little around.
pub(crate) const FRAME_BYTES_MAX: usize = (64 << 20) + (64 << 10);

/// A longer one is not even skipped.
const SKIPPED_BYTES_MAX: usize = 1 << 30;

/// The first frame of a connection whose opener is unknown.
pub(crate) const HELLO_BYTES_MAX: usize = 4 << 10;

const HEADER_BYTES: usize = 8;

/// What comes next.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Frame {
    /// A body, and the number of its request.
    Whole(u32, Vec<u8>),
    /// It was too long and is gone.
    TooLong(u32, usize),
}

/// The length and the number of the next frame; `None` at the end.
pub(crate) async fn read_header(
    stream: &mut (impl AsyncRead + Unpin),
) -> io::Result<Option<(usize, u32)>> {
    let mut header = [0; HEADER_BYTES];
    match stream.read_exact(&mut header).await {
        Ok(_) => {}
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(None),
        Err(error) => return Err(error),
    }
    let [a, b, c, d, number @ ..] = header;
    let length = u32::from_be_bytes([a, b, c, d]) as usize;
    Ok(Some((length, u32::from_be_bytes(number))))
}

/// The body of a frame. What its header claims is not allocated before it has come.
pub(crate) async fn read_body(
    stream: &mut (impl AsyncRead + Unpin),
    (length, number): (usize, u32),
    bytes_max: usize,
) -> io::Result<Frame> {
    if length > SKIPPED_BYTES_MAX {
        return Err(io::Error::other("a frame is much too long"));
    }
    let mut taken = stream.take(length as u64);
    if length > bytes_max {
        let skipped = tokio::io::copy(&mut taken, &mut tokio::io::sink()).await?;
        let is_all = skipped == length as u64;
        let cut = || io::Error::from(io::ErrorKind::UnexpectedEof);
        return is_all
            .then_some(Frame::TooLong(number, length))
            .ok_or_else(cut);
    }
    let mut body = Vec::with_capacity(length.min(64 << 10));
    taken.read_to_end(&mut body).await?;
    if body.len() < length {
        return Err(io::ErrorKind::UnexpectedEof.into());
    }
    Ok(Frame::Whole(number, body))
}

/// A frame to send.
pub(crate) fn encode(number: u32, body: &[u8]) -> Vec<u8> {
    let length = u32::try_from(body.len()).expect("frames have a bound");
    let mut frame = Vec::with_capacity(HEADER_BYTES + body.len());
    frame.extend_from_slice(&length.to_be_bytes());
    frame.extend_from_slice(&number.to_be_bytes());
    frame.extend_from_slice(body);
    frame
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn read(mut bytes: &[u8], bytes_max: usize) -> io::Result<Option<Frame>> {
        let Some(header) = read_header(&mut bytes).await? else {
            return Ok(None);
        };
        read_body(&mut bytes, header, bytes_max).await.map(Some)
    }

    #[tokio::test]
    async fn a_frame_comes_back_and_a_cut_one_is_an_error() {
        let frame = encode(7, b"{}");
        let whole = read(&frame, 10).await.unwrap();
        assert_eq!(whole, Some(Frame::Whole(7, b"{}".to_vec())));
        assert_eq!(read(&[], 10).await.unwrap(), None);
        assert!(read(&frame[..frame.len() - 1], 10).await.is_err());
    }

    #[tokio::test]
    async fn a_frame_that_is_too_long_is_skipped_and_the_next_one_read() {
        let mut bytes = encode(1, &[b'x'; 100]);
        bytes.extend(encode(2, b"ok"));
        let mut rest = &bytes[..];
        let header = read_header(&mut rest).await.unwrap().unwrap();
        let first = read_body(&mut rest, header, 10).await.unwrap();
        assert_eq!(first, Frame::TooLong(1, 100));
        let header = read_header(&mut rest).await.unwrap().unwrap();
        let second = read_body(&mut rest, header, 10).await.unwrap();
        assert_eq!(second, Frame::Whole(2, b"ok".to_vec()));
    }

    #[tokio::test]
    async fn a_header_that_claims_four_gigabytes_costs_nothing() {
        let claim = [0xff; 8];
        assert!(read(&claim, 10).await.is_err());
    }
}
