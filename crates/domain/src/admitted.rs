//! Policy: which containers are allowed.

use crate::{ContainerSpec, ImagePolicy, ImageRef, Maxima, Network, Reference, Source};

/// A value that has passed policy, with the name of the rule that admitted it.
///
/// Only [`Policy::admit`] and [`ImagePolicy::admit`] create one, and engines and registries accept
/// nothing else: a caller that forgets to ask for admission does not compile.
#[derive(Clone, Debug)]
pub struct Admitted<T> {
    value: T,
    rule: &'static str,
    source: Option<Source>,
}

impl<T> Admitted<T> {
    pub(crate) fn new(value: T, rule: &'static str) -> Self {
        Self {
            value,
            rule,
            source: None,
        }
    }

    /// The admitted value.
    pub fn value(&self) -> &T {
        &self.value
    }

    /// The rule that admitted it.
    pub fn rule(&self) -> &'static str {
        self.rule
    }
}

impl Admitted<ContainerSpec> {
    /// The decision on the container's image, if it comes from a registry.
    pub fn image(&self) -> Option<Admitted<Source>> {
        let source = self.source.clone()?;
        Some(Admitted::new(source, self.rule))
    }
}

/// The operator's policy.
#[derive(Clone, Debug, Default)]
pub struct Policy {
    /// Allow `rootfs:` images. They name host directories, so allow them only for callers who may
    /// read the host's files anyway.
    pub allow_rootfs: bool,
    /// Allow execs as the container's root.
    pub allow_root: bool,
    /// Allow containers with the network of the engine's host, where the engine supports it.
    pub allow_network: bool,
    /// Which registry images are allowed.
    pub images: ImagePolicy,
    /// Limits per container; `None` if the operator is the caller.
    pub maxima: Option<Maxima>,
}

/// Why a container was refused, and by which rule.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PolicyError {
    /// The caller requested `rootfs:`.
    #[error("images of the form rootfs:PATH are not allowed here (rule `allow_rootfs`)")]
    Rootfs,
    /// The caller requested a network.
    #[error("only network \"none\" is allowed here (rule `allow_network`)")]
    Network,
    /// The caller requested root.
    #[error("running as root is not allowed here (rule `allow_as_root`)")]
    Root,
    /// The image's registry is not allowed.
    #[error("registry {registry} is not one of {allowed} (rule `allowed_registries`)")]
    Registry {
        /// The requested registry.
        registry: String,
        /// The allowed registries, comma-separated.
        allowed: String,
    },
    /// No glob matches the image.
    #[error("image {reference} is not among those allowed here (rule `allowed_images`)")]
    Image {
        /// The requested image.
        reference: Reference,
    },
    /// The reference has no digest.
    #[error("image {reference} must be given with its digest (rule `require_digest`)")]
    NoDigest {
        /// The requested image.
        reference: Reference,
    },
    /// The request exceeds the maximum per container.
    #[error(
        "{limit} {asked} is more than the {max} that a container may have here (rule `{rule}`)"
    )]
    AboveMaximum {
        /// `memory`, `cpus`, `pids` or `disk`.
        limit: &'static str,
        /// The same with `_max`.
        rule: &'static str,
        /// The requested amount.
        asked: String,
        /// The maximum.
        max: String,
    },
    /// The request exceeds what is left of the total. The message does not say how much others use:
    /// they may be other callers.
    #[error(
        "{limit} {asked} is more than is free of the {total} that all containers may have together (rule `{rule}`)"
    )]
    AboveTotal {
        /// `memory` or `pids`.
        limit: &'static str,
        /// The same with `_total`.
        rule: &'static str,
        /// The requested amount.
        asked: String,
        /// The total of all containers.
        total: String,
    },
    /// The caller may not name this egress profile.
    #[error("egress profile {profile} is not one of {allowed} (rule `egress.profiles`)")]
    Egress {
        /// The requested profile.
        profile: String,
        /// Those that may be named, comma-separated.
        allowed: String,
    },
    /// The image exists only on this host.
    #[error("image {reference} is local to this host, which is not allowed (rule `local_images`)")]
    LocalImage {
        /// The requested image.
        reference: Reference,
    },
}

impl PolicyError {
    /// The rule that refused, by its name in the configuration and in events.
    pub fn rule(&self) -> &'static str {
        match self {
            Self::Rootfs => "allow_rootfs",
            Self::Network => "allow_network",
            Self::Root => "allow_as_root",
            Self::Registry { .. } => "allowed_registries",
            Self::Image { .. } => "allowed_images",
            Self::NoDigest { .. } => "require_digest",
            Self::LocalImage { .. } => "local_images",
            Self::Egress { .. } => "egress.profiles",
            Self::AboveMaximum { rule, .. } | Self::AboveTotal { rule, .. } => rule,
        }
    }
}

impl Policy {
    /// Admits or refuses a container.
    pub fn admit(&self, spec: ContainerSpec) -> Result<Admitted<ContainerSpec>, PolicyError> {
        if spec.network != Network::None && !self.allow_network {
            return Err(PolicyError::Network);
        }
        if spec.allow_root && !self.allow_root {
            return Err(PolicyError::Root);
        }
        if let Some(maxima) = &self.maxima {
            maxima.check(&spec.limits)?;
        }
        let (rule, source) = match &spec.image {
            ImageRef::Host => ("host_image", None),
            ImageRef::Rootfs(_) if self.allow_rootfs => ("allow_rootfs", None),
            ImageRef::Rootfs(_) => return Err(PolicyError::Rootfs),
            ImageRef::Oci(reference) => {
                let source = self.images.admit(reference.clone())?;
                (source.rule, Some(source.value))
            }
        };
        Ok(Admitted {
            value: spec,
            rule,
            source,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_refusal_names_its_rule() {
        let policy = Policy::default();
        let rootfs = ContainerSpec::new(ImageRef::Rootfs("/srv".into()));
        assert_eq!(policy.admit(rootfs).map(|_| ()), Err(PolicyError::Rootfs));

        let mut online = ContainerSpec::new(ImageRef::Host);
        online.network = Network::Full;
        assert_eq!(
            policy.admit(online.clone()).map(|_| ()),
            Err(PolicyError::Network)
        );
        let policy = Policy {
            allow_network: true,
            ..policy
        };
        assert_eq!(policy.admit(online).map(|_| ()), Ok(()));

        let mut root = ContainerSpec::new(ImageRef::Host);
        root.allow_root = true;
        assert_eq!(policy.admit(root).map(|_| ()), Err(PolicyError::Root));
    }

    #[test]
    fn an_image_is_decided_on_by_the_image_policy() {
        let spec = |text| ContainerSpec::new(ImageRef::parse(text).unwrap());
        let policy = Policy::default();
        let refusal = policy.admit(spec("quay.io/a/b")).unwrap_err();
        assert_eq!(refusal.rule(), "allowed_registries");
        let admitted = policy.admit(spec("python")).unwrap();
        let source = admitted.image().unwrap();
        assert_eq!(
            source.value().reference.to_string(),
            "docker.io/library/python:latest"
        );
        let host = policy.admit(spec("host")).unwrap();
        assert!(host.image().is_none());
    }

    #[test]
    fn nobody_is_let_in_who_asks_for_more_than_the_maximum() {
        let limits = crate::Limits::default();
        let maxima = Maxima {
            memory: limits.memory,
            cpus: limits.cpus,
            pids: crate::Pids::new(limits.pids.get() - 1).unwrap(),
            disk: limits.disk,
        };
        let policy = Policy {
            maxima: Some(maxima),
            ..Policy::default()
        };
        let refused = policy.admit(ContainerSpec::new(ImageRef::Host));
        assert_eq!(refused.unwrap_err().rule(), "pids_max");
        let free = Policy::default().admit(ContainerSpec::new(ImageRef::Host));
        assert!(free.is_ok(), "without a maximum nothing is too much");
    }

    #[test]
    fn what_is_let_in_knows_by_which_rule() {
        let admitted = Policy::default().admit(ContainerSpec::new(ImageRef::Host));
        assert_eq!(admitted.map(|admitted| admitted.rule()), Ok("host_image"));
    }
}
