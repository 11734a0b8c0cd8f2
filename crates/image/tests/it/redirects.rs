//! Registries that redirect their clients.

use std::net::{IpAddr, UdpSocket};

use hotcell_image::{Credentials, ImageError};
use hotcell_testkit::image::{digest, image, layer};
use hotcell_testkit::registry::{Answer, Asked, Canned, status};

use crate::support::TestStore;

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
    let store = TestStore::new();
    let file = store.dir.path().join("config.json");
    let config = format!(
        r#"{{"auths": {{"{}": {{"identitytoken": "secret"}}}}}}"#,
        registry.host
    );
    std::fs::write(&file, config).unwrap();
    let name = format!("{}/x", registry.host);
    let error = store
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
    TestStore::new().pull(&name).await.unwrap();
    assert_eq!(storage.asked().len(), 1);

    let registry = Canned::serving(&made, moved("192.0.2.1")).await;
    let name = format!("{}/x", registry.host);
    let error = TestStore::new().pull(&name).await.unwrap_err();
    assert!(
        error.to_string().ends_with("another host without TLS"),
        "{error}"
    );
}

/// Credentials of a registry: a user and a password.
fn password(store: &TestStore, registry: &str) -> Credentials {
    let file = store.dir.path().join("config.json");
    let config =
        format!(r#"{{"auths": {{"{registry}": {{"username": "ann", "password": "secret"}}}}}}"#);
    std::fs::write(&file, config).expect("a file");
    Credentials::file(&file)
}

/// The number of requests with credentials.
fn with_credentials(asked: &[Asked]) -> usize {
    let bring = |(_, headers): &&Asked| headers.contains("authorization:");
    asked.iter().filter(bring).count()
}

fn challenge(realm: &str) -> Answer {
    let header = format!("www-authenticate: Bearer realm=\"http://{realm}/token\"\r\n");
    status("401 Unauthorized", &header)
}

/// Requires a token, and issues one.
fn guarded(place: &str) -> impl Fn(&Asked) -> Answer + use<> {
    let place = place.to_owned();
    move |(path, _)| {
        if path.starts_with("/token") {
            Answer::Body(br#"{"token": "t"}"#.to_vec())
        } else {
            challenge(&place)
        }
    }
}

#[tokio::test]
async fn whom_a_registry_redirects_to_gets_no_credentials_by_asking_for_them() {
    let basic = "www-authenticate: Basic realm=\"x\"\r\n";
    let basic = Canned::start(move |_| status("401 Unauthorized", basic)).await;
    let bearer = Canned::start_with_host(|host| Box::new(guarded(host))).await;
    for elsewhere in [basic, bearer] {
        let place = format!("location: http://{}/x\r\n", elsewhere.host);
        let moved = move |_: &Asked| status("307 Temporary Redirect", &place);
        let registry = Canned::start(moved).await;
        let store = TestStore::new();
        let credentials = password(&store, &registry.host);
        let name = format!("{}/x", registry.host);
        let error = store.pull_as(&name, &credentials).await.unwrap_err();
        assert!(matches!(error, ImageError::Invalid { .. }), "{error}");
        assert_eq!(
            elsewhere.asked().len(),
            1,
            "it is asked for the image alone"
        );
        assert_eq!(with_credentials(&elsewhere.asked()), 0);
    }
}

#[tokio::test]
async fn a_registry_without_tls_names_only_itself_as_where_credentials_go() {
    let elsewhere = Canned::start(|_| Answer::Body(br#"{"token": "t"}"#.to_vec())).await;
    let place = elsewhere.host.clone();
    let registry = Canned::start(move |_| challenge(&place)).await;
    let store = TestStore::new();
    let credentials = password(&store, &registry.host);
    let name = format!("{}/x", registry.host);
    let error = store.pull_as(&name, &credentials).await.unwrap_err();
    assert!(matches!(error, ImageError::Invalid { .. }), "{error}");
    assert_eq!(elsewhere.asked(), []);
    // Its own origin gets them.
    let registry = Canned::start_with_host(|host| Box::new(guarded(host))).await;
    let credentials = password(&store, &registry.host);
    let name = format!("{}/x", registry.host);
    let error = store.pull_as(&name, &credentials).await.unwrap_err();
    assert!(matches!(error, ImageError::Denied { .. }), "{error}");
    let tokens: Vec<_> = registry.asked();
    let tokens = tokens
        .into_iter()
        .filter(|(path, _)| path.starts_with("/token"));
    let tokens: Vec<_> = tokens.collect();
    assert_eq!((tokens.len(), with_credentials(&tokens)), (1, 1));
}

/// A non-loopback address of this host; nothing is sent to find it.
fn own_address() -> Option<IpAddr> {
    let socket = UdpSocket::bind("0.0.0.0:0").ok()?;
    socket.connect("192.0.2.1:9").ok()?;
    let address = socket.local_addr().ok()?.ip();
    (!address.is_unspecified() && !address.is_loopback()).then_some(address)
}

#[tokio::test]
async fn a_registry_without_tls_on_another_host_cannot_send_us_to_this_one() {
    let Some(address) = own_address() else {
        let reason = "this host has no address but the loopback's";
        return hotcell_testkit::skip(hotcell_testkit::Need::Address, reason);
    };
    let made = image(&[layer(&[("a", b"x")])]);
    let path = format!("/v2/x/blobs/{}", digest(&made.layers[0].blob));
    let storage = Canned::serving(&made, vec![]).await;
    let place = format!("location: http://{}{path}\r\n", storage.host);
    let moved = vec![(path.clone(), status("307 Temporary Redirect", &place))];
    let registry = Canned::serving_at(address, &made, moved).await;
    let error = TestStore::new()
        .pull(&format!("{}/x", registry.host))
        .await
        .unwrap_err();
    assert!(
        error.to_string().ends_with("another host without TLS"),
        "{error}"
    );
    assert_eq!(storage.asked(), []);
    // A redirect to another port of its own host is allowed.
    let storage = Canned::serving_at(address, &made, vec![]).await;
    let place = format!("location: http://{}{path}\r\n", storage.host);
    let moved = vec![(path, status("307 Temporary Redirect", &place))];
    let registry = Canned::serving_at(address, &made, moved).await;
    let name = format!("{}/x", registry.host);
    TestStore::new().pull(&name).await.unwrap();
    assert_eq!(storage.asked().len(), 1);
}
