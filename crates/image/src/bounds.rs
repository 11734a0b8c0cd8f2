//! How large, how many and how long: everything that a registry or an image chooses.

use std::time::Duration;

const MIB: u64 = 1 << 20;
const GIB: u64 = 1 << 30;

/// The bounds of one image. Those of a store can be changed, for tests and for operators
/// with less room.
#[derive(Debug, Clone, Copy)]
pub struct Bounds {
    /// A manifest or an index; registries refuse larger ones too.
    pub manifest_bytes_max: u64,
    /// An image's configuration.
    pub config_bytes_max: u64,
    /// Layers of one image.
    pub layers_max: usize,
    /// One layer as it is sent.
    pub blob_bytes_max: u64,
    /// One layer, decompressed, without the headers of its members.
    pub unpacked_bytes_max: u64,
    /// Headers of one layer, and the directories that paths in it only imply.
    pub entries_max: u64,
    /// The same for all layers of an image that one pull unpacks; those that are here
    /// already take nothing.
    pub image_unpacked_bytes_max: u64,
    /// The same, in entries.
    pub image_entries_max: u64,
    /// Until a registry takes a connection.
    pub connect_timeout: Duration,
    /// Without a byte for so long, an answer is given up; also with fewer than
    /// `RATE_BYTES_S_MIN` in that time.
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

/// What a registry must send of a layer in a second, taken over the time after which one
/// that sends nothing is given up. Slower ones would take days.
pub(crate) const RATE_BYTES_S_MIN: f64 = 1024.0;

/// Times that a registry's small answers may take the time of a stall.
pub(crate) const SMALL_ANSWER_STALLS: u32 = 4;

/// Layers fetched at once for one pull.
pub(crate) const PULL_DOWNLOADS_MAX: usize = 4;

/// Layers fetched at once for all pulls: each takes a thread. Many, so that a few pulls from
/// slow registries do not keep all others waiting.
pub(crate) const DOWNLOADS_MAX: usize = 64;

/// Layers unpacked at once for all pulls: each takes two threads, and the window of a zstd
/// frame.
pub(crate) const UNPACKS_MAX: usize = 2;

/// Tries of one request that bring nothing, before it is given up.
pub(crate) const TRIES_MAX: u32 = 4;

/// Tries of one blob, however much each of them brought.
pub(crate) const BLOB_TRIES_MAX: u32 = 64;

/// Before the second try; doubled for each further one.
pub(crate) const BACK_OFF: Duration = Duration::from_millis(200);

/// Redirects followed for one request.
pub(crate) const REDIRECTS_MAX: usize = 5;

/// A token and what comes with it.
pub(crate) const TOKEN_BYTES_MAX: u64 = 256 << 10;

/// A Docker configuration file, or what a credential helper says.
pub(crate) const CREDENTIALS_BYTES_MAX: u64 = MIB;

/// How long a credential helper may take.
pub(crate) const HELPER_TIMEOUT: Duration = Duration::from_secs(20);

/// Pieces of a blob that wait for the disk, of some tens of KiB each.
pub(crate) const PIECES_MAX: usize = 32;

/// Decompressed pieces that wait to be unpacked.
pub(crate) const DECODED_PIECES_MAX: usize = 8;

/// One decompressed piece.
pub(crate) const DECODED_PIECE_BYTES: usize = 256 << 10;

/// The window of a zstd frame; what `zstd --long` uses is 128 MiB.
pub(crate) const ZSTD_WINDOW_BYTES_MAX: u64 = 128 * MIB;

/// Long names and attributes of one member.
pub(crate) const METADATA_BYTES_MAX: u64 = MIB;

/// What may follow the end of a layer's archive.
pub(crate) const TRAILER_BYTES_MAX: u64 = 16 * MIB;

/// A member's path.
pub(crate) const PATH_BYTES_MAX: usize = 4095;

/// Directories of a layer, held until their times are set.
pub(crate) const DIRECTORY_TIMES_BYTES_MAX: usize = 64 << 20;

/// Directories above a member.
pub(crate) const DEPTH_MAX: usize = 256;

/// Accounts that an image brings: its `/etc/passwd` and `/etc/group`.
pub(crate) const ACCOUNTS_BYTES_MAX: u64 = 16 << 10;

/// Files of an image archive that are not layers: manifests, configurations, repositories.
pub(crate) const ARCHIVE_SMALL_BYTES_MAX: u64 = 8 * MIB;

/// Headers of an image archive.
pub(crate) const ARCHIVE_ENTRIES_MAX: u64 = 8192;

/// Images of one image archive.
pub(crate) const ARCHIVE_IMAGES_MAX: usize = 64;

/// What was fetched of a layer is kept for the next try for so long.
pub(crate) const PARTIAL_AGE_MAX: Duration = Duration::from_hours(24);

/// What was fetched of layers and is kept for the next try, of the newest.
pub(crate) const PARTIAL_BYTES_MAX: u64 = 20 * GIB;

/// Between two looks at a lock that another holds.
pub(crate) const LOCK_PAUSE: Duration = Duration::from_millis(50);

/// Bytes between two reports of progress.
pub(crate) const PROGRESS_STEP_BYTES: u64 = 256 << 10;
