//! Containers started by the launcher, without a server.

mod lifecycle;
mod limits;
mod overlay;
mod sealed;
mod support;
