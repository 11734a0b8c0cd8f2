//! Compression in small steps on blocking threads, each with bounded output: a few bytes of gzip
//! can expand a thousandfold.

use std::io::{self, Write};

use bytes::Bytes;
use flate2::Compression;
use flate2::write::{GzEncoder, MultiGzDecoder};

const MAGIC: [u8; 2] = [0x1f, 0x8b];

/// The input of one decompression step, and the output after which it stops. Deflate expands one
/// byte to at most 1032, so a step produces at most about 1.3 MiB.
const INPUT_BYTES: usize = 1 << 10;
const OUTPUT_BYTES: usize = 256 << 10;

pub(super) struct Gzip(GzEncoder<Vec<u8>>);

/// Decompresses gzip; passes on anything else.
pub(super) enum Gunzip {
    /// Too little has arrived to tell.
    Unknown(Vec<u8>),
    Plain,
    Compressed(Box<MultiGzDecoder<Vec<u8>>>),
}

impl Gzip {
    pub(super) fn new() -> Self {
        Self(GzEncoder::new(Vec::new(), Compression::fast()))
    }

    /// The compressed output so far.
    pub(super) async fn push(mut self, piece: Bytes) -> io::Result<(Self, Bytes)> {
        blocking(move || {
            self.0.write_all(&piece)?;
            let made = std::mem::take(self.0.get_mut());
            Ok((self, made.into()))
        })
        .await
    }

    /// The rest of the output.
    pub(super) async fn finish(self) -> io::Result<Bytes> {
        blocking(move || Ok(self.0.finish()?.into())).await
    }
}

impl Gunzip {
    pub(super) fn new() -> Self {
        Self::Unknown(Vec::new())
    }

    /// The output for a chunk, and the rest of the chunk to push next, if any.
    pub(super) async fn push(self, piece: Bytes) -> io::Result<(Self, Bytes, Option<Bytes>)> {
        match self {
            Self::Unknown(mut head) => {
                head.extend_from_slice(&piece);
                let state = Self::guess(&head);
                Ok(match state {
                    Some(state) => (state, Bytes::new(), Some(head.into())),
                    None => (Self::Unknown(head), Bytes::new(), None),
                })
            }
            Self::Plain => Ok((Self::Plain, piece, None)),
            Self::Compressed(decoder) => blocking(move || step(decoder, piece)).await,
        }
    }

    fn guess(head: &[u8]) -> Option<Self> {
        let head = head.first_chunk()?;
        let decoder = || Self::Compressed(Box::new(MultiGzDecoder::new(Vec::new())));
        Some(if *head == MAGIC {
            decoder()
        } else {
            Self::Plain
        })
    }

    /// The rest of the output. A truncated gzip is an error.
    pub(super) async fn finish(self) -> io::Result<Bytes> {
        match self {
            Self::Unknown(head) => Ok(head.into()),
            Self::Plain => Ok(Bytes::new()),
            Self::Compressed(decoder) => blocking(move || Ok(decoder.finish()?.into())).await,
        }
    }
}

fn step(
    mut decoder: Box<MultiGzDecoder<Vec<u8>>>,
    mut piece: Bytes,
) -> io::Result<(Gunzip, Bytes, Option<Bytes>)> {
    while !piece.is_empty() && decoder.get_ref().len() < OUTPUT_BYTES {
        let input = piece.split_to(piece.len().min(INPUT_BYTES));
        decoder.write_all(&input)?;
    }
    let made = std::mem::take(decoder.get_mut());
    let rest = (!piece.is_empty()).then_some(piece);
    Ok((Gunzip::Compressed(decoder), made.into(), rest))
}

async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> io::Result<T> + Send + 'static,
) -> io::Result<T> {
    tokio::task::spawn_blocking(work)
        .await
        .map_err(io::Error::other)?
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn pack(data: &[u8]) -> Vec<u8> {
        let (gzip, mut packed) = Gzip::new()
            .push(Bytes::copy_from_slice(data))
            .await
            .unwrap();
        packed = [packed, gzip.finish().await.unwrap()].concat().into();
        packed.to_vec()
    }

    /// The output, and its largest chunk.
    async fn unpack(data: &[u8], piece_bytes: usize) -> io::Result<(Vec<u8>, usize)> {
        let (mut all, mut largest) = (Vec::new(), 0);
        let mut gunzip = Gunzip::new();
        for piece in data.chunks(piece_bytes) {
            let mut next = Some(Bytes::copy_from_slice(piece));
            while let Some(piece) = next {
                let (state, made, rest) = gunzip.push(piece).await?;
                largest = largest.max(made.len());
                all.extend_from_slice(&made);
                (gunzip, next) = (state, rest);
            }
        }
        all.extend_from_slice(&gunzip.finish().await?);
        Ok((all, largest))
    }

    #[tokio::test]
    async fn what_was_packed_comes_out_again_in_pieces_of_any_size() {
        let data: Vec<u8> = (0..100_000_u32).flat_map(u32::to_le_bytes).collect();
        let packed = pack(&data).await;
        for piece_bytes in [1, 7, 1 << 20] {
            assert!(unpack(&packed, piece_bytes).await.unwrap().0 == data);
        }
    }

    #[tokio::test]
    async fn what_is_not_packed_passes_through() {
        for data in [&b""[..], b"a", b"\x1f", b"abc", b"\x1f\x8c..."] {
            assert_eq!(unpack(data, 1).await.unwrap().0, data);
        }
    }

    #[tokio::test]
    async fn a_bomb_comes_out_in_small_pieces() {
        let packed = pack(&vec![0; 64 << 20]).await;
        assert!(packed.len() < 1 << 20);
        let (all, largest) = unpack(&packed, 1 << 20).await.unwrap();
        assert_eq!(all.len(), 64 << 20);
        assert!(largest < 2 << 20, "{largest}");
    }

    #[tokio::test]
    async fn a_gzip_that_is_cut_short_or_damaged_is_an_error() {
        let mut packed = pack(&[7; 10_000]).await;
        assert!(unpack(&packed[..packed.len() - 3], 100).await.is_err());
        let middle = packed.len() / 2;
        packed[middle] ^= 0xff;
        assert!(unpack(&packed, 100).await.is_err());
    }
}
