//! Identifies callers: over HTTP by the configured authentication, on the unix socket by user id.

use std::path::Path;
use std::sync::{Arc, OnceLock};

use anyhow::{Context, Result};
use hotcell_auth::{
    AuthEvents, FailedAttempt, FailedAttempts, LogEvents, Oidc, OidcSettings, TokenFile, Tokens,
    TokensAndIssuer, local_caller,
};
use hotcell_domain::Caller;
use hotcell_http::{Anonymous, ByToken, Challenge, Identify, ResourceMetadata};
use hotcell_service::Service;

use crate::cli::{AuthMode, ServeArgs};

/// Records failed logins in log and ledger. The service is added later, because it does not exist
/// yet when authentication is set up.
#[derive(Default)]
pub(super) struct RecordEvents(OnceLock<Service>);

impl RecordEvents {
    /// From now on, failures are recorded.
    pub(super) fn record_with(&self, service: Service) {
        // Called only once.
        let _ = self.0.set(service);
    }
}

impl AuthEvents for RecordEvents {
    fn auth_failed(&self, attempt: &FailedAttempt<'_>) {
        LogEvents.auth_failed(attempt);
        if let Some(service) = self.0.get().filter(|_| !attempt.is_counted) {
            let address = attempt.address.map(|address| address.to_string());
            let address = address.as_deref().unwrap_or("unknown");
            let reason = attempt.failure.to_string();
            service.auth_failed(Some(attempt.path), address, &reason, 1);
        }
    }

    fn auth_failed_often(&self, attempts: &FailedAttempts) {
        LogEvents.auth_failed_often(attempts);
        if let Some(service) = self.0.get() {
            let address = attempts.address.map(|address| address.to_string());
            let address = address.as_deref().unwrap_or("several");
            let reason = attempts.failure.to_string();
            service.auth_failed(None, address, &reason, attempts.count);
        }
    }
}

/// Sets up authentication over HTTP. Does not change the state directory yet. `url` is the address
/// that we listen on; `events` receives failed attempts.
pub(super) fn of_http(
    arguments: &ServeArgs,
    directory: &Path,
    url: &str,
    events: Arc<RecordEvents>,
) -> Result<Arc<dyn Identify>> {
    match arguments.auth.mode()? {
        AuthMode::None => Ok(Arc::new(Anonymous {
            is_admin: arguments.server.admin_over_http,
        })),
        AuthMode::Bearer => by_token(arguments, directory, events),
        AuthMode::Oidc => by_issuer(arguments, directory, url, events),
    }
}

/// The caller for a local user who connects to the unix socket.
pub(super) fn of_socket(uid: u32) -> Caller {
    local_caller(uid, rustix::process::geteuid().as_raw())
}

fn by_token(
    arguments: &ServeArgs,
    directory: &Path,
    events: Arc<RecordEvents>,
) -> Result<Arc<dyn Identify>> {
    if arguments.server.admin_over_http {
        tracing::warn!(
            "--admin-over-http has no effect with authentication; use a token with --admin"
        );
    }
    let tokens = tokens(arguments, directory)?;
    if tokens.is_empty() {
        tracing::warn!(
            "there is no token yet, so nobody can connect over HTTP: run `hotcell token add NAME`"
        );
    }
    let challenge = Challenge::of_tokens();
    Ok(Arc::new(ByToken::new(Arc::new(tokens), events, challenge)))
}

fn tokens(arguments: &ServeArgs, directory: &Path) -> Result<Tokens> {
    let file = TokenFile::in_directory(directory);
    let tokens = Tokens::open(file, arguments.auth.bearer_token.as_ref());
    tokens.context("read the tokens")
}

/// The server's own URL comes from `--public-url` or the listening address, and never from a
/// request.
fn by_issuer(
    arguments: &ServeArgs,
    directory: &Path,
    url: &str,
    events: Arc<RecordEvents>,
) -> Result<Arc<dyn Identify>> {
    let auth = &arguments.auth;
    let issuer = auth.oidc_issuer.clone();
    let issuer = issuer.context("--auth oidc needs --oidc-issuer")?;
    let base = arguments.server.public_url.as_deref().unwrap_or(url);
    let (path, scopes) = (&arguments.server.path, &auth.oidc_required_scopes);
    let metadata = ResourceMetadata::new(base, path, issuer.as_str(), scopes);
    let challenge = Challenge::of_issuer(&metadata, &scopes.join(" "));
    let audiences = if auth.oidc_audience.is_empty() {
        vec![format!("{base}{path}"), base.to_owned()]
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
    // Fetched early, but a failure is only logged: an issuer that is down now may be up when a
    // client comes.
    tokio::spawn(async move { early.fetch_keys().await });
    let tokens = tokens(arguments, directory)?;
    tracing::info!(
        tokens = tokens.count(),
        "named tokens of `hotcell token` are accepted beside those of the issuer"
    );
    let both = Arc::new(TokensAndIssuer::new(tokens, oidc));
    let by_token = ByToken::new(both, events, challenge);
    Ok(Arc::new(by_token.with_metadata(metadata)))
}
