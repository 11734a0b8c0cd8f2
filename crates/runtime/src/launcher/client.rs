//! The server's end of the connection to the launcher.

use std::fs::File;
use std::io::{self, Write};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, memfd_create};
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};

use super::wire::{self, Reply};
use super::{FDS_MAX, LAUNCHER_ARGV0, LaunchError};
use crate::cgroup::ContainerCgroups;
use crate::spec::{Enforced, LaunchSpec};
use crate::start::START_TIMEOUT;

/// A launcher that does not answer within this time is considered dead.
const REPLY_TIMEOUT: Duration = START_TIMEOUT.saturating_add(Duration::from_secs(10));

/// A container whose init program runs.
#[derive(Debug)]
pub struct Launched {
    /// The process id of init on the host.
    pub pid: u32,
    /// Readable once the container has ended.
    pub pidfd: OwnedFd,
    /// Field 22 of `/proc/PID/stat`; together with the id it identifies the process.
    pub start_time: u64,
    /// The caller removes these once the container has ended.
    pub cgroup: ContainerCgroups,
    /// What enforces each limit.
    pub enforced: Enforced,
}

/// A running launcher process. Dropping it ends the launcher; its containers keep running.
#[derive(Debug)]
pub struct Launcher {
    connection: Mutex<Connection>,
}

#[derive(Debug)]
struct Connection {
    /// `None` once the launcher has failed to answer.
    socket: Option<OwnedFd>,
    /// Whether it has said that it can start containers.
    is_ready: bool,
    process: Child,
}

impl Launcher {
    /// Starts `program` (usually `/proc/self/exe`) as the launcher. It will run the bytes of `init`
    /// as PID 1 of each container.
    ///
    /// Does not wait until the launcher is ready, which takes some milliseconds: the first
    /// [`Launcher::launch`] does, and fails with [`LaunchError::Start`] if it never is.
    pub fn start(program: &Path, init: &[u8]) -> Result<Self, LaunchError> {
        let start = |source| LaunchError::Start { source };
        let (ours, theirs) = socketpair(
            AddressFamily::UNIX,
            SocketType::SEQPACKET,
            SocketFlags::CLOEXEC,
            None,
        )
        .map_err(|errno| start(errno.into()))?;
        let process = Command::new(program)
            .arg0(LAUNCHER_ARGV0)
            .stdin(Stdio::from(theirs))
            .stdout(Stdio::null())
            .spawn()
            .map_err(start)?;
        let connection = Connection {
            socket: Some(ours),
            is_ready: false,
            process,
        };
        // Done while the launcher starts; each takes about a millisecond.
        let init = sealed(init).map_err(start)?;
        if let Some(socket) = &connection.socket {
            wire::send(socket, &(), &[init.as_fd()]).map_err(start)?;
        }
        Ok(Self {
            connection: Mutex::new(connection),
        })
    }

    /// Starts a container and returns once its init program runs.
    ///
    /// `log` becomes descriptor 2 of init, `fds` become [`crate::FIRST_FD`] and up; 0 and 1 are the
    /// container's `/dev/null`. Blocks for some milliseconds; concurrent calls are served one after
    /// another. On `Err` no process, mount or cgroup is left, except after [`LaunchError::Gone`]:
    /// then [`crate::cgroup::HostCgroups::find`] finds any cgroup that is.
    pub fn launch(
        &self,
        spec: &LaunchSpec,
        log: BorrowedFd<'_>,
        fds: &[BorrowedFd<'_>],
    ) -> Result<Launched, LaunchError> {
        if fds.len() > FDS_MAX {
            let reason = format!("a container gets at most {FDS_MAX} descriptors");
            return Err(LaunchError::InvalidSpec { reason });
        }
        let all: Vec<_> = std::iter::once(log).chain(fds.iter().copied()).collect();
        let mut connection = self
            .connection
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        match connection.call(spec, &all)? {
            (
                Reply::Launched {
                    pid,
                    start_time,
                    cgroup,
                    enforced,
                },
                mut fds,
            ) => {
                let pidfd = fds
                    .pop()
                    .ok_or_else(|| connection.gone(io::ErrorKind::InvalidData.into()))?;
                Ok(Launched {
                    pid,
                    pidfd,
                    start_time,
                    cgroup,
                    enforced,
                })
            }
            (Reply::Failed(error), _) => Err(error.into()),
            (Reply::Ready, _) => Err(connection.gone(io::ErrorKind::InvalidData.into())),
        }
    }

    /// The launcher's process id.
    pub fn pid(&self) -> u32 {
        self.connection
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .process
            .id()
    }
}

impl Connection {
    fn call<T: serde::Serialize>(
        &mut self,
        message: &T,
        fds: &[BorrowedFd<'_>],
    ) -> Result<(Reply, Vec<OwnedFd>), LaunchError> {
        let Some(socket) = &self.socket else {
            return Err(LaunchError::Gone {
                source: io::ErrorKind::NotConnected.into(),
            });
        };
        if let Err(error) = wire::send(socket, message, fds) {
            if error.kind() == io::ErrorKind::InvalidInput {
                let reason = "the spec is too long".to_owned();
                return Err(LaunchError::InvalidSpec { reason });
            }
            return Err(if self.is_ready {
                self.gone(error)
            } else {
                self.never_ready(error)
            });
        }
        if !self.is_ready {
            match receive(socket) {
                Ok((Reply::Ready, _)) => self.is_ready = true,
                Ok((Reply::Launched { .. } | Reply::Failed(_), _)) => {
                    return Err(self.never_ready(io::ErrorKind::InvalidData.into()));
                }
                Err(error) => return Err(self.never_ready(error)),
            }
        }
        receive(socket).map_err(|error| self.gone(error))
    }

    /// It has not become a launcher, and another one would not either.
    fn never_ready(&mut self, source: io::Error) -> LaunchError {
        let _ = self.gone(io::ErrorKind::NotConnected.into());
        LaunchError::Start { source }
    }

    /// Drops the connection: a late answer would otherwise be taken for the next one.
    fn gone(&mut self, source: io::Error) -> LaunchError {
        self.socket = None;
        // It may have exited already.
        let _ = self.process.kill();
        LaunchError::Gone { source }
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        // Closing the socket ends the launcher. If it is just starting a container, that takes at
        // most [`START_TIMEOUT`].
        self.socket = None;
        let _ = self.process.wait();
    }
}

fn receive(socket: &OwnedFd) -> io::Result<(Reply, Vec<OwnedFd>)> {
    wait(socket)?;
    let answer = wire::receive(socket)?;
    answer.ok_or_else(|| io::ErrorKind::UnexpectedEof.into())
}

fn wait(socket: &OwnedFd) -> io::Result<()> {
    let timeout = Timespec::try_from(REPLY_TIMEOUT).unwrap_or_default();
    loop {
        match poll(&mut [PollFd::new(socket, PollFlags::IN)], Some(&timeout)) {
            Ok(0) => return Err(io::ErrorKind::TimedOut.into()),
            Ok(_) => return Ok(()),
            Err(Errno::INTR) => {}
            Err(errno) => return Err(errno.into()),
        }
    }
}

/// An executable memfd that can no longer be modified.
fn sealed(bytes: &[u8]) -> io::Result<OwnedFd> {
    let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
    let file = match memfd_create(c"init", flags | MemfdFlags::EXEC) {
        // Before Linux 6.3 there is no such flag, and every memfd is executable.
        Err(Errno::INVAL) => memfd_create(c"init", flags),
        other => other,
    }?;
    let mut file = File::from(file);
    file.write_all(bytes)?;
    let seals = SealFlags::WRITE | SealFlags::GROW | SealFlags::SHRINK | SealFlags::SEAL;
    fcntl_add_seals(&file, seals)?;
    Ok(file.into())
}
