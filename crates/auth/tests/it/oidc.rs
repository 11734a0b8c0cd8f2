//! Which tokens of an issuer are believed, and how often it is asked for its keys.

use hotcell_auth::{
    Authenticate, Failure, NewToken, TokenFile, TokenName, Tokens, TokensAndIssuer,
};
use hotcell_testkit::issuer::{Issuer, Signer, message};
use serde_json::json;

use crate::support::{self, oidc, refused};

#[tokio::test]
async fn each_kind_of_key_is_believed() {
    let keys = [
        Signer::p256("a"),
        Signer::p384("b"),
        Signer::ed25519("c"),
        Signer::rs256("d"),
        Signer::ps256("e"),
    ];
    let issuer = Issuer::start(&keys.each_ref());
    let oidc = oidc(&issuer);
    let mut principals = Vec::new();
    for key in &keys {
        let caller = oidc.authenticate(&key.token(&issuer.claims())).await;
        let caller = caller.unwrap_or_else(|failure| panic!("{}: {failure}", key.algorithm()));
        assert!(!caller.is_admin);
        principals.push(caller.principal);
    }
    principals.dedup();
    assert_eq!(principals.len(), 1, "one subject is one principal");
    assert_eq!(issuer.fetches(), 1);
}

#[tokio::test]
async fn forged_tokens_are_refused_each_for_its_reason() {
    let (key, foreign) = (Signer::p256("a"), Signer::p256("a"));
    let issuer = Issuer::start(&[&key]);
    let (oidc, claims) = (oidc(&issuer), issuer.claims());
    assert!(oidc.authenticate(&key.token(&claims)).await.is_ok());

    let none = message(&json!({ "alg": "none" }), &claims) + ".";
    assert_eq!(refused(&oidc, &none).await, Failure::Algorithm);
    let symmetric = key.confused_token(&claims);
    assert_eq!(refused(&oidc, &symmetric).await, Failure::Algorithm);
    assert_eq!(
        refused(&oidc, &foreign.token(&claims)).await,
        Failure::Signature
    );
    let unsigned = message(&key.header(), &claims) + ".";
    assert_eq!(refused(&oidc, &unsigned).await, Failure::Signature);
    let critical = json!({ "alg": "ES256", "kid": "a", "crit": ["b64"], "b64": false });
    assert_eq!(
        refused(&oidc, &key.sign(&critical, &claims)).await,
        Failure::Algorithm
    );
    let other = json!({ "alg": "ES384", "kid": "a" });
    assert_eq!(
        refused(&oidc, &key.sign(&other, &claims)).await,
        Failure::UnknownKey
    );

    // A good signature over other claims.
    let good = key.token(&claims);
    let mut rich = claims.clone();
    rich["scope"] = json!("hotcell:use hotcell:admin");
    let signature = good.rsplit('.').next().unwrap_or_default();
    let moved = format!("{}.{signature}", message(&key.header(), &rich));
    assert_eq!(refused(&oidc, &moved).await, Failure::Signature);
    for bad in [
        "",
        "a",
        "a.b",
        "a.b.c",
        "a.b.c.d",
        "..",
        &format!("{good}."),
        &format!(".{good}"),
        &good.replace('.', ".."),
    ] {
        assert_eq!(refused(&oidc, bad).await, Failure::Malformed, "{bad}");
    }
}

#[tokio::test]
async fn honest_tokens_that_are_not_for_us_or_not_for_now_are_refused() {
    let key = Signer::ed25519("a");
    let issuer = Issuer::start(&[&key]);
    let oidc = oidc(&issuer);
    for (field, value, failure) in [
        ("iss", json!("https://evil.example"), Failure::Issuer),
        ("aud", json!("https://other.example/mcp"), Failure::Audience),
        ("exp", json!(1_000_000_000), Failure::Expired),
        ("nbf", json!(9_000_000_000_u64), Failure::NotYetValid),
        ("scope", json!("openid profile"), Failure::Scope),
    ] {
        let mut claims = issuer.claims();
        claims[field] = value;
        assert_eq!(
            refused(&oidc, &key.token(&claims)).await,
            failure,
            "{field}"
        );
    }
    let mut claims = issuer.claims();
    claims["scope"] = json!("hotcell:admin hotcell:use");
    let caller = oidc.authenticate(&key.token(&claims)).await;
    assert!(caller.expect("it is good").is_admin);
}

#[tokio::test]
async fn a_flood_of_unknown_keys_asks_the_issuer_once() {
    let (key, unknown) = (Signer::p256("a"), Signer::p256("unknown"));
    let issuer = Issuer::start(&[&key]);
    let oidc = oidc(&issuer);
    let good = key.token(&issuer.claims());
    let flood = (0..500).map(|number| {
        let header = json!({ "alg": "ES256", "kid": format!("unknown-{number}") });
        let token = unknown.sign(&header, &issuer.claims());
        let oidc = oidc.clone();
        tokio::spawn(async move { refused(&oidc, &token).await })
    });
    for attempt in flood.collect::<Vec<_>>() {
        assert_eq!(attempt.await.expect("it ends"), Failure::UnknownKey);
    }
    assert!(oidc.authenticate(&good).await.is_ok());
    assert_eq!(issuer.fetches(), 1);
}

#[tokio::test]
async fn known_keys_serve_while_the_issuer_is_down() {
    let (key, later) = (Signer::p256("a"), Signer::p256("later"));
    let issuer = Issuer::start(&[&key]);
    let oidc = oidc(&issuer);
    oidc.fetch_keys().await.expect("it is up");
    issuer.goes_down();
    assert!(
        oidc.authenticate(&key.token(&issuer.claims()))
            .await
            .is_ok()
    );
    let token = later.token(&issuer.claims());
    assert_eq!(refused(&oidc, &token).await, Failure::UnknownKey);
    // One that never learned a key lets nobody in, and says why.
    let other = support::oidc(&issuer);
    let token = key.token(&issuer.claims());
    assert_eq!(refused(&other, &token).await, Failure::Unavailable);
}

#[tokio::test]
async fn an_rsa_key_checks_only_the_padding_and_the_algorithm_that_the_token_names() {
    let key = Signer::rs256("a");
    let issuer = Issuer::start(&[&key]);
    let (oidc, claims) = (oidc(&issuer), issuer.claims());
    assert!(oidc.authenticate(&key.token(&claims)).await.is_ok());
    for (algorithm, failure) in [
        ("PS256", Failure::Signature),
        ("ES256", Failure::UnknownKey),
        ("EdDSA", Failure::UnknownKey),
        ("RS512", Failure::Algorithm),
        ("rs256", Failure::Algorithm),
        ("None", Failure::Algorithm),
    ] {
        let header = json!({ "alg": algorithm, "kid": "a" });
        let token = key.sign(&header, &claims);
        assert_eq!(refused(&oidc, &token).await, failure, "{algorithm}");
    }
    let confused = key.confused_token(&claims);
    assert_eq!(refused(&oidc, &confused).await, Failure::Algorithm);
    let mut broken = key.token(&claims);
    let last = broken.pop();
    broken.push(if last == Some('A') { 'Q' } else { 'A' });
    assert_eq!(refused(&oidc, &broken).await, Failure::Signature);
}

#[tokio::test]
async fn named_tokens_work_beside_those_of_the_issuer_and_are_other_principals() {
    let key = Signer::rs256("a");
    let issuer = Issuer::start(&[&key]);
    let directory = tempfile::tempdir().expect("a directory can be made");
    let file = TokenFile::in_directory(directory.path());
    let secret = file.add(NewToken {
        name: TokenName::parse("ci").expect("a name"),
        admin: false,
        now_unix_s: 1,
        expires_unix_s: None,
    });
    let secret = secret.expect("it is made");
    let tokens = Tokens::open(file, None).expect("they can be read");
    let both = TokensAndIssuer::new(tokens, oidc(&issuer));
    let named = both.authenticate(secret.expose()).await;
    assert_eq!(named.expect("it is good").principal.as_str(), "token:ci");
    let person = both.authenticate(&key.token(&issuer.claims())).await;
    let person = person.expect("it is good").principal;
    assert!(person.as_str().starts_with("oidc:"), "{person}");
    let asked = issuer.fetches();
    let wrong = format!("hct_{}", "0".repeat(72));
    let refused = async |token: &str| both.authenticate(token).await.expect_err("it is refused");
    assert_eq!(refused(&wrong).await, Failure::Unknown);
    assert_eq!(refused("hct_a.b.c").await, Failure::Unknown);
    assert_eq!(refused("a.b.c").await, Failure::Malformed);
    assert_eq!(
        issuer.fetches(),
        asked,
        "the issuer is not asked about them"
    );
}
