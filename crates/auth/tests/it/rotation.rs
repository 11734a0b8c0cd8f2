//! Keys that come and go: how soon that is noticed, and how often the issuer is asked.

use std::sync::Arc;
use std::time::Duration;

use hotcell_auth::{Authenticate, Failure, Oidc};
use hotcell_testkit::issuer::{Issuer, Signer};

use crate::support::{ManualClock, START_UNIX_S, oidc_by, refused};

/// Only ends what hangs.
const PATIENCE: Duration = Duration::from_mins(1);

/// The bounds of the keys, with a second to spare.
const NEXT_FETCH_S: u64 = 31;
const FRESH_S: u64 = 10 * 60 + 1;
const STALE_S: u64 = 24 * 60 * 60 + 1;

async fn until(mut is_true: impl FnMut() -> bool) {
    let wait = async {
        while !is_true() {
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    };
    let waited = tokio::time::timeout(PATIENCE, wait).await;
    waited.expect("it comes");
}

/// A token that is good at the time of the clock.
fn token(issuer: &Issuer, key: &Signer, after_s: u64) -> String {
    key.token(&issuer.claims_at(START_UNIX_S + after_s))
}

async fn is_believed(oidc: &Oidc, token: &str) -> bool {
    oidc.authenticate(token).await.is_ok()
}

#[tokio::test]
async fn a_new_key_is_fetched_when_a_token_names_it_but_not_more_often_than_allowed() {
    let (old, new) = (Signer::rs256("old"), Signer::p256("new"));
    let issuer = Issuer::start(&[&old]);
    let clock = Arc::new(ManualClock::default());
    let oidc = oidc_by(&issuer, &clock);
    assert!(is_believed(&oidc, &token(&issuer, &old, 0)).await);
    issuer.has(&[&old, &new]);
    let named = token(&issuer, &new, 0);
    assert_eq!(refused(&oidc, &named).await, Failure::UnknownKey);
    assert_eq!(issuer.fetches(), 1, "it was asked a moment ago");
    clock.advance_s(NEXT_FETCH_S);
    assert!(is_believed(&oidc, &named).await);
    assert_eq!(issuer.fetches(), 2);
    assert!(is_believed(&oidc, &token(&issuer, &old, 0)).await);
}

#[tokio::test]
async fn a_key_that_is_withdrawn_is_not_believed_once_the_keys_are_old() {
    let (old, new) = (Signer::p256("old"), Signer::ed25519("new"));
    let issuer = Issuer::start(&[&old]);
    let clock = Arc::new(ManualClock::default());
    let oidc = oidc_by(&issuer, &clock);
    let withdrawn = token(&issuer, &old, FRESH_S);
    clock.advance_s(60);
    oidc.fetch_keys().await.expect("it is up");
    issuer.has(&[&new]);
    clock.advance_s(FRESH_S - 60);
    assert!(is_believed(&oidc, &withdrawn).await, "the keys are fresh");
    assert_eq!(issuer.fetches(), 1);
    // Whoever comes now is served with the old keys, and has them fetched behind.
    clock.advance_s(61);
    assert!(is_believed(&oidc, &withdrawn).await);
    until(|| issuer.fetches() == 2).await;
    // It was believed before, and is forgotten with its key.
    let wait = async {
        while is_believed(&oidc, &withdrawn).await {
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    };
    let waited = tokio::time::timeout(PATIENCE, wait).await;
    waited.expect("the key is gone");
    assert_eq!(refused(&oidc, &withdrawn).await, Failure::UnknownKey);
    assert!(is_believed(&oidc, &token(&issuer, &new, FRESH_S)).await);
}

#[tokio::test]
async fn keys_of_an_issuer_that_is_down_serve_for_a_day_and_no_longer() {
    let key = Signer::ps256("a");
    let issuer = Issuer::start(&[&key]);
    let clock = Arc::new(ManualClock::default());
    let oidc = oidc_by(&issuer, &clock);
    oidc.fetch_keys().await.expect("it is up");
    issuer.goes_down();
    let nearly_s = STALE_S - 120;
    clock.advance_s(nearly_s);
    assert!(is_believed(&oidc, &token(&issuer, &key, nearly_s)).await);
    clock.advance_s(120);
    let late = token(&issuer, &key, STALE_S);
    assert_eq!(refused(&oidc, &late).await, Failure::Unavailable);
    issuer.comes_back();
    clock.advance_s(NEXT_FETCH_S);
    assert!(is_believed(&oidc, &late).await);
}

#[tokio::test]
async fn a_client_that_hangs_up_does_not_keep_the_keys_from_being_fetched() {
    let (old, new) = (Signer::p256("old"), Signer::p256("new"));
    let issuer = Issuer::start(&[&old]);
    let clock = Arc::new(ManualClock::default());
    let oidc = oidc_by(&issuer, &clock);
    oidc.fetch_keys().await.expect("it is up");
    issuer.has(&[&new]);
    issuer.holds_its_answer();
    clock.advance_s(NEXT_FETCH_S);
    let named = token(&issuer, &new, 0);
    let asking = {
        let (oidc, named) = (oidc.clone(), named.clone());
        tokio::spawn(async move { oidc.authenticate(&named).await })
    };
    until(|| issuer.fetches() == 2).await;
    asking.abort();
    assert!(asking.await.is_err(), "nobody waits any more");
    issuer.answers();
    // The clock stands still, so nobody may fetch again: the first fetch has to end.
    let learned = async {
        while !is_believed(&oidc, &named).await {
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    };
    let learned = tokio::time::timeout(PATIENCE, learned).await;
    learned.expect("the keys are learned");
    assert_eq!(issuer.fetches(), 2);
}
