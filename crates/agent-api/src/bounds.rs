//! The bounds of the protocol, shared by both sides.
//!
//! The agent refuses a request that exceeds one. The server treats everything from a container as
//! hostile and closes the connection.

/// The oldest protocol version that both sides support. Containers outlive servers, so this may
/// grow only when no container with an older agent can still exist.
pub const PROTOCOL_VERSION_MIN: u32 = 1;

/// The newest protocol version. Since 2, `Hello` carries version ranges and features.
pub const PROTOCOL_VERSION_MAX: u32 = 2;

/// The option of `hotcell-agent connect` that names an abstract socket.
///
/// A server runs the agent that its container was created with, which may be older than the server,
/// so this spelling is part of the protocol.
pub const CONNECT_ABSTRACT_FLAG: &str = "--door";

/// The first byte that `hotcell-agent connect` sends to an abstract socket, together with its
/// credentials.
pub const HANDSHAKE_REQUEST: u8 = 0x05;

/// The byte with which the agent accepts a peer, before the protocol starts.
pub const HANDSHAKE_ACCEPTED: u8 = 0x06;

/// The largest message that either side encodes or decodes.
pub const MESSAGE_BYTES_MAX: usize = 4 << 20;

/// The largest chunk of a stream of output, file content or tar.
pub const CHUNK_BYTES_MAX: usize = 32 << 10;

/// Unacknowledged output per exec; beyond this the agent stops reading the pipes.
pub const UNACKED_BYTES_MAX: usize = 256 << 10;

/// Unacknowledged events per exec, whatever their size.
pub const UNACKED_EVENTS_MAX: usize = 4096;

/// HTTP/2 flow-control window of one stream towards the server.
pub const STREAM_WINDOW_BYTES: u32 = 256 << 10;

/// The same towards the agent, whose memory is its container's: `TUNNELS_MAX` streams that nobody reads
/// fit into 16 MiB, with what holds their frames. Smaller windows make one stream slower.
pub const AGENT_STREAM_WINDOW_BYTES: u32 = 120 << 10;

/// HTTP/2 flow-control window of the connection: larger than all streams together, so that a
/// stalled reader never blocks the others.
pub const CONNECTION_WINDOW_BYTES: u32 = 1 << 30;

/// The largest HTTP/2 frame.
pub const FRAME_BYTES_MAX: u32 = 64 << 10;

/// Concurrent calls on one connection: `EXECS_MAX` streams plus room for control calls.
pub const STREAMS_MAX: u32 = 1024;

/// Execs that the agent keeps, running and finished together.
pub const EXECS_MAX: usize = 512;

/// Length of an exec id.
pub const EXEC_ID_BYTES_MAX: usize = 64;

/// Arguments of one exec.
pub const ARGV_MAX: usize = 4096;

/// Environment variables of one exec.
pub const ENV_MAX: usize = 4096;

/// Environment variables of an image; engines refuse an image with more.
pub const IMAGE_ENV_MAX: usize = 1024;

/// Their total size, including `=` and NUL.
pub const IMAGE_ENV_BYTES_MAX: usize = 32 << 10;

/// Environment variables that an engine adds to the image's.
pub const ENGINE_ENV_MAX: usize = 16;

/// Their total size, including `=` and NUL.
pub const ENGINE_ENV_BYTES_MAX: usize = 4 << 10;

/// Arguments and environment together; below the kernel's own limit for a stack of 8 MiB.
pub const ARGV_ENV_BYTES_MAX: usize = 1 << 20;

/// Same as the kernel's `PATH_MAX`.
pub const PATH_BYTES_MAX: usize = 4096;

/// Same as the kernel's `NAME_MAX`.
pub const NAME_BYTES_MAX: usize = 255;

/// A glob.
pub const GLOB_BYTES_MAX: usize = 1024;

/// Globs per export.
pub const GLOBS_MAX: usize = 64;

/// Entries per page of a listing.
pub const LIST_ENTRIES_MAX: u32 = 1000;

/// Bytes per page of a listing, since names may be long.
pub const LIST_BYTES_MAX: usize = 1 << 20;

/// Depth of a tree that is listed, copied, exported or removed.
pub const TREE_DEPTH_MAX: usize = 256;

/// Operations of one batch.
pub const BATCH_OPERATIONS_MAX: usize = 256;

/// Total content of all reads and writes of one batch.
pub const BATCH_BYTES_MAX: usize = 3 << 20;

/// Members of an imported archive.
pub const IMPORT_ENTRIES_MAX: u64 = 1_000_000;

/// Unpacked size of an imported archive.
pub const IMPORT_BYTES_MAX: u64 = 16 << 30;

/// Certificates that the server asks a container to trust, as PEM.
pub const AUTHORITY_BYTES_MAX: usize = 64 << 10;

/// Waiting and open tunnels together. Each can buffer a stream window and a few chunks on both
/// sides, so together they use at most 32 MiB.
pub const TUNNELS_MAX: usize = 64;

/// Purposes that can have a listener at the same time.
pub const TUNNEL_LISTENERS_MAX: usize = 2304;

/// Length of a purpose's name. It may contain a host name.
pub const TUNNEL_PURPOSE_BYTES_MAX: usize = 288;

/// What a datagram of a tunnel carries. Larger ones are cut, as the kernel does it.
pub const TUNNEL_DATAGRAM_BYTES_MAX: usize = 4096;

/// The address before each datagram of a tunnel: IPv4 and port.
pub const TUNNEL_DATAGRAM_ADDRESS_BYTES: usize = 6;

/// Same as the kernel's limit on a unix socket path.
pub const TUNNEL_UNIX_PATH_BYTES_MAX: usize = 107;

/// How long a connection waits until the server accepts or refuses it.
pub const TUNNEL_WAIT_MS_MAX: u64 = 10_000;

/// Whether `name` is valid as the purpose of a tunnel.
pub fn is_tunnel_purpose(name: &str) -> bool {
    let is_alphanumeric = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
    name.len() <= TUNNEL_PURPOSE_BYTES_MAX
        && name.bytes().next().is_some_and(is_alphanumeric)
        && name
            .bytes()
            .all(|byte| is_alphanumeric(byte) || matches!(byte, b'.' | b'-' | b'_'))
}

/// The longest time between SIGTERM and SIGKILL.
pub const GRACE_MS_MAX: u64 = 600_000;

/// The longest timeout of an exec: one year.
pub const TIMEOUT_MS_MAX: u64 = 31_536_000_000;

/// Metadata key of the current etag, sent when a precondition fails.
pub const ETAG_METADATA_KEY: &str = "hotcell-etag";

/// Metadata key of a failed batch: the index of the failed operation, from 0.
pub const BATCH_INDEX_METADATA_KEY: &str = "hotcell-batch-index";

/// Metadata key of a failed batch: the gRPC code of that operation.
pub const BATCH_CODE_METADATA_KEY: &str = "hotcell-batch-code";

/// Metadata key of a failed batch that could not be undone completely.
pub const BATCH_PARTIAL_METADATA_KEY: &str = "hotcell-batch-partial";
