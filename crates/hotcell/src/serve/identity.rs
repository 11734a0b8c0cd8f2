//! From the settings to who may use the server over HTTP.

use std::path::Path;
use std::sync::Arc;

use anyhow::{Context, Result};
use hotcell_auth::{LogEvents, TokenFile, Tokens};
use hotcell_http::{Anonymous, ByToken, Challenge, Identify};

use crate::cli::{AuthMode, ServeArgs};

/// Who is who over HTTP. Nothing in the state directory is changed yet.
pub(super) fn of_http(arguments: &ServeArgs, directory: &Path) -> Result<Arc<dyn Identify>> {
    match arguments.auth.mode()? {
        AuthMode::None => Ok(Arc::new(Anonymous {
            is_admin: arguments.admin_over_http,
        })),
        AuthMode::Bearer => by_token(arguments, directory),
    }
}

fn by_token(arguments: &ServeArgs, directory: &Path) -> Result<Arc<dyn Identify>> {
    if arguments.admin_over_http {
        tracing::warn!(
            "--admin-over-http has no effect with authentication; use a token with --admin"
        );
    }
    let file = TokenFile::in_directory(directory);
    let tokens = Tokens::open(file, arguments.auth.bearer_token.as_ref());
    let tokens = tokens.context("read the tokens")?;
    if tokens.is_empty() {
        tracing::warn!(
            "there is no token yet, so nobody can connect over HTTP: run `hotcell token add NAME`"
        );
    }
    let challenge = Challenge::of_tokens();
    let events = Arc::new(LogEvents);
    Ok(Arc::new(ByToken::new(Arc::new(tokens), events, challenge)))
}
