//! The pipes or the terminal between an exec and the agent.
//!
//! Our ends are non-blocking, the process' ends are blocking. All have `FD_CLOEXEC`.

use std::os::fd::OwnedFd;
use std::sync::Arc;

use hotcell_agent_api::v1::Stream;
use rustix::fs::{Mode, OFlags};
use rustix::io::{Errno, ioctl_fionbio};
use rustix::pipe::{PipeFlags, pipe_with};
use rustix::pty::{OpenptFlags, ioctl_tiocgptpeer, openpt, ptsname, unlockpt};
use rustix::termios::{Winsize, tcsetwinsize};
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

use super::output::Outputs;
use super::start::Start;
use crate::process::Stdio;
use crate::sys;

/// One of the agent's ends.
pub(crate) type Fd = Arc<AsyncFd<OwnedFd>>;

/// Both ends of an exec's streams.
pub(super) struct Opened {
    pub child: Stdio,
    /// Where `Input` writes.
    pub input: Option<Fd>,
    pub outputs: Outputs,
    pub terminal: Option<Fd>,
}

/// Opens pipes or a terminal, as the request says.
pub(super) fn open(start: &Start) -> Result<Opened, Errno> {
    match start.tty {
        Some(size) => open_terminal(size, start.stdin),
        None => open_pipes(start.stdin),
    }
}

fn open_pipes(keep_stdin: bool) -> Result<Opened, Errno> {
    let (stdin, input) = pipe_in(keep_stdin)?;
    let (out, stdout) = pipe_out()?;
    let (err, stderr) = pipe_out()?;
    Ok(Opened {
        child: Stdio {
            stdin,
            stdout,
            stderr,
            tty: false,
        },
        input,
        outputs: Outputs::new([(Stream::Stdout, out), (Stream::Stderr, err)]),
        terminal: None,
    })
}

fn open_terminal(size: Winsize, keep_stdin: bool) -> Result<Opened, Errno> {
    let flags = OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC;
    let master = openpt(flags)?;
    unlockpt(&master)?;
    let slave = other_end(&master, flags)?;
    tcsetwinsize(&master, size)?;
    let master = watch_nonblocking(master, Interest::READABLE | Interest::WRITABLE)?;
    // Without stdin, the process must read end of file at once, as with pipes. It can still open
    // the terminal itself.
    let stdin = if keep_stdin {
        copy(&slave)?
    } else {
        pipe_in(false)?.0
    };
    Ok(Opened {
        child: Stdio {
            stdin,
            stdout: copy(&slave)?,
            stderr: slave,
            tty: true,
        },
        input: keep_stdin.then(|| master.clone()),
        outputs: Outputs::new([(Stream::Stdout, master.clone())]),
        terminal: Some(master),
    })
}

/// The process' end of a terminal.
fn other_end(master: &OwnedFd, flags: OpenptFlags) -> Result<OwnedFd, Errno> {
    match ioctl_tiocgptpeer(master, flags) {
        // gVisor does not support this call; there, the terminal is opened by name.
        Err(Errno::NOTTY | Errno::INVAL) => {}
        opened => return opened,
    }
    let name = ptsname(master, Vec::new())?;
    let flags = OFlags::RDWR | OFlags::NOCTTY | OFlags::CLOEXEC;
    rustix::fs::open(name, flags, Mode::empty())
}

/// A pipe for stdin. If `keep` is false, our end is closed and the process reads end of file.
fn pipe_in(keep: bool) -> Result<(OwnedFd, Option<Fd>), Errno> {
    let (read, write) = pipe_with(PipeFlags::CLOEXEC)?;
    let write = if keep {
        Some(watch_nonblocking(write, Interest::WRITABLE)?)
    } else {
        None
    };
    Ok((read, write))
}

fn pipe_out() -> Result<(Fd, OwnedFd), Errno> {
    let (read, write) = pipe_with(PipeFlags::CLOEXEC)?;
    Ok((watch_nonblocking(read, Interest::READABLE)?, write))
}

/// Makes a descriptor non-blocking and registers it with the runtime.
pub(crate) fn watch_nonblocking(fd: OwnedFd, interest: Interest) -> Result<Fd, Errno> {
    ioctl_fionbio(&fd, true)?;
    sys::watch(fd, interest).map(Arc::new)
}

fn copy(fd: &OwnedFd) -> Result<OwnedFd, Errno> {
    rustix::io::fcntl_dupfd_cloexec(fd, 3)
}
