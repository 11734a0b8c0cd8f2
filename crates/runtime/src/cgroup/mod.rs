//! Control groups: one per container in each hierarchy that the host has.
//!
//! [`HostCgroups`] knows where cgroups can be created and what they enforce. A [`ContainerCgroups`]
//! holds the cgroups of one container, and only it removes them.

mod container;
mod host;
mod layout;

pub use container::ContainerCgroups;
pub use host::{ControllerLocation, HostCgroups};
pub use layout::Layout;
pub(crate) use layout::Mounts;

/// The controllers that we use.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Controller {
    Memory,
    Cpu,
    Pids,
}

impl Controller {
    pub(crate) const ALL: [Self; 3] = [Self::Memory, Self::Cpu, Self::Pids];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Memory => "memory",
            Self::Cpu => "cpu",
            Self::Pids => "pids",
        }
    }
}
