//! Registries that lie, stall, cut connections and flood.

#![expect(
    clippy::unwrap_used,
    reason = "helpers of tests panic when the setup fails"
)]

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use hotcell_image::{Bounds, Credentials, ImageError, silent};
use hotcell_testkit::image::{Made, digest, image, layer, noise};
use hotcell_testkit::registry::{Answer, Canned, not_found, status};
use tokio::sync::Notify;

use crate::support::{DEADLINE, TestStore, admitted, impatient_bounds, small_bounds};

/// How often a busy machine may disturb a test.
const PAUSES_MAX: usize = 10;

fn small() -> Made {
    image(&[layer(&[("a", b"x")])])
}

fn blob_path(made: &Made) -> String {
    format!("/v2/x/blobs/{}", digest(&made.layers[0].blob))
}

/// The download file of the first layer.
fn partial(store: &TestStore, made: &Made) -> std::path::PathBuf {
    let one = &made.layers[0];
    let name = format!("{}-{}", digest(&one.blob).hex(), digest(&one.tar).hex());
    store.dir.path().join("images/blobs").join(name)
}

/// Pulls a modified image; fails unless the pull is refused and nothing is visible.
async fn refused(made: &Made, changes: Vec<(String, Answer)>) -> ImageError {
    refused_on(TestStore::new(), made, changes).await
}

/// The same, with short timeouts.
async fn refused_soon(made: &Made, change: (String, Answer)) -> ImageError {
    refused_on(TestStore::with(impatient_bounds()), made, vec![change]).await
}

async fn refused_on(store: TestStore, made: &Made, changes: Vec<(String, Answer)>) -> ImageError {
    let registry = Canned::serving(made, changes).await;
    let error = store
        .pull(&format!("{}/x", registry.host))
        .await
        .unwrap_err();
    store.assert_nothing_visible();
    error
}

#[tokio::test]
async fn content_that_is_not_what_its_digest_says_is_refused() {
    let (made, other) = (small(), image(&[layer(&[("a", b"y")])]));
    let mut blob = made.layers[0].blob.clone();
    *blob.last_mut().unwrap() ^= 1;
    let error = refused(&made, vec![(blob_path(&made), Answer::Body(blob))]).await;
    assert!(
        matches!(
            error,
            ImageError::WrongDigest {
                what: "a layer",
                ..
            }
        ),
        "{error}"
    );

    let config = format!("/v2/x/blobs/{}", digest(&made.config));
    let error = refused(&made, vec![(config, Answer::Body(other.config.clone()))]).await;
    assert!(matches!(error, ImageError::WrongDigest { .. }), "{error}");

    let registry = Canned::serving(&made, vec![]).await;
    let pinned = format!("{}/x@{}", registry.host, digest(&other.manifest));
    assert!(matches!(
        TestStore::new().pull(&pinned).await,
        Err(ImageError::NotFound { .. })
    ));
    let path = format!("/v2/x/manifests/{}", digest(&other.manifest));
    let registry = Canned::serving(&made, vec![(path, Answer::Body(made.manifest.clone()))]).await;
    let pinned = format!("{}/x@{}", registry.host, digest(&other.manifest));
    let error = TestStore::new().pull(&pinned).await.unwrap_err();
    assert!(
        matches!(
            error,
            ImageError::WrongDigest {
                what: "a manifest",
                ..
            }
        ),
        "{error}"
    );
}

#[tokio::test]
async fn a_layer_that_unpacks_to_something_else_is_refused() {
    let mut made = small();
    // The configuration lists another layer than the manifest.
    let other = image(&[layer(&[("a", b"z")])]);
    made.config.clone_from(&other.config);
    let text = String::from_utf8(small().manifest).unwrap();
    let text = text.replace(
        digest(&small().config).as_str(),
        digest(&made.config).as_str(),
    );
    made.manifest = text.into_bytes();
    let error = refused(&made, vec![]).await;
    assert!(
        matches!(
            error,
            ImageError::WrongDigest {
                what: "an unpacked layer",
                ..
            }
        ),
        "{error}"
    );
}

#[tokio::test]
async fn bombs_and_floods_stop_at_their_bounds() {
    let bomb = image(&[layer(&[("zeros", &vec![0; 64 << 20])])]);
    let error = refused(&bomb, vec![]).await;
    assert!(
        matches!(
            error,
            ImageError::TooLarge {
                what: "the content of a layer",
                ..
            }
        ),
        "{error}"
    );

    let manifest = "/v2/x/manifests/latest".to_owned();
    let flood = vec![b' '; 1 << 20];
    let error = refused(&small(), vec![(manifest.clone(), Answer::Body(flood))]).await;
    assert!(
        matches!(
            error,
            ImageError::TooLarge {
                what: "a manifest",
                ..
            }
        ),
        "{error}"
    );

    let many: Vec<_> = (0..9).map(|n: u8| layer(&[("a", &[n])])).collect();
    let error = refused(&image(&many), vec![]).await;
    assert!(matches!(error, ImageError::TooLarge { .. }), "{error}");

    let made = small();
    let long = [made.layers[0].blob.clone(), vec![0; 1000]].concat();
    let error = refused(&made, vec![(blob_path(&made), Answer::Body(long))]).await;
    assert!(matches!(error, ImageError::Invalid { .. }), "{error}");

    for text in [
        "",
        "{}",
        "[]",
        r#"{"schemaVersion":1}"#,
        r#"{"schemaVersion":2}"#,
    ] {
        let answer = Answer::Body(text.as_bytes().to_vec());
        let error = refused(&small(), vec![(manifest.clone(), answer)]).await;
        assert!(
            matches!(error, ImageError::Invalid { .. }),
            "{text}: {error}"
        );
    }
}

#[tokio::test]
async fn the_layers_of_an_image_have_one_budget() {
    let zeros = vec![0; 20 << 20];
    let large: Vec<_> = ["a", "b", "c"]
        .map(|name| layer(&[(name, &zeros)]))
        .to_vec();
    let many = |n: u32| {
        let names: Vec<_> = (0..600).map(|file| format!("{n}-{file}")).collect();
        let files: Vec<_> = names.iter().map(|name| (name.as_str(), &b""[..])).collect();
        layer(&files)
    };
    let many: Vec<_> = (0..3).map(many).collect();
    for (layers, words) in [
        (large, "the content of an image"),
        (many, "the number of files in an image"),
    ] {
        let registry = Canned::serving(&image(&layers), vec![]).await;
        let store = TestStore::new();
        let name = format!("{}/x", registry.host);
        let error = store.pull(&name).await.unwrap_err();
        assert!(
            matches!(error, ImageError::TooLarge { what, .. } if what == words),
            "{error}"
        );
        assert_eq!(store.names("refs"), [""; 0]);
        // Each alone is accepted.
        for one in &layers {
            let registry = Canned::serving(&image(std::slice::from_ref(one)), vec![]).await;
            let name = format!("{}/x", registry.host);
            TestStore::new().pull(&name).await.unwrap();
        }
    }
}

#[tokio::test]
async fn a_layer_that_is_no_archive_is_refused() {
    let mut broken = layer(&[("../../out", b"x")].map(|(_, content)| ("out", &content[..])));
    let name = broken.tar.windows(3).position(|it| it == b"out").unwrap();
    broken.tar[name..name + 9].copy_from_slice(b"../../out");
    broken.blob.clone_from(&broken.tar);
    let error = refused(&image(&[broken]), vec![]).await;
    assert!(
        matches!(
            error,
            ImageError::Invalid {
                what: "a layer",
                ..
            }
        ),
        "{error}"
    );

    let mut short = layer(&[("a", &noise(100_000))]);
    short.blob.truncate(short.blob.len() / 2);
    let error = refused(&image(&[short]), vec![]).await;
    assert!(
        matches!(
            error,
            ImageError::Invalid {
                what: "a layer",
                ..
            }
        ),
        "{error}"
    );
}

#[tokio::test]
async fn an_interrupted_layer_is_continued_where_it_ended() {
    let made = image(&[layer(&[("a", &noise(4 << 20))])]);
    let (path, blob) = (blob_path(&made), made.layers[0].blob.clone());
    let whole = Canned::serving(&made, vec![]).await;
    drop(whole);
    let (manifest, config) = (made.manifest.clone(), made.config.clone());
    let config_path = format!("/v2/x/blobs/{}", digest(&config));
    let (wanted, sent) = (path.clone(), blob.clone());
    let registry = Canned::start(move |(asked, _)| match asked.as_str() {
        "/v2/x/manifests/latest" => Answer::Body(manifest.clone()),
        asked if asked == config_path => Answer::Body(config.clone()),
        // A megabyte each time.
        asked if asked == wanted => Answer::Cut(sent.clone(), 1 << 20),
        _ => not_found(),
    })
    .await;
    let store = TestStore::new();
    store.pull(&format!("{}/x", registry.host)).await.unwrap();
    let ranges: Vec<_> = registry
        .asked()
        .into_iter()
        .filter(|(asked, _)| *asked == path)
        .map(|(_, headers)| headers.contains("range: bytes="))
        .collect();
    assert!(ranges.len() >= 4, "{ranges:?}");
    assert!(ranges[1..].iter().all(|is_range| *is_range), "{ranges:?}");
}

#[tokio::test]
async fn a_later_pull_continues_what_an_earlier_one_left_even_if_that_was_damaged() {
    for damage in [0_u8, 1] {
        let made = image(&[layer(&[("a", &noise(2 << 20))])]);
        let registry = Canned::serving(&made, vec![]).await;
        let store = TestStore::new();
        let partial = partial(&store, &made);
        let mut half = made.layers[0].blob[..1 << 20].to_vec();
        half[7] ^= damage;
        std::fs::write(partial, half).unwrap();
        store.pull(&format!("{}/x", registry.host)).await.unwrap();
        let asked = registry.asked();
        let ranges = asked
            .iter()
            .filter(|(_, headers)| headers.contains("range: bytes=1048576-"));
        assert_eq!(ranges.count(), 1);
        let blobs = asked
            .iter()
            .filter(|(path, _)| *path == blob_path(&made))
            .count();
        assert_eq!(blobs, 1 + usize::from(damage));
    }
}

#[tokio::test]
async fn an_image_that_lies_about_anothers_layer_leaves_its_download_alone() {
    let made = image(&[layer(&[("a", &noise(1 << 20))])]);
    let blob = made.layers[0].blob.clone();
    let rest = Arc::new(Notify::new());
    let held = Answer::Held(blob.clone(), blob.len() / 2, Arc::clone(&rest));
    let registry = Canned::serving(&made, vec![(blob_path(&made), held)]).await;
    // It lists the other image's layer as its own, with a size and content of its choice.
    let mut liar = small();
    let mut manifest: serde_json::Value = serde_json::from_slice(&liar.manifest).unwrap();
    manifest["layers"][0]["digest"] = digest(&blob).as_str().into();
    manifest["layers"][0]["size"] = 1.into();
    liar.manifest = manifest.to_string().into_bytes();
    let wrong = Canned::serving(&liar, vec![(blob_path(&made), Answer::Body(blob.clone()))]).await;
    let store = TestStore::new();
    let name = format!("{}/x", registry.host);
    let lies = async {
        let half = blob.len() as u64 / 2;
        let path = partial(&store, &made);
        while std::fs::metadata(&path).map_or(0, |it| it.len()) < half {
            tokio::task::yield_now().await;
        }
        let refused = store.pull(&format!("{}/x", wrong.host)).await;
        rest.notify_waiters();
        refused
    };
    let (pulled, refused) = tokio::join!(store.pull(&name), lies);
    assert!(matches!(refused, Err(ImageError::Invalid { .. })));
    let content = store.read(&pulled.unwrap(), "a").unwrap();
    assert_eq!(content, noise(1 << 20));
    let asked = registry.asked();
    let asked = asked.iter().filter(|(path, _)| *path == blob_path(&made));
    assert_eq!(asked.count(), 1);
}

#[tokio::test]
async fn a_registry_that_stalls_is_given_up() {
    let made = small();
    let blob = made.layers[0].blob.clone();
    let stalled = [
        (
            "/v2/x/manifests/latest".to_owned(),
            Answer::Stall(made.manifest.clone(), 10),
        ),
        (blob_path(&made), Answer::Stall(blob, 0)),
    ];
    for change in stalled {
        let error = refused_soon(&made, change).await;
        assert!(matches!(error, ImageError::Unreachable { .. }), "{error}");
    }
}

#[tokio::test]
async fn a_registry_that_sends_a_byte_now_and_then_is_given_up() {
    let made = small();
    let pause = Duration::from_millis(10);
    let blob = made.layers[0].blob.clone();
    let dripping = [
        (
            "/v2/x/manifests/latest".to_owned(),
            Answer::Drip(made.manifest.clone(), pause),
        ),
        (blob_path(&made), Answer::Drip(blob, pause)),
    ];
    for change in dripping {
        let mut error = refused_soon(&made, change.clone()).await;
        // On a busy machine a pause may be long enough to look like a stall.
        for _ in 0..PAUSES_MAX {
            if !matches!(error, ImageError::Unreachable { .. }) {
                break;
            }
            error = refused_soon(&made, change.clone()).await;
        }
        assert!(matches!(error, ImageError::TooSlow { .. }), "{error}");
    }
}

#[tokio::test]
async fn a_registry_that_is_not_there_is_unreachable() {
    // A port that no other test can get.
    let error = TestStore::new().pull("127.0.0.1:1/x").await.unwrap_err();
    assert!(matches!(error, ImageError::Unreachable { .. }), "{error}");
}

#[tokio::test]
async fn passing_errors_are_tried_again_and_lasting_ones_told() {
    let made = small();
    let tries = AtomicU32::new(0);
    let manifest = made.manifest.clone();
    let rest = Canned::serving(&made, vec![]).await;
    drop(rest);
    let blobs: Vec<_> = [&made.config, &made.layers[0].blob]
        .map(|blob| (format!("/v2/x/blobs/{}", digest(blob)), blob.clone()))
        .to_vec();
    let registry = Canned::start(move |(path, _)| {
        if path == "/v2/x/manifests/latest" {
            if tries.fetch_add(1, Ordering::Relaxed) < 2 {
                return status("503 Service Unavailable", "");
            }
            return Answer::Body(manifest.clone());
        }
        let found = blobs.iter().find(|(known, _)| known == path);
        found.map_or_else(not_found, |(_, blob)| Answer::Body(blob.clone()))
    })
    .await;
    TestStore::new()
        .pull(&format!("{}/x", registry.host))
        .await
        .unwrap();
    let manifest = "/v2/x/manifests/latest".to_owned();
    let error = refused(&made, vec![(manifest, status("500 Oops", ""))]).await;
    assert!(
        matches!(error, ImageError::Status { status: 500, .. }),
        "{error}"
    );
}

#[tokio::test]
async fn tokens_are_fetched_where_the_registry_says_and_never_from_tls_to_plain() {
    let made = small();
    let blobs: Vec<_> = [&made.config, &made.layers[0].blob]
        .map(|blob| (format!("/v2/x/blobs/{}", digest(blob)), blob.clone()))
        .to_vec();
    let manifest = made.manifest.clone();
    let registry = Canned::start(move |(path, headers)| {
        let host = headers
            .lines()
            .find_map(|line| line.strip_prefix("host: "))
            .unwrap_or_default();
        if path.starts_with("/token?") {
            let is_right =
                path.contains("scope=repository%3Ax%3Apull") && path.contains("service=s");
            assert!(is_right, "{path}");
            return Answer::Body(br#"{"token": "secret"}"#.to_vec());
        }
        if !headers.contains("authorization: Bearer secret") {
            let challenge =
                format!("www-authenticate: Bearer realm=\"http://{host}/token\",service=\"s\"\r\n");
            return status("401 Unauthorized", &challenge);
        }
        if path == "/v2/x/manifests/latest" {
            return Answer::Body(manifest.clone());
        }
        let found = blobs.iter().find(|(known, _)| known == path);
        found.map_or_else(not_found, |(_, blob)| Answer::Body(blob.clone()))
    })
    .await;
    TestStore::new()
        .pull(&format!("{}/x", registry.host))
        .await
        .unwrap();
    let elsewhere = "www-authenticate: Bearer realm=\"http://192.0.2.1/token\"\r\n";
    let change = status("401 Unauthorized", elsewhere);
    let error = refused(&made, vec![("/v2/x/manifests/latest".to_owned(), change)]).await;
    assert!(matches!(error, ImageError::Invalid { .. }), "{error}");
}

#[tokio::test]
async fn pulls_that_are_dropped_give_their_turns_to_others() {
    // Each occupies one download, and there are more than can run at once.
    let made: Vec<_> = (0..20_u8)
        .map(|n| image(&[layer(&[("a", &[n])])]))
        .collect();
    let serving = made.iter().map(|made| {
        let stall = Answer::Stall(made.layers[0].blob.clone(), 10);
        Canned::serving(made, vec![(blob_path(made), stall)])
    });
    let registries = futures_util::future::join_all(serving).await;
    let store = TestStore::with(Bounds {
        stall_timeout: DEADLINE * 3,
        ..small_bounds()
    });
    let names = registries
        .iter()
        .map(|registry| format!("{}/x", registry.host));
    let names: Vec<_> = names.collect();
    let stalled = futures_util::future::join_all(names.iter().map(|name| store.pull(name)));
    let is_asked = |(registry, made): (&Canned, &Made)| {
        let asked = registry.asked();
        asked.iter().any(|(path, _)| *path == blob_path(made))
    };
    let all_taken = async {
        while registries
            .iter()
            .zip(&made)
            .filter(|it| is_asked(*it))
            .count()
            < 16
        {
            tokio::task::yield_now().await;
        }
    };
    tokio::select! {
        _ = stalled => panic!("they cannot end"),
        () = all_taken => {}
    }
    let registry = Canned::serving(&small(), vec![]).await;
    store.pull(&format!("{}/x", registry.host)).await.unwrap();
}

#[tokio::test]
async fn many_who_want_the_same_layers_in_another_order_all_get_them() {
    let layers: Vec<_> = (0..6_u8).map(|n| layer(&[("a", &[n; 1000])])).collect();
    let turned = |n: usize| {
        let mut layers = layers.clone();
        layers.rotate_left(n % 6);
        if n >= 6 {
            layers.reverse();
        }
        image(&layers)
    };
    let made: Vec<_> = (0..12).map(turned).collect();
    let serving = made.iter().map(|made| Canned::serving(made, vec![]));
    let registries = futures_util::future::join_all(serving).await;
    let store = TestStore::new();
    let names = registries
        .iter()
        .map(|registry| format!("{}/x", registry.host));
    let names: Vec<_> = names.collect();
    let pulls = names.iter().map(|name| store.pull(name));
    for pulled in futures_util::future::join_all(pulls).await {
        pulled.unwrap();
    }
    assert_eq!(store.names("layers").len(), 6);
}

#[tokio::test]
async fn a_pull_that_is_dropped_leaves_nothing_visible() {
    let made = small();
    let stall = Answer::Stall(made.layers[0].blob.clone(), 10);
    let registry = Canned::serving(&made, vec![(blob_path(&made), stall)]).await;
    let store = TestStore::new();
    let source = admitted(&format!("{}/x", registry.host));
    let none = Credentials::none();
    let report = silent();
    let pull = store.images.pull(&source, &none, &report);
    let asked = async {
        while !registry
            .asked()
            .iter()
            .any(|(path, _)| *path == blob_path(&made))
        {
            tokio::task::yield_now().await;
        }
    };
    tokio::select! {
        _ = pull => panic!("it cannot end"),
        () = asked => {}
    }
    store.assert_nothing_visible();
    // Nothing is held any more.
    store
        .images
        .gc(&|| Ok(std::collections::BTreeSet::new()), None)
        .unwrap();
}
