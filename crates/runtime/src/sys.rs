//! System calls that the safe crates do not wrap, one thin function each.
//!
//! The only unsafe code of this crate. Nothing here allocates, except [`ExecArgs::new`], which runs
//! before the clone.

use std::ffi::{CStr, CString, NulError, c_char, c_int, c_long, c_uint, c_ulong};
use std::io;
use std::marker::PhantomData;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, IntoRawFd, OwnedFd, RawFd};
use std::ptr;

use libc::sock_filter;

/// The kernel's `struct clone_args`, up to `cgroup`.
#[repr(C)]
#[derive(Default)]
struct CloneArgs {
    flags: u64,
    pidfd: u64,
    child_tid: u64,
    parent_tid: u64,
    exit_signal: u64,
    stack: u64,
    stack_size: u64,
    tls: u64,
    set_tid: u64,
    set_tid_size: u64,
    cgroup: u64,
}

/// The kernel's highest signal number.
const SIGNALS: c_int = 64;

const CLONE_INTO_CGROUP: u64 = 0x2_0000_0000;

/// Exits the process when dropped: a panic in a child must not unwind into its copy of the parent's
/// stack.
struct NeverReturns;

impl Drop for NeverReturns {
    fn drop(&mut self) {
        exit_now(1);
    }
}

/// Proof of running in the child of [`clone3`], which alone creates one. Functions that change the
/// whole process, or close descriptors that a value in the parent owns, require it: the child never
/// returns to those owners, it exits or executes another program.
pub(crate) struct InChild {
    /// Cannot be constructed elsewhere or sent to another thread.
    _private: PhantomData<*const ()>,
}

/// Runs `child` in a copy of this process in new namespaces. Returns its process id and pidfd. The
/// result of `child` is its exit code.
///
/// If other threads may exist, `child` must neither allocate nor lock: its copy of the memory may
/// hold locks of threads that it does not have.
pub(crate) fn clone3(
    flags: c_int,
    cgroup: Option<BorrowedFd<'_>>,
    child: impl FnOnce(&InChild) -> i32,
) -> io::Result<(u32, OwnedFd)> {
    let mut pidfd: RawFd = -1;
    let mut args = CloneArgs {
        flags: u64::from(flags.cast_unsigned()) | u64::from(libc::CLONE_PIDFD.cast_unsigned()),
        pidfd: (&raw mut pidfd) as u64,
        exit_signal: u64::from(libc::SIGCHLD.cast_unsigned()),
        ..CloneArgs::default()
    };
    if let Some(dir) = cgroup {
        args.flags |= CLONE_INTO_CGROUP;
        args.cgroup = u64::from(dir.as_raw_fd().cast_unsigned());
    }
    // SAFETY: `args` is a valid clone_args of the given size and outlives the call. Without
    // CLONE_VM the child has memory of its own, and it never returns from this function.
    let pid = unsafe { libc::syscall(libc::SYS_clone3, &raw mut args, size_of::<CloneArgs>()) };
    match u32::try_from(pid) {
        Err(_) => Err(io::Error::last_os_error()),
        Ok(0) => {
            let _guard = NeverReturns;
            exit_now(child(&InChild {
                _private: PhantomData,
            }))
        }
        // SAFETY: The kernel opened `pidfd` for this process in the call just above, and we
        // have handed it to nobody else.
        Ok(pid) => Ok((pid, unsafe { OwnedFd::from_raw_fd(pidfd) })),
    }
}

/// Exits at once, without destructors or exit handlers.
pub(crate) fn exit_now(code: i32) -> ! {
    // SAFETY: `_exit` has no precondition.
    unsafe { libc::_exit(code) }
}

/// Arguments and environment of a program, in the kernel's format.
pub(crate) struct ExecArgs {
    argv: Vec<*const c_char>,
    env: Vec<*const c_char>,
    /// Owns what the pointers above point to; never modified.
    _strings: Vec<CString>,
}

impl ExecArgs {
    /// Copies the strings. Fails if one contains a NUL byte.
    pub(crate) fn new(argv: &[String], env: &[String]) -> Result<Self, NulError> {
        let strings = argv
            .iter()
            .chain(env)
            .map(|text| CString::new(text.as_bytes()))
            .collect::<Result<Vec<_>, _>>()?;
        let pointers = |part: &[CString]| -> Vec<*const c_char> {
            part.iter()
                .map(|text| text.as_ptr())
                .chain([ptr::null()])
                .collect()
        };
        Ok(Self {
            argv: pointers(&strings[..argv.len()]),
            env: pointers(&strings[argv.len()..]),
            _strings: strings,
        })
    }
}

/// Executes the program in `file`; returns only on failure.
pub(crate) fn execveat(_: &InChild, file: BorrowedFd<'_>, args: &ExecArgs) -> io::Error {
    // SAFETY: Both vectors end with a null pointer, and their strings live in `args`.
    unsafe {
        libc::syscall(
            libc::SYS_execveat,
            file.as_raw_fd(),
            c"".as_ptr(),
            args.argv.as_ptr(),
            args.env.as_ptr(),
            libc::AT_EMPTY_PATH,
        );
    }
    io::Error::last_os_error()
}

/// Sets `MOUNT_ATTR_*` of the mount at `path`, relative to `dir`; an empty `path` means `dir`
/// itself.
pub(crate) fn mount_setattr(
    dir: BorrowedFd<'_>,
    path: &CStr,
    recursive: bool,
    attributes: u64,
) -> io::Result<()> {
    let attr: [u64; 4] = [attributes, 0, 0, 0];
    let mut flags = libc::AT_EMPTY_PATH | libc::AT_SYMLINK_NOFOLLOW;
    if recursive {
        flags |= libc::AT_RECURSIVE;
    }
    // SAFETY: `attr` has the layout of `struct mount_attr` (four u64) and its size is given.
    done(unsafe {
        libc::syscall(
            libc::SYS_mount_setattr,
            dir.as_raw_fd(),
            path.as_ptr(),
            flags,
            attr.as_ptr(),
            size_of_val(&attr),
        )
    })
}

/// Sets attributes of a detached mount, makes it private, and applies the id map of the user
/// namespace `namespace`.
pub(crate) fn mount_idmap(
    mount: BorrowedFd<'_>,
    attributes: u64,
    namespace: BorrowedFd<'_>,
) -> io::Result<()> {
    const MOUNT_ATTR_IDMAP: u64 = 0x10_0000;
    let namespace = u64::from(namespace.as_raw_fd().cast_unsigned());
    let private = libc::MS_PRIVATE;
    let attr: [u64; 4] = [attributes | MOUNT_ATTR_IDMAP, 0, private, namespace];
    // SAFETY: `attr` has the layout of `struct mount_attr` (four u64) and its size is given.
    done(unsafe {
        libc::syscall(
            libc::SYS_mount_setattr,
            mount.as_raw_fd(),
            c"".as_ptr(),
            libc::AT_EMPTY_PATH,
            attr.as_ptr(),
            size_of_val(&attr),
        )
    })
}

/// Adds a seccomp filter to this thread and everything it starts.
pub(crate) fn seccomp_filter(_: &InChild, program: &[sock_filter]) -> io::Result<()> {
    seccomp(program, 0).map(drop)
}

/// Adds a seccomp filter and returns its listener, at which notifications are answered. Where the
/// kernel supports it, only SIGKILL interrupts a call that waits for an answer.
pub(crate) fn seccomp_listener(_: &InChild, program: &[sock_filter]) -> io::Result<OwnedFd> {
    const WAIT_KILLABLE_RECV: c_ulong = 1 << 5;
    let listener = libc::SECCOMP_FILTER_FLAG_NEW_LISTENER;
    let fd =
        seccomp(program, listener | WAIT_KILLABLE_RECV).or_else(|_| seccomp(program, listener))?;
    let fd = RawFd::try_from(fd).map_err(|_| io::ErrorKind::InvalidData)?;
    // SAFETY: The kernel opened it for this process in the call just above, and we have
    // handed it to nobody else.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

fn seccomp(program: &[sock_filter], flags: c_ulong) -> io::Result<c_long> {
    #[repr(C)]
    struct Fprog {
        len: u16,
        filter: *const sock_filter,
    }
    let len = u16::try_from(program.len()).map_err(|_| io::ErrorKind::InvalidInput)?;
    let fprog = Fprog {
        len,
        filter: program.as_ptr(),
    };
    // SAFETY: `fprog` has the layout of `struct sock_fprog` and points to `len` instructions,
    // which the kernel copies.
    let result = unsafe {
        libc::syscall(
            libc::SYS_seccomp,
            libc::SECCOMP_SET_MODE_FILTER,
            flags,
            &raw const fprog,
        )
    };
    done(result).map(|()| result)
}

/// Enters a new cgroup namespace, rooted at the current cgroups.
pub(crate) fn unshare_cgroup(_: &InChild) -> io::Result<()> {
    // SAFETY: A new cgroup namespace touches neither memory nor descriptors.
    done(c_long::from(unsafe {
        libc::unshare(libc::CLONE_NEWCGROUP)
    }))
}

/// Gives this process a new, empty session keyring.
pub(crate) fn join_session_keyring() -> io::Result<()> {
    const KEYCTL_JOIN_SESSION_KEYRING: c_ulong = 1;
    // SAFETY: This command takes a name or, as here, none.
    let keyring = unsafe {
        libc::syscall(
            libc::SYS_keyctl,
            KEYCTL_JOIN_SESSION_KEYRING,
            ptr::null::<c_char>(),
        )
    };
    done(keyring.min(0))
}

/// The serial number of this process' session keyring.
#[cfg(test)]
pub(crate) fn session_keyring() -> io::Result<c_long> {
    const KEYCTL_GET_KEYRING_ID: c_ulong = 0;
    const KEY_SPEC_SESSION_KEYRING: c_long = -3;
    // SAFETY: This command takes numbers and touches no memory.
    let keyring = unsafe {
        libc::syscall(
            libc::SYS_keyctl,
            KEYCTL_GET_KEYRING_ID,
            KEY_SPEC_SESSION_KEYRING,
            c_long::from(0_i32),
        )
    };
    done(keyring.min(0)).map(|()| keyring)
}

/// Drops every capability from the bounding set.
pub(crate) fn drop_bounding_set(_: &InChild) -> io::Result<()> {
    for capability in 0..u64::from(u64::BITS) {
        // SAFETY: This option takes a number and touches no memory.
        let result = unsafe { libc::prctl(libc::PR_CAPBSET_DROP, capability, 0, 0, 0) };
        if result != 0 {
            let error = io::Error::last_os_error();
            // EINVAL: the previous number was the kernel's last capability.
            return if error.raw_os_error() == Some(libc::EINVAL) {
                Ok(())
            } else {
                Err(error)
            };
        }
    }
    Ok(())
}

/// Adds a capability to the ambient set.
pub(crate) fn raise_ambient(_: &InChild, capability: u32) -> io::Result<()> {
    // SAFETY: This option takes numbers and touches no memory.
    done(c_long::from(unsafe {
        libc::prctl(
            libc::PR_CAP_AMBIENT,
            libc::PR_CAP_AMBIENT_RAISE,
            c_ulong::from(capability),
            0,
            0,
        )
    }))
}

/// Moves a descriptor to the number `to` and keeps it open across exec.
pub(crate) fn move_to(child: &InChild, from: OwnedFd, to: RawFd) -> io::Result<()> {
    if from.as_raw_fd() != to {
        return dup_to(child, from.as_fd(), to);
    }
    // SAFETY: F_SETFD touches no memory, and the descriptor is ours: whoever runs next owns it.
    done(c_long::from(unsafe {
        libc::fcntl(from.into_raw_fd(), libc::F_SETFD, 0)
    }))
}

/// Duplicates `from` as `to`, which stays open across exec.
pub(crate) fn dup_to(_: &InChild, from: BorrowedFd<'_>, to: RawFd) -> io::Result<()> {
    // SAFETY: In the child, `to` belongs to nothing that is still used: the process ends or is
    // replaced without going back to any owner.
    done(c_long::from(unsafe { libc::dup3(from.as_raw_fd(), to, 0) }))
}

/// Closes the child's copy of a descriptor that a value in the parent owns.
pub(crate) fn close_copy(_: &InChild, fd: BorrowedFd<'_>) {
    // SAFETY: The child never returns to the owner of `fd`; the parent's descriptor is
    // another one.
    unsafe {
        libc::close(fd.as_raw_fd());
    }
}

/// Sets `FD_CLOEXEC` on every descriptor from `first` on.
pub(crate) fn cloexec_from(first: RawFd) -> io::Result<()> {
    // SAFETY: Only a flag is set; nothing is closed.
    done(unsafe {
        libc::syscall(
            libc::SYS_close_range,
            first.cast_unsigned(),
            c_uint::MAX,
            libc::CLOSE_RANGE_CLOEXEC,
        )
    })
}

/// Closes a descriptor that this process inherited through exec; returns false for any other.
/// Inherited descriptors lack `FD_CLOEXEC`, and all that this process opens itself have it.
pub(crate) fn close_inherited(fd: RawFd) -> bool {
    // SAFETY: F_GETFD touches no memory, and what is no descriptor answers with an error.
    let flags = unsafe { libc::fcntl(fd, libc::F_GETFD) };
    if flags < 0 || flags & libc::FD_CLOEXEC != 0 {
        return false;
    }
    // SAFETY: Without the flag it was not opened by this process: the standard library, rustix
    // and this file set it on all they open, and only a child of `clone3` clears it. So no
    // value in this process owns the descriptor.
    unsafe { libc::close(fd) == 0 }
}

/// Resets every signal to its default action.
pub(crate) fn reset_signals() {
    // All zeroes: default action, no flags, no mask.
    let action = [0_u64; 4];
    for signal in 1..=SIGNALS {
        // SAFETY: `action` is at least as long as the kernel's sigaction and names no handler.
        // The C library keeps two signals to itself, hence not its function; the two that
        // nobody can change answer with an error.
        unsafe {
            libc::syscall(
                libc::SYS_rt_sigaction,
                signal,
                action.as_ptr(),
                ptr::null_mut::<u64>(),
                size_of::<u64>(),
            );
        }
    }
}

/// Clears the signal mask.
pub(crate) fn unblock_signals(_: &InChild) -> io::Result<()> {
    // SAFETY: `set` is made by sigemptyset before it is read.
    done(c_long::from(unsafe {
        let mut set = std::mem::zeroed();
        libc::sigemptyset(&raw mut set);
        libc::sigprocmask(libc::SIG_SETMASK, &raw const set, ptr::null_mut())
    }))
}

/// Blocks SIGCHLD and returns a signalfd for it.
pub(crate) fn child_signals() -> io::Result<OwnedFd> {
    // SAFETY: `set` is made by sigemptyset before it is read; the descriptor is new and ours.
    unsafe {
        let mut set = std::mem::zeroed();
        libc::sigemptyset(&raw mut set);
        libc::sigaddset(&raw mut set, libc::SIGCHLD);
        done(c_long::from(libc::sigprocmask(
            libc::SIG_SETMASK,
            &raw const set,
            ptr::null_mut(),
        )))?;
        let fd = libc::signalfd(-1, &raw const set, libc::SFD_CLOEXEC | libc::SFD_NONBLOCK);
        done(c_long::from(fd))?;
        Ok(OwnedFd::from_raw_fd(fd))
    }
}

/// Brings up the loopback interface of this network namespace; `socket` is any socket in it.
pub(crate) fn loopback_up(_: &InChild, socket: BorrowedFd<'_>) -> io::Result<()> {
    /// The kernel's `struct ifreq`, as SIOCSIFFLAGS reads it.
    #[repr(C)]
    struct Request {
        name: [u8; 16],
        flags: u16,
        rest: [u8; 22],
    }
    const UP_AND_RUNNING: u16 = 0x41;
    let mut request = Request {
        name: [0; 16],
        flags: UP_AND_RUNNING,
        rest: [0; 22],
    };
    request.name[..2].copy_from_slice(b"lo");
    // SAFETY: SIOCSIFFLAGS reads one ifreq, whose size and layout `request` has.
    done(c_long::from(unsafe {
        libc::ioctl(socket.as_raw_fd(), libc::SIOCSIFFLAGS, &raw const request)
    }))
}

/// Makes a read-only btrfs subvolume writable again. Its owner may do this.
pub fn make_subvolume_writable(subvolume: BorrowedFd<'_>) -> io::Result<()> {
    /// `BTRFS_IOC_SUBVOL_SETFLAGS`: `_IOW(0x94, 26, __u64)`.
    const SET_FLAGS: libc::Ioctl = 0x4008_941a;
    let no_flags: u64 = 0;
    // SAFETY: The request reads eight bytes, which `no_flags` has; what is no btrfs refuses it.
    done(c_long::from(unsafe {
        libc::ioctl(subvolume.as_raw_fd(), SET_FLAGS, &raw const no_flags)
    }))
}

/// The kernel's `struct fsxattr`.
#[repr(C)]
#[derive(Default)]
struct FileAttributes {
    flags: u32,
    extent_size: u32,
    extents: u32,
    project: u32,
    cow_extent_size: u32,
    _padding: [u8; 8],
}

/// New files in a directory inherit its project id.
const INHERIT_PROJECT: u32 = 0x200;

fn attributes(file: BorrowedFd<'_>) -> io::Result<FileAttributes> {
    /// `FS_IOC_FSGETXATTR`: `_IOR('X', 31, struct fsxattr)`.
    const GET: libc::Ioctl = 0x801c_581f;
    let mut found = FileAttributes::default();
    // SAFETY: The request writes one fsxattr, which `found` has room for.
    done(c_long::from(unsafe {
        libc::ioctl(file.as_raw_fd(), GET, &raw mut found)
    }))?;
    Ok(found)
}

/// Sets the project id of a directory, which everything created in it inherits.
pub(crate) fn set_project(directory: BorrowedFd<'_>, project: u32) -> io::Result<()> {
    /// `FS_IOC_FSSETXATTR`: `_IOW('X', 32, struct fsxattr)`.
    const SET: libc::Ioctl = 0x401c_5820;
    let found = attributes(directory)?;
    let wanted = FileAttributes {
        project,
        flags: found.flags | INHERIT_PROJECT,
        ..found
    };
    // SAFETY: The request reads one fsxattr, which `wanted` is.
    done(c_long::from(unsafe {
        libc::ioctl(directory.as_raw_fd(), SET, &raw const wanted)
    }))
}

/// The project id that files in a directory inherit.
pub(crate) fn project(directory: BorrowedFd<'_>) -> io::Result<Option<u32>> {
    let found = attributes(directory)?;
    Ok((found.flags & INHERIT_PROJECT != 0).then_some(found.project))
}

/// The unit of the kernel's limits of disk space.
const QUOTA_BLOCK_BYTES: u64 = 1024;

/// Limits the disk usage of a project's files; 0: no limit.
pub(crate) fn set_project_limits(
    filesystem: BorrowedFd<'_>,
    project: u32,
    bytes: u64,
    files: u64,
) -> io::Result<()> {
    const SET_QUOTA: c_uint = 0x0080_0008;
    /// `QIF_BLIMITS | QIF_ILIMITS`
    const LIMITS: u32 = 1 | 4;
    let mut limits = DiskQuota {
        block_hard_limit: bytes.div_ceil(QUOTA_BLOCK_BYTES),
        file_hard_limit: files,
        valid: LIMITS,
        ..DiskQuota::default()
    };
    quotactl(filesystem, SET_QUOTA, project, &mut limits)
}

/// The disk usage of a project: bytes and files.
pub(crate) fn project_use(filesystem: BorrowedFd<'_>, project: u32) -> io::Result<(u64, u64)> {
    const GET_QUOTA: c_uint = 0x0080_0007;
    let mut found = DiskQuota::default();
    quotactl(filesystem, GET_QUOTA, project, &mut found)?;
    Ok((found.space_bytes, found.files))
}

/// The kernel's `struct if_dqblk`.
#[repr(C)]
#[derive(Default)]
struct DiskQuota {
    block_hard_limit: u64,
    block_soft_limit: u64,
    space_bytes: u64,
    file_hard_limit: u64,
    file_soft_limit: u64,
    files: u64,
    block_time: u64,
    file_time: u64,
    valid: u32,
}

fn quotactl(
    filesystem: BorrowedFd<'_>,
    command: c_uint,
    project: u32,
    quota: &mut DiskQuota,
) -> io::Result<()> {
    /// `PRJQUOTA`
    const OF_PROJECTS: c_uint = 2;
    let command = (command << 8) | OF_PROJECTS;
    // SAFETY: Both commands that are used read or write one if_dqblk, which `quota` is.
    done(unsafe {
        libc::syscall(
            libc::SYS_quotactl_fd,
            filesystem.as_raw_fd(),
            command,
            project,
            ptr::from_mut(quota),
        )
    })
}

fn done(result: c_long) -> io::Result<()> {
    if result < 0 {
        Err(io::Error::last_os_error())
    } else {
        Ok(())
    }
}
