//! `xtask` as it is called, and what other systems are told.

mod other_system;
mod usage;
