//! Carries bytes between two connections as they are.
//!
//! Most connections carry nothing most of the time, so a buffer is small until what comes fills it.

use std::io;

use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};

use crate::serve::Stream;

/// What an idle direction costs, and what a busy one does. Downloads are what is waited for.
const IDLE_BUFFER_BYTES: usize = 2 * 1024;
const UP_BUFFER_BYTES: usize = 8 * 1024;
const DOWN_BUFFER_BYTES: usize = 32 * 1024;

/// Carries bytes both ways until both sides have ended, or one fails.
pub(crate) async fn splice(inside: impl Stream, outside: impl Stream) -> io::Result<()> {
    let (from_inside, to_inside) = tokio::io::split(inside);
    let (from_outside, to_outside) = tokio::io::split(outside);
    tokio::try_join!(
        carry(from_inside, to_outside, UP_BUFFER_BYTES),
        carry(from_outside, to_inside, DOWN_BUFFER_BYTES),
    )?;
    Ok(())
}

/// Carries bytes one way; passes the end on.
async fn carry(
    mut from: impl AsyncRead + Unpin,
    mut to: impl AsyncWrite + Unpin,
    busy_bytes: usize,
) -> io::Result<()> {
    let mut buffer = vec![0; IDLE_BUFFER_BYTES];
    loop {
        let count = from.read(&mut buffer).await?;
        if count == 0 {
            return to.shutdown().await;
        }
        to.write_all(&buffer[..count]).await?;
        to.flush().await?;
        let bytes = size_after(count, buffer.len(), busy_bytes);
        if bytes != buffer.len() {
            buffer = vec![0; bytes];
        }
    }
}

/// A buffer that was filled grows, and one that was nearly empty shrinks.
fn size_after(count: usize, bytes: usize, busy_bytes: usize) -> usize {
    if count == bytes {
        (bytes * 4).min(busy_bytes)
    } else if count < IDLE_BUFFER_BYTES {
        IDLE_BUFFER_BYTES
    } else {
        bytes
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[tokio::test]
    async fn bytes_and_ends_pass_in_both_directions() {
        let passing = tokio::time::timeout(Duration::from_mins(1), pass_both_ways());
        passing.await.expect("no end is held back");
    }

    async fn pass_both_ways() {
        let (inside, mut client) = tokio::io::duplex(4096);
        let (outside, mut host) = tokio::io::duplex(4096);
        let splicing = tokio::spawn(splice(inside, outside));
        let sent: Vec<u8> = (0..1_000_000_u32).map(|n| n.to_be_bytes()[3]).collect();
        let expected = sent.clone();
        let downloading = tokio::spawn(async move {
            host.write_all(&sent).await.unwrap();
            host.shutdown().await.unwrap();
            let mut asked = Vec::new();
            host.read_to_end(&mut asked).await.unwrap();
            asked
        });
        let mut come = Vec::new();
        client.read_to_end(&mut come).await.unwrap();
        assert!(come == expected, "{} bytes came", come.len());
        // The other direction is still open.
        client.write_all(b"more").await.unwrap();
        client.shutdown().await.unwrap();
        assert_eq!(downloading.await.unwrap(), b"more");
        splicing.await.unwrap().unwrap();
    }

    #[test]
    fn a_buffer_is_small_unless_it_is_filled() {
        let busy = DOWN_BUFFER_BYTES;
        assert_eq!(size_after(2048, 2048, busy), 8192);
        assert_eq!(size_after(8192, 8192, busy), busy);
        assert_eq!(size_after(busy, busy, busy), busy);
        assert_eq!(size_after(5000, busy, busy), busy);
        assert_eq!(size_after(100, busy, busy), IDLE_BUFFER_BYTES);
    }
}
