//! The pipes or the terminal between an exec and the agent.
//!
//! Our ends never block; the process's ends are its own and do. All close on exec.

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

/// One of our ends.
pub(super) type Fd = Arc<AsyncFd<OwnedFd>>;

/// Both sides of an exec's streams.
pub(super) struct Opened {
    /// For the process.
    pub child: Stdio,
    /// Where Input goes.
    pub input: Option<Fd>,
    /// Where output comes from.
    pub outputs: Outputs,
    /// The terminal, if it has one.
    pub terminal: Option<Fd>,
}

/// Opens what the start asks for.
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
    // Without stdin the process must read the end of file at once, as it does without a
    // terminal; it can still open the terminal itself.
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

/// The end of a terminal that processes get.
fn other_end(master: &OwnedFd, flags: OpenptFlags) -> Result<OwnedFd, Errno> {
    match ioctl_tiocgptpeer(master, flags) {
        // gVisor does not know the call; its terminals have names.
        Err(Errno::NOTTY | Errno::INVAL) => {}
        opened => return opened,
    }
    let name = ptsname(master, Vec::new())?;
    let flags = OFlags::RDWR | OFlags::NOCTTY | OFlags::CLOEXEC;
    rustix::fs::open(name, flags, Mode::empty())
}

/// A pipe whose writing end is ours, or closed: the process then reads the end of file.
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

/// Makes an end ours: it does not block, and the runtime watches it.
pub(super) fn watch_nonblocking(fd: OwnedFd, interest: Interest) -> Result<Fd, Errno> {
    ioctl_fionbio(&fd, true)?;
    sys::watch(fd, interest).map(Arc::new)
}

fn copy(fd: &OwnedFd) -> Result<OwnedFd, Errno> {
    rustix::io::fcntl_dupfd_cloexec(fd, 3)
}
