//! Tokens of an issuer, real keys and real HTTP.

mod issuer;
mod oidc;
