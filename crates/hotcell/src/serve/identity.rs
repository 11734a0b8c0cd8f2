//! Who uses the server: over HTTP by its settings, on the unix socket by the operating system.

use std::path::Path;
use std::sync::Arc;

use anyhow::{Context, Result};
use hotcell_auth::{LogEvents, Oidc, OidcSettings, TokenFile, Tokens, local_caller};
use hotcell_domain::Caller;
use hotcell_http::{Anonymous, ByToken, Challenge, Identify, MCP_PATH, ResourceMetadata};

use crate::cli::{AuthMode, ServeArgs};

/// Who is who over HTTP. Nothing in the state directory is changed yet.
/// `url` is where we listen.
pub(super) fn of_http(
    arguments: &ServeArgs,
    directory: &Path,
    url: &str,
) -> Result<Arc<dyn Identify>> {
    match arguments.auth.mode()? {
        AuthMode::None => Ok(Arc::new(Anonymous {
            is_admin: arguments.admin_over_http,
        })),
        AuthMode::Bearer => by_token(arguments, directory),
        AuthMode::Oidc => by_issuer(arguments, url),
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

/// What clients are told about this server comes from `--public-url`, else from the address
/// that we listen on, and never from a request.
fn by_issuer(arguments: &ServeArgs, url: &str) -> Result<Arc<dyn Identify>> {
    let auth = &arguments.auth;
    let issuer = auth.oidc_issuer.clone();
    let issuer = issuer.context("--auth oidc needs --oidc-issuer")?;
    let base = arguments.public_url.as_deref().unwrap_or(url);
    let scopes = &auth.oidc_required_scopes;
    let metadata = ResourceMetadata::new(base, MCP_PATH, issuer.as_str(), scopes);
    let challenge = Challenge::of_issuer(&metadata, &scopes.join(" "));
    let audiences = if auth.oidc_audience.is_empty() {
        vec![format!("{base}{MCP_PATH}"), base.to_owned()]
    } else {
        auth.oidc_audience.clone()
    };
    tracing::info!(
        issuer = issuer.as_str(),
        ?audiences,
        "clients log in with the issuer"
    );
    let oidc = Oidc::new(OidcSettings {
        issuer,
        config_url: auth.oidc_config_url.clone(),
        audiences,
        required_scopes: scopes.clone(),
    });
    let oidc = oidc.context("read this host's certificates")?;
    let early = oidc.clone();
    // An issuer that is down now may be up when somebody comes; the reason is in the log.
    tokio::spawn(async move { early.fetch_keys().await });
    let by_token = ByToken::new(Arc::new(oidc), Arc::new(LogEvents), challenge);
    Ok(Arc::new(by_token.with_metadata(metadata)))
}
