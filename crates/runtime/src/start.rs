//! Clones the first process of a container and supervises it until its plan is done.
//!
//! On `Err` the child has been killed and reaped.

use std::io::{self, IoSlice};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, OwnedFd};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::net::{
    AddressFamily, SendAncillaryBuffer, SendAncillaryMessage, SendFlags, SocketFlags, SocketType,
    sendmsg, socketpair,
};
use rustix::pipe::{PipeFlags, pipe_with};
use rustix::process::{WaitId, WaitIdOptions, waitid};

use crate::child::{self, DONE, ParentLink};
use crate::plan::{MAPPED_MAX, MappedMount, Plan};
use crate::spec::IdMap;
use crate::{mapped_mount, process, sys};

/// How long a container may take until its init program runs.
pub(crate) const START_TIMEOUT: Duration = Duration::from_mins(1);

/// The child needs the descriptor numbers below this for itself.
const PRIVATE_FD_MIN: i32 = 64;

/// All namespaces of a container except the cgroup namespace, which the child creates itself.
pub(crate) const NAMESPACES: i32 = libc::CLONE_NEWUSER
    | libc::CLONE_NEWNS
    | libc::CLONE_NEWPID
    | libc::CLONE_NEWNET
    | libc::CLONE_NEWIPC
    | libc::CLONE_NEWUTS;

/// A process that has completed its plan.
pub(crate) struct Started {
    /// As numbered in this process' pid namespace.
    pub pid: u32,
    pub pidfd: OwnedFd,
}

/// Why a plan was not completed.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// A step failed.
    #[error("could not {step}")]
    Step {
        /// Completes "could not …".
        step: &'static str,
        /// The error of the system call.
        source: io::Error,
    },
    /// The process exited before the end of its plan.
    #[error("the process was killed before it reached the init program")]
    Died,
    /// It took longer than [`START_TIMEOUT`].
    #[error("the init program was not reached within {} s", START_TIMEOUT.as_secs())]
    TimedOut,
}

impl StartError {
    fn step(step: &'static str) -> impl FnOnce(io::Error) -> Self {
        move |source| Self::Step { step, source }
    }
}

/// Moves a descriptor out of the range of numbers that init will use.
pub(crate) fn private(fd: &impl AsFd) -> io::Result<OwnedFd> {
    Ok(rustix::io::fcntl_dupfd_cloexec(fd, PRIVATE_FD_MIN)?)
}

/// Executes `plan` in a new process in new `namespaces`, as a member of the v2 cgroup `cgroup`. A
/// new user namespace needs `ids`.
pub(crate) fn start(
    plan: &Plan,
    namespaces: i32,
    ids: Option<&IdMap>,
    cgroup: Option<&OwnedFd>,
) -> Result<Started, StartError> {
    let mut slots: Vec<Option<OwnedFd>> = (0..plan.slots).map(|_| None).collect();
    let pipes = || -> io::Result<_> {
        let (status, status_end) = pipe_with(PipeFlags::CLOEXEC)?;
        // A socket rather than a pipe: writing after the child has died raises no SIGPIPE.
        let (go_end, go) = socketpair(
            AddressFamily::UNIX,
            SocketType::STREAM,
            SocketFlags::CLOEXEC,
            None,
        )?;
        Ok((status, private(&status_end)?, private(&go_end)?, go))
    };
    let (status, status_end, go_end, go) = pipes().map_err(StartError::step("make a pipe"))?;
    let (pid, pidfd) = sys::clone3(namespaces, cgroup.map(AsFd::as_fd), |child| {
        // Otherwise the child would not notice that the parent has died.
        sys::close_copy(child, go.as_fd());
        let link = ParentLink {
            status: status_end.as_fd(),
            go: go_end.as_fd(),
        };
        child::run(child, plan, &mut slots, link)
    })
    .map_err(StartError::step("make the namespaces"))?;
    drop((status_end, go_end));
    match see_through(plan, ids, pid, &status, go) {
        Ok(()) => Ok(Started { pid, pidfd }),
        Err(error) => {
            end(&pidfd);
            Err(error)
        }
    }
}

fn see_through(
    plan: &Plan,
    ids: Option<&IdMap>,
    pid: u32,
    status: &OwnedFd,
    go: OwnedFd,
) -> Result<(), StartError> {
    let mapped = ids.map_or(Ok(()), |ids| ids.apply(pid));
    if mapped.is_ok() {
        let mounts = mapped_mounts(plan, ids, pid)?;
        // If the child has already exited, its status says why.
        let _ = give_go(&go, &mounts);
    }
    drop(go);
    let outcome = read_status(plan, status);
    // If a step failed earlier, its error explains more than the failed id map of a dead process.
    match (mapped, outcome) {
        (Err(source), Err(StartError::Died) | Ok(())) => Err(StartError::Step {
            step: "map the ids",
            source,
        }),
        (_, outcome) => outcome,
    }
}

/// Opens the mounts that the child may not map itself, in the order of the plan.
fn mapped_mounts(
    plan: &Plan,
    ids: Option<&IdMap>,
    pid: u32,
) -> Result<Vec<Option<OwnedFd>>, StartError> {
    let open = |mount: &MappedMount| {
        let range = ids.filter(|ids| matches!(ids, IdMap::Range { .. }));
        let opened = match range {
            Some(ids) => mapped_mount::open(mount, ids, pid),
            None => Err(io::ErrorKind::Unsupported.into()),
        };
        match opened {
            Ok(mount) => Ok(Some(mount)),
            Err(_) if !mount.is_required => Ok(None),
            Err(source) => Err(StartError::Step {
                step: "map the ids of a mount",
                source,
            }),
        }
    };
    plan.mapped.iter().map(open).collect()
}

/// Sends one byte as the go, and per mount one byte that says whether its descriptor is attached.
fn give_go(go: &OwnedFd, mounts: &[Option<OwnedFd>]) -> io::Result<()> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MAPPED_MAX))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    let fds: Vec<_> = mounts.iter().flatten().map(AsFd::as_fd).collect();
    if !fds.is_empty() && !control.push(SendAncillaryMessage::ScmRights(&fds)) {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    let given = mounts.iter().map(|mount| u8::from(mount.is_some()));
    let bytes: Vec<_> = std::iter::once(1).chain(given).collect();
    sendmsg(
        go,
        &[IoSlice::new(&bytes)],
        &mut control,
        SendFlags::NOSIGNAL,
    )?;
    Ok(())
}

/// Reads records until exec closes the pipe; the last record decides.
fn read_status(plan: &Plan, status: &OwnedFd) -> Result<(), StartError> {
    let deadline = Instant::now() + START_TIMEOUT;
    let mut outcome = Err(StartError::Died);
    let mut record = [0_u8; 8];
    loop {
        wait_readable(status, deadline)?;
        let len = rustix::io::retry_on_intr(|| rustix::io::read(status, &mut record))
            .map_err(|errno| StartError::step("read the status")(errno.into()))?;
        if len == 0 {
            return outcome;
        }
        outcome = parse(plan, record);
    }
}

fn parse(plan: &Plan, record: [u8; 8]) -> Result<(), StartError> {
    let (step, errno) = record.split_at(4);
    let number = |bytes: &[u8]| u32::from_ne_bytes(bytes.try_into().unwrap_or_default());
    let step = number(step);
    if step == DONE {
        return Ok(());
    }
    let name = plan
        .steps
        .get(step as usize)
        .map_or("do a step", |step| step.name);
    let source = io::Error::from_raw_os_error(number(errno).cast_signed());
    Err(StartError::Step { step: name, source })
}

fn wait_readable(fd: &OwnedFd, deadline: Instant) -> Result<(), StartError> {
    loop {
        let left = deadline.saturating_duration_since(Instant::now());
        let left = Timespec::try_from(left).unwrap_or_default();
        match poll(&mut [PollFd::new(fd, PollFlags::IN)], Some(&left)) {
            Ok(0) => return Err(StartError::TimedOut),
            Ok(_) => return Ok(()),
            Err(rustix::io::Errno::INTR) => {}
            Err(errno) => return Err(StartError::step("read the status")(errno.into())),
        }
    }
}

/// Kills the child and reaps it.
pub(crate) fn end(pidfd: &OwnedFd) {
    // Our own child, not yet reaped: both calls fail only if it has exited.
    let _ = process::kill(pidfd);
    let _ =
        rustix::io::retry_on_intr(|| waitid(WaitId::PidFd(pidfd.as_fd()), WaitIdOptions::EXITED));
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;
    use crate::cgroup::ContainerCgroups;
    use crate::plan::{Op, Step};

    fn plan(op: Op) -> Plan {
        Plan {
            steps: vec![Step {
                name: "be tested",
                op,
            }],
            slots: 0,
            mapped: Vec::new(),
        }
    }

    #[test]
    fn a_failed_step_is_named_with_its_errno_and_the_child_is_reaped() {
        let error = start(&plan(Op::Chdir(c"/absent".to_owned())), 0, None, None)
            .err()
            .unwrap();
        let StartError::Step { step, source } = error else {
            panic!("{error}")
        };
        assert_eq!(
            (step, source.raw_os_error()),
            ("be tested", Some(libc::ENOENT))
        );
    }

    /// A host where an outer seccomp filter already has the only possible listener.
    #[test]
    fn a_filter_that_cannot_ask_is_told_and_not_replaced_by_one_that_refuses() {
        let filters = std::rc::Rc::new(crate::seccomp::SeccompFilters::compile());
        let step = |name, op| Step { name, op };
        let listener = |name| step(name, Op::SeccompListener(std::rc::Rc::clone(&filters)));
        let steps = vec![
            step("refuse new privileges", Op::NoNewPrivileges),
            listener("take the listener"),
            listener("take another"),
        ];
        let plan = Plan {
            steps,
            slots: 0,
            mapped: Vec::new(),
        };
        let error = start(&plan, 0, None, None).err().unwrap();
        let is_second = matches!(&error, StartError::Step { step, .. } if *step == "take another");
        assert!(is_second, "{error}");
    }

    #[test]
    fn a_child_whose_parent_is_gone_before_the_go_ends() {
        let (status, status_end) = pipe_with(PipeFlags::CLOEXEC).unwrap();
        let (go_end, go) = pipe_with(PipeFlags::CLOEXEC).unwrap();
        let waiting = plan(Op::AwaitGo);
        let (_, pidfd) = sys::clone3(0, None, |child| {
            sys::close_copy(child, go.as_fd());
            let link = ParentLink {
                status: status_end.as_fd(),
                go: go_end.as_fd(),
            };
            child::run(child, &waiting, &mut [], link)
        })
        .unwrap();
        drop((status_end, go_end, go));
        assert!(matches!(
            read_status(&waiting, &status),
            Err(StartError::Died)
        ));
        end(&pidfd);
    }

    #[test]
    fn a_child_leaves_its_parents_keyring_for_one_of_its_own() {
        let Ok(ours) = sys::session_keyring() else {
            hotcell_testkit::not_claimed("this kernel has no keys, or they are forbidden here");
            return;
        };
        let (status, status_end) = pipe_with(PipeFlags::CLOEXEC).unwrap();
        let (nothing, _open) = pipe_with(PipeFlags::CLOEXEC).unwrap();
        let plan = plan(Op::NewKeyring);
        let (_, pidfd) = sys::clone3(0, None, |child| {
            let link = ParentLink {
                status: status_end.as_fd(),
                go: nothing.as_fd(),
            };
            let inherited = sys::session_keyring().is_ok_and(|keyring| keyring == ours);
            let code = child::run(child, &plan, &mut [], link);
            let own = sys::session_keyring().is_ok_and(|keyring| keyring != ours);
            if inherited && own { code } else { 2 }
        })
        .unwrap();
        drop(status_end);
        read_status(&plan, &status).unwrap();
        let ended = waitid(WaitId::PidFd(pidfd.as_fd()), WaitIdOptions::EXITED).unwrap();
        assert_eq!(ended.unwrap().exit_status(), Some(0));
        assert_eq!(
            sys::session_keyring().unwrap(),
            ours,
            "the parent keeps its own"
        );
    }

    /// Runs only as root with the unified hierarchy mounted; no controller is needed.
    #[test]
    fn a_child_starts_inside_its_unified_group() {
        let root = ["/sys/fs/cgroup/unified", "/sys/fs/cgroup"]
            .into_iter()
            .find(|dir| fs::metadata(format!("{dir}/cgroup.controllers")).is_ok());
        let Some(root) = root else { return };
        let dir = format!("{root}/start-test-{}", std::process::id());
        if fs::create_dir(&dir).is_err() {
            return;
        }
        let place: ContainerCgroups =
            serde_json::from_value(serde_json::json!({ "v1": [], "v2": dir })).unwrap();
        let group = place.v2_dir().unwrap();
        let (silent, _open) = pipe_with(PipeFlags::CLOEXEC).unwrap();
        let (pid, pidfd) = sys::clone3(0, group.as_ref().map(AsFd::as_fd), |_| {
            // Nobody writes: the cgroup's kill ends it.
            let mut polled = [PollFd::new(&silent, PollFlags::IN)];
            poll(&mut polled, None).map_or(1, |_| 0)
        })
        .unwrap();
        let members = fs::read_to_string(format!("{dir}/cgroup.procs")).unwrap();
        assert_eq!(members.trim(), pid.to_string());
        place.kill().unwrap();
        end(&pidfd);
        place.remove().unwrap();
        assert!(fs::metadata(&dir).is_err());
    }
}
