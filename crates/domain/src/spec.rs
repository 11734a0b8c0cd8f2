//! What a container shall be.

use crate::{Env, ImageRef, Limits};

/// Everything an engine needs to know to make a container.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ContainerSpec {
    /// What its root is made of.
    pub image: ImageRef,
    /// How much it may use.
    pub limits: Limits,
    /// What it may reach.
    pub network: Network,
    /// When it ends.
    pub lifetime: Lifetime,
    /// Variables that every exec in it is given.
    pub env: Env,
    /// Whether execs may run as root of the container.
    pub allow_root: bool,
}

/// What a container may reach over the network.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Network {
    /// Its own loopback.
    None,
    /// Whatever the host reaches.
    Full,
}

/// When a container ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Lifetime {
    /// When it is destroyed: it lives on while no server runs.
    UntilDestroyed,
    /// Also when the process that made it is gone.
    WithOwner,
}

impl ContainerSpec {
    /// A container with the defaults of everything but its root.
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
