//! Advice for users at the command line when an image is not available.

use anyhow::{Error, anyhow};
use hotcell_domain::PolicyError;
use hotcell_image::ImageError;

/// The error with the next step, if there is one.
pub(crate) fn advised(error: ImageError) -> Error {
    let step = of_failure(&error);
    with(Error::new(error), step)
}

/// Adds advice to a policy denial.
pub(crate) fn advised_refusal(refusal: PolicyError) -> Error {
    let step = of_refusal(&refusal);
    with(Error::new(refusal), Some(step))
}

fn with(error: Error, step: Option<String>) -> Error {
    match step {
        Some(step) => anyhow!("{error:#}; {step}"),
        None => error,
    }
}

fn of_failure(error: &ImageError) -> Option<String> {
    let step = match error {
        ImageError::Refused(refusal) => of_refusal(refusal),
        ImageError::NotFound { reference } => {
            let registry = reference.registry();
            format!("check its name and tag, or log in with `docker login {registry}`")
        }
        ImageError::NotHere { .. } => "load it with `hotcell pull --from FILE`".to_owned(),
        ImageError::Denied { registry, .. } => format!("log in with `docker login {registry}`"),
        ImageError::Unreachable { .. } => "check the network, or HTTPS_PROXY".to_owned(),
        ImageError::Status {
            registry,
            status: 429,
        } => format!("wait a while, or log in with `docker login {registry}`"),
        ImageError::Platform { .. } => "choose another tag".to_owned(),
        ImageError::Credentials { .. } => {
            "mend or remove its entry in Docker's config.json (~/.docker, DOCKER_CONFIG or --docker-config)"
                .to_owned()
        }
        ImageError::TooSlow { .. }
        | ImageError::Status { .. }
        | ImageError::WrongDigest { .. }
        | ImageError::Invalid { .. }
        | ImageError::TooLarge { .. }
        | ImageError::InUse { .. }
        | ImageError::Busy
        | ImageError::Cancelled
        | ImageError::Disk { .. } => return None,
    };
    Some(step)
}

fn of_refusal(refusal: &PolicyError) -> String {
    match refusal {
        PolicyError::Registry { registry, allowed } => {
            let allowed = allowed.replace(' ', "");
            format!("allow it with --allowed-registries {allowed},{registry}")
        }
        PolicyError::Image { .. } => "allow it with --allowed-images".to_owned(),
        PolicyError::NoDigest { .. } => {
            "write NAME@sha256:…, or leave --require-digest out".to_owned()
        }
        PolicyError::LocalImage { .. } => "leave --local-images false out".to_owned(),
        PolicyError::Rootfs => "say --allow-rootfs".to_owned(),
        PolicyError::Egress { .. } => "name it in `profiles` of [egress]".to_owned(),
        PolicyError::Network => "say --allow-network".to_owned(),
        PolicyError::Root => "say --allow-as-root".to_owned(),
        PolicyError::AboveMaximum { limit, .. } => format!("ask for less, or raise --{limit}-max"),
        PolicyError::AboveTotal { limit, .. } => format!("ask for less, or raise --{limit}-total"),
    }
}
