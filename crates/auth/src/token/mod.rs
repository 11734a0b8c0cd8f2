//! Named tokens: their format, the storage of their hashes, and their verification.
//!
//! ```text
//! hotcell token add ─▶ STATE/tokens.json (0600, under STATE/tokens.lock) ─▶ server, within half a second
//! server ─▶ STATE/token-uses.json ─▶ hotcell token list
//! ```
//!
//! Each file has one writer, so that neither side waits for the other.

mod atomic;
mod file;
mod live;
mod name;
mod secret;
mod uses;

pub use file::{NewToken, TokenFile, TokenFileError, TokenRecord};
pub use live::Tokens;
pub use name::{TokenName, TokenNameError};
pub(crate) use secret::{PREFIX, hex};
pub use secret::{Secret, SecretError};
pub use uses::token_uses;
