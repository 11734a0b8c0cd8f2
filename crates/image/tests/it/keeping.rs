//! Loading, listing, removing and collecting images.

#![expect(
    clippy::unwrap_used,
    reason = "helpers of tests panic when the setup fails"
)]

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::time::{Duration, SystemTime};

use hotcell_domain::{Digest, ImagePolicy, Reference};
use hotcell_image::{Image, ImageError, Origin, silent};
use hotcell_testkit::image::{Made, digest, image, layer, noise};
use serde_json::json;

use crate::support::{TestStore, admitted};

const DAY: Duration = Duration::from_hours(24);

fn tar_of(files: &[(String, Vec<u8>)]) -> Vec<u8> {
    let mut builder = tar::Builder::new(Vec::new());
    for (path, content) in files {
        let mut header = tar::Header::new_gnu();
        header.set_size(content.len() as u64);
        header.set_mode(0o644);
        builder
            .append_data(&mut header, path, &content[..])
            .unwrap();
    }
    builder.into_inner().unwrap()
}

/// The format of `docker save`.
fn docker_archive(made: &Made, tags: &[&str]) -> Vec<u8> {
    let config = format!("{}.json", digest(&made.config).hex());
    let layers = made.layers.iter().enumerate();
    let layers: Vec<_> = layers
        .map(|(n, one)| (format!("{n}/layer.tar"), one.tar.clone()))
        .collect();
    let names: Vec<_> = layers.iter().map(|(name, _)| name.clone()).collect();
    let list = json!([{"Config": config, "RepoTags": tags, "Layers": names}]);
    let mut files = layers;
    files.push((config, made.config.clone()));
    files.push(("manifest.json".to_owned(), list.to_string().into_bytes()));
    tar_of(&files)
}

fn oci_layout(made: &Made, name: &str) -> Vec<u8> {
    let blobs = made
        .layers
        .iter()
        .map(|one| &one.blob)
        .chain([&made.config, &made.manifest]);
    let blobs = blobs.map(|blob| (format!("blobs/sha256/{}", digest(blob).hex()), blob.clone()));
    let mut files: Vec<_> = blobs.collect();
    let index = json!({"schemaVersion": 2, "manifests": [{
        "digest": digest(&made.manifest).as_str(),
        "size": made.manifest.len(),
        "annotations": {"org.opencontainers.image.ref.name": name},
    }]});
    files.push(("index.json".to_owned(), index.to_string().into_bytes()));
    files.push((
        "oci-layout".to_owned(),
        br#"{"imageLayoutVersion":"1.0.0"}"#.to_vec(),
    ));
    tar_of(&files)
}

impl TestStore {
    fn file(&self, bytes: &[u8]) -> PathBuf {
        let path = self.dir.path().join("archive");
        std::fs::write(&path, bytes).unwrap();
        path
    }

    async fn load(&self, bytes: &[u8]) -> Result<Vec<Image>, ImageError> {
        let file = self.file(bytes);
        self.images
            .load(&file, None, &ImagePolicy::default(), &silent())
            .await
    }

    fn gc(&self, in_use: &[&Digest], idle: Option<Duration>) -> hotcell_image::Collected {
        let in_use: BTreeSet<Digest> = in_use.iter().map(|one| (*one).clone()).collect();
        // A dry run reports exactly what is then removed.
        let counted = self.count(&in_use, idle);
        let collected = self.images.gc(&|| Ok(in_use.clone()), idle).unwrap();
        assert_eq!(counted, collected);
        collected
    }

    fn count(&self, in_use: &BTreeSet<Digest>, idle: Option<Duration>) -> hotcell_image::Collected {
        let in_use = || Ok(in_use.clone());
        self.images.count_garbage(&in_use, idle).unwrap()
    }
}

fn made(content: &str) -> Made {
    image(&[
        layer(&[("base", b"b")]),
        layer(&[("a", content.as_bytes())]),
    ])
}

#[tokio::test]
async fn archives_of_docker_and_of_oci_are_loaded_under_their_names() {
    let made = made("x");
    let docker = docker_archive(&made, &["app:1", "other/app:2"]);
    let store = TestStore::new();
    let loaded = store.load(&docker).await.unwrap();
    let names: Vec<_> = loaded
        .iter()
        .map(|image| image.reference.to_string())
        .collect();
    assert_eq!(names, ["docker.io/library/app:1", "docker.io/other/app:2"]);
    assert_eq!(store.read(&loaded[0], "a").unwrap(), b"x");
    assert_eq!(loaded[0].origin, Origin::File);
    assert!(store.images.find(&admitted("app:1")).is_some());

    let store = TestStore::new();
    let loaded = store
        .load(&oci_layout(&made, "ghcr.io/a/b:3"))
        .await
        .unwrap();
    assert_eq!(loaded[0].digest, digest(&made.manifest));
    assert_eq!(store.read(&loaded[0], "base").unwrap(), b"b");
    assert_eq!(store.names("new"), [""; 0]);
}

#[tokio::test]
async fn a_name_may_be_given_and_policy_decides_on_it() {
    let archive = docker_archive(&made("x"), &["quay.io/a/b:1"]);
    let store = TestStore::new();
    let error = store.load(&archive).await.unwrap_err();
    assert!(matches!(error, ImageError::Refused(_)), "{error}");
    let file = store.file(&archive);
    let name = Reference::parse("localhost/mine").unwrap();
    let mut policy = ImagePolicy::default();
    let loaded = store
        .images
        .load(&file, Some(&name), &policy, &silent())
        .await
        .unwrap();
    assert_eq!(loaded[0].reference, name);
    policy.local_images = false;
    let name = Reference::parse("mine").unwrap();
    let error = store
        .images
        .load(&file, Some(&name), &policy, &silent())
        .await
        .unwrap_err();
    assert!(error.to_string().contains("`local_images`"), "{error}");
    // An image from a file is found only where policy allows local images.
    policy.local_images = true;
    store
        .images
        .load(&file, Some(&name), &policy, &silent())
        .await
        .unwrap();
    assert!(
        store
            .images
            .find(&policy.admit(name.clone()).unwrap())
            .is_some()
    );
    policy.local_images = false;
    assert!(store.images.find(&policy.admit(name).unwrap()).is_none());
}

#[tokio::test]
async fn a_name_with_a_digest_never_stands_for_other_content() {
    let (real, evil) = (made("real"), made("evil"));
    let pinned = format!("app@{}", digest(&real.manifest));
    let plain = docker_archive(&evil, &["app"]);
    let cases = [
        (docker_archive(&evil, &[&pinned]), None),
        (oci_layout(&evil, &pinned), None),
        (plain, Some(Reference::parse(&pinned).unwrap())),
    ];
    for (n, (bytes, name)) in cases.iter().enumerate() {
        let store = TestStore::new();
        let file = store.file(bytes);
        let policy = ImagePolicy::default();
        let loaded = store
            .images
            .load(&file, name.as_ref(), &policy, &silent())
            .await;
        assert!(
            matches!(loaded, Err(ImageError::WrongDigest { .. })),
            "case {n}: {loaded:?}"
        );
        store.assert_nothing_visible();
        assert!(store.images.find(&admitted(&pinned)).is_none());
    }
    let store = TestStore::new();
    let loaded = store.load(&oci_layout(&real, &pinned)).await.unwrap();
    assert_eq!(loaded[0].digest, digest(&real.manifest));
}

#[tokio::test]
async fn a_record_that_contradicts_its_name_is_none() {
    let store = TestStore::new();
    store
        .load(&docker_archive(&made("x"), &["app"]))
        .await
        .unwrap();
    let refs = store.dir.path().join("images/refs");
    let own = refs.join(&store.names("refs")[0]);
    let pinned = format!("docker.io/library/app@{}", digest(b"other"));
    let mut record: serde_json::Value =
        serde_json::from_slice(&std::fs::read(own).unwrap()).unwrap();
    record["reference"] = json!(pinned);
    let forged = format!("{}.json", digest(pinned.as_bytes()).hex());
    std::fs::write(refs.join(forged), record.to_string()).unwrap();
    assert!(store.images.find(&admitted(&pinned)).is_none());
    assert!(store.images.find(&admitted("app")).is_some());
    assert_eq!(store.images.list().unwrap().len(), 1);
}

#[tokio::test]
async fn broken_archives_load_nothing() {
    let made = made("x");
    let whole = docker_archive(&made, &["app"]);
    let mut lying = made.layers.clone();
    lying[1].tar = layer(&[("a", b"evil")]).tar;
    let lying = Made {
        layers: lying,
        config: made.config.clone(),
        manifest: made.manifest.clone(),
    };
    let unnamed = docker_archive(&made, &[]);
    let cases = [
        whole[..whole.len() / 2].to_vec(),
        tar_of(&[("readme".to_owned(), b"x".to_vec())]),
        tar_of(&[("manifest.json".to_owned(), b"[{".to_vec())]),
        docker_archive(&lying, &["app"]),
        unnamed,
        b"no archive".repeat(100),
    ];
    for (n, bytes) in cases.iter().enumerate() {
        let store = TestStore::new();
        assert!(store.load(bytes).await.is_err(), "case {n}");
        assert!(store.images.list().unwrap().is_empty());
        assert_eq!(store.names("new"), [""; 0]);
    }
}

#[tokio::test]
async fn an_archive_with_a_name_that_no_file_could_have_is_refused() {
    let long = "a/".repeat(2049);
    let mut archive = docker_archive(&made("x"), &["app"]);
    // In place of the end of the archive.
    archive.truncate(archive.len() - 1024);
    let mut builder = tar::Builder::new(archive);
    let mut header = tar::Header::new_gnu();
    header.set_entry_type(tar::EntryType::Symlink);
    header.set_mode(0o777);
    header.set_size(0);
    builder.append_link(&mut header, "link", &long).unwrap();
    let error = TestStore::new()
        .load(&builder.into_inner().unwrap())
        .await
        .unwrap_err();
    assert!(error.to_string().ends_with("a name is too long"), "{error}");
}

#[tokio::test]
async fn an_archive_of_the_same_name_again_and_again_is_refused() {
    let many = vec![("a".to_owned(), Vec::new()); 8193];
    let error = TestStore::new().load(&tar_of(&many)).await.unwrap_err();
    assert!(matches!(error, ImageError::TooLarge { .. }), "{error}");
}

#[tokio::test]
async fn a_layer_that_can_be_seen_is_on_the_disk() {
    let store = TestStore::new();
    let image = image(&[layer(&[("a", &noise(1 << 20))])]);
    let loaded = store.load(&docker_archive(&image, &["app"])).await.unwrap();
    // It reports extents that are not on disk yet, if the filesystem has such.
    let file = store.images.layers_dir();
    let file = file.join(hotcell_image::layer_name(&loaded[0].layers[0]));
    let told = std::process::Command::new("/usr/sbin/filefrag")
        .arg("-v")
        .arg(file.join("a"))
        .output();
    let told = told.map(|output| String::from_utf8_lossy(&output.stdout).into_owned());
    match told {
        Ok(told) if told.contains("extent") => assert!(!told.contains("delalloc"), "{told}"),
        _ => hotcell_testkit::skip_part(
            hotcell_testkit::Need::Extents,
            "filefrag says nothing of this filesystem",
        ),
    }
}

#[tokio::test]
async fn what_is_used_stays_and_the_rest_is_removed() {
    let store = TestStore::new();
    let (one, two) = (made("1"), made("2"));
    store.load(&docker_archive(&one, &["one"])).await.unwrap();
    let loaded = store.load(&docker_archive(&two, &["two"])).await.unwrap();
    assert_eq!(store.names("layers").len(), 3);
    let name = Reference::parse("two").unwrap();
    let used: BTreeSet<_> = [loaded[0].manifest.clone()].into();
    let error = store
        .images
        .remove(&name, &|| Ok(used.clone()))
        .unwrap_err();
    assert!(matches!(error, ImageError::InUse { .. }), "{error}");
    let removed = store.images.remove(&name, &|| Ok(BTreeSet::new())).unwrap();
    assert_eq!((removed.images, removed.layers), (1, 1));
    assert_eq!(store.names("layers").len(), 2);
    assert_eq!(store.names("new"), [""; 0]);
    let again = store.images.remove(&name, &|| Ok(BTreeSet::new()));
    assert!(matches!(again, Err(ImageError::NotHere { .. })));
    assert_eq!(store.gc(&[], None).layers, 0);
    let other = store.images.list().unwrap()[0].manifest.clone();
    let count = |in_use: &[Digest], idle| {
        let counted = store.count(&in_use.iter().cloned().collect(), Some(idle));
        (counted.images, counted.layers)
    };
    assert_eq!(count(&[], Duration::from_hours(1)), (0, 0));
    assert_eq!(count(&[other], Duration::ZERO), (0, 0));
    assert_eq!(count(&[], Duration::ZERO), (1, 2));
    assert_eq!(store.names("layers").len(), 2);
    assert_eq!(store.gc(&[], Some(Duration::ZERO)).images, 1);
    store.assert_nothing_visible();
}

#[tokio::test]
async fn an_image_whose_name_went_to_another_stays_while_a_container_has_it() {
    let store = TestStore::new();
    let old = store
        .load(&docker_archive(&made("1"), &["app"]))
        .await
        .unwrap();
    store
        .load(&docker_archive(&made("2"), &["app"]))
        .await
        .unwrap();
    assert_eq!(store.gc(&[&old[0].manifest], None).layers, 0);
    assert_eq!(store.gc(&[], None).layers, 1);
}

/// Sets the age of a file.
fn made_before(path: &std::path::Path, age: Duration) {
    let file = std::fs::File::options().write(true).open(path).unwrap();
    file.set_modified(SystemTime::now() - age).unwrap();
}

#[tokio::test]
async fn a_download_that_was_interrupted_is_kept_for_a_day() {
    let store = TestStore::new();
    let blobs = store.dir.path().join("images/blobs");
    for (name, age) in [("new", DAY / 2), ("old", DAY + Duration::from_secs(1))] {
        std::fs::write(blobs.join(name), "part").unwrap();
        made_before(&blobs.join(name), age);
    }
    assert_eq!(store.gc(&[], None).partial, 1);
    assert_eq!(store.names("blobs"), ["new"]);
    // Sparse files: they take no space here, but count in full.
    for (name, age) in [("newest", DAY / 4), ("older", DAY / 3)] {
        let file = std::fs::File::create(blobs.join(name)).unwrap();
        file.set_len(15 << 30).unwrap();
        made_before(&blobs.join(name), age);
    }
    assert_eq!(store.gc(&[], None).partial, 2);
    assert_eq!(store.names("blobs"), ["newest"]);
}

#[tokio::test]
async fn what_a_crash_left_is_collected_and_nothing_goes_while_the_store_is_held() {
    let store = TestStore::new();
    let directory = store.dir.path().join("images");
    std::fs::create_dir_all(directory.join("new/half/tree")).unwrap();
    let part = directory.join("blobs").join("a".repeat(64));
    std::fs::write(&part, "part").unwrap();
    made_before(&part, DAY);
    std::fs::create_dir(directory.join("layers").join("b".repeat(64))).unwrap();
    std::fs::write(directory.join("refs/x.json"), "{").unwrap();
    let hold = store.images.hold().unwrap();
    let busy = store.images.gc(&|| Ok(BTreeSet::new()), None);
    assert!(matches!(busy, Err(ImageError::Busy)));
    let busy = store.images.count_garbage(&|| Ok(BTreeSet::new()), None);
    assert!(matches!(busy, Err(ImageError::Busy)));
    drop(hold);
    let collected = store.gc(&[], None);
    assert_eq!((collected.partial, collected.layers), (1, 1));
    store.assert_nothing_visible();
    assert_eq!(store.names("blobs"), [""; 0]);
}
