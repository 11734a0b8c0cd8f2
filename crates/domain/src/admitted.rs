//! Who lets a container in.

use crate::{ContainerSpec, ImageRef, Network};

/// A value that has passed policy, with the name of the rule that let it in.
///
/// Only [`Policy::admit`] makes one, and engines take nothing else: a caller that
/// forgets to ask does not compile.
#[derive(Clone, Debug)]
pub struct Admitted<T> {
    value: T,
    rule: &'static str,
}

impl<T> Admitted<T> {
    /// What was let in.
    pub fn value(&self) -> &T {
        &self.value
    }

    /// The rule that let it in.
    pub fn rule(&self) -> &'static str {
        self.rule
    }
}

/// What the operator allows.
#[derive(Clone, Debug, Default)]
pub struct Policy {
    /// Allow `rootfs:` images. They name host directories, so only someone who may
    /// read the host's files anyway should be allowed them.
    pub allow_rootfs: bool,
    /// Allow execs as the container's root.
    pub allow_root: bool,
}

/// Why a container was not let in, with the rule that says so.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// `rootfs:` was asked for.
    #[error("images of the form rootfs:PATH are not allowed here (rule `allow_rootfs`)")]
    Rootfs,
    /// A network was asked for.
    #[error("only network \"none\" is allowed here (rule `network`)")]
    Network,
    /// Root was asked for.
    #[error("running as root is not allowed here (rule `allow_root`)")]
    Root,
}

impl Policy {
    /// Decides on a container.
    pub fn admit(&self, spec: ContainerSpec) -> Result<Admitted<ContainerSpec>, Refusal> {
        if spec.network != Network::None {
            return Err(Refusal::Network);
        }
        if spec.allow_root && !self.allow_root {
            return Err(Refusal::Root);
        }
        let rule = match spec.image {
            ImageRef::Host => "host_image",
            ImageRef::Rootfs(_) if self.allow_rootfs => "allow_rootfs",
            ImageRef::Rootfs(_) => return Err(Refusal::Rootfs),
            ImageRef::Oci(_) => "oci_image",
        };
        Ok(Admitted { value: spec, rule })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_refusal_names_its_rule() {
        let policy = Policy::default();
        let rootfs = ContainerSpec::new(ImageRef::Rootfs("/srv".into()));
        assert_eq!(policy.admit(rootfs).map(|_| ()), Err(Refusal::Rootfs));

        let mut online = ContainerSpec::new(ImageRef::Host);
        online.network = Network::Full;
        assert_eq!(policy.admit(online).map(|_| ()), Err(Refusal::Network));

        let mut root = ContainerSpec::new(ImageRef::Host);
        root.allow_root = true;
        assert_eq!(policy.admit(root).map(|_| ()), Err(Refusal::Root));
    }

    #[test]
    fn what_is_let_in_knows_by_which_rule() {
        let admitted = Policy::default().admit(ContainerSpec::new(ImageRef::Host));
        assert_eq!(admitted.map(|admitted| admitted.rule()), Ok("host_image"));
    }
}
