//! The real binary, and its engines, as their users meet them.

mod blocked;
mod clients;
mod conformance_docker;
mod conformance_embedded;
mod conformance_embedded_image;
mod conformance_podman;
mod conformance_runsc;
mod crash;
mod docker_faults;
mod docker_found;
mod docker_images;
mod docker_setups;
mod image;
mod prometheus;
mod pull;
mod run;
mod server_auth;
mod server_bounds;
mod server_ceilings;
mod server_cli;
mod server_crash;
mod server_engines;
mod server_images;
mod server_limits;
mod server_pool;
mod server_remote;
mod server_revisions;
mod server_state;
mod server_stories;
mod server_systemd;
mod server_tenants;
mod server_traps;
#[path = "../support/mod.rs"]
mod support;
mod workspaces;
