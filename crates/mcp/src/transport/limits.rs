//! The bounds of the transports: message sizes, requests in flight, unread replies.

use std::time::Duration;

/// The longest message, on every transport: an HTTP body, a line of stdio or of the socket.
pub const MESSAGE_BYTES_MAX: usize = 16 << 20;

/// Requests of one connection or session that are being answered at once.
pub const REQUESTS_PER_CONNECTION_MAX: usize = 256;

/// Messages of one batch.
pub(crate) const BATCH_MESSAGES_MAX: usize = 32;

/// Connections to the unix socket at once.
pub const SOCKET_CONNECTIONS_MAX: usize = 64;

/// All answers that are not small and that their clients have not read yet, together, over
/// every transport.
pub const ANSWERS_BYTES_MAX: usize = 64 << 20;

/// An answer up to this size is sent whatever else is unread; larger ones share
/// [`ANSWERS_BYTES_MAX`].
pub(crate) const SMALL_ANSWER_BYTES_MAX: usize = 16 << 10;

/// How long a caller waits for others to read their answers.
pub const ANSWER_WAIT_MAX: Duration = Duration::from_secs(5);

/// A client that takes less of an answer than this within the time it has is as one that takes
/// nothing.
pub(crate) const READ_BYTES_MIN: usize = 64 << 10;

/// How long a client of the unix socket may leave an answer unread.
pub(crate) const SOCKET_UNREAD_MAX: Duration = Duration::from_mins(1);

/// How long the client that started us may leave an answer unread: it may be stopped by its
/// user for a while.
pub(crate) const STDIO_UNREAD_MAX: Duration = Duration::from_mins(10);
