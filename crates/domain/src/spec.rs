//! The spec of a container.

use crate::{Env, ImageRef, Limits};

/// All that an engine needs to create a container.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ContainerSpec {
    /// The root filesystem.
    pub image: ImageRef,
    /// Resource limits.
    pub limits: Limits,
    /// Network access.
    pub network: Network,
    /// When the container ends.
    pub lifetime: Lifetime,
    /// Environment variables of every exec.
    pub env: Env,
    /// Whether execs may run as root of the container.
    pub allow_root: bool,
}

/// Network access of a container.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Network {
    /// Only its own loopback interface.
    None,
    /// The network of the engine's host.
    Full,
}

impl Network {
    /// The word that callers write.
    pub fn word(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Full => "full",
        }
    }
}

/// When a container ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Lifetime {
    /// When it is destroyed; it keeps running while no server does.
    UntilDestroyed,
    /// Also when the process that created it exits.
    WithOwner,
}

impl ContainerSpec {
    /// A container with default settings.
    pub fn new(image: ImageRef) -> Self {
        Self {
            image,
            limits: Limits::default(),
            network: Network::None,
            lifetime: Lifetime::UntilDestroyed,
            env: Env::default(),
            allow_root: false,
        }
    }
}
