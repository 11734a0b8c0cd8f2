//! Settings of the warm pool.

use std::time::Duration;

use clap::Args;
use hotcell_domain::{Bytes, CpuMillis, ImageName, LimitError, Limits, Pids};

use super::limits::parse_pids;

/// Most warm containers of one image.
const WARM_MAX: usize = 64;

/// The longest interval between two health checks of a warm container.
const CHECK_S_MAX: u64 = 24 * 60 * 60;

/// Settings of the warm pool.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Warm pool")]
pub(crate) struct WarmArgs {
    /// Warm containers to keep of the default image (0 = none) [default: 1]
    #[arg(long, value_name = "N", value_parser = parse_count, env = "HOTCELL_WARM")]
    pub(crate) warm: Option<usize>,

    /// Warm containers to keep of another image, or with other limits (`IMAGE=N+memory=2g+cpus=2+pids=512+disk=1g`); repeat the flag or separate with commas
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

/// Warm containers of one image with certain limits.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct WarmImage {
    pub(crate) image: ImageName,
    pub(crate) wanted: usize,
    /// Limits that differ from the default.
    memory: Option<Bytes>,
    cpus: Option<CpuMillis>,
    pids: Option<Pids>,
    disk: Option<Bytes>,
}

impl WarmImage {
    /// A number of containers with the default limits.
    pub(crate) fn new(image: ImageName, wanted: usize) -> Self {
        Self {
            image,
            wanted,
            memory: None,
            cpus: None,
            pids: None,
            disk: None,
        }
    }

    /// The limits of its containers.
    pub(crate) fn limits(&self, default: Limits) -> Limits {
        Limits {
            memory: self.memory.unwrap_or(default.memory),
            cpus: self.cpus.unwrap_or(default.cpus),
            pids: self.pids.unwrap_or(default.pids),
            disk: self.disk.unwrap_or(default.disk),
            ..default
        }
    }
}

fn parse_count(text: &str) -> Result<usize, String> {
    match text.parse() {
        Ok(count @ 0..=WARM_MAX) => Ok(count),
        _ => Err(format!("must be a number from 0 to {WARM_MAX}")),
    }
}

fn parse_image(text: &str) -> Result<WarmImage, String> {
    let (image, rest) = text
        .split_once('=')
        .ok_or("write IMAGE=N, for example python:3.12-slim=2")?;
    let image = ImageName::parse(image).map_err(|error| error.to_string())?;
    let mut parts = rest.split('+');
    let wanted = parse_count(parts.next().unwrap_or_default())?;
    let mut warm = WarmImage::new(image, wanted);
    for part in parts {
        parse_limit(part, &mut warm)?;
    }
    Ok(warm)
}

fn parse_limit(text: &str, warm: &mut WarmImage) -> Result<(), String> {
    let said = |error: LimitError| error.to_string();
    match text.split_once('=') {
        Some(("memory", size)) => warm.memory = Some(Bytes::parse(size).map_err(said)?),
        Some(("cpus", cores)) => warm.cpus = Some(CpuMillis::parse(cores).map_err(said)?),
        Some(("pids", number)) => warm.pids = Some(parse_pids(number)?),
        Some(("disk", size)) => warm.disk = Some(Bytes::parse(size).map_err(said)?),
        _ => {
            return Err(format!(
                "`{text}` is no limit; write memory=, cpus=, pids= or disk="
            ));
        }
    }
    Ok(())
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
            assert_eq!(parse_image(text), Ok(WarmImage::new(image, wanted)));
        }
    }

    #[test]
    fn limits_of_its_own_follow_the_number() {
        let warm = parse_image("host=2+memory=1g+cpus=0.5+disk=3g").expect("it is one");
        let limits = warm.limits(Limits::default());
        assert_eq!((warm.wanted, limits.memory.get()), (2, 1 << 30));
        assert_eq!(limits.cpus.get(), 500);
        assert_eq!(limits.disk.get(), 3 << 30);
        assert_eq!(limits.pids, Limits::default().pids);
        for wrong in ["host=2+memory", "host=2+tmp=1g", "host=2+pids=0", "host=2+"] {
            assert!(parse_image(wrong).is_err(), "{wrong}");
        }
    }
}
