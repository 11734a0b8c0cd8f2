//! Decompresses and hashes a blob on its own thread, so that a second core works while the first
//! one writes files.

use std::io::{self, BufRead, BufReader, Read};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread;

use flate2::bufread::MultiGzDecoder;
use hotcell_domain::Digest;
use ruzstd::decoding::errors::{FrameDecoderError, ReadFrameHeaderError};
use ruzstd::decoding::{BlockDecodingStrategy, FrameDecoder};

use super::UnpackError;
use crate::bounds::{DECODED_PIECE_BYTES, DECODED_PIECES_MAX, ZSTD_WINDOW_BYTES_MAX};
use crate::hash::HashingReader;

const GZIP: [u8; 2] = [0x1f, 0x8b];
const ZSTD: [u8; 4] = [0x28, 0xb5, 0x2f, 0xfd];

const READ_BYTES: usize = 128 << 10;

type Piece = io::Result<Vec<u8>>;

/// Lets `work` read the archive in a blob; returns the archive's digest if all of it was read.
pub(super) fn decoded<F>(
    blob: impl Read + Send,
    stop: &AtomicBool,
    work: F,
) -> Result<Digest, UnpackError>
where
    F: FnOnce(&mut Pieces) -> Result<(), UnpackError>,
{
    let (sender, receiver) = sync_channel(DECODED_PIECES_MAX);
    thread::scope(|scope| {
        let decoder = scope.spawn(move || decode(blob, &sender, stop));
        let mut pieces = Pieces {
            receiver,
            piece: Vec::new(),
            at: 0,
        };
        let done = work(&mut pieces);
        // Ends the decoder if nobody reads its output.
        drop(pieces);
        let digest = decoder.join();
        done?;
        digest
            .ok()
            .flatten()
            .ok_or(UnpackError::Malformed("it cannot be decompressed"))
    })
}

/// Sends the archive in chunks and returns its digest; `None` if it was not sent completely.
fn decode(blob: impl Read, sender: &SyncSender<Piece>, stop: &AtomicBool) -> Option<Digest> {
    let archive = match decompressed(blob) {
        Ok(archive) => archive,
        Err(error) => {
            let _ = sender.send(Err(error));
            return None;
        }
    };
    let mut archive = HashingReader::new(archive);
    loop {
        if stop.load(Ordering::Relaxed) {
            return None;
        }
        let mut piece = Vec::with_capacity(DECODED_PIECE_BYTES);
        let limit = DECODED_PIECE_BYTES as u64;
        let read = archive.by_ref().take(limit).read_to_end(&mut piece);
        let (is_end, is_error) = (piece.is_empty(), read.is_err());
        if is_end && !is_error {
            return Some(archive.finish());
        }
        // Data before an error is discarded: the archive is broken.
        sender.send(read.map(|_| piece)).ok()?;
        if is_error {
            return None;
        }
    }
}

/// Detects the compression by the first bytes; the media type is only a claim.
pub(crate) fn decompressed<'a>(blob: impl Read + 'a) -> io::Result<Box<dyn Read + 'a>> {
    let mut blob = BufReader::with_capacity(READ_BYTES, blob);
    let start = blob.fill_buf()?;
    if start.starts_with(&GZIP) {
        return Ok(Box::new(MultiGzDecoder::new(blob)));
    }
    if start.starts_with(&ZSTD) {
        return Ok(Box::new(Zstd::new(blob)));
    }
    Ok(Box::new(blob))
}

/// Decodes consecutive frames; skips those without content.
struct Zstd<R> {
    source: R,
    decoder: FrameDecoder,
    is_in_frame: bool,
}

impl<R: BufRead> Zstd<R> {
    fn new(source: R) -> Self {
        let mut decoder = FrameDecoder::new();
        decoder.set_max_window_size(ZSTD_WINDOW_BYTES_MAX);
        Self {
            source,
            decoder,
            is_in_frame: false,
        }
    }

    /// Enters the next frame; false if there is none.
    fn enter(&mut self) -> io::Result<bool> {
        while !self.source.fill_buf()?.is_empty() {
            match self.decoder.init(&mut self.source) {
                Ok(()) => return Ok(true),
                Err(FrameDecoderError::ReadFrameHeaderError(ReadFrameHeaderError::SkipFrame {
                    length,
                    ..
                })) => {
                    let mut skipped = self.source.by_ref().take(u64::from(length));
                    io::copy(&mut skipped, &mut io::sink())?;
                }
                Err(error) => return Err(io::Error::other(error)),
            }
        }
        Ok(false)
    }
}

impl<R: BufRead> Read for Zstd<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        loop {
            if !self.is_in_frame {
                self.is_in_frame = self.enter()?;
                if !self.is_in_frame {
                    return Ok(0);
                }
            }
            while self.decoder.can_collect() == 0 && !self.decoder.is_finished() {
                let one = BlockDecodingStrategy::UptoBlocks(1);
                let decoded = self.decoder.decode_blocks(&mut self.source, one);
                decoded.map_err(io::Error::other)?;
            }
            let len = self.decoder.read(buffer)?;
            if len > 0 || buffer.is_empty() {
                return Ok(len);
            }
            self.is_in_frame = false;
        }
    }
}

/// The archive, as the decoder sends it.
pub(super) struct Pieces {
    receiver: Receiver<Piece>,
    piece: Vec<u8>,
    at: usize,
}

impl Read for Pieces {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if self.at == self.piece.len() {
            match self.receiver.recv() {
                Ok(piece) => (self.piece, self.at) = (piece?, 0),
                // The decoder has sent everything.
                Err(_) => return Ok(0),
            }
        }
        let len = buffer.len().min(self.piece.len() - self.at);
        buffer[..len].copy_from_slice(&self.piece[self.at..self.at + len]);
        self.at += len;
        Ok(len)
    }
}
