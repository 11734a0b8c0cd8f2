//! A spare: an interpreter that waits for its script, with its own keeper.

use std::os::fd::OwnedFd;
use std::time::Duration;

use rustix::process::Pid;

use super::zygote::{receive_byte, send_with};
use crate::exec::{Fd, Start, Status};
use crate::log;
use crate::process::{Gone, Record, is_ending, tree};

/// The largest request. Longer arguments and environments need the plain interpreter.
const REQUEST_BYTES_MAX: usize = 64 << 10;

/// How long a spare may take to begin its script. One that takes longer was stopped by a process in
/// the container.
const ANSWER_MAX: Duration = Duration::from_secs(2);

/// The answer of a spare whose script runs. Any other answer means: use the plain interpreter.
const RUNNING: u8 = b'r';

/// An interpreter that waits for a script. It exits when this is dropped.
pub(super) struct Spare {
    request: Fd,
    status: Status,
    /// Set once its keeper is in the table.
    adopted: Option<Adopted>,
}

struct Adopted {
    keeper: Pid,
    gone: Gone,
    leader: u32,
}

/// A started exec.
pub(crate) struct Running {
    pub(crate) keeper: Pid,
    pub(crate) gone: Gone,
    pub(crate) status: Status,
}

impl Spare {
    pub(super) fn new(request: Fd, status: Status) -> Self {
        Self {
            request,
            status,
            adopted: None,
        }
    }

    /// Waits for the first record of its keeper.
    pub(super) async fn forked(&mut self) -> Option<Record> {
        self.status.next().await
    }

    pub(super) fn adopted(&mut self, keeper: Pid, gone: Gone, leader: u32) {
        self.adopted = Some(Adopted {
            keeper,
            gone,
            leader,
        });
    }

    /// Whether it is of no use. A script in a spare whose keeper was killed would be killed as soon
    /// as the agent hears of that.
    pub(super) fn is_gone(&self) -> bool {
        let adopted = self.adopted.as_ref();
        adopted.is_none_or(|adopted| adopted.gone.is_gone() || is_ending(adopted.keeper))
    }

    /// Resolves when its processes have exited.
    pub(super) fn ended(&self) -> impl Future<Output = ()> + use<> {
        let gone = self.adopted.as_ref().map(|adopted| adopted.gone.clone());
        async {
            if let Some(mut gone) = gone {
                gone.wait().await;
            }
        }
    }

    /// Runs a script. `None`: the script has not started, and never will.
    pub(super) async fn run(self, request: &[u8], stdio: [&OwnedFd; 3]) -> Option<Running> {
        let Adopted {
            keeper,
            gone,
            leader,
        } = self.adopted?;
        let answer = match send_with(&self.request, request, &stdio) {
            Ok(()) => tokio::time::timeout(ANSWER_MAX, receive_byte(&self.request)).await,
            Err(_) => Ok(None),
        };
        if answer == Ok(Some(RUNNING)) {
            let status = self.status.after(Record::Started { pid: leader });
            return Some(Running {
                keeper,
                gone,
                status,
            });
        }
        // A spare that is only stopped would run the script a second time when it is continued.
        if let Err(error) = tree::kill(keeper, gone).await {
            log::line(format_args!("a warmed interpreter was not ended: {error}"));
        }
        None
    }
}

/// Encodes a script, its arguments and its environment for `zygote/script.py`; `None` if they are too
/// long.
pub(super) fn encode(start: &Start) -> Option<Vec<u8>> {
    let count = |number: usize| u32::try_from(number).ok();
    let mut request = Vec::new();
    request.extend(count(start.argv.len())?.to_le_bytes());
    request.extend(count(start.env.len())?.to_le_bytes());
    let strings = std::iter::once(&start.cwd)
        .chain(&start.argv)
        .chain(&start.env);
    for string in strings {
        request.extend(string.as_bytes_with_nul());
        if request.len() > REQUEST_BYTES_MAX {
            return None;
        }
    }
    Some(request)
}
