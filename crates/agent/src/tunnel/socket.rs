//! Sockets inside the container: TCP on loopback, or unix.

use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd};
use std::path::{Path, PathBuf};
use std::time::Duration;

use bytes::Bytes;
use hotcell_agent_api::bounds::CHUNK_BYTES_MAX;
use rustix::buffer::spare_capacity;
use rustix::net::{
    AddressFamily, Shutdown, SocketAddrUnix, SocketFlags, SocketType, bind, listen, shutdown,
    socket_with, sockopt,
};
use tokio::io::Interest;
use tokio::net::{TcpListener, TcpSocket, TcpStream, UnixListener, UnixStream};

use super::address::LocalAddress;

/// Connections that the kernel completes before we accept them.
const BACKLOG: i32 = 128;

/// One end of a tunnel. Dropped before [`LocalSocket::finish`], a TCP connection is reset. A unix
/// connection cannot be reset; its peer reads end of file.
#[derive(Debug)]
pub(crate) struct LocalSocket {
    stream: Stream,
    is_finished: bool,
}

#[derive(Debug)]
enum Stream {
    Tcp(TcpStream),
    Unix(UnixStream),
}

impl LocalSocket {
    pub(super) async fn connect(address: &LocalAddress) -> io::Result<Self> {
        let stream = match address {
            LocalAddress::Tcp(address) => Stream::Tcp(TcpStream::connect(address).await?),
            LocalAddress::Unix(path) => Stream::Unix(UnixStream::connect(path).await?),
            LocalAddress::Udp(_) => return Err(io::ErrorKind::Unsupported.into()),
        };
        Self::new(stream)
    }

    fn new(stream: Stream) -> io::Result<Self> {
        if let Stream::Tcp(tcp) = &stream {
            tcp.set_nodelay(true)?;
        }
        Ok(Self {
            stream,
            is_finished: false,
        })
    }

    /// The next bytes; empty at end of file.
    pub(super) async fn read(&self) -> io::Result<Bytes> {
        match &self.stream {
            Stream::Tcp(tcp) => tcp.async_io(Interest::READABLE, || read(tcp)).await,
            Stream::Unix(unix) => unix.async_io(Interest::READABLE, || read(unix)).await,
        }
    }

    pub(super) async fn write_all(&self, mut data: &[u8]) -> io::Result<()> {
        while !data.is_empty() {
            let count = match &self.stream {
                Stream::Tcp(tcp) => tcp.async_io(Interest::WRITABLE, || write(tcp, data)).await,
                Stream::Unix(unix) => {
                    unix.async_io(Interest::WRITABLE, || write(unix, data))
                        .await
                }
            }?;
            data = &data[count..];
        }
        Ok(())
    }

    /// Half-close: the peer reads end of file after the remaining bytes.
    pub(super) fn end_writing(&self) -> io::Result<()> {
        Ok(shutdown(self.as_fd(), Shutdown::Write)?)
    }

    /// Closes the connection normally.
    pub(super) fn finish(mut self) {
        self.is_finished = true;
    }
}

impl AsFd for LocalSocket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match &self.stream {
            Stream::Tcp(tcp) => tcp.as_fd(),
            Stream::Unix(unix) => unix.as_fd(),
        }
    }
}

impl Drop for LocalSocket {
    fn drop(&mut self) {
        if !self.is_finished && matches!(self.stream, Stream::Tcp(_)) {
            // Closing a socket with zero linger time resets the connection.
            let _ = sockopt::set_socket_linger(self.as_fd(), Some(Duration::ZERO));
        }
    }
}

/// Reads once. A small chunk is copied, so that it does not pin a large buffer.
fn read(socket: impl AsFd) -> io::Result<Bytes> {
    let mut buffer = Vec::with_capacity(CHUNK_BYTES_MAX);
    rustix::io::retry_on_intr(|| rustix::io::read(&socket, spare_capacity(&mut buffer)))?;
    if buffer.len() < buffer.capacity() / 2 {
        return Ok(Bytes::copy_from_slice(&buffer));
    }
    Ok(buffer.into())
}

fn write(socket: impl AsFd, data: &[u8]) -> io::Result<usize> {
    Ok(rustix::io::retry_on_intr(|| {
        rustix::io::write(&socket, data)
    })?)
}

/// A listener; dropping it closes it and removes its path.
#[derive(Debug)]
pub(super) enum LocalListener {
    Tcp(TcpListener),
    Unix(UnixListener, PathBuf),
}

impl LocalListener {
    pub(super) fn bind(address: &LocalAddress) -> io::Result<Self> {
        match address {
            LocalAddress::Tcp(address) => bind_tcp(*address).map(Self::Tcp),
            LocalAddress::Unix(path) => {
                bind_unix(path).map(|listener| Self::Unix(listener, path.clone()))
            }
            LocalAddress::Udp(_) => Err(io::ErrorKind::Unsupported.into()),
        }
    }

    pub(super) fn address(&self) -> io::Result<LocalAddress> {
        match self {
            Self::Tcp(tcp) => tcp.local_addr().map(LocalAddress::Tcp),
            Self::Unix(_, path) => Ok(LocalAddress::Unix(path.clone())),
        }
    }

    pub(super) async fn accept(&self) -> io::Result<LocalSocket> {
        let stream = match self {
            Self::Tcp(tcp) => Stream::Tcp(tcp.accept().await?.0),
            Self::Unix(unix, _) => Stream::Unix(unix.accept().await?.0),
        };
        LocalSocket::new(stream)
    }
}

impl Drop for LocalListener {
    fn drop(&mut self) {
        if let Self::Unix(_, path) = self {
            // Anything that the container has put there since belongs to the same user.
            let _ = std::fs::remove_file(path);
        }
    }
}

fn bind_tcp(address: SocketAddr) -> io::Result<TcpListener> {
    let socket = if address.is_ipv4() {
        TcpSocket::new_v4()?
    } else {
        TcpSocket::new_v6()?
    };
    socket.set_reuseaddr(true)?;
    socket.bind(address)?;
    socket.listen(BACKLOG.cast_unsigned())
}

fn bind_unix(path: &Path) -> io::Result<UnixListener> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
    bind(&socket, &SocketAddrUnix::new(path)?)?;
    listen(&socket, BACKLOG)?;
    UnixListener::from_std(socket.into())
}
