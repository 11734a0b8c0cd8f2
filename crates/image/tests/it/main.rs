//! Pulling, keeping and removing images, from registries of every kind.

mod hostile_registry;
mod keeping;
mod pull;
mod redirects;
mod support;
