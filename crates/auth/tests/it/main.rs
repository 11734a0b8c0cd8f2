//! Tokens of an issuer, real keys and real HTTP.

mod oidc;
mod rotation;
mod support;
