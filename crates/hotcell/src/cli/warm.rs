//! Containers that are kept ready.

use std::time::Duration;

use clap::Args;
use hotcell_domain::ImageName;

/// The most containers of one image that are kept ready.
const WARM_MAX: usize = 64;

/// The longest time between two looks at a container that is kept ready.
const CHECK_S_MAX: u64 = 24 * 60 * 60;

/// What is kept ready, so that whoever asks need not wait.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Warm pool")]
pub(crate) struct WarmArgs {
    /// Warm containers to keep of the default image (0 = none) [default: 1]
    #[arg(long, value_name = "N", value_parser = parse_count, env = "HOTCELL_WARM")]
    pub(crate) warm: Option<usize>,

    /// Warm containers to keep of another image; repeat the flag or separate with commas
    #[arg(
        long = "warm-image",
        value_name = "IMAGE=N",
        value_delimiter = ',',
        value_parser = parse_image,
        env = "HOTCELL_WARM_IMAGES"
    )]
    pub(crate) warm_images: Vec<WarmImage>,

    /// How often to check the health of each warm container
    #[arg(long, value_name = "SECONDS", default_value = "30", value_parser = parse_interval, env = "HOTCELL_WARM_CHECK_S")]
    pub(crate) warm_check_s: Duration,
}

/// An image, or an alias of one, and how many containers of it are kept.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct WarmImage {
    pub(crate) image: ImageName,
    pub(crate) wanted: usize,
}

fn parse_count(text: &str) -> Result<usize, String> {
    match text.parse() {
        Ok(count @ 0..=WARM_MAX) => Ok(count),
        _ => Err(format!("must be a number from 0 to {WARM_MAX}")),
    }
}

fn parse_image(text: &str) -> Result<WarmImage, String> {
    let (image, count) = text
        .rsplit_once('=')
        .ok_or("write IMAGE=N, for example python:3.12-slim=2")?;
    Ok(WarmImage {
        image: ImageName::parse(image).map_err(|error| error.to_string())?,
        wanted: parse_count(count)?,
    })
}

fn parse_interval(text: &str) -> Result<Duration, String> {
    match text.parse() {
        Ok(seconds @ 1..=CHECK_S_MAX) => Ok(Duration::from_secs(seconds)),
        _ => Err("must be a whole number of seconds, from 1 to a day".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_image_is_told_from_its_number() {
        let digest = format!("python@sha256:{}", "a".repeat(64));
        for (text, image, wanted) in [
            ("host=3", "host", 3),
            ("python:3.12-slim=0", "python:3.12-slim", 0),
            (&format!("{digest}=64"), &digest, 64),
        ] {
            let image = ImageName::parse(image).expect("an image");
            assert_eq!(parse_image(text), Ok(WarmImage { image, wanted }));
        }
    }
}
