//! Bounds on everything that a registry or an image chooses.

use std::time::Duration;

const MIB: u64 = 1 << 20;
const GIB: u64 = 1 << 30;

/// The bounds of one image. Tests and operators with little disk space can change them per store.
#[derive(Debug, Clone, Copy)]
pub struct Bounds {
    /// Size of a manifest or an index; registries refuse larger ones too.
    pub manifest_bytes_max: u64,
    /// Size of an image's configuration.
    pub config_bytes_max: u64,
    /// Layers of one image.
    pub layers_max: usize,
    /// Compressed size of one layer.
    pub blob_bytes_max: u64,
    /// Decompressed size of one layer, without the headers of its members.
    pub unpacked_bytes_max: u64,
    /// Members of one layer, plus the directories that its paths only imply.
    pub entries_max: u64,
    /// `unpacked_bytes_max` for all layers that one pull unpacks; layers that are already here do
    /// not count.
    pub image_unpacked_bytes_max: u64,
    /// `entries_max` for all layers that one pull unpacks.
    pub image_entries_max: u64,
    /// For establishing a connection to a registry.
    pub connect_timeout: Duration,
    /// A response without a byte for this long fails, and so does one with fewer than
    /// `RATE_BYTES_S_MIN` on average in this time.
    pub stall_timeout: Duration,
}

impl Default for Bounds {
    fn default() -> Self {
        Self {
            manifest_bytes_max: 4 * MIB,
            config_bytes_max: 4 * MIB,
            layers_max: 127,
            blob_bytes_max: 10 * GIB,
            unpacked_bytes_max: 20 * GIB,
            entries_max: 1_000_000,
            image_unpacked_bytes_max: 40 * GIB,
            image_entries_max: 2_000_000,
            connect_timeout: Duration::from_secs(10),
            stall_timeout: Duration::from_secs(30),
        }
    }
}

/// The slowest acceptable download of a layer, averaged over `stall_timeout`. A slower one would
/// take days.
pub(crate) const RATE_BYTES_S_MIN: f64 = 1024.0;

/// The timeout of small responses, as a multiple of `stall_timeout`.
pub(crate) const SMALL_ANSWER_STALLS: u32 = 4;

/// Concurrent layer downloads per pull.
pub(crate) const PULL_DOWNLOADS_MAX: usize = 4;

/// Concurrent layer downloads of all pulls; each takes a thread. A high number, so that a few slow
/// registries do not block all other pulls.
pub(crate) const DOWNLOADS_MAX: usize = 64;

/// Concurrent unpacks of all pulls; each takes two threads and the window of a zstd frame.
pub(crate) const UNPACKS_MAX: usize = 2;

/// Attempts of one request without progress.
pub(crate) const TRIES_MAX: u32 = 4;

/// Attempts for one blob, whatever their progress.
pub(crate) const BLOB_TRIES_MAX: u32 = 64;

/// Delay before the second attempt; doubles each time.
pub(crate) const BACK_OFF: Duration = Duration::from_millis(200);

/// Redirects followed for one request.
pub(crate) const REDIRECTS_MAX: usize = 5;

/// Size of a token response.
pub(crate) const TOKEN_BYTES_MAX: u64 = 256 << 10;

/// Size of a Docker configuration file, or of a credential helper's output.
pub(crate) const CREDENTIALS_BYTES_MAX: u64 = MIB;

/// How long a credential helper may take.
pub(crate) const HELPER_TIMEOUT: Duration = Duration::from_secs(20);

/// Chunks of a blob that wait for the disk, some tens of KiB each.
pub(crate) const PIECES_MAX: usize = 32;

/// Decompressed chunks that wait to be unpacked.
pub(crate) const DECODED_PIECES_MAX: usize = 8;

pub(crate) const DECODED_PIECE_BYTES: usize = 256 << 10;

/// The window of a zstd frame; `zstd --long` uses 128 MiB.
pub(crate) const ZSTD_WINDOW_BYTES_MAX: u64 = 128 * MIB;

/// Long names and attributes of one member.
pub(crate) const METADATA_BYTES_MAX: u64 = MIB;

/// Bytes after the end of a layer's archive.
pub(crate) const TRAILER_BYTES_MAX: u64 = 16 * MIB;

pub(crate) const PATH_BYTES_MAX: usize = 4095;

/// Memory for the directories of a layer, whose timestamps are set at the end.
pub(crate) const DIRECTORY_TIMES_BYTES_MAX: usize = 64 << 20;

/// Directory depth of a member.
pub(crate) const DEPTH_MAX: usize = 256;

/// Size of an image's `/etc/passwd` and `/etc/group`.
pub(crate) const ACCOUNTS_BYTES_MAX: u64 = 16 << 10;

/// Size of the files in an image archive that are not layers: manifests, configurations,
/// repositories.
pub(crate) const ARCHIVE_SMALL_BYTES_MAX: u64 = 8 * MIB;

pub(crate) const ARCHIVE_ENTRIES_MAX: u64 = 8192;

pub(crate) const ARCHIVE_IMAGES_MAX: usize = 64;

/// How long a partial download is kept for the next pull.
pub(crate) const PARTIAL_AGE_MAX: Duration = Duration::from_hours(24);

/// Partial downloads that are kept in total, newest first.
pub(crate) const PARTIAL_BYTES_MAX: u64 = 20 * GIB;

/// Poll interval for a lock that another process holds.
pub(crate) const LOCK_PAUSE: Duration = Duration::from_millis(50);

pub(crate) const PROGRESS_STEP_BYTES: u64 = 256 << 10;
