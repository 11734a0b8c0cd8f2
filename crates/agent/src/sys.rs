//! System calls without a safe wrapper. All `unsafe` code of the agent is here.
//!
//! Between clone and exec nothing allocates, locks or unwinds: functions that run there only borrow
//! what was prepared before.

use std::ffi::{CStr, CString, c_char, c_int, c_long, c_ulong, c_void};
use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd as _, BorrowedFd, FromRawFd, OwnedFd, RawFd};

use rustix::io::Errno;
use rustix::process::Pid;
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

const SIGNAL_MAX: c_int = 64;

/// The kernel's `sigaction` for `SIG_DFL` and `SIG_IGN`: no flags, an empty mask.
const DEFAULT_ACTION: [u64; 4] = [libc::SIG_DFL as u64, 0, 0, 0];
const IGNORE_ACTION: [u64; 4] = [libc::SIG_IGN as u64, 0, 0, 0];

/// Signals that libc uses for its own threads.
const SIGNALS_OF_LIBC: [c_int; 2] = [32, 33];

const SIGSET_BYTES: usize = 8;

/// The stack of a vforked child, which makes about a dozen shallow calls.
const VFORK_STACK_BYTES: usize = 16 << 10;

/// Strings in the format of `execve`: an array of pointers that ends with null.
pub struct CStrings {
    pointers: Vec<*const c_char>,
    _strings: Vec<CString>,
}

impl CStrings {
    pub(crate) fn new(strings: Vec<CString>) -> Self {
        let mut pointers: Vec<_> = strings.iter().map(|string| string.as_ptr()).collect();
        pointers.push(std::ptr::null());
        Self {
            pointers,
            _strings: strings,
        }
    }
}

/// Has the allocator return each buffer of this size or more to the kernel when it is freed. By itself
/// it begins to keep what is as large as the largest one so far.
pub(crate) fn return_large_buffers(bytes: c_int) {
    // SAFETY: It sets numbers of the allocator, under the allocator's own lock.
    unsafe { libc::mallopt(libc::M_MMAP_THRESHOLD, bytes) };
}

/// Executes a program; returns only on failure.
pub(crate) fn execve(path: &CStr, argv: &CStrings, env: &CStrings) -> Errno {
    // SAFETY: The path ends with a NUL, both arrays end with a null pointer and each
    // pointer before it leads to a string that ends with a NUL; all live through the call.
    unsafe { libc::execve(path.as_ptr(), argv.pointers.as_ptr(), env.pointers.as_ptr()) };
    last_errno()
}

/// Takes ownership of a descriptor that the engine passed; `EBADF` if there is none.
///
/// All that this process opens itself has `FD_CLOEXEC`, and a descriptor that survived exec cannot
/// have had it. So this never takes a descriptor that a value in this process owns, nor the same
/// one twice.
pub(crate) fn inherited_listener(fd: RawFd) -> Result<OwnedFd, Errno> {
    // SAFETY: F_GETFD reads and writes no memory. It fails if nothing is open there.
    let flags = unsafe { libc::fcntl(fd, libc::F_GETFD) };
    if flags < 0 || flags & libc::FD_CLOEXEC != 0 {
        return Err(Errno::BADF);
    }
    // SAFETY: F_SETFD reads and writes no memory either.
    if unsafe { libc::fcntl(fd, libc::F_SETFD, libc::FD_CLOEXEC) } < 0 {
        return Err(last_errno());
    }
    // SAFETY: It did not close on exec, so it was open before this program began, and no value
    // of this process owns it; from here on it does close, so nobody gets it a second time.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// Receives one byte and the sender's user id, if the kernel provides it.
///
/// The control buffer has no room for descriptors, so a sender cannot attach any.
pub(crate) fn receive_with_uid(fd: BorrowedFd<'_>) -> Result<(Option<u8>, Option<u32>), Errno> {
    let (mut byte, mut control) = (0_u8, ControlBuffer::default());
    let mut part = libc::iovec {
        iov_base: (&raw mut byte).cast(),
        iov_len: 1,
    };
    // SAFETY: All zeroes is a valid `msghdr`.
    let mut message: libc::msghdr = unsafe { std::mem::zeroed() };
    message.msg_iov = &raw mut part;
    message.msg_iovlen = 1;
    message.msg_control = (&raw mut control).cast();
    message.msg_controllen = size_of::<ControlBuffer>();
    let flags = libc::MSG_DONTWAIT | libc::MSG_CMSG_CLOEXEC;
    // SAFETY: `message` leads to one byte and to the control buffer, with their sizes, and
    // both live through the call.
    let count = unsafe { libc::recvmsg(fd.as_raw_fd(), &raw mut message, flags) };
    if count < 0 {
        return Err(last_errno());
    }
    let needed = std::mem::offset_of!(ControlBuffer, padding);
    let is_complete = message.msg_controllen >= needed && control.length >= needed;
    let is_uid = (control.level, control.kind) == (libc::SOL_SOCKET, libc::SCM_CREDENTIALS);
    Ok((
        (count == 1).then_some(byte),
        (is_complete && is_uid).then_some(control.uid),
    ))
}

/// The layout of a control message with credentials.
#[repr(C)]
#[derive(Default)]
struct ControlBuffer {
    length: usize,
    level: c_int,
    kind: c_int,
    pid: i32,
    uid: u32,
    gid: u32,
    padding: u32,
}

pub(crate) fn load_filter(program: &[libc::sock_filter]) -> Result<(), Errno> {
    seccomp(program, 0).map(drop)
}

/// Loads a seccomp program and returns its listener. Where the kernel supports it, only SIGKILL
/// interrupts a call that waits for an answer.
pub(crate) fn load_filter_with_listener(program: &[libc::sock_filter]) -> Result<OwnedFd, Errno> {
    let listener = libc::SECCOMP_FILTER_FLAG_NEW_LISTENER;
    let killable = libc::SECCOMP_FILTER_FLAG_WAIT_KILLABLE_RECV;
    let fd = seccomp(program, listener | killable).or_else(|_| seccomp(program, listener))?;
    let fd = RawFd::try_from(fd).map_err(|_| Errno::BADF)?;
    // SAFETY: The kernel opened it for us in the call just above, and nobody else knows it.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

fn seccomp(program: &[libc::sock_filter], flags: c_ulong) -> Result<c_long, Errno> {
    let program = libc::sock_fprog {
        len: u16::try_from(program.len()).map_err(|_| Errno::INVAL)?,
        filter: program.as_ptr().cast_mut(),
    };
    // SAFETY: The kernel reads `len` instructions from `filter`, which outlive the call, and
    // checks them; it writes to neither.
    let result = unsafe {
        libc::syscall(
            libc::SYS_seccomp,
            libc::SECCOMP_SET_MODE_FILTER,
            flags,
            &raw const program,
        )
    };
    if result < 0 {
        return Err(last_errno());
    }
    Ok(result)
}

/// Whether a descriptor is a seccomp listener.
pub(crate) fn is_seccomp_listener(fd: BorrowedFd<'_>) -> bool {
    // An id that no notification has.
    let id = 0_u64;
    // SAFETY: The kernel reads one u64, which lives through the call.
    let result = unsafe {
        libc::ioctl(
            fd.as_raw_fd(),
            libc::SECCOMP_IOCTL_NOTIF_ID_VALID,
            &raw const id,
        )
    };
    result < 0 && last_errno() == Errno::NOENT
}

/// A system call that waits for our answer.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Notification {
    /// Identifies the notification in the answer.
    pub(crate) id: u64,
    /// The calling thread.
    pub(crate) tid: u32,
    pub(crate) args: [u64; 6],
}

/// Receives the next notification; blocks if there is none. `ENOENT` if the caller was interrupted.
pub(crate) fn receive_notification(listener: BorrowedFd<'_>) -> Result<Notification, Errno> {
    /// Room for a newer kernel's larger structure.
    const SPARE: usize = 32;
    #[repr(C)]
    struct Buffer {
        known: libc::seccomp_notif,
        spare: [u64; SPARE],
    }
    // SAFETY: All zeroes is a valid `Buffer`, and what the kernel asks for.
    let mut buffer: Buffer = unsafe { std::mem::zeroed() };
    // SAFETY: The kernel writes one `seccomp_notif`, for which there is room.
    let result = unsafe {
        libc::ioctl(
            listener.as_raw_fd(),
            libc::SECCOMP_IOCTL_NOTIF_RECV,
            &raw mut buffer,
        )
    };
    if result < 0 {
        return Err(last_errno());
    }
    Ok(Notification {
        id: buffer.known.id,
        tid: buffer.known.pid,
        args: buffer.known.data.args,
    })
}

/// The answer to a notification.
#[derive(Debug, Clone, Copy)]
pub(crate) enum NotificationReply {
    /// Execute the call.
    Continue,
    /// Return this value.
    Return(i64),
    /// Fail with this errno.
    Fail(Errno),
}

/// Answers a notification. `ENOENT` if the caller was interrupted.
pub(crate) fn answer_notification(
    listener: BorrowedFd<'_>,
    id: u64,
    answer: NotificationReply,
) -> Result<(), Errno> {
    let (val, error, flags) = match answer {
        NotificationReply::Continue => (0, 0, 1),
        NotificationReply::Return(value) => (value, 0, 0),
        NotificationReply::Fail(errno) => (0, -errno.raw_os_error(), 0),
    };
    let response = libc::seccomp_notif_resp {
        id,
        val,
        error,
        flags,
    };
    // SAFETY: The kernel reads one `seccomp_notif_resp`, which lives through the call.
    let result = unsafe {
        libc::ioctl(
            listener.as_raw_fd(),
            libc::SECCOMP_IOCTL_NOTIF_SEND,
            &raw const response,
        )
    };
    if result < 0 {
        return Err(last_errno());
    }
    Ok(())
}

/// Installs a copy of `fd` in the process whose call waits, and returns its number there. With
/// `answers`, the call also returns that number; Linux before 5.14 does not support this: `EINVAL`.
pub(crate) fn give_to_notifier(
    listener: BorrowedFd<'_>,
    id: u64,
    fd: BorrowedFd<'_>,
    close_on_exec: bool,
    answers: bool,
) -> Result<i32, Errno> {
    let given = libc::seccomp_notif_addfd {
        id,
        flags: if answers { 2 } else { 0 },
        srcfd: fd.as_raw_fd().cast_unsigned(),
        newfd: 0,
        newfd_flags: if close_on_exec {
            libc::O_CLOEXEC.cast_unsigned()
        } else {
            0
        },
    };
    // SAFETY: The kernel reads one `seccomp_notif_addfd`, which lives through the call.
    let result = unsafe {
        libc::ioctl(
            listener.as_raw_fd(),
            libc::SECCOMP_IOCTL_NOTIF_ADDFD,
            &raw const given,
        )
    };
    if result < 0 {
        return Err(last_errno());
    }
    Ok(result)
}

/// Registers a non-blocking descriptor with the runtime.
pub(crate) fn watch(fd: OwnedFd, interest: Interest) -> Result<AsyncFd<OwnedFd>, Errno> {
    // SAFETY: An `OwnedFd` keeps naming the same open descriptor until it is dropped, and
    // the `AsyncFd` owns it from here on.
    let watched = unsafe { AsyncFd::register_with_interest(fd, interest) };
    watched.map_err(|error| Errno::from_io_error(&error.into_parts().1).unwrap_or(Errno::NOMEM))
}

/// Proof of running in a cloned child that has its own descriptor table and exits without running
/// destructors. Only [`fork`] and [`vfork`] create one, for their child.
pub(crate) struct InChild(());

/// Forks. The child has its own memory, runs `body` and exits.
///
/// All signals are blocked in the child. It is a copy of one thread of a process that may have
/// several, so `body` must not allocate or take a lock.
pub(crate) fn fork<T>(arg: &T, body: fn(&InChild, &T) -> c_int) -> Result<Pid, Errno> {
    let before = replace_signal_mask(u64::MAX);
    // SAFETY: Without CLONE_VM and without a stack this is fork: the child goes on here
    // on its own copy of everything.
    let pid = unsafe { libc::syscall(libc::SYS_clone, libc::SIGCHLD, 0, 0, 0, 0) };
    if pid == 0 {
        exit(body(&InChild(()), arg));
    }
    let result = if pid < 0 { Err(last_errno()) } else { Ok(pid) };
    replace_signal_mask(before);
    result.map(|pid| pid_from(pid).expect("clone returned a positive number"))
}

/// Starts a child that shares our memory and runs `body`. We are suspended until it has executed a
/// program or exited.
pub(crate) fn vfork<T>(arg: &T, body: fn(&InChild, &T) -> c_int) -> Result<Pid, Errno> {
    let call = Call { arg, body };
    let mut stack = [const { MaybeUninit::<u8>::uninit() }; VFORK_STACK_BYTES];
    let top = stack.as_mut_ptr_range().end;
    let flags = libc::CLONE_VM | libc::CLONE_VFORK | libc::SIGCHLD;
    // SAFETY: `top` is the end of memory that is the child's alone for the whole call and
    // is aligned down by glibc; `call` and what it refers to outlive the child's use of them,
    // because CLONE_VFORK keeps this frame suspended until then.
    let pid = unsafe {
        libc::clone(
            run_call::<T>,
            top.cast::<c_void>(),
            flags,
            (&raw const call).cast::<c_void>().cast_mut(),
        )
    };
    if pid < 0 {
        return Err(last_errno());
    }
    Ok(pid_from(i64::from(pid)).expect("clone returned a positive number"))
}

struct Call<'a, T> {
    arg: &'a T,
    body: fn(&InChild, &T) -> c_int,
}

extern "C" fn run_call<T>(call: *mut c_void) -> c_int {
    // SAFETY: `vfork` passed a pointer to a `Call<T>` that lives while we run.
    let call = unsafe { &*call.cast::<Call<'_, T>>() };
    exit((call.body)(&InChild(()), call.arg))
}

/// Exits without running exit handlers.
pub(crate) fn exit(code: c_int) -> ! {
    // SAFETY: `_exit` takes no memory and does not return.
    unsafe { libc::_exit(code) }
}

/// The result of `wait4` for an exited child.
pub(crate) struct Ended {
    pub(crate) pid: i32,
    pub(crate) status: i32,
    /// User and system time in microseconds.
    pub(crate) cpu_us: (u64, u64),
    pub(crate) max_rss_bytes: u64,
}

/// Waits for any child of any kind; `None` if `no_hang` and none has exited.
pub(crate) fn wait_any(no_hang: bool) -> Result<Option<Ended>, Errno> {
    let options = libc::__WALL | if no_hang { libc::WNOHANG } else { 0 };
    let mut status = 0;
    // SAFETY: All zeroes is a valid `rusage`.
    let mut usage: libc::rusage = unsafe { std::mem::zeroed() };
    // SAFETY: Both pointers lead to values that live through the call.
    let pid = unsafe { libc::wait4(-1, &raw mut status, options, &raw mut usage) };
    match pid {
        0 => Ok(None),
        pid if pid > 0 => Ok(Some(Ended {
            pid,
            status,
            cpu_us: (micros(usage.ru_utime), micros(usage.ru_stime)),
            max_rss_bytes: u64::try_from(usage.ru_maxrss)
                .unwrap_or(0)
                .saturating_mul(1024),
        })),
        _ => Err(last_errno()),
    }
}

fn micros(time: libc::timeval) -> u64 {
    let seconds = u64::try_from(time.tv_sec).unwrap_or(0);
    seconds * 1_000_000 + u64::try_from(time.tv_usec).unwrap_or(0)
}

/// Resets every signal to its default action, then unblocks all.
///
/// The order matters: a pending signal must not run a handler of the agent.
pub(crate) fn reset_signals(_: &InChild) {
    (1..=SIGNAL_MAX).for_each(reset_signal);
    replace_signal_mask(0);
}

/// Ignores every signal that can be ignored, except SIGCHLD and those that libc uses for its
/// threads. A fault of our own still kills us.
///
/// The kernel's protection of PID 1 is not enough: a signal that one thread had blocked when it was
/// sent can be delivered to another thread, and then kills PID 1 too. Rust's handlers for faults
/// are removed as well: two such signals at once would overflow their stack.
pub(crate) fn ignore_signals() {
    (1..=SIGNAL_MAX)
        .filter(|signal| *signal != libc::SIGCHLD && !SIGNALS_OF_LIBC.contains(signal))
        .for_each(|signal| set_signal_action(signal, IGNORE_ACTION));
}

fn reset_signal(signal: c_int) {
    set_signal_action(signal, DEFAULT_ACTION);
}

fn set_signal_action(signal: c_int, action: [u64; 4]) {
    // SAFETY: The kernel reads at most the 32 bytes of `action`, which name no handler in
    // memory; those signals whose action cannot be set answer EINVAL.
    unsafe {
        libc::syscall(
            libc::SYS_rt_sigaction,
            signal,
            action.as_ptr(),
            0,
            SIGSET_BYTES,
        );
    }
}

fn replace_signal_mask(mask: u64) -> u64 {
    let mut before = 0_u64;
    // SAFETY: Both sets have the size that is passed and live through the call.
    unsafe {
        libc::syscall(
            libc::SYS_rt_sigprocmask,
            libc::SIG_SETMASK,
            &raw const mask,
            &raw mut before,
            SIGSET_BYTES,
        );
    }
    before
}

/// Closes every descriptor except these.
///
/// The values that own the other descriptors are copies in the child that nobody drops; using one
/// fails with `EBADF`.
pub(crate) fn close_all_but<const N: usize>(child: &InChild, kept: [BorrowedFd<'_>; N]) {
    let mut kept = kept.map(|fd| fd.as_raw_fd().cast_unsigned());
    kept.sort_unstable();
    let mut first = 0;
    for fd in kept {
        if let Some(last) = fd.checked_sub(1) {
            close_range(child, first, last);
        }
        first = fd + 1;
    }
    close_range(child, first, u32::MAX);
}

fn close_range(_: &InChild, first: u32, last: u32) {
    if first <= last {
        // SAFETY: The call touches no memory, and the token says that the table is the
        // child's own and that no destructor closes these descriptors again.
        unsafe { libc::syscall(libc::SYS_close_range, first, last, 0) };
    }
}

/// Any signal number of the kernel, including those without a name.
pub(crate) fn signal(number: u32) -> Option<rustix::process::Signal> {
    let number = c_int::try_from(number)
        .ok()
        .filter(|number| (1..=SIGNAL_MAX).contains(number))?;
    // SAFETY: The number is a signal's, and we only ever send it; the ones libc keeps
    // for its threads mean nothing to a program of its own.
    Some(unsafe { rustix::process::Signal::from_raw_unchecked(number) })
}

#[cfg(target_arch = "x86_64")]
std::arch::global_asm!(include_str!("warm/keeper_x86_64.s"), options(raw));

/// A keeper as machine code, for processes that are not ours; empty where there is none for this
/// processor. It is data here and never executed by the agent.
#[cfg(target_arch = "x86_64")]
pub(crate) fn keeper_code() -> &'static [u8] {
    unsafe extern "C" {
        static hotcell_keeper_begin: u8;
        static hotcell_keeper_end: u8;
    }
    let (begin, end) = (
        &raw const hotcell_keeper_begin,
        &raw const hotcell_keeper_end,
    );
    // SAFETY: The assembler put both labels into one read-only section, the second behind the code
    // that begins at the first, and nothing ever writes there.
    unsafe { std::slice::from_raw_parts(begin, end.addr() - begin.addr()) }
}

#[cfg(not(target_arch = "x86_64"))]
pub(crate) fn keeper_code() -> &'static [u8] {
    &[]
}

fn pid_from(raw: i64) -> Option<Pid> {
    i32::try_from(raw).ok().and_then(Pid::from_raw)
}

fn last_errno() -> Errno {
    // SAFETY: It is valid in every thread, and in a vforked child it is its parent's.
    Errno::from_raw_os_error(unsafe { *libc::__errno_location() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_descriptor_of_our_own_is_never_taken_for_one_that_was_passed() {
        let (ours, _other) = rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC).unwrap();
        let refused = inherited_listener(ours.as_raw_fd());
        assert_eq!(refused.unwrap_err(), Errno::BADF);
        assert_eq!(inherited_listener(1 << 20).unwrap_err(), Errno::BADF);
        // A descriptor without FD_CLOEXEC, as an engine passes it, is taken once.
        let passed = rustix::io::dup(&ours).unwrap();
        let number = std::os::fd::IntoRawFd::into_raw_fd(passed);
        let taken = inherited_listener(number).unwrap();
        assert_eq!(inherited_listener(number).unwrap_err(), Errno::BADF);
        drop(taken);
    }

    #[test]
    fn only_what_the_kernel_has_is_a_signal() {
        assert_eq!(signal(15), Some(rustix::process::Signal::TERM));
        assert!(signal(64).is_some());
        assert!(signal(0).is_none());
        assert!(signal(65).is_none());
        assert!(signal(u32::MAX).is_none());
    }
}
