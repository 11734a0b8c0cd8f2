//! Registries that send their clients elsewhere.

mod support;

use hotcell_image::{Credentials, ImageError};
use support::Ground;
use support::canned::{Answer, Canned, status};
use support::made::{digest, image, layer};

#[tokio::test]
async fn a_token_stays_with_whom_it_is_for() {
    let elsewhere = Canned::start(|_| Answer::Body(br#"{"token": "t"}"#.to_vec())).await;
    let place = format!("location: http://{}/token\r\n", elsewhere.host);
    let registry = Canned::start(move |(path, headers)| {
        if path == "/token" {
            return status("307 Temporary Redirect", &place);
        }
        let host = headers
            .lines()
            .find_map(|line| line.strip_prefix("host: "))
            .unwrap_or_default();
        let challenge = format!("www-authenticate: Bearer realm=\"http://{host}/token\"\r\n");
        status("401 Unauthorized", &challenge)
    })
    .await;
    let ground = Ground::new();
    let file = ground.dir.path().join("config.json");
    let config = format!(
        r#"{{"auths": {{"{}": {{"identitytoken": "secret"}}}}}}"#,
        registry.host
    );
    std::fs::write(&file, config).unwrap();
    let name = format!("{}/x", registry.host);
    let error = ground
        .pull_as(&name, &Credentials::file(&file))
        .await
        .unwrap_err();
    assert!(matches!(error, ImageError::Denied { .. }), "{error}");
    assert!(registry.asked().iter().any(|(path, _)| path == "/token"));
    assert_eq!(elsewhere.asked(), []);
}

#[tokio::test]
async fn without_tls_blobs_come_from_this_host_or_not_at_all() {
    let made = image(&[layer(&[("a", b"x")])]);
    let path = format!("/v2/x/blobs/{}", digest(&made.layers[0].blob));
    let storage = Canned::serving(&made, vec![]).await;
    let moved = |host: &str| {
        let place = format!("location: http://{host}{path}\r\n");
        vec![(path.clone(), status("307 Temporary Redirect", &place))]
    };
    let registry = Canned::serving(&made, moved(&storage.host)).await;
    let name = format!("{}/x", registry.host);
    Ground::new().pull(&name).await.unwrap();
    assert_eq!(storage.asked().len(), 1);

    let registry = Canned::serving(&made, moved("192.0.2.1")).await;
    let name = format!("{}/x", registry.host);
    let error = Ground::new().pull(&name).await.unwrap_err();
    assert!(
        error.to_string().ends_with("another host without TLS"),
        "{error}"
    );
}
