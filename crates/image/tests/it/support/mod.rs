//! Images built by tests, registries that serve them, and a store for each test.

#![allow(dead_code, reason = "each test file uses its own part")]

pub(crate) mod registry;

use std::path::Path;
use std::time::Duration;

use hotcell_domain::{Admitted, ImagePolicy, Reference, Source};
use hotcell_image::{Bounds, Credentials, Image, ImageError, Images, silent};

/// The deadline of every wait; only a hanging test reaches it.
pub(crate) const DEADLINE: Duration = Duration::from_mins(2);

/// A store in a temporary directory.
pub(crate) struct TestStore {
    pub dir: tempfile::TempDir,
    pub images: Images,
}

/// Bounds that a test reaches quickly, except for timeouts: on a busy machine a healthy registry
/// may be silent for a while.
pub(crate) fn small_bounds() -> Bounds {
    Bounds {
        manifest_bytes_max: 64 << 10,
        config_bytes_max: 64 << 10,
        layers_max: 8,
        blob_bytes_max: 64 << 20,
        unpacked_bytes_max: 32 << 20,
        entries_max: 1000,
        image_unpacked_bytes_max: 48 << 20,
        image_entries_max: 1500,
        connect_timeout: DEADLINE,
        stall_timeout: DEADLINE,
    }
}

/// The same with short timeouts, for registries that stall or are slow.
pub(crate) fn impatient_bounds() -> Bounds {
    Bounds {
        connect_timeout: Duration::from_millis(500),
        stall_timeout: Duration::from_millis(300),
        ..small_bounds()
    }
}

impl TestStore {
    pub(crate) fn new() -> Self {
        Self::with(small_bounds())
    }

    pub(crate) fn with(bounds: Bounds) -> Self {
        let dir = tempfile::tempdir().expect("a temporary directory");
        let images = Images::open_with(&dir.path().join("images"), bounds).expect("a store");
        Self { dir, images }
    }

    pub(crate) async fn pull(&self, name: &str) -> Result<Image, ImageError> {
        self.pull_as(name, &Credentials::none()).await
    }

    pub(crate) async fn pull_as(
        &self,
        name: &str,
        credentials: &Credentials,
    ) -> Result<Image, ImageError> {
        let (source, report) = (admitted(name), silent());
        let pulled = self.images.pull(&source, credentials, &report);
        tokio::time::timeout(DEADLINE * 2, pulled)
            .await
            .expect("it ends in time")
    }

    /// The names in one of the store's directories.
    pub(crate) fn names(&self, directory: &str) -> Vec<String> {
        let path = self.dir.path().join("images").join(directory);
        let entries = std::fs::read_dir(path).expect("the directory");
        entries
            .map(|entry| {
                entry
                    .expect("an entry")
                    .file_name()
                    .to_string_lossy()
                    .into_owned()
            })
            .collect()
    }

    /// Fails if anything is visible, or left incomplete.
    #[track_caller]
    pub(crate) fn assert_nothing_visible(&self) {
        for directory in ["refs", "images", "layers", "new"] {
            assert_eq!(self.names(directory), [""; 0], "{directory}");
        }
    }

    /// A file from the topmost layer that has it.
    pub(crate) fn read(&self, image: &Image, path: &str) -> Option<Vec<u8>> {
        let dir = self.images.layers_dir();
        let layers = image.layers.iter().rev();
        layers
            .map(|layer| dir.join(hotcell_image::layer_name(layer)).join(path))
            .find_map(|path| std::fs::read(path).ok())
    }
}

/// Admits a name, also without TLS.
pub(crate) fn admitted(name: &str) -> Admitted<Source> {
    let reference = Reference::parse(name).expect("a reference");
    let policy = ImagePolicy {
        registries: vec![reference.registry().to_owned()],
        plain_http: vec![reference.registry().to_owned()],
        ..ImagePolicy::default()
    };
    policy.admit(reference).expect("it is let in")
}

/// Whether a program is in the usual directories.
pub(crate) fn is_installed(program: &str) -> bool {
    ["/usr/bin", "/usr/local/bin", "/bin"]
        .iter()
        .any(|dir| Path::new(dir).join(program).is_file())
}
