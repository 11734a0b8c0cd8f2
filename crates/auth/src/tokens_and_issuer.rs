//! Named tokens and those of an issuer together: people log in, programs have a token.

use futures_util::future::BoxFuture;
use hotcell_domain::Caller;

use crate::token::PREFIX;
use crate::{Authenticate, Failure, Oidc, Tokens};

/// Verifies both named tokens and those of the issuer. The prefix says which kind a token is, so it
/// is never passed to the wrong verifier: no token of an issuer begins with `hct_`, which is not
/// JSON in Base64.
pub struct TokensAndIssuer {
    tokens: Tokens,
    issuer: Oidc,
}

impl TokensAndIssuer {
    /// Accepts both.
    pub fn new(tokens: Tokens, issuer: Oidc) -> Self {
        Self { tokens, issuer }
    }
}

impl Authenticate for TokensAndIssuer {
    fn authenticate<'a>(&'a self, token: &'a str) -> BoxFuture<'a, Result<Caller, Failure>> {
        if token.starts_with(PREFIX) {
            self.tokens.authenticate(token)
        } else {
            self.issuer.authenticate(token)
        }
    }

    fn token_bytes_max(&self) -> usize {
        let (tokens, issuer) = (&self.tokens, &self.issuer);
        tokens.token_bytes_max().max(issuer.token_bytes_max())
    }
}
