//! Who calls: named tokens, kept as hashes, and how a failed attempt is told.
//!
//! This crate turns the text of a token into a [`hotcell_domain::Caller`] or a [`Failure`]. It
//! knows neither HTTP nor MCP: the crate `http` reads the header and writes the challenge.
//!
//! Principals are namespaced, so that no name chosen in one place means another's:
//!
//! | principal | is |
//! |---|---|
//! | `local` | the user that runs the server, and everybody where there is no authentication |
//! | `user:NAME` | another user of this machine, on the unix socket |
//! | `token` | the one token of `--bearer-token` |
//! | `token:NAME` | a token of `hotcell token add NAME` |

#![forbid(unsafe_code)]
#![warn(unreachable_pub)]

mod authenticate;
mod failure;
mod local;
mod token;

pub use authenticate::Authenticate;
pub use failure::{AuthEvents, FailedAttempt, Failure, LogEvents};
pub use local::local_caller;
pub use token::{
    NewToken, Secret, SecretError, TokenFile, TokenFileError, TokenName, TokenNameError,
    TokenRecord, Tokens, token_uses,
};
