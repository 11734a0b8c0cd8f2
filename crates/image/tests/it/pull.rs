//! Pulling from a real registry.

use std::sync::{Arc, Mutex};

use hotcell_image::{Credentials, ImageError, Origin, Progress, silent};
use hotcell_testkit::image::{digest, image, image_for, index, layer, noise};

use crate::support::registry::Registry;
use crate::support::{TestStore, admitted};

#[tokio::test]
async fn an_image_is_pulled_verified_and_unpacked() {
    let Some(registry) = Registry::start(false).await else {
        return;
    };
    let big = noise(3 << 20);
    let layers = [
        layer(&[("etc/motd", b"low"), ("data/big", &big)]),
        layer(&[("etc/motd", b"top"), ("etc/.wh.gone", b"")]),
    ];
    let made = image(&layers);
    let name = registry.push("team/app", &made).await;
    let store = TestStore::new();
    let seen = Arc::new(Mutex::new(Vec::new()));
    let told = seen.clone();
    let report: hotcell_image::Report =
        Arc::new(move |progress| told.lock().unwrap().push(progress));
    let source = admitted(&name);
    let pulled = store
        .images
        .pull(&source, &Credentials::none(), &report)
        .await
        .unwrap();

    assert_eq!(pulled.digest, digest(&made.manifest));
    assert_eq!(
        pulled.layers,
        [digest(&layers[0].tar), digest(&layers[1].tar)]
    );
    assert_eq!(store.read(&pulled, "etc/motd").unwrap(), b"top");
    assert_eq!(store.read(&pulled, "data/big").unwrap(), big);
    assert_eq!(pulled.config.workdir.as_deref(), Some("/srv"));
    assert_eq!(pulled.config.env.len(), 2);
    assert_eq!(pulled.origin, Origin::Registry);
    assert_eq!(store.images.list().unwrap(), std::slice::from_ref(&pulled));
    assert_eq!(store.names("blobs"), [""; 0]);
    assert_eq!(store.names("new"), [""; 0]);
    let seen = seen.lock().unwrap();
    assert!(matches!(&seen[0], Progress::Resolved { layers, .. } if layers.len() == 2));
    let total = layers[0].blob.len() as u64;
    let layer = digest(&layers[0].tar);
    assert!(seen.contains(&Progress::Downloading {
        layer: layer.clone(),
        bytes: total,
        total
    }));
    assert!(seen.contains(&Progress::Unpacked { layer }));
}

#[tokio::test]
async fn a_tag_means_what_it_meant_until_it_is_pulled_again() {
    let Some(registry) = Registry::start(false).await else {
        return;
    };
    let (old, new) = (
        image(&[layer(&[("v", b"1")])]),
        image(&[layer(&[("v", b"2")])]),
    );
    let name = registry.push("app", &old).await;
    let store = TestStore::new();
    let first = store.pull(&name).await.unwrap();
    registry.push("app", &new).await;
    let source = admitted(&name);
    let kept = store
        .images
        .ensure(&source, &Credentials::none(), &silent())
        .await
        .unwrap();
    assert_eq!(kept, first);
    let pinned = format!("{name}@{}", digest(&old.manifest));
    let found = store.images.find(&admitted(&pinned)).unwrap();
    assert_eq!(found.manifest, first.manifest);
    let second = store.pull(&name).await.unwrap();
    assert_eq!(second.digest, digest(&new.manifest));
    // By digest, the earlier content of the tag is still available.
    let again = TestStore::new().pull(&pinned).await.unwrap();
    assert_eq!(again.digest, digest(&old.manifest));
}

#[tokio::test]
async fn an_index_is_read_for_this_host_and_another_host_is_named() {
    let Some(registry) = Registry::start(false).await else {
        return;
    };
    let ours = image(&[layer(&[("a", b"ours")])]);
    let other = image_for(&[layer(&[("a", b"other")])], "s390x");
    registry.push("app", &other).await;
    registry.push("app", &ours).await;
    let both = index(&[
        (&other, "s390x"),
        (&ours, hotcell_testkit::image::architecture()),
    ]);
    let name = registry.push_manifest("app", "both", &both).await;
    let store = TestStore::new();
    let pulled = store.pull(&name).await.unwrap();
    assert_eq!(pulled.digest, digest(&both));
    assert_eq!(pulled.manifest, digest(&ours.manifest));
    assert_eq!(store.read(&pulled, "a").unwrap(), b"ours");

    let name = registry
        .push_manifest("app", "other", &index(&[(&other, "s390x")]))
        .await;
    let store = TestStore::new();
    let error = store.pull(&name).await.unwrap_err();
    assert!(
        error.to_string().ends_with("only for linux/s390x"),
        "{error}"
    );
    // Without an index, the configuration names the platform.
    let name = registry.push_manifest("app", "bare", &other.manifest).await;
    let error = store.pull(&name).await.unwrap_err();
    assert!(matches!(error, ImageError::Platform { .. }), "{error}");
    store.assert_nothing_visible();
}

#[tokio::test]
async fn layers_are_shared_and_those_who_pull_at_once_are_joined() {
    let Some(registry) = Registry::start(false).await else {
        return;
    };
    let base = layer(&[("base", &noise(2 << 20))]);
    let one = registry
        .push("one", &image(&[base.clone(), layer(&[("x", b"1")])]))
        .await;
    let two = registry
        .push("two", &image(&[base, layer(&[("x", b"2")])]))
        .await;
    let store = TestStore::new();
    let pulls = [&one, &two, &one, &two].map(|name| store.pull(name));
    let pulled = futures_util::future::join_all(pulls).await;
    let pulled: Vec<_> = pulled.into_iter().map(Result::unwrap).collect();
    assert_eq!(pulled[0].manifest, pulled[2].manifest);
    assert_eq!(store.names("layers").len(), 3);
    assert_eq!(store.read(&pulled[1], "x").unwrap(), b"2");
}

#[tokio::test]
async fn a_registry_that_wants_a_password_gets_it_from_dockers_configuration() {
    let Some(registry) = Registry::start(true).await else {
        return;
    };
    let name = registry.push("app", &image(&[layer(&[("a", b"x")])])).await;
    let store = TestStore::new();
    let error = store.pull(&name).await.unwrap_err();
    assert!(matches!(error, ImageError::Denied { .. }), "{error}");
    store.assert_nothing_visible();
    let file = store.dir.path().join("config.json");
    let wrong = format!(
        r#"{{"auths": {{"{}": {{"auth": "YW5uOm5v"}}}}}}"#,
        registry.host
    );
    std::fs::write(&file, wrong).unwrap();
    let credentials = Credentials::file(&file);
    let error = store.pull_as(&name, &credentials).await.unwrap_err();
    assert!(matches!(error, ImageError::Denied { .. }), "{error}");
    let right = format!(
        r#"{{"auths": {{"{}": {{"auth": "YW5uOlUqVQ=="}}}}}}"#,
        registry.host
    );
    std::fs::write(&file, right).unwrap();
    store.pull_as(&name, &credentials).await.unwrap();
    std::fs::write(&file, "{").unwrap();
    let error = store.pull_as(&name, &credentials).await.unwrap_err();
    assert!(matches!(error, ImageError::Credentials { .. }), "{error}");
}

#[tokio::test]
async fn what_is_not_there_is_not_found() {
    let Some(registry) = Registry::start(false).await else {
        return;
    };
    let store = TestStore::new();
    let error = store
        .pull(&format!("{}/absent", registry.host))
        .await
        .unwrap_err();
    assert!(matches!(error, ImageError::NotFound { .. }), "{error}");
    store.assert_nothing_visible();
}
