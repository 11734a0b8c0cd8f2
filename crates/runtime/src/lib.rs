//! Linux namespaces, cgroups, seccomp and the launcher that puts them together.
//!
//! Synchronous, and without any word of our other crates: it starts a given program
//! as PID 1 of a sealed container and knows nothing of what that program does.

mod spec;

pub use spec::{
    Enforced, Enforcement, FIRST_FD, IdMap, LaunchSpec, Limits, Root, Scratch, USER_ID,
};
