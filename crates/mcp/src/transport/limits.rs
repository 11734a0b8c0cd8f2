//! Limits of the transports: message sizes, requests in flight, unread replies.

use std::time::Duration;

/// The longest message on every transport: an HTTP body, a line of stdio or of the socket.
pub const MESSAGE_BYTES_MAX: usize = 16 << 20;

/// Concurrent requests of one connection or session.
pub const REQUESTS_PER_CONNECTION_MAX: usize = 256;

pub(crate) const BATCH_MESSAGES_MAX: usize = 32;

/// Concurrent connections to the unix socket.
pub const SOCKET_CONNECTIONS_MAX: usize = 64;

/// Memory for all large answers that clients have not read yet, over all transports.
pub const ANSWERS_BYTES_MAX: usize = 64 << 20;

/// Answers up to this size are always sent; larger ones share [`ANSWERS_BYTES_MAX`].
pub(crate) const SMALL_ANSWER_BYTES_MAX: usize = 16 << 10;

/// How long a request waits for others to release that memory.
pub const ANSWER_WAIT_MAX: Duration = Duration::from_secs(5);

/// A client that reads less than this of an answer within the timeout counts as not reading at all.
pub(crate) const READ_BYTES_MIN: usize = 64 << 10;

/// How long a client of the unix socket may leave an answer unread.
pub(crate) const SOCKET_UNREAD_MAX: Duration = Duration::from_mins(1);

/// How long the client that started us on stdio may leave an answer unread: its user may suspend it
/// for a while.
pub(crate) const STDIO_UNREAD_MAX: Duration = Duration::from_mins(10);
