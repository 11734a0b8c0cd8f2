//! Scales pictures to what clients accept.
//!
//! A picture from a container is hostile input: it is decoded with limits on size and memory, a few
//! at a time, on blocking threads. Every picture is decoded at least once before it is sent,
//! because many clients reject a whole conversation for one broken picture.

use std::io::Cursor;

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use image::codecs::jpeg::JpegEncoder;
use image::imageops::FilterType;
use image::{DynamicImage, ImageDecoder as _, ImageFormat, ImageReader, Limits, RgbImage};
use tokio::sync::{Semaphore, SemaphorePermit};

/// The largest file that is decoded.
pub(crate) const PICTURE_BYTES_MAX: usize = 16 << 20;

/// What clients accept: pixels of the longer side.
const SIDE_MAX: u32 = 1568;

/// What clients accept: bytes, before base64.
pub(crate) const SENT_BYTES_MAX: usize = 1 << 20;

/// The longest side that is decoded.
const DECODED_SIDE_MAX: u32 = 16_384;

/// Memory for one decoded picture: 32 megapixels with four bytes each.
const DECODED_BYTES_MAX: u64 = 128 << 20;

/// Concurrent decodes.
const DECODED_AT_ONCE_MAX: usize = 2;

/// JPEG qualities to try, best first.
const QUALITIES: [u8; 3] = [85, 70, 50];

/// Why a picture is not shown.
pub(crate) const TOO_LARGE: &str = "it is too large";
const BROKEN: &str = "it is broken, or of a kind that is not known here";

static DECODERS: Semaphore = Semaphore::const_new(DECODED_AT_ONCE_MAX);

/// A picture in a form that clients accept.
pub(crate) struct Picture {
    pub(crate) base64: String,
    pub(crate) mime: &'static str,
    /// A description of the original and the result.
    pub(crate) told: String,
}

/// Limits concurrent decodes.
pub(crate) struct DecodePermit(Option<SemaphorePermit<'static>>);

pub(crate) async fn decode_permit() -> DecodePermit {
    // The semaphore is never closed, so a permit comes eventually.
    DecodePermit(DECODERS.acquire().await.ok())
}

/// Scales a picture. Dropping the future does not stop work that has begun, which is bounded.
pub(crate) async fn fit(permit: DecodePermit, data: Vec<u8>) -> Result<Picture, &'static str> {
    let fitted = tokio::task::spawn_blocking(move || {
        let fitted = fit_now(data);
        drop(permit.0);
        fitted
    });
    // A panicking decoder means a broken picture.
    fitted.await.unwrap_or(Err(BROKEN))
}

fn fit_now(data: Vec<u8>) -> Result<Picture, &'static str> {
    let format = image::guess_format(&data).map_err(|_| BROKEN)?;
    let mime = mime(format).ok_or(BROKEN)?;
    let decoded = decode(&data, format)?;
    let (width, height) = (decoded.width(), decoded.height());
    let was = format!("{mime} of {width}x{height} pixels");
    if width.max(height) <= SIDE_MAX && data.len() <= SENT_BYTES_MAX {
        return Ok(Picture {
            base64: BASE64_STANDARD.encode(&data),
            mime,
            told: was,
        });
    }
    drop(data);
    let (sent, mime, side) = encode(decoded)?;
    Ok(Picture {
        base64: BASE64_STANDARD.encode(&sent),
        mime,
        told: format!("{was}, shown as {mime} with {side} pixels on its longer side"),
    })
}

/// Decodes within the limits and applies the orientation.
fn decode(data: &[u8], format: ImageFormat) -> Result<DynamicImage, &'static str> {
    let why = |error: image::ImageError| match error {
        image::ImageError::Limits(_) => TOO_LARGE,
        image::ImageError::Decoding(_)
        | image::ImageError::Encoding(_)
        | image::ImageError::Parameter(_)
        | image::ImageError::Unsupported(_)
        | image::ImageError::IoError(_) => BROKEN,
    };
    let mut limits = Limits::default();
    limits.max_image_width = Some(DECODED_SIDE_MAX);
    limits.max_image_height = Some(DECODED_SIDE_MAX);
    limits.max_alloc = Some(DECODED_BYTES_MAX);
    let mut reader = ImageReader::with_format(Cursor::new(data), format);
    reader.limits(limits);
    let mut decoder = reader.into_decoder().map_err(why)?;
    if decoder.total_bytes() > DECODED_BYTES_MAX {
        return Err(TOO_LARGE);
    }
    let orientation = decoder.orientation();
    let mut picture = DynamicImage::from_decoder(decoder).map_err(why)?;
    if let Ok(orientation) = orientation {
        picture.apply_orientation(orientation);
    }
    Ok(picture)
}

/// Scales and encodes, smaller and smaller until it fits. Prefers PNG, which keeps sharp edges and
/// transparency, if that is small enough.
fn encode(decoded: DynamicImage) -> Result<(Vec<u8>, &'static str, u32), &'static str> {
    let mut side = decoded.width().max(decoded.height()).min(SIDE_MAX);
    let mut scaled = decoded;
    while side > 0 {
        if scaled.width().max(scaled.height()) > side {
            scaled = scaled.resize(side, side, FilterType::Triangle);
        }
        let mut png = Cursor::new(Vec::new());
        scaled
            .write_to(&mut png, ImageFormat::Png)
            .map_err(|_| BROKEN)?;
        if png.get_ref().len() <= SENT_BYTES_MAX {
            return Ok((png.into_inner(), "image/png", side));
        }
        let flat = on_white(&scaled);
        for quality in QUALITIES {
            let mut jpeg = Vec::new();
            JpegEncoder::new_with_quality(&mut jpeg, quality)
                .encode_image(&flat)
                .map_err(|_| BROKEN)?;
            if jpeg.len() <= SENT_BYTES_MAX {
                return Ok((jpeg, "image/jpeg", side));
            }
        }
        side /= 2;
    }
    Err(TOO_LARGE)
}

/// JPEG has no transparency.
fn on_white(picture: &DynamicImage) -> RgbImage {
    let from = picture.to_rgba8();
    RgbImage::from_fn(from.width(), from.height(), |x, y| {
        let [red, green, blue, alpha] = from.get_pixel(x, y).0.map(u16::from);
        let mixed = |colour: u16| (colour * alpha + 255 * (255 - alpha)) / 255;
        let mixed = [mixed(red), mixed(green), mixed(blue)];
        image::Rgb(mixed.map(|colour| u8::try_from(colour).unwrap_or(u8::MAX)))
    })
}

fn mime(format: ImageFormat) -> Option<&'static str> {
    let known = [
        (ImageFormat::Png, "image/png"),
        (ImageFormat::Jpeg, "image/jpeg"),
        (ImageFormat::Gif, "image/gif"),
        (ImageFormat::WebP, "image/webp"),
    ];
    let known = known.into_iter().find(|(each, _)| *each == format);
    known.map(|(_, mime)| mime)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A picture that does not compress.
    fn noise(width: u32, height: u32) -> DynamicImage {
        let mut state = 1_u32;
        let mut next = || {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            state.to_be_bytes()[0]
        };
        RgbImage::from_fn(width, height, |_, _| image::Rgb([next(), next(), next()])).into()
    }

    fn encoded(picture: &DynamicImage, format: ImageFormat) -> Vec<u8> {
        let mut bytes = Cursor::new(Vec::new());
        picture.write_to(&mut bytes, format).unwrap();
        bytes.into_inner()
    }

    async fn fitted(data: Vec<u8>) -> Result<Picture, &'static str> {
        fit(decode_permit().await, data).await
    }

    fn size(picture: &Picture) -> (u32, u32) {
        let bytes = BASE64_STANDARD.decode(&picture.base64).unwrap();
        assert!(bytes.len() <= SENT_BYTES_MAX);
        let decoded = image::load_from_memory(&bytes).unwrap();
        (decoded.width(), decoded.height())
    }

    #[tokio::test]
    async fn a_small_picture_stays_as_it_is() {
        let formats = [
            (ImageFormat::Png, "image/png"),
            (ImageFormat::Jpeg, "image/jpeg"),
            (ImageFormat::Gif, "image/gif"),
            (ImageFormat::WebP, "image/webp"),
        ];
        for (format, mime) in formats {
            let bytes = encoded(&noise(40, 20), format);
            let picture = fitted(bytes.clone()).await.ok().unwrap();
            assert_eq!(picture.mime, mime);
            assert_eq!(picture.base64, BASE64_STANDARD.encode(&bytes));
        }
    }

    #[tokio::test]
    async fn a_large_picture_is_scaled_to_what_clients_take() {
        let flat = DynamicImage::new_rgba8(4000, 1000);
        let picture = fitted(encoded(&flat, ImageFormat::Png)).await.ok().unwrap();
        assert_eq!((size(&picture), picture.mime), ((1568, 392), "image/png"));
        let picture = fitted(encoded(&noise(1600, 1200), ImageFormat::Jpeg)).await;
        let picture = picture.ok().unwrap();
        assert_eq!(picture.mime, "image/jpeg");
        assert!(size(&picture).0 <= SIDE_MAX);
    }

    #[tokio::test]
    async fn what_is_broken_or_too_large_is_no_picture() {
        let whole = encoded(&noise(40, 20), ImageFormat::Png);
        let cut = whole[..whole.len() / 2].to_vec();
        assert_eq!(fitted(cut).await.err(), Some(BROKEN));
        assert_eq!(
            fitted(b"\x89PNG\r\n\x1a\n".to_vec()).await.err(),
            Some(BROKEN)
        );
        // A header that announces a huge size.
        let mut bomb = encoded(&noise(1, 1), ImageFormat::Gif);
        bomb[6..10].copy_from_slice(&[0xff; 4]);
        assert_eq!(fitted(bomb).await.err(), Some(TOO_LARGE));
    }
}
