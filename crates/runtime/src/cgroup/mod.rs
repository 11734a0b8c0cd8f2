//! Control groups: one per container, in whatever hierarchies the host has.
//!
//! [`Host`] says where containers' groups can be made and what that enforces; a [`Place`]
//! is one container's groups, and the only thing that removes them.

mod host;
mod layout;
mod place;

pub use host::{Host, Seat};
pub use layout::Layout;
pub(crate) use layout::Mounts;
pub use place::Place;

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
