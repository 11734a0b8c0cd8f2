//! How large and how many, for both sides.
//!
//! The agent refuses what is over a bound; the server, to which everything from a
//! container is hostile, ends the connection.

/// The oldest protocol version that both sides speak. Containers outlive servers, so it
/// grows only when no container with an older agent can be left.
pub const PROTOCOL_VERSION_MIN: u32 = 1;

/// The newest protocol version: `Hello` tells ranges and features since 2.
pub const PROTOCOL_VERSION_MAX: u32 = 2;

/// The option of `hotcell-agent connect` that names an abstract socket.
///
/// A server runs the agent that its container was made with, which may be an older one: the
/// spelling is part of the protocol and stays.
pub const CONNECT_ABSTRACT_FLAG: &str = "--door";

/// What `hotcell-agent connect` sends first to an abstract socket, with its credentials.
pub const HANDSHAKE_REQUEST: u8 = 0x05;

/// What the agent answers a peer that it accepts, before the protocol begins.
pub const HANDSHAKE_ACCEPTED: u8 = 0x06;

/// The largest message either side encodes or decodes.
pub const MESSAGE_BYTES_MAX: usize = 4 << 20;

/// The largest piece of a stream: output, file content, tar.
pub const CHUNK_BYTES_MAX: usize = 32 << 10;

/// Output of one exec that the agent holds before it stops reading the pipes.
pub const UNACKED_BYTES_MAX: usize = 256 << 10;

/// Events of one exec that the agent holds, however small they are.
pub const UNACKED_EVENTS_MAX: usize = 4096;

/// HTTP/2 flow control of one stream.
pub const STREAM_WINDOW_BYTES: u32 = 256 << 10;

/// HTTP/2 flow control of the connection: larger than all streams together, so
/// that stopped readers never hold up the others.
pub const CONNECTION_WINDOW_BYTES: u32 = 1 << 30;

/// The largest HTTP/2 frame.
pub const FRAME_BYTES_MAX: u32 = 64 << 10;

/// Calls in flight on one connection, with room for control calls beside
/// `EXECS_MAX` streams.
pub const STREAMS_MAX: u32 = 1024;

/// Execs the agent holds, running and finished together.
pub const EXECS_MAX: usize = 512;

/// Length of an exec id.
pub const EXEC_ID_BYTES_MAX: usize = 64;

/// Arguments of one exec.
pub const ARGV_MAX: usize = 4096;

/// Environment variables of one exec.
pub const ENV_MAX: usize = 4096;

/// Variables that an image sets for its processes: an engine refuses an image with more.
pub const IMAGE_ENV_MAX: usize = 1024;

/// Those variables together, each with its `=` and its NUL.
pub const IMAGE_ENV_BYTES_MAX: usize = 32 << 10;

/// Variables that an engine adds to the image's.
pub const ENGINE_ENV_MAX: usize = 16;

/// Those that it adds, counted in the same way.
pub const ENGINE_ENV_BYTES_MAX: usize = 4 << 10;

/// Arguments and environment together, below the kernel's own limit for a stack
/// of 8 MiB.
pub const ARGV_ENV_BYTES_MAX: usize = 1 << 20;

/// A path, as `PATH_MAX` has it.
pub const PATH_BYTES_MAX: usize = 4096;

/// One component of a path, as `NAME_MAX` has it.
pub const NAME_BYTES_MAX: usize = 255;

/// A glob.
pub const GLOB_BYTES_MAX: usize = 1024;

/// Globs of one export.
pub const GLOBS_MAX: usize = 64;

/// Entries on one page of a listing.
pub const LIST_ENTRIES_MAX: u32 = 1000;

/// Bytes of one page of a listing: names may be long.
pub const LIST_BYTES_MAX: usize = 1 << 20;

/// Depth of a tree that is listed, copied, exported or removed.
pub const TREE_DEPTH_MAX: usize = 256;

/// Operations of one batch.
pub const BATCH_OPERATIONS_MAX: usize = 256;

/// Content of all reads and writes of one batch.
pub const BATCH_BYTES_MAX: usize = 3 << 20;

/// Members of an imported archive.
pub const IMPORT_ENTRIES_MAX: u64 = 1_000_000;

/// Unpacked size of an imported archive.
pub const IMPORT_BYTES_MAX: u64 = 16 << 30;

/// Tunnels that wait for the server and are open, together. Each may hold a stream window
/// and a few chunks on both sides, so all of them no more than 32 MiB.
pub const TUNNELS_MAX: usize = 64;

/// Purposes that listen at a time.
pub const TUNNEL_LISTENERS_MAX: usize = 64;

/// Length of a purpose's name.
pub const TUNNEL_PURPOSE_BYTES_MAX: usize = 64;

/// Length of a socket's path, as the kernel has it.
pub const TUNNEL_UNIX_PATH_BYTES_MAX: usize = 107;

/// How long a connection waits for the server to accept or refuse it.
pub const TUNNEL_WAIT_MS_MAX: u64 = 10_000;

/// Whether a purpose can have this name.
pub fn is_tunnel_purpose(name: &str) -> bool {
    let is_alphanumeric = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
    name.len() <= TUNNEL_PURPOSE_BYTES_MAX
        && name.bytes().next().is_some_and(is_alphanumeric)
        && name
            .bytes()
            .all(|byte| is_alphanumeric(byte) || matches!(byte, b'.' | b'-' | b'_'))
}

/// The longest time from TERM to KILL.
pub const GRACE_MS_MAX: u64 = 600_000;

/// The longest timeout of an exec: a year.
pub const TIMEOUT_MS_MAX: u64 = 31_536_000_000;

/// The metadata key that carries the current etag of a failed precondition.
pub const ETAG_METADATA_KEY: &str = "hotcell-etag";

/// The metadata key of an aborted batch: which operation failed, counted from 0.
pub const BATCH_INDEX_METADATA_KEY: &str = "hotcell-batch-index";

/// The metadata key of an aborted batch: the gRPC code of that operation.
pub const BATCH_CODE_METADATA_KEY: &str = "hotcell-batch-code";

/// The metadata key of an aborted batch that could not be undone as a whole.
pub const BATCH_PARTIAL_METADATA_KEY: &str = "hotcell-batch-partial";
