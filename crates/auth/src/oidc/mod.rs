//! Access tokens that an OIDC issuer has signed: this server is an OAuth 2.1 resource server, and
//! does not log in anyone itself.
//!
//! ```text
//! token ─ checked before? ─ no ─▶ jws (form) ─▶ keys (issuer's, cached) ─▶ signature ─▶ claims ─▶ Caller
//!              └─ yes ──────────────────────────────────────────────────────────────────────▶ Caller
//! ```

mod checked;
mod claims;
mod fetch;
mod jws;
mod key;
mod keys;
mod settings;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use futures_util::future::BoxFuture;
use hotcell_domain::Caller;

use self::checked::{Checked, TokenHash};
use self::fetch::Fetcher;
use self::jws::Jws;
use self::keys::Keys;
use crate::{Authenticate, Clock, Failure, SystemClock};

pub use self::fetch::FetchError;
pub use self::settings::{ADMIN_SCOPE, IssuerUrl, IssuerUrlError, OidcSettings, USE_SCOPE};

/// The longest token.
const TOKEN_BYTES_MAX: usize = 16 << 10;

/// Verifies tokens of one issuer.
#[derive(Clone)]
pub struct Oidc {
    shared: Arc<Shared>,
}

struct Shared {
    settings: OidcSettings,
    clock: Arc<dyn Clock>,
    keys: Arc<Keys>,
    checked: Checked,
    is_fetching: AtomicBool,
}

impl Oidc {
    /// Does not fetch anything yet.
    pub fn new(settings: OidcSettings) -> Result<Self, reqwest::Error> {
        Self::with_clock(settings, Arc::new(SystemClock::default()))
    }

    /// Like [`Oidc::new`], with another clock.
    pub fn with_clock(
        settings: OidcSettings,
        clock: Arc<dyn Clock>,
    ) -> Result<Self, reqwest::Error> {
        let keys = Keys::new(Fetcher::new()?, settings.clone(), Arc::clone(&clock));
        Ok(Self {
            shared: Arc::new(Shared {
                settings,
                clock,
                keys: Arc::new(keys),
                checked: Checked::default(),
                is_fetching: AtomicBool::new(false),
            }),
        })
    }

    /// Fetches the keys before the first request needs them.
    pub async fn fetch_keys(&self) -> Result<(), FetchError> {
        self.shared.keys.fetch().await
    }

    /// Refreshes old keys in the background, while requests continue to use them.
    fn renew_keys(&self) {
        if self.shared.keys.generation().is_none() || !self.shared.keys.is_old() {
            return;
        }
        if !self.shared.is_fetching.swap(true, Ordering::AcqRel) {
            let shared = Arc::clone(&self.shared);
            tokio::spawn(async move {
                // The cause is logged, and the old keys are used meanwhile.
                let _ = shared.keys.fetch().await;
                shared.is_fetching.store(false, Ordering::Release);
            });
        }
    }

    async fn check(&self, token: &str, now_unix_s: u64) -> Result<Caller, Failure> {
        self.renew_keys();
        let shared = &self.shared;
        let hash = TokenHash::of(token);
        if let Some(generation) = shared.keys.generation()
            && let Some(caller) = shared.checked.find(hash, generation, now_unix_s)
        {
            return Ok(caller);
        }
        let parsed = Jws::parse(token)?;
        let (key, generation) = shared.keys.find(&parsed).await?;
        let claims = parsed.claims(&key)?;
        let subject = claims::check(&claims, &shared.settings, now_unix_s)?;
        let (caller, user) = (subject.caller, subject.display.as_ref());
        let user = user.map(tracing::field::display);
        tracing::info!(target: "hotcell::auth", principal = %caller.principal, user, "a new token is accepted");
        let ends_unix_s = subject.ends_unix_s;
        shared
            .checked
            .remember(hash, generation, caller.clone(), ends_unix_s);
        Ok(caller)
    }
}

impl Authenticate for Oidc {
    fn authenticate<'a>(&'a self, token: &'a str) -> BoxFuture<'a, Result<Caller, Failure>> {
        Box::pin(self.check(token, self.shared.clock.unix_s()))
    }

    fn token_bytes_max(&self) -> usize {
        TOKEN_BYTES_MAX
    }
}
