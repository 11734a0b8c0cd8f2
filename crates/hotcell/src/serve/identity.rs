//! Who uses the server: over HTTP by its settings, on the unix socket by the operating system.

use std::path::Path;
use std::sync::Arc;

use anyhow::{Context, Result};
use hotcell_auth::{LogEvents, TokenFile, Tokens, local_caller};
use hotcell_domain::Caller;
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

/// Who a user of this machine is that connects to the unix socket.
pub(super) fn of_socket(uid: u32) -> Caller {
    local_caller(uid, rustix::process::geteuid().as_raw())
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
