//! Frames: a length, then that many bytes, the first of which is the type.

use bytes::{Buf as _, Bytes, BytesMut};

use super::{NotebookError, NotebookEvent, NotebookRequest};

/// The longest frame from a kernel. Genuine ones are shorter: see the bounds on texts.
const FRAME_BYTES_MAX: usize = 4 << 20;

/// The length before each frame.
const LENGTH_BYTES: usize = 4;

const STDOUT: u8 = 1;
const STDERR: u8 = 2;
const EVENT: u8 = 3;

/// A frame from a kernel.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum NotebookFrame {
    /// Standard output of the cell.
    Stdout(Bytes),
    /// Standard error of the cell.
    Stderr(Bytes),
    /// An event.
    Event(NotebookEvent),
}

impl NotebookFrame {
    pub(super) fn parse(mut frame: Bytes) -> Result<Self, NotebookError> {
        let kind = frame.try_get_u8();
        match kind.map_err(|_| NotebookError::Protocol("a frame is empty"))? {
            STDOUT => Ok(Self::Stdout(frame)),
            STDERR => Ok(Self::Stderr(frame)),
            EVENT => NotebookEvent::parse(&frame).map(Self::Event),
            _ => Err(NotebookError::Protocol("a frame has no known kind")),
        }
    }
}

/// Removes the first frame, if it has arrived completely.
pub(super) fn take(received: &mut BytesMut) -> Result<Option<Bytes>, NotebookError> {
    let Some(length) = received.first_chunk::<LENGTH_BYTES>() else {
        return Ok(None);
    };
    let length = u32::from_be_bytes(*length) as usize;
    if length > FRAME_BYTES_MAX {
        return Err(NotebookError::Protocol("a frame is too long"));
    }
    if received.len() < LENGTH_BYTES + length {
        return Ok(None);
    }
    received.advance(LENGTH_BYTES);
    Ok(Some(received.split_to(length).freeze()))
}

/// Encodes a request for the kernel.
pub(super) fn pack(request: &NotebookRequest<'_>) -> Result<Vec<u8>, NotebookError> {
    let mut frame = vec![0; LENGTH_BYTES];
    let too_long = NotebookError::Protocol("a request is too long");
    if serde_json::to_writer(&mut frame, request).is_err() {
        return Err(too_long);
    }
    let length = u32::try_from(frame.len() - LENGTH_BYTES).map_err(|_| too_long)?;
    frame[..LENGTH_BYTES].copy_from_slice(&length.to_be_bytes());
    Ok(frame)
}

#[cfg(test)]
mod tests {
    use super::super::parse_all;
    use super::*;

    fn framed(kind: u8, data: &[u8]) -> Vec<u8> {
        let length = u32::try_from(data.len() + 1).unwrap();
        [&length.to_be_bytes()[..], &[kind], data].concat()
    }

    #[test]
    fn frames_come_out_as_they_went_in_however_they_are_split() {
        let all = [framed(1, b"out"), framed(2, b"")].concat();
        let expected = [
            NotebookFrame::Stdout(Bytes::from_static(b"out")),
            NotebookFrame::Stderr(Bytes::new()),
        ];
        assert_eq!(parse_all(&all).unwrap(), expected);
        let mut received = BytesMut::new();
        let mut frames = 0;
        for byte in all {
            received.extend_from_slice(&[byte]);
            frames += usize::from(take(&mut received).unwrap().is_some());
        }
        assert_eq!((frames, received.len()), (2, 0));
    }

    #[test]
    fn a_length_is_refused_before_anything_is_kept_for_it() {
        let length = u32::try_from(FRAME_BYTES_MAX + 1).unwrap().to_be_bytes();
        assert!(parse_all(&length).is_err());
        let length = u32::try_from(FRAME_BYTES_MAX).unwrap().to_be_bytes();
        assert!(parse_all(&length).unwrap().is_empty());
        for frame in [&[0; 4][..], &framed(0, b""), &framed(4, b"x")] {
            assert!(parse_all(frame).is_err(), "{frame:?}");
        }
    }

    #[test]
    fn a_request_is_json_behind_its_length() {
        let request = NotebookRequest::Interrupt { id: 7 };
        let frame = pack(&request).unwrap();
        assert_eq!(&frame[4..], br#"{"op":"interrupt","id":7}"#);
        assert_eq!(frame[..4], [0, 0, 0, 25]);
    }
}
