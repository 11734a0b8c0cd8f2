//! Seals segments: compresses those that are complete.
//!
//! The encoder is `ruzstd`, which the image crate uses for decoding; it needs no C compiler and
//! adds little to the binary. It is young, so each frame is decoded and compared before the
//! uncompressed file is removed.

use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::panic::catch_unwind;
use std::path::Path;

use ruzstd::decoding::StreamingDecoder;
use ruzstd::encoding::{CompressionLevel, compress_to_vec};

use crate::segment::SegmentId;

/// How much of a segment is compressed at a time, which bounds the memory for sealing.
const FRAME_BYTES: usize = 1 << 20;

/// Compresses a segment and removes the uncompressed file. A crash at any moment leaves at least
/// one of the two complete, and the next call continues.
pub(crate) fn seal(directory: &Path, id: SegmentId) -> io::Result<()> {
    let (plain, sealed) = (id.open_path(directory), id.sealed_path(directory));
    if !plain.exists() {
        return Ok(());
    }
    if !sealed.exists() {
        let new = id.new_path(directory);
        compress(&plain, &new).inspect_err(|_| {
            let _ = fs::remove_file(&new);
        })?;
        fs::rename(&new, &sealed)?;
        File::open(directory)?.sync_all()?;
    }
    fs::remove_file(plain)
}

fn compress(from: &Path, to: &Path) -> io::Result<()> {
    let mut from = File::open(from)?;
    let mut to = File::options()
        .write(true)
        .create(true)
        .truncate(true)
        .mode(0o600)
        .open(to)?;
    loop {
        let mut piece = Vec::new();
        (&mut from)
            .take(FRAME_BYTES as u64)
            .read_to_end(&mut piece)?;
        if piece.is_empty() {
            break;
        }
        to.write_all(&frame(&piece)?)?;
    }
    to.sync_all()
}

/// Compresses one frame and verifies it by decoding.
fn frame(piece: &[u8]) -> io::Result<Vec<u8>> {
    let compress = || compress_to_vec(piece, CompressionLevel::Fastest);
    let frame = catch_unwind(compress).map_err(|_| io::Error::other("the encoder panicked"))?;
    let mut decoder = StreamingDecoder::new(frame.as_slice()).map_err(io::Error::other)?;
    let mut read_back = Vec::with_capacity(piece.len());
    decoder.read_to_end(&mut read_back)?;
    if read_back != piece {
        return Err(io::Error::other("what was compressed does not read back"));
    }
    Ok(frame)
}
