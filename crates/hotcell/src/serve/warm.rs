//! Derives the sets of the warm pool from the settings.

use anyhow::{Result, ensure};
use hotcell_domain::{ContainerSpec, ImageAliases, ImageRef, Limits, Policy};
use hotcell_service::PoolSpec;

use crate::cli::WarmArgs;

/// Default number of warm containers of the default image.
const DEFAULT_COUNT: usize = 1;

/// Most images with warm containers.
const IMAGES_MAX: usize = 16;

/// The sets of the warm pool. `default` is the image and the limits of a container that names none.
/// If policy denies an image, that is an error, except for the default image, which is then not
/// kept warm.
pub(super) fn stocks(
    arguments: &WarmArgs,
    aliases: &ImageAliases,
    policy: &Policy,
    default: (&ImageRef, Limits),
) -> Result<Vec<PoolSpec>> {
    let named = arguments.warm_images.iter().map(|warm| PoolSpec {
        image: aliases.resolve(&warm.image),
        wanted: warm.wanted,
        limits: Some(warm.limits(default.1)),
    });
    let mut stocks: Vec<PoolSpec> = named.collect();
    if let Some(wanted) = count(arguments.warm, &stocks, policy, default) {
        stocks.push(PoolSpec {
            image: default.0.clone(),
            wanted,
            limits: Some(default.1),
        });
    }
    ensure!(
        stocks.len() <= IMAGES_MAX,
        "at most {IMAGES_MAX} images can be kept warm"
    );
    for (number, stock) in stocks.iter().enumerate() {
        let is_same = |one: &PoolSpec| (&one.image, one.limits) == (&stock.image, stock.limits);
        let is_first = !stocks[..number].iter().any(is_same);
        ensure!(
            is_first,
            "it is said twice how many {} are kept warm",
            stock.image
        );
    }
    Ok(stocks)
}

/// The number of warm containers of the default image; `None` if a named image covers it or policy
/// denies it.
fn count(
    asked: Option<usize>,
    named: &[PoolSpec],
    policy: &Policy,
    (image, limits): (&ImageRef, Limits),
) -> Option<usize> {
    if asked.is_some() {
        return asked;
    }
    let is_default = |warm: &PoolSpec| warm.image == *image && warm.limits == Some(limits);
    if named.iter().any(is_default) {
        return None;
    }
    let spec = ContainerSpec {
        limits,
        ..ContainerSpec::new(image.clone())
    };
    match policy.admit(spec) {
        Ok(_) => Some(DEFAULT_COUNT),
        Err(refusal) => {
            tracing::warn!(%image, %refusal, "the default image is not kept warm");
            None
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::WarmImage;
    use hotcell_domain::{Bytes, ImageName, Maxima};

    fn said(warm: Option<usize>, images: &[(&str, usize)]) -> Result<Vec<(String, usize)>> {
        said_by(&Policy::default(), Limits::default(), warm, images)
    }

    fn said_by(
        policy: &Policy,
        limits: Limits,
        warm: Option<usize>,
        images: &[(&str, usize)],
    ) -> Result<Vec<(String, usize)>> {
        let image = |text| ImageRef::parse(text).expect("an image");
        let name = |text| ImageName::parse(text).expect("a name");
        let named = images.iter();
        let named = named.map(|(text, wanted)| WarmImage::new(name(text), *wanted));
        let arguments = WarmArgs {
            warm,
            warm_images: named.collect(),
            warm_check_s: std::time::Duration::from_secs(30),
        };
        let aliases = ImageAliases::default();
        let stocks = stocks(&arguments, &aliases, policy, (&image("python"), limits))?;
        let words = stocks.into_iter();
        Ok(words
            .map(|stock| (stock.image.to_string(), stock.wanted))
            .collect())
    }

    #[test]
    fn one_of_the_default_image_is_kept_unless_it_is_said_otherwise() {
        let python = |count| ("docker.io/library/python:latest".to_owned(), count);
        assert_eq!(said(None, &[]).unwrap(), [python(1)]);
        assert_eq!(said(Some(0), &[]).unwrap(), [python(0)]);
        assert_eq!(said(None, &[("python", 5)]).unwrap(), [python(5)]);
        let both = said(None, &[("host", 2)]).unwrap();
        assert_eq!(both, [("host".to_owned(), 2), python(1)]);
    }

    #[test]
    fn what_is_said_twice_is_refused() {
        assert!(said(Some(1), &[("python", 5)]).is_err());
        assert!(said(None, &[("host", 5), ("host", 4)]).is_err());
    }

    #[test]
    fn the_default_image_is_kept_warm_below_a_ceiling_that_fits_its_limits() {
        let limits = Limits {
            memory: Bytes::new(64 << 20).expect("a size"),
            ..Limits::default()
        };
        let maxima = Maxima {
            memory: limits.memory,
            cpus: limits.cpus,
            pids: limits.pids,
            disk: limits.disk,
        };
        let policy = Policy {
            maxima: Some(maxima),
            ..Policy::default()
        };
        let said = |limits| said_by(&policy, limits, None, &[]).expect("it is allowed");
        assert_eq!(said(limits).len(), 1);
        assert_eq!(said(Limits::default()), []);
    }
}
