use futures_util::FutureExt as _;
use hotcell_domain::{ImagePolicy, Reference};
use hotcell_testkit::image::{image, layer};
use hotcell_testkit::registry::Canned;

use super::*;
use crate::{Credentials, Image, Images, silent};

async fn pull(images: &Images, registry: &Canned) -> Result<Image, ImageError> {
    let reference = Reference::parse(&format!("{}/x", registry.host)).unwrap();
    let policy = ImagePolicy {
        registries: vec![registry.host.clone()],
        ..ImagePolicy::default()
    };
    let source = policy.admit(reference).unwrap();
    images.pull(&source, &Credentials::none(), &silent()).await
}

#[test]
fn there_are_so_many_turns_and_each_comes_back() {
    let permits = PullPermits::new();
    let mut downloads: Vec<_> = (0..DOWNLOADS_MAX)
        .map(|_| permits.download().now_or_never().unwrap().unwrap())
        .collect();
    assert!(permits.download().now_or_never().is_none());
    downloads.pop();
    assert!(permits.download().now_or_never().is_some());
    let mut unpacks: Vec<_> = (0..UNPACKS_MAX)
        .map(|_| permits.unpack().now_or_never().unwrap().unwrap())
        .collect();
    assert!(permits.unpack().now_or_never().is_none());
    unpacks.pop();
    assert!(permits.unpack().now_or_never().is_some());
}

#[tokio::test]
async fn all_pulls_of_a_process_take_their_turns_from_one_place() {
    let made = image(&[layer(&[("a", b"x")])]);
    let registry = Canned::serving(&made, vec![]).await;
    let dir = tempfile::tempdir().unwrap();
    let take: [fn(&PullPermits); 2] = [
        |permits| permits.downloads.close(),
        |permits| permits.unpacks.close(),
    ];
    // The semaphore is closed, so every request for a permit fails.
    for (n, take) in take.iter().enumerate() {
        let images = Images::open(&dir.path().join(n.to_string())).unwrap();
        let other = images.clone();
        take(&images.permits);
        let pulled = pull(&other, &registry).await;
        assert!(
            matches!(pulled, Err(ImageError::Cancelled)),
            "{n}: {pulled:?}"
        );
    }
    let images = Images::open(&dir.path().join("free")).unwrap();
    pull(&images, &registry).await.unwrap();
    assert_eq!(images.permits.downloads.available_permits(), DOWNLOADS_MAX);
    assert_eq!(images.permits.unpacks.available_permits(), UNPACKS_MAX);
}
