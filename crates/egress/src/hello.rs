//! Reads the first message of a TLS connection without answering it.

use std::io;

use bytes::BytesMut;
use rustls::server::Acceptor;
use tokio::io::{AsyncRead, AsyncReadExt as _};

use crate::HostName;

/// Largest `ClientHello`, with the headers of its records.
pub(crate) const HELLO_BYTES_MAX: usize = 16 * 1024;

/// What a client says before anything is encrypted.
#[derive(Debug)]
pub(crate) struct Hello {
    /// The name that it connects to; `None` if it names none, or an address.
    pub(crate) name: Option<HostName>,
    /// The protocols that it offers, in its order.
    pub(crate) protocols: Vec<Vec<u8>>,
    /// All that was read, to be sent on.
    pub(crate) bytes: BytesMut,
}

impl Hello {
    /// Whether the client speaks a protocol. One that names none speaks HTTP/1.1.
    pub(crate) fn can_speak(&self, protocol: &[u8]) -> bool {
        self.protocols.is_empty() || self.protocols.iter().any(|own| own == protocol)
    }
}

/// Why there is no hello.
#[derive(Debug, thiserror::Error)]
pub(crate) enum HelloError {
    #[error("the connection ended before its first message")]
    Io(#[from] io::Error),
    #[error("this is not TLS")]
    NotTls,
    #[error("the first message is too long")]
    TooLong,
}

/// Reads a hello. The caller limits how long that may take.
pub(crate) async fn read(stream: &mut (impl AsyncRead + Unpin)) -> Result<Hello, HelloError> {
    let mut bytes = BytesMut::with_capacity(2048);
    let mut acceptor = Acceptor::default();
    loop {
        if bytes.len() >= HELLO_BYTES_MAX {
            return Err(HelloError::TooLong);
        }
        let before = bytes.len();
        if stream.read_buf(&mut bytes).await? == 0 {
            return Err(HelloError::Io(io::ErrorKind::UnexpectedEof.into()));
        }
        let mut fresh = &bytes[before..];
        while !fresh.is_empty() {
            acceptor.read_tls(&mut fresh)?;
            match acceptor.accept() {
                Ok(None) => {}
                Ok(Some(accepted)) => {
                    let hello = accepted.client_hello();
                    let name = hello.server_name();
                    let name = name.and_then(|name| HostName::parse(name).ok());
                    let protocols = hello.alpn().into_iter().flatten();
                    let protocols = protocols.map(<[u8]>::to_vec).collect();
                    return Ok(Hello {
                        name,
                        protocols,
                        bytes,
                    });
                }
                Err(_) => return Err(HelloError::NotTls),
            }
        }
    }
}
