//! Authentication: named tokens, stored as hashes; tokens that an OIDC issuer has signed; users of
//! this machine; and the reporting of failed attempts.
//!
//! This crate turns the text of a token into a [`hotcell_domain::Caller`] or a [`Failure`]. It
//! knows neither HTTP nor MCP: the crate `http` reads the header and sends the challenge.
//!
//! Principals are namespaced, so that names from different sources cannot collide:
//!
//! | principal | is |
//! |---|---|
//! | `local` | the user that runs the server, and everybody where there is no authentication |
//! | `user:NAME` | another user of this machine, on the unix socket |
//! | `token` | the one token of `--bearer-token` |
//! | `token:NAME` | a token of `hotcell token add NAME` |
//! | `oidc:HASH` | a subject of the issuer; the hash is of both |

#![forbid(unsafe_code)]

mod authenticate;
mod clock;
mod failure;
mod local;
mod oidc;
mod token;
mod tokens_and_issuer;

pub use authenticate::Authenticate;
pub use clock::{Clock, SystemClock};
pub use failure::{AuthEvents, FailedAttempt, FailedAttempts, Failure, LogEvents};
pub use local::local_caller;
pub use oidc::{ADMIN_SCOPE, FetchError, IssuerUrl, IssuerUrlError, Oidc, OidcSettings, USE_SCOPE};
pub use token::{
    NewToken, Secret, SecretError, TokenFile, TokenFileError, TokenName, TokenNameError,
    TokenRecord, Tokens, token_uses,
};
pub use tokens_and_issuer::TokensAndIssuer;
