//! A server's half: who it believes, by a clock that the test sets.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use hotcell_auth::{Authenticate, Clock, Failure, IssuerUrl, Oidc, OidcSettings, USE_SCOPE};
use hotcell_testkit::issuer::{AUDIENCE, Issuer};

/// When a test begins.
pub(crate) const START_UNIX_S: u64 = 1_800_000_000;

/// A clock that stands still until it is set.
#[derive(Default)]
pub(crate) struct ManualClock(AtomicU64);

impl ManualClock {
    pub(crate) fn advance_s(&self, seconds: u64) {
        self.0.fetch_add(seconds, Ordering::SeqCst);
    }
}

impl Clock for ManualClock {
    fn unix_s(&self) -> u64 {
        START_UNIX_S + self.0.load(Ordering::SeqCst)
    }

    fn steady(&self) -> Duration {
        Duration::from_secs(self.0.load(Ordering::SeqCst))
    }
}

fn settings(issuer: &Issuer) -> OidcSettings {
    OidcSettings {
        issuer: IssuerUrl::parse(&issuer.url).expect("a URL on loopback"),
        config_url: None,
        audiences: vec![AUDIENCE.to_owned()],
        required_scopes: vec![USE_SCOPE.to_owned()],
    }
}

/// Believes this issuer.
pub(crate) fn oidc(issuer: &Issuer) -> Oidc {
    Oidc::new(settings(issuer)).expect("it can be made")
}

/// The same, by a clock.
pub(crate) fn oidc_by(issuer: &Issuer, clock: &Arc<ManualClock>) -> Oidc {
    let clock = Arc::clone(clock) as Arc<dyn Clock>;
    Oidc::with_clock(settings(issuer), clock).expect("it can be made")
}

pub(crate) async fn refused(oidc: &Oidc, token: &str) -> Failure {
    oidc.authenticate(token).await.expect_err("it is refused")
}
