//! The launcher's main loop: one request at a time, until the server closes the socket.

use std::fs;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::process::ExitCode;
use std::rc::Rc;

use rustix::event::{PollFd, PollFlags, poll};
use rustix::process::{
    Resource, Rlimit, WaitOptions, chdir, getppid, getrlimit, setrlimit, setsid, wait,
};

use super::wire::{self, Reply};
use super::{FDS_MAX, LaunchError};
use crate::cgroup::{ContainerCgroups, HostCgroups};
use crate::plan::{self, Builder, CORE_BYTES_MAX, InitFds, Op, Step};
use crate::seccomp::SeccompFilters;
use crate::spec::{Enforced, LaunchSpec};
use crate::start::{self, NAMESPACES, Started};
use crate::{process, sys};

/// Descriptors from this number on were left open by the server's parent.
const FIRST_FOREIGN_FD: i32 = 3;

/// Runs the launcher on the socket at descriptor 0 until the server has exited.
///
/// Must be called before any thread exists.
pub fn run_launcher() -> ExitCode {
    match serve() {
        Ok(()) => ExitCode::SUCCESS,
        // The server died before it had read that the launcher is ready.
        Err(error) if is_hang_up(&error) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("hotcell-launcher: {error}");
            ExitCode::FAILURE
        }
    }
}

fn is_hang_up(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::ConnectionReset | io::ErrorKind::BrokenPipe
    )
}

fn serve() -> io::Result<()> {
    // Terminal signals and descriptors left open by the server's parent are not for the launcher.
    let _ = setsid();
    close_inherited()?;
    sys::reset_signals();
    chdir("/")?;
    expendable();
    raise_core_limit();
    // Used by containers that cannot have a keyring of their own.
    let _ = sys::join_session_keyring();
    let children = sys::child_signals()?;
    let socket = start::private(&io::stdin())?;
    // While the server fills the file of the init program.
    let (host, filters) = (host(), Rc::new(SeccompFilters::compile()));
    let Some(((), mut fds)) = wire::receive(&socket)? else {
        return Ok(());
    };
    let init = fds.pop().ok_or(io::ErrorKind::InvalidData)?;
    let launcher = LaunchServer {
        host,
        init,
        filters,
    };
    wire::send(&socket, &Reply::Ready, &[])?;
    while await_request(&socket, &children)? {
        let Some((spec, fds)) = wire::receive::<LaunchSpec>(&socket)? else {
            return Ok(());
        };
        launcher.answer(&socket, &spec, &fds)?;
    }
    Ok(())
}

/// The server may be protected from the OOM killer. Containers inherit the launcher's score and
/// must not be.
fn expendable() {
    const SCORE: &str = "/proc/self/oom_score_adj";
    let protected = fs::read_to_string(SCORE).is_ok_and(|score| score.starts_with('-'));
    if protected {
        // Raising the score is always allowed; without the file there is no protection either.
        let _ = fs::write(SCORE, "0");
    }
}

/// Service managers often set a hard limit of 0 on core files. Containers would inherit it, and
/// with a limit of 0 the kernel runs the host's crash handler for them. Only host root can raise
/// the limit, and only here: inside its user namespace a container is not host root.
fn raise_core_limit() {
    let hard = getrlimit(Resource::Core).maximum;
    if hard.is_some_and(|hard| hard < CORE_BYTES_MAX) {
        let least = Some(CORE_BYTES_MAX);
        let limit = Rlimit {
            current: least,
            maximum: least,
        };
        let _ = setrlimit(Resource::Core, limit);
    }
}

fn host() -> HostCgroups {
    let server = getppid().map_or(0, |pid| pid.as_raw_nonzero().get().cast_unsigned());
    HostCgroups::detect().prepare(&[std::process::id(), server])
}

/// Waits for a request, reaping containers that exit meanwhile.
fn await_request(socket: &OwnedFd, children: &OwnedFd) -> io::Result<bool> {
    loop {
        let mut polled = [
            PollFd::new(socket, PollFlags::IN),
            PollFd::new(children, PollFlags::IN),
        ];
        match poll(&mut polled, None) {
            Err(rustix::io::Errno::INTR) => continue,
            other => other?,
        };
        let request = !polled[0].revents().is_empty();
        if !polled[1].revents().is_empty() {
            reap(children);
        }
        if request {
            return Ok(true);
        }
    }
}

/// Closes descriptors that the server's parent left open. A pipe that the launcher kept open would
/// never reach end of file.
fn close_inherited() -> io::Result<()> {
    for entry in std::fs::read_dir("/proc/self/fd")? {
        let number = entry?.file_name();
        let number = number.to_str().and_then(|number| number.parse().ok());
        if let Some(fd) = number.filter(|fd| *fd >= FIRST_FOREIGN_FD) {
            sys::close_inherited(fd);
        }
    }
    Ok(())
}

fn reap(children: &OwnedFd) {
    // Drained first: a child that exits after this makes it readable again.
    let _ = rustix::io::read(children, &mut [0_u8; 128]);
    while let Ok(Some(_)) = wait(WaitOptions::NOHANG) {}
}

struct LaunchServer {
    host: HostCgroups,
    init: OwnedFd,
    filters: Rc<SeccompFilters>,
}

struct PreparedContainer {
    started: Started,
    start_time: u64,
    cgroups: ContainerCgroups,
    enforced: Enforced,
}

impl LaunchServer {
    fn answer(&self, socket: &OwnedFd, spec: &LaunchSpec, fds: &[OwnedFd]) -> io::Result<()> {
        match self.launch(spec, fds) {
            Ok(prepared) => {
                let reply = Reply::Launched {
                    pid: prepared.started.pid,
                    start_time: prepared.start_time,
                    cgroup: prepared.cgroups.clone(),
                    enforced: prepared.enforced,
                };
                let sent = wire::send(socket, &reply, &[prepared.started.pidfd.as_fd()]);
                if sent.is_err() {
                    // The server does not know this container, so nobody else would end it.
                    start::end(&prepared.started.pidfd);
                    let _ = prepared.cgroups.remove();
                }
                sent
            }
            Err(error) => wire::send(socket, &Reply::Failed(error.into()), &[]),
        }
    }

    fn launch(&self, spec: &LaunchSpec, fds: &[OwnedFd]) -> Result<PreparedContainer, LaunchError> {
        let builder = Builder::root(spec)?;
        let no_groups = HostCgroups::none("it was not asked for");
        let host = if spec.cgroup { &self.host } else { &no_groups };
        let (cgroups, enforced) = host
            .create(&spec.name, &spec.limits)
            .map_err(LaunchError::step("make the cgroup"))?;
        let started = self.launch_in(spec, fds, builder, &cgroups, enforced);
        if started.is_err() {
            // Only a member process could prevent the removal, and there is none.
            let _ = cgroups.remove();
        }
        let (started, start_time) = started?;
        Ok(PreparedContainer {
            started,
            start_time,
            cgroups,
            enforced,
        })
    }

    fn launch_in(
        &self,
        spec: &LaunchSpec,
        fds: &[OwnedFd],
        builder: Builder,
        cgroups: &ContainerCgroups,
        enforced: Enforced,
    ) -> Result<(Started, u64), LaunchError> {
        let fds = arrange(fds)?;
        let init =
            start::private(&self.init).map_err(LaunchError::step("open the init program"))?;
        let last = plan::finish(spec, enforced, fds, init, Rc::clone(&self.filters))?;
        let first = first_steps(cgroups).map_err(LaunchError::step("open the cgroup"))?;
        let cgroup = cgroups
            .v2_dir()
            .map_err(LaunchError::step("open the cgroup"))?;
        let plan = builder.into_plan(first, &spec.ids, last);
        let started = start::start(&plan, NAMESPACES, Some(&spec.ids), cgroup.as_ref())?;
        // Valid even if init has exited: it is not reaped before the next request.
        let start_time = process::start_time(started.pid).unwrap_or_default();
        Ok((started, start_time))
    }
}

/// The first descriptor is the log.
fn arrange(fds: &[OwnedFd]) -> Result<InitFds, LaunchError> {
    let step = "take the descriptors";
    let mut fds = fds
        .iter()
        .take(FDS_MAX + 1)
        .map(start::private)
        .collect::<io::Result<Vec<_>>>()
        .map_err(LaunchError::step(step))?
        .into_iter();
    let log = fds.next().ok_or_else(|| LaunchError::InvalidSpec {
        reason: "there is no log".to_owned(),
    })?;
    Ok(InitFds {
        log,
        others: fds.collect(),
    })
}

/// The steps before the child changes its user.
fn first_steps(cgroups: &ContainerCgroups) -> io::Result<Vec<Step>> {
    let mut steps: Vec<Step> = cgroups
        .v1_tasks()?
        .into_iter()
        .map(|tasks| Step {
            name: "join the cgroup",
            op: Op::JoinCgroup(tasks),
        })
        .collect();
    steps.push(Step {
        name: "hide the other cgroups",
        op: Op::HideCgroups,
    });
    steps.push(Step {
        name: "make a keyring",
        op: Op::NewKeyring,
    });
    Ok(steps)
}

#[cfg(test)]
mod tests {
    use std::os::fd::{AsRawFd as _, IntoRawFd as _};

    use super::*;

    #[test]
    fn only_what_came_through_exec_is_closed() {
        let (ours, theirs) = rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC).unwrap();
        assert!(!sys::close_inherited(ours.as_raw_fd()));
        rustix::io::fcntl_getfd(&ours).unwrap();
        // Like a descriptor inherited through exec: open, without FD_CLOEXEC, owned by no value
        // here.
        rustix::io::fcntl_setfd(&theirs, rustix::io::FdFlags::empty()).unwrap();
        assert!(sys::close_inherited(theirs.into_raw_fd()));
        assert_eq!(rustix::io::read(&ours, &mut [0_u8; 1]), Ok(0));
    }

    #[test]
    fn every_container_gets_a_keyring_before_it_changes_its_user() {
        let cgroups = serde_json::from_value(serde_json::json!({ "v1": [], "v2": null }));
        let steps = first_steps(&cgroups.unwrap()).unwrap();
        assert!(steps.iter().any(|step| matches!(step.op, Op::NewKeyring)));
    }
}
