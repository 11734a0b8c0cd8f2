//! Connections of the unix socket that carry bytes instead of messages.
//!
//! A client says so by its first line, which no message can begin with: the mark, what it wants and a
//! line feed. What follows belongs to whoever [serves](RawStreams) it.

use std::io;

use hotcell_domain::Caller;
use tokio::io::AsyncReadExt as _;
use tokio::net::UnixStream;

/// What the first line begins with.
pub const RAW_MARK: &str = "HOTCELL-FORWARD ";

/// The longest first line.
const LINE_BYTES_MAX: usize = 256;

/// Serves connections that carry bytes.
pub trait RawStreams: Clone + Send + Sync + 'static {
    /// Serves a connection to its end. `wanted` is the rest of its first line.
    fn serve(
        &self,
        caller: Caller,
        wanted: String,
        stream: UnixStream,
    ) -> impl Future<Output = ()> + Send;
}

/// Serves none.
#[derive(Debug, Clone, Copy)]
pub struct NoRawStreams;

impl RawStreams for NoRawStreams {
    async fn serve(&self, _: Caller, _: String, _: UnixStream) {}
}

/// The first byte that a client sent.
pub(super) enum First {
    /// A message begins with it.
    Message(u8),
    /// A connection of bytes.
    Raw,
}

/// Reads the first byte; `None` if the client is gone.
pub(super) async fn first(stream: &mut UnixStream) -> io::Result<Option<First>> {
    let mut byte = [0];
    if stream.read(&mut byte).await? == 0 {
        return Ok(None);
    }
    let is_raw = RAW_MARK.as_bytes().first() == byte.first();
    Ok(Some(if is_raw {
        First::Raw
    } else {
        First::Message(byte[0])
    }))
}

/// Reads the rest of the first line; `None` if it is none of ours. Nothing behind it is read.
pub(super) async fn wanted(stream: &mut UnixStream) -> io::Result<Option<String>> {
    let mut line = Vec::new();
    while line.len() < LINE_BYTES_MAX {
        match stream.read_u8().await? {
            b'\n' => {
                let line = String::from_utf8(line).ok();
                let rest = line
                    .as_deref()
                    .and_then(|it| it.strip_prefix(&RAW_MARK[1..]));
                return Ok(rest.map(ToOwned::to_owned));
            }
            byte => line.push(byte),
        }
    }
    Ok(None)
}
