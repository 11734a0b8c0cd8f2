//! One zygote: our Python process that forks spares.

use std::ffi::CString;
use std::os::fd::OwnedFd;
use std::time::Duration;

use rustix::io::{Errno, IoSlice};
use rustix::net::{
    AddressFamily, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage, SendFlags, SocketFlags,
    SocketType, recv, sendmsg, socketpair,
};
use rustix::pipe::{PipeFlags, pipe_with};
use rustix::process::{Pid, Signal, kill_process};
use tokio::io::Interest;

use super::key::Key;
use super::spare::Spare;
use crate::exec::{Fd, Status, watch_nonblocking};
use crate::process::{Gone, Launch, Record, Stdio, Table};
use crate::sys::{CStrings, keeper_code};

/// The program. It is passed as an argument and not in a file, so nothing can replace it. The last
/// part calls what the others define.
const SOURCE: &str = concat!(
    include_str!("zygote/pages.py"),
    include_str!("zygote/script.py"),
    include_str!("zygote/main.py"),
);

/// What runs the program.
const LOADER: &str = include_str!("zygote/load.py");

/// Executes the last argument outside of `__main__`, which belongs to the script.
const RUN_LAST_ARGUMENT: &str = "import sys;exec(sys.argv.pop(),{'__name__':'hotcell'})";

/// A home that does not exist: the zygote must not load modules that a script installed for its
/// user.
const NO_HOME: &str = "HOME=/nonexistent";

/// How long it may take to become ready.
const START_MAX: Duration = Duration::from_secs(20);

/// How long it may take to fork a spare.
const FORK_MAX: Duration = Duration::from_secs(5);

const READY: u8 = b'R';

/// A request for a spare; the relevant part is the attached descriptors.
const FORK: [u8; 1] = [b'f'];

/// A running zygote. Dropping it kills it.
pub(super) struct Zygote {
    pid: Pid,
    gone: Gone,
    control: Fd,
}

impl Zygote {
    /// Starts one. It must not be used before it [is ready](Self::ready).
    pub(super) fn start(
        table: &Table,
        key: &Key,
        data_bytes_max: Option<u64>,
    ) -> Result<Self, Errno> {
        let (control, stdin) = sequenced_pair()?;
        // A script inherits the stream objects, with other descriptors behind them: so these must
        // be pipes or sockets, too. Nothing is written to them, so nobody has to read them.
        let (_, stdout) = pipe_with(PipeFlags::CLOEXEC)?;
        let (_, stderr) = pipe_with(PipeFlags::CLOEXEC)?;
        let c_string = |text: &str| CString::new(text).map_err(|_| Errno::INVAL);
        let program = key.program.clone();
        let mut env = key.env.clone();
        env.extend(key.search_path.clone());
        env.push(c_string(NO_HOME)?);
        let launch = Launch {
            argv: CStrings::new(vec![
                program,
                c_string("-c")?,
                c_string(RUN_LAST_ARGUMENT)?,
                c_string(&hex(keeper_code()))?,
                c_string(SOURCE)?,
                c_string(LOADER)?,
            ]),
            env: CStrings::new(env),
            candidates: vec![key.path.clone()],
            cwd: c_string("/")?,
            user: None,
            data_bytes_max,
            stdio: Stdio {
                stdin,
                stdout,
                stderr,
                tty: false,
            },
        };
        let control = watch_nonblocking(control, Interest::READABLE)?;
        let (pid, gone) = table.start_zygote(&launch)?;
        Ok(Self { pid, gone, control })
    }

    /// Waits until it has imported its modules and can no longer be traced.
    pub(super) async fn ready(&self) -> bool {
        let byte = tokio::time::timeout(START_MAX, receive_byte(&self.control));
        byte.await.ok().flatten() == Some(READY)
    }

    /// Lets it fork a spare.
    pub(super) async fn fork(&self, table: &Table) -> Option<Spare> {
        let (request, theirs) = sequenced_pair().ok()?;
        let (status, told) = Status::open().ok()?;
        let request = watch_nonblocking(request, Interest::READABLE).ok()?;
        send_with(&self.control, &FORK, &[&theirs, &told]).ok()?;
        drop((theirs, told));
        let mut spare = Spare::new(request, status);
        let forked = tokio::time::timeout(FORK_MAX, spare.forked());
        let Ok(Some(Record::Spare { leader, keeper })) = forked.await else {
            return None;
        };
        let keeper = Pid::from_raw(keeper.cast_signed())?;
        let gone = table.adopt(keeper)?;
        spare.adopted(keeper, gone, leader);
        Some(spare)
    }

    /// Waits for its end.
    pub(super) async fn ended(&self) {
        self.gone.clone().wait().await;
    }
}

impl Drop for Zygote {
    fn drop(&mut self) {
        // As everywhere in `process::tree`: a reused PID could only be a process of this container.
        if !self.gone.is_gone() {
            let _ = kill_process(self.pid, Signal::KILL);
        }
    }
}

/// Where there is no machine code for a keeper, the zygote gives up.
fn hex(code: &[u8]) -> String {
    use std::fmt::Write as _;
    code.iter().fold(String::new(), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}

fn sequenced_pair() -> Result<(OwnedFd, OwnedFd), Errno> {
    let flags = SocketFlags::CLOEXEC;
    socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None)
}

/// Sends one message with descriptors, without waiting.
pub(super) fn send_with(socket: &Fd, data: &[u8], descriptors: &[&OwnedFd]) -> Result<(), Errno> {
    use std::os::fd::AsFd;
    let descriptors: Vec<_> = descriptors.iter().map(|fd| fd.as_fd()).collect();
    let mut space = [std::mem::MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(3))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    if !control.push(SendAncillaryMessage::ScmRights(&descriptors)) {
        return Err(Errno::INVAL);
    }
    let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
    let sent = sendmsg(socket.get_ref(), &[IoSlice::new(data)], &mut control, flags)?;
    if sent == data.len() {
        return Ok(());
    }
    Err(Errno::MSGSIZE)
}

/// The next message, if it has one byte; `None` once the other end is closed. Cancel-safe.
pub(super) async fn receive_byte(socket: &Fd) -> Option<u8> {
    let mut byte = [0; 1];
    loop {
        let mut guard = socket.readable().await.ok()?;
        let received = guard.try_io(|fd| {
            let (count, _) = recv(fd.get_ref(), &mut byte[..], RecvFlags::DONTWAIT)?;
            Ok(count)
        });
        match received {
            Ok(Ok(1)) => return Some(byte[0]),
            Ok(_) => return None,
            Err(_) => {}
        }
    }
}
