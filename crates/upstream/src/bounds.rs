//! Every bound of this crate, in one place.

use std::time::Duration;

/// One answer of an upstream: the whole JSON-RPC message.
pub const RESULT_BYTES_MAX: usize = 64 << 20;
/// One message that we send.
pub const REQUEST_BYTES_MAX: usize = 64 << 20;
/// Requests that one server works on at the same time; further ones wait.
pub const CALLS_IN_FLIGHT_MAX: usize = 256;
/// Messages of one JSON-RPC batch.
pub const BATCH_MESSAGES_MAX: usize = 256;
/// Messages that wait to be written to a server.
pub(crate) const OUTGOING_MESSAGES_MAX: usize = 64;

/// Servers that may be configured.
pub const SERVERS_MAX: usize = 256;
/// Tools that one server may have; the rest is skipped and told.
pub const TOOLS_MAX: usize = 2_000;
/// Pages of one listing.
pub const LIST_PAGES_MAX: usize = 200;
/// Characters of a tool's name.
pub const TOOL_NAME_CHARS_MAX: usize = 128;
/// Bytes of a tool's definition, schemas included.
pub const DEFINITION_BYTES_MAX: usize = 256 << 10;
/// Bytes of all definitions of one server.
pub const DEFINITIONS_BYTES_MAX: usize = 8 << 20;
/// Levels of a schema.
pub const SCHEMA_DEPTH_MAX: usize = 48;
/// Bytes of a description; the rest is cut off.
pub const DESCRIPTION_BYTES_MAX: usize = 8 << 10;
/// Skipped tools that are named; the others are only counted.
pub const SKIPPED_NAMED_MAX: usize = 20;
/// Resources or prompts of one server.
pub const LISTED_MAX: usize = 10_000;

/// Bytes of an upstream's error message; the rest is cut off.
pub const ERROR_TEXT_BYTES_MAX: usize = 4 << 10;
/// Bytes of one line of stderr in the log; the rest is cut off.
pub const STDERR_LINE_BYTES_MAX: usize = 1 << 10;
/// Lines of stderr that are logged per minute and server; the rest is counted.
pub const STDERR_LINES_PER_MINUTE_MAX: u32 = 600;
/// Lines of garbage that are logged per connection; the rest is counted.
pub const GARBAGE_LOGGED_MAX: u32 = 10;

/// How long a server may take to start, unless its entry says otherwise.
pub const START_TIMEOUT: Duration = Duration::from_secs(30);
/// How long a call may take, unless its caller says otherwise.
pub const CALL_TIMEOUT: Duration = Duration::from_mins(1);
/// How long a server may be unused before it is stopped.
pub const IDLE_TIMEOUT: Duration = Duration::from_mins(5);
/// The pause after the first crash; each further one doubles it.
pub const BACKOFF_FIRST: Duration = Duration::from_millis(500);
/// The longest pause.
pub const BACKOFF_MAX: Duration = Duration::from_mins(1);
/// The longest pause that a call waits for; during a longer one it fails at once.
pub const BACKOFF_WAITED_MAX: Duration = Duration::from_secs(2);
/// How long a server has to run for its crashes to be forgotten.
pub const BACKOFF_FORGOTTEN_AFTER: Duration = Duration::from_mins(1);
/// How long a stdio server has to end by itself, once before SIGTERM and once before SIGKILL.
pub const STOP_GRACE: Duration = Duration::from_secs(2);
/// The shortest time between two listings that a server asks for by `tools/list_changed`.
pub const RELIST_PAUSE: Duration = Duration::from_secs(1);
