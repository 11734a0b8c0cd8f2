//! Control groups: one per container, in whatever hierarchies the host has.
//!
//! [`HostCgroups`] says where containers' groups can be made and what that enforces; a [`ContainerCgroups`]
//! is one container's groups, and the only thing that removes them.

mod container;
mod host;
mod layout;

pub use container::ContainerCgroups;
pub use host::{ControllerLocation, HostCgroups};
pub use layout::Layout;
pub(crate) use layout::Mounts;

/// What a group can limit.
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
