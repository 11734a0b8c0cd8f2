//! Executes a plan in the child, between clone and exec.
//!
//! Nothing here allocates, locks or returns. If a step fails, the child sends its index and errno
//! to the parent and exits.

use std::ffi::CStr;
use std::io::{self, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd, RawFd};

use rustix::fs::{CWD, Mode, OFlags, ResolveFlags};
use rustix::io::Errno;
use rustix::mount::{
    FsMountFlags, FsOpenFlags, MountAttrFlags, MountFlags, MountPropagationFlags, MoveMountFlags,
    OpenTreeFlags, UnmountFlags,
};
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendFlags, SocketFlags,
    SocketType, recvmsg,
};
use rustix::process::Rlimit;
use rustix::thread::{CapabilitiesSecureBits, CapabilitySet, CapabilitySets, Gid, Uid};

use crate::plan::{FdSlot, InitFds, KEPT_CAPABILITIES, MAPPED_MAX, Op, Plan};
use crate::probe;
use crate::seccomp::SeccompFilters;
use crate::spec::{FIRST_FD, NOTIFY_FD, USER_ID};
use crate::sys::{self, InChild};

/// Sent in place of a step's index when every step, or every step but exec, is done.
pub(crate) const DONE: u32 = u32::MAX;

/// The child's ends of the pipes to its parent.
#[derive(Clone, Copy)]
pub(crate) struct ParentLink<'fd> {
    /// Receives `[step, errno]` records; exec closes it.
    pub status: BorrowedFd<'fd>,
    /// Delivers one byte once the ids are mapped. End of file means that the parent has died.
    pub go: BorrowedFd<'fd>,
}

/// Descriptors that one step opens and a later one uses.
pub(crate) type FdSlots = [Option<OwnedFd>];

/// Executes every step; returns the exit code if none of them is exec. `slots` must have as many
/// entries as the plan uses.
pub(crate) fn run(child: &InChild, plan: &Plan, slots: &mut FdSlots, link: ParentLink<'_>) -> i32 {
    for (index, step) in plan.steps.iter().enumerate() {
        if let Err(error) = run_step(child, &step.op, slots, link) {
            let index = u32::try_from(index).unwrap_or(DONE - 1);
            report(link, index, error.raw_os_error().unwrap_or(libc::EIO));
            return 1;
        }
    }
    report(link, DONE, 0);
    0
}

/// Sends a record to the parent; false if the parent has died.
fn report(link: ParentLink<'_>, step: u32, errno: i32) -> bool {
    let mut record = [0; 8];
    record[..4].copy_from_slice(&step.to_ne_bytes());
    record[4..].copy_from_slice(&errno.to_ne_bytes());
    rustix::io::write(link.status, &record).is_ok()
}

fn run_step(child: &InChild, op: &Op, slots: &mut FdSlots, link: ParentLink<'_>) -> io::Result<()> {
    match op {
        Op::JoinCgroup(tasks) => join_cgroup(tasks.as_fd()),
        Op::HideCgroups => sys::unshare_cgroup(child),
        Op::NewKeyring => new_keyring(),
        Op::PrivateMounts => private_mounts(),
        Op::Open {
            slot,
            path,
            attributes,
        } => put(slots, *slot, open(path, *attributes)?),
        Op::AwaitGo => await_go(link),
        Op::AwaitMapped { slots: mapped } => await_mapped(link, slots, mapped),
        Op::OpenUnlessGiven {
            slot,
            path,
            attributes,
        } => open_unless_given(slots, *slot, path, *attributes),
        Op::BecomeRoot => become_root(),
        Op::NewFs {
            slot,
            kind,
            options,
            attributes,
        } => put(slots, *slot, new_fs(kind, options, *attributes)?),
        Op::Enter { slot, at } => enter(&take(slots, *slot)?, at),
        Op::Attach { slot, at } => attach(&take(slots, *slot)?, at),
        Op::Cover { path, attributes } => attach(&open(path, *attributes)?, path),
        Op::Seal { path, attributes } => sys::mount_setattr(CWD, path, false, *attributes),
        Op::Overlay {
            at,
            options,
            read_only,
        } => overlay(at, options, *read_only),
        Op::Mkdir { path, mode } => Ok(rustix::fs::mkdirat(
            CWD,
            path.as_c_str(),
            Mode::from_raw_mode(*mode),
        )?),
        Op::File {
            path,
            contents,
            mode,
        } => file(path, contents, *mode),
        Op::Set { path, value } => set(path, value),
        Op::Symlink { path, target } => Ok(rustix::fs::symlinkat(
            target.as_c_str(),
            CWD,
            path.as_c_str(),
        )?),
        Op::Chdir(path) => Ok(rustix::process::chdir(path.as_c_str())?),
        Op::Pivot => pivot(),
        Op::Limit { resource, value } => limit(*resource, *value),
        Op::LimitForExecs { resource, value } => limit_for_execs(*resource, *value),
        Op::Hostname(name) => Ok(rustix::system::sethostname(name.to_bytes())?),
        Op::Loopback => loopback(child),
        Op::NewSession => new_session(child),
        Op::InitFds(fds) => place_fds(child, fds),
        Op::DropPrivileges { change_user, keep } => drop_privileges(child, *change_user, *keep),
        Op::NoNewPrivileges => Ok(rustix::thread::set_no_new_privs(true)?),
        Op::Seccomp(filters) => install_filter(child, filters),
        Op::SeccompListener(filters) => sys::seccomp_listener(child, &filters.asking).map(drop),
        Op::UseFiles(path) => probe::files::use_in(path),
        Op::Exec { file, args } => {
            // If the parent has died, nobody would ever stop the init program.
            if !report(link, DONE, 0) {
                return Err(Errno::PIPE.into());
            }
            Err(sys::execveat(child, file.as_fd(), args))
        }
    }
}

fn put(slots: &mut FdSlots, slot: FdSlot, fd: OwnedFd) -> io::Result<()> {
    *slots.get_mut(slot.0).ok_or(Errno::BADF)? = Some(fd);
    Ok(())
}

fn take(slots: &mut FdSlots, slot: FdSlot) -> io::Result<OwnedFd> {
    Ok(slots
        .get_mut(slot.0)
        .and_then(Option::take)
        .ok_or(Errno::BADF)?)
}

/// The task moves only itself. When another process moves it through `cgroup.procs`, the kernel
/// waits for all other CPUs, which takes 10 ms.
fn join_cgroup(tasks: BorrowedFd<'_>) -> io::Result<()> {
    rustix::io::write(tasks, b"0")?;
    Ok(())
}

/// The kernel charges the key to the host user who runs the launcher (this step runs as that user):
/// root may have a million keys, others 200. It is freed with the container's last process.
///
/// The keyring is defence in depth, since the seccomp filter blocks all use of keys. So failure is
/// accepted: the kernel may have no keyrings, the user's quota may be used up, or an engine around
/// us may forbid it.
fn new_keyring() -> io::Result<()> {
    const BEARABLE: [i32; 4] = [libc::ENOSYS, libc::EDQUOT, libc::EPERM, libc::EACCES];
    let is_bearable = |error: &io::Error| {
        let errno = error.raw_os_error();
        errno.is_some_and(|errno| BEARABLE.contains(&errno))
    };
    match sys::join_session_keyring() {
        Err(error) if !is_bearable(&error) => Err(error),
        _ => Ok(()),
    }
}

fn private_mounts() -> io::Result<()> {
    // So that the modes given below are exact.
    rustix::process::umask(Mode::empty());
    let private = MountPropagationFlags::PRIVATE | MountPropagationFlags::REC;
    Ok(rustix::mount::mount_change(c"/", private)?)
}

fn open(path: &CStr, attributes: u64) -> io::Result<OwnedFd> {
    let flags = OpenTreeFlags::OPEN_TREE_CLONE
        | OpenTreeFlags::OPEN_TREE_CLOEXEC
        | OpenTreeFlags::AT_RECURSIVE;
    let tree = rustix::mount::open_tree(CWD, path, flags)?;
    sys::mount_setattr(tree.as_fd(), c"", true, attributes)?;
    Ok(tree)
}

fn await_go(link: ParentLink<'_>) -> io::Result<()> {
    match rustix::io::retry_on_intr(|| rustix::io::read(link.go, &mut [0_u8; 1]))? {
        0 => sys::exit_now(1),
        _ => Ok(()),
    }
}

/// Reads one byte, then for each mount one byte that says whether the parent could map it, and the
/// descriptors of those that it could.
fn await_mapped(link: ParentLink<'_>, slots: &mut FdSlots, mapped: &[FdSlot]) -> io::Result<()> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MAPPED_MAX))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let mut bytes = [0_u8; 1 + MAPPED_MAX];
    let received = rustix::io::retry_on_intr(|| {
        let mut buffers = [IoSliceMut::new(&mut bytes)];
        recvmsg(link.go, &mut buffers, &mut control, RecvFlags::CMSG_CLOEXEC)
    })?;
    if received.bytes == 0 {
        sys::exit_now(1);
    }
    let mut given = mapped.iter().zip(&bytes[1..]).filter(|(_, is)| **is == 1);
    for message in control.drain() {
        if let RecvAncillaryMessage::ScmRights(fds) = message {
            for fd in fds {
                let (slot, _) = given.next().ok_or(Errno::BADF)?;
                put(slots, *slot, fd)?;
            }
        }
    }
    Ok(())
}

fn open_unless_given(
    slots: &mut FdSlots,
    slot: FdSlot,
    path: &CStr,
    attributes: u64,
) -> io::Result<()> {
    if slots.get(slot.0).is_some_and(Option::is_some) {
        return Ok(());
    }
    put(slots, slot, open(path, attributes)?)
}

fn become_root() -> io::Result<()> {
    become_user(0)
}

fn become_user(id: u32) -> io::Result<()> {
    let (uid, gid) = (Uid::from_raw(id), Gid::from_raw(id));
    rustix::thread::set_thread_groups(&[])?;
    rustix::thread::set_thread_res_gid(gid, gid, gid)?;
    Ok(rustix::thread::set_thread_res_uid(uid, uid, uid)?)
}

fn new_fs(
    kind: &CStr,
    options: &[(&'static CStr, std::ffi::CString)],
    attributes: u32,
) -> io::Result<OwnedFd> {
    let context = rustix::mount::fsopen(kind, FsOpenFlags::FSOPEN_CLOEXEC)?;
    rustix::mount::fsconfig_set_string(context.as_fd(), c"source", kind)?;
    for (key, value) in options {
        rustix::mount::fsconfig_set_string(context.as_fd(), *key, value.as_c_str())?;
    }
    rustix::mount::fsconfig_create(context.as_fd())?;
    let attributes = MountAttrFlags::from_bits_retain(attributes);
    Ok(rustix::mount::fsmount(
        context.as_fd(),
        FsMountFlags::FSMOUNT_CLOEXEC,
        attributes,
    )?)
}

fn enter(mount: &OwnedFd, at: &CStr) -> io::Result<()> {
    let flags = MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH;
    rustix::mount::move_mount(mount.as_fd(), c"", CWD, at, flags)?;
    Ok(rustix::process::fchdir(mount.as_fd())?)
}

fn attach(mount: &OwnedFd, at: &CStr) -> io::Result<()> {
    let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS;
    let flags = OFlags::PATH | OFlags::CLOEXEC;
    let target = rustix::fs::openat2(CWD, at, flags, Mode::empty(), resolve)?;
    let flags = MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH | MoveMountFlags::MOVE_MOUNT_T_EMPTY_PATH;
    Ok(rustix::mount::move_mount(
        mount.as_fd(),
        c"",
        target.as_fd(),
        c"",
        flags,
    )?)
}

fn overlay(at: &CStr, options: &CStr, read_only: bool) -> io::Result<()> {
    let mut flags = MountFlags::NOSUID | MountFlags::NODEV;
    if read_only {
        flags |= MountFlags::RDONLY;
    }
    Ok(rustix::mount::mount(
        c"overlay", at, c"overlay", flags, options,
    )?)
}

fn file(path: &CStr, contents: &[u8], mode: u32) -> io::Result<()> {
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
    let file = rustix::fs::openat(CWD, path, flags, Mode::from_raw_mode(mode))?;
    let mut rest = contents;
    while !rest.is_empty() {
        let written = rustix::io::write(file.as_fd(), rest)?;
        rest = &rest[written..];
    }
    Ok(())
}

fn set(path: &CStr, value: &CStr) -> io::Result<()> {
    let flags = OFlags::WRONLY | OFlags::CLOEXEC;
    let file = rustix::fs::openat(CWD, path, flags, Mode::empty())?;
    rustix::io::write(file.as_fd(), value.to_bytes())?;
    Ok(())
}

fn pivot() -> io::Result<()> {
    rustix::process::pivot_root(c".", c".")?;
    // After the pivot, the host's root is mounted over ours at the same path.
    rustix::mount::unmount(c".", UnmountFlags::DETACH)?;
    Ok(rustix::process::chdir(c"/")?)
}

fn limit(resource: rustix::process::Resource, value: u64) -> io::Result<()> {
    let hard = rustix::process::getrlimit(resource).maximum;
    let value = Some(hard.map_or(value, |hard| hard.min(value)));
    Ok(rustix::process::setrlimit(
        resource,
        Rlimit {
            current: value,
            maximum: value,
        },
    )?)
}

fn limit_for_execs(resource: rustix::process::Resource, value: u64) -> io::Result<()> {
    let maximum = rustix::process::getrlimit(resource).maximum;
    let current = Some(maximum.map_or(value, |hard| hard.min(value)));
    Ok(rustix::process::setrlimit(
        resource,
        Rlimit { current, maximum },
    )?)
}

/// A second address of the loopback interface. glibc does not resolve names to IPv4 addresses for
/// programs that ask for configured families only (`AI_ADDRCONFIG`) while 127.0.0.1 is the only one.
const LOOPBACK_ADDRESS: [u8; 4] = [127, 77, 255, 254];

/// The loopback interface is the first of a new network namespace.
const LOOPBACK_INDEX: u32 = 1;

fn loopback(child: &InChild) -> io::Result<()> {
    let flags = SocketFlags::CLOEXEC;
    let socket = rustix::net::socket_with(AddressFamily::INET, SocketType::DGRAM, flags, None)?;
    sys::loopback_up(child, socket.as_fd())?;
    // NETLINK_ROUTE is protocol 0.
    let socket = rustix::net::socket_with(AddressFamily::NETLINK, SocketType::RAW, flags, None)?;
    rustix::net::send(&socket, &new_address(), SendFlags::empty())?;
    let mut answer = [0; 64];
    let (count, _) = rustix::net::recv(&socket, &mut answer, RecvFlags::empty())?;
    check_acknowledgement(&answer[..count])
}

/// The message `RTM_NEWADDR`. Unlike an ioctl, it adds an address without a name of its own.
fn new_address() -> [u8; 40] {
    const NEW_ADDRESS: u16 = 20;
    const REQUEST_ACK_CREATE_EXCLUSIVE: u16 = 0x605;
    const INET_32_HOST: [u8; 4] = [2, 32, 0, 254];
    const LOCAL: u16 = 2;
    const ADDRESS: u16 = 1;
    let mut message = [0; 40];
    message[0..4].copy_from_slice(&40_u32.to_ne_bytes());
    message[4..6].copy_from_slice(&NEW_ADDRESS.to_ne_bytes());
    message[6..8].copy_from_slice(&REQUEST_ACK_CREATE_EXCLUSIVE.to_ne_bytes());
    message[16..20].copy_from_slice(&INET_32_HOST);
    message[20..24].copy_from_slice(&LOOPBACK_INDEX.to_ne_bytes());
    for (at, kind) in [(24, LOCAL), (32, ADDRESS)] {
        message[at..at + 2].copy_from_slice(&8_u16.to_ne_bytes());
        message[at + 2..at + 4].copy_from_slice(&kind.to_ne_bytes());
        message[at + 4..at + 8].copy_from_slice(&LOOPBACK_ADDRESS);
    }
    message
}

/// An answer is a message `NLMSG_ERROR`, whose error is 0 if there was none.
fn check_acknowledgement(answer: &[u8]) -> io::Result<()> {
    const ERROR: u16 = 2;
    let kind = answer.get(4..6).and_then(|bytes| bytes.try_into().ok());
    let error = answer.get(16..20).and_then(|bytes| bytes.try_into().ok());
    match (kind.map(u16::from_ne_bytes), error.map(i32::from_ne_bytes)) {
        (Some(ERROR), Some(0)) => Ok(()),
        (Some(ERROR), Some(error)) => Err(io::Error::from_raw_os_error(error.wrapping_neg())),
        _ => Err(Errno::PROTO.into()),
    }
}

fn new_session(child: &InChild) -> io::Result<()> {
    rustix::process::setsid()?;
    rustix::process::umask(Mode::from_raw_mode(0o022));
    sys::unblock_signals(child)
}

fn place_fds(child: &InChild, fds: &InitFds) -> io::Result<()> {
    let flags = OFlags::RDWR | OFlags::CLOEXEC;
    let null = rustix::fs::openat(CWD, c"/dev/null", flags, Mode::empty())?;
    for target in [0, 1] {
        sys::dup_to(child, null.as_fd(), target)?;
    }
    sys::dup_to(child, fds.log.as_fd(), 2)?;
    let mut next: RawFd = FIRST_FD;
    for fd in &fds.others {
        sys::dup_to(child, fd.as_fd(), next)?;
        next += 1;
    }
    // If `null` had one of these numbers, it now is that descriptor and must stay open.
    std::mem::forget(null);
    sys::cloexec_from(next)
}

/// If the filter can have no listener (the kernel is too old, or an outer filter already has one),
/// a second filter is used that refuses the calls init would have been asked about.
fn install_filter(child: &InChild, filters: &SeccompFilters) -> io::Result<()> {
    match sys::seccomp_listener(child, &filters.asking) {
        Ok(listener) => sys::move_to(child, listener, NOTIFY_FD),
        Err(_) => sys::seccomp_filter(child, &filters.refusing),
    }
}

fn drop_privileges(child: &InChild, change_user: bool, keep: bool) -> io::Result<()> {
    let all = rustix::thread::capabilities(None)?.permitted;
    let kept = if keep {
        kept_capabilities()
    } else {
        CapabilitySet::empty()
    };
    // Inheritable before the bounding set is dropped: after that it can no longer be raised.
    set_capabilities(all, kept)?;
    sys::drop_bounding_set(child)?;
    let bits = CapabilitiesSecureBits::NO_ROOT
        | CapabilitiesSecureBits::NO_ROOT_LOCKED
        | CapabilitiesSecureBits::NO_SETUID_FIXUP
        | CapabilitiesSecureBits::NO_SETUID_FIXUP_LOCKED
        | CapabilitiesSecureBits::KEEP_CAPS_LOCKED;
    rustix::thread::set_capabilities_secure_bits(bits)?;
    if change_user {
        become_user(USER_ID)?;
    }
    if keep {
        KEPT_CAPABILITIES
            .into_iter()
            .try_for_each(|capability| sys::raise_ambient(child, capability))?;
    }
    let bits = bits
        | CapabilitiesSecureBits::NO_CAP_AMBIENT_RAISE
        | CapabilitiesSecureBits::NO_CAP_AMBIENT_RAISE_LOCKED;
    rustix::thread::set_capabilities_secure_bits(bits)?;
    set_capabilities(kept, kept)
}

fn kept_capabilities() -> CapabilitySet {
    let bits = KEPT_CAPABILITIES
        .iter()
        .fold(0, |bits, capability| bits | 1_u64 << capability);
    CapabilitySet::from_bits_retain(bits)
}

fn set_capabilities(own: CapabilitySet, inheritable: CapabilitySet) -> io::Result<()> {
    let sets = CapabilitySets {
        effective: own,
        permitted: own,
        inheritable,
    };
    Ok(rustix::thread::set_capabilities(None, sets)?)
}
