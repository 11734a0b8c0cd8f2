//! The bridge that engines without a socket of their own run inside the container, once per
//! connection: stdin and stdout on one side, the agent's socket on the other.
//!
//! It has one thread, because every thread counts against the container's pids limit. So nothing
//! may block here except the poll for both sides.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, poll};
use rustix::fs::{OFlags, fcntl_getfl, fcntl_setfl};
use rustix::io::Errno;

use crate::args::Target;
use crate::handshake;

/// Buffer size per direction.
const BUFFER_BYTES: usize = 64 << 10;

/// How long to wait for an agent that is just starting.
const LISTEN_TIMEOUT: Duration = Duration::from_secs(10);

/// Pause between two connection attempts.
const LISTEN_INTERVAL: Duration = Duration::from_millis(2);

/// Copies in both directions until one side closes.
pub(crate) fn run(target: &Target) -> io::Result<()> {
    let socket = match target {
        Target::Path(path) => at_path(path)?,
        Target::Abstract(name) => connect_abstract(name)?,
    };
    let (stdin, stdout) = (rustix::stdio::stdin(), rustix::stdio::stdout());
    for side in [stdin, stdout, socket.as_fd()] {
        fcntl_setfl(side, fcntl_getfl(side)? | OFlags::NONBLOCK)?;
    }
    let mut inward = Pump::new(stdin, socket.as_fd());
    let mut outward = Pump::new(socket.as_fd(), stdout);
    while inward.step()? && outward.step()? {
        wait(&[&inward, &outward])?;
    }
    // Forward what the agent sent before it closed.
    outward.drain()
}

fn at_path(path: &Path) -> io::Result<UnixStream> {
    UnixStream::connect(path)
}

/// Connects, retrying while PID 1 is not listening yet.
fn connect_abstract(name: &str) -> io::Result<UnixStream> {
    let address = handshake::address(name)?;
    let deadline = Instant::now() + LISTEN_TIMEOUT;
    let socket = loop {
        match UnixStream::connect_addr(&address) {
            Err(error)
                if error.kind() == io::ErrorKind::ConnectionRefused
                    && Instant::now() < deadline =>
            {
                thread::sleep(LISTEN_INTERVAL);
            }
            connected => break connected?,
        }
    };
    handshake::send_credentials(&socket)?;
    Ok(socket)
}

fn wait(pumps: &[&Pump<'_>]) -> io::Result<()> {
    let mut watched: Vec<_> = pumps.iter().map(|pump| pump.watched()).collect();
    match poll(&mut watched, None) {
        Ok(_) | Err(Errno::INTR) => Ok(()),
        Err(errno) => Err(errno.into()),
    }
}

/// Copies one direction.
struct Pump<'a> {
    from: BorrowedFd<'a>,
    to: BorrowedFd<'a>,
    buffer: Vec<u8>,
    /// The part of the buffer that is read but not yet written.
    held: std::ops::Range<usize>,
}

impl<'a> Pump<'a> {
    fn new(from: BorrowedFd<'a>, to: BorrowedFd<'a>) -> Self {
        Self {
            from,
            to,
            buffer: vec![0; BUFFER_BYTES],
            held: 0..0,
        }
    }

    /// The event that this direction waits for.
    fn watched(&self) -> PollFd<'a> {
        if self.held.is_empty() {
            PollFd::from_borrowed_fd(self.from, PollFlags::IN)
        } else {
            PollFd::from_borrowed_fd(self.to, PollFlags::OUT)
        }
    }

    /// Copies what is possible without blocking; false at end of file.
    fn step(&mut self) -> io::Result<bool> {
        loop {
            if !self.write_held()? {
                return Ok(true);
            }
            match rustix::io::read(self.from, &mut self.buffer[..]) {
                Ok(0) => return Ok(false),
                Ok(count) => self.held = 0..count,
                Err(Errno::AGAIN) => return Ok(true),
                Err(Errno::INTR) => {}
                Err(errno) => return Err(errno.into()),
            }
        }
    }

    /// Writes buffered bytes; false if the other side would block.
    fn write_held(&mut self) -> io::Result<bool> {
        while !self.held.is_empty() {
            match rustix::io::write(self.to, &self.buffer[self.held.clone()]) {
                Ok(count) => self.held.start += count,
                Err(Errno::AGAIN) => return Ok(false),
                Err(Errno::INTR) => {}
                Err(errno) => return Err(errno.into()),
            }
        }
        Ok(true)
    }

    /// Forwards what the sender has already sent.
    fn drain(&mut self) -> io::Result<()> {
        while self.step()? && !self.held.is_empty() {
            wait(&[self])?;
        }
        Ok(())
    }
}
