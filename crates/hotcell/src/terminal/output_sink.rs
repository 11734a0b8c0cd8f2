//! The destination of a command's output: our own streams, or memory for `--json`.

use std::io;

use hotcell_domain::Stream;

use super::Screen;

/// Output captured of each stream for `--json`; the rest is only counted.
const CAPTURED_BYTES_MAX: usize = 4 << 20;

/// The destination of a command's output.
pub(crate) enum OutputSink {
    Screen(Screen),
    Memory(Captured),
    /// The reader of our output has gone away.
    Nowhere,
}

/// Output that was captured instead of streamed.
#[derive(Default)]
pub(crate) struct Captured {
    pub(crate) stdout: Vec<u8>,
    pub(crate) stderr: Vec<u8>,
    /// Bytes beyond [`CAPTURED_BYTES_MAX`], of both streams together.
    pub(crate) dropped: u64,
}

impl OutputSink {
    /// Writes to `screen`; without one, captures.
    pub(crate) fn new(screen: Option<Screen>) -> Self {
        screen.map_or_else(|| Self::Memory(Captured::default()), Self::Screen)
    }

    pub(crate) async fn take(&mut self, stream: Stream, data: &[u8]) -> io::Result<()> {
        match self {
            Self::Screen(screen) => screen.write(stream == Stream::Stderr, data).await,
            Self::Memory(captured) => {
                captured.take(stream, data);
                Ok(())
            }
            Self::Nowhere => Ok(()),
        }
    }

    /// Shows what the screen held back.
    pub(crate) async fn finish(&mut self) -> io::Result<()> {
        match self {
            Self::Screen(screen) => screen.finish().await,
            Self::Memory(_) | Self::Nowhere => Ok(()),
        }
    }

    pub(crate) fn captured(self) -> Option<Captured> {
        match self {
            Self::Memory(captured) => Some(captured),
            Self::Screen(_) | Self::Nowhere => None,
        }
    }
}

impl Captured {
    fn take(&mut self, stream: Stream, data: &[u8]) {
        let kept = match stream {
            Stream::Stdout => &mut self.stdout,
            Stream::Stderr => &mut self.stderr,
        };
        let room = CAPTURED_BYTES_MAX - kept.len();
        let (taken, dropped) = data.split_at(data.len().min(room));
        kept.extend_from_slice(taken);
        self.dropped += dropped.len() as u64;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn output_beyond_the_bound_is_counted_and_not_kept() {
        let mut sink = OutputSink::new(None);
        let chunk = vec![b'x'; CAPTURED_BYTES_MAX - 1];
        for data in [&chunk[..], b"abc"] {
            sink.take(Stream::Stdout, data).await.unwrap();
        }
        sink.take(Stream::Stderr, b"e").await.unwrap();
        let captured = sink.captured().unwrap();
        assert_eq!(captured.stdout.len(), CAPTURED_BYTES_MAX);
        assert_eq!(captured.stdout.last(), Some(&b'a'));
        assert_eq!((captured.stderr, captured.dropped), (b"e".to_vec(), 2));
    }
}
