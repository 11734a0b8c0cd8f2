//! The task that owns an exec from its start until its output has ended.

use std::pin::pin;
use std::sync::Arc;
use std::time::{Duration, Instant};

use hotcell_agent_api::bounds::CHUNK_BYTES_MAX;
use hotcell_agent_api::v1::{self, Changes, Exit, ExitCause, Stream, Usage};

use super::Exec;
use super::output::{Chunk, Outputs};
use super::status::Status;
use crate::files::PendingCleanup;
use crate::log;
use crate::process::{Record, WaitStatus};

/// How long the last output of a terminal may take to arrive: the kernel delivers it
/// asynchronously.
const TERMINAL_DRAIN: Duration = Duration::from_millis(200);

/// More than a terminal buffers (64 KiB in flight and one page to read). Any more must have been
/// written after the leader's exit, by a background process that never stops.
const TERMINAL_BYTES_MAX: u64 = 128 << 10;

/// How long a keeper may take to exit once its last process has.
const KEEPER_EXIT: Duration = Duration::from_millis(5);

/// One exec's supervisor.
pub(super) struct ExecSupervisor {
    pub exec: Arc<Exec>,
    pub status: Status,
    pub outputs: Outputs,
    pub has_terminal: bool,
    pub timeout: Option<Duration>,
    /// Time between SIGTERM and SIGKILL after the timeout.
    pub grace: Duration,
    /// Done after the last output and before the exit is told.
    pub cleanup: Option<PendingCleanup>,
}

impl ExecSupervisor {
    /// Supervises the exec until its output has ended. Background processes can delay that as long
    /// as they live.
    pub(super) async fn run(mut self) {
        let mut usage = Usage::default();
        let began = Instant::now();
        let end = self.until_leader_ends(&mut usage).await;
        self.exec.leader_ended();
        usage.wall_us = u64::try_from(began.elapsed().as_micros()).unwrap_or(u64::MAX);
        self.drain(&mut usage).await;
        let mut exit = exit(end, usage);
        if let Some(cleanup) = self.cleanup.take() {
            exit.changes = Some(self.clean_up(cleanup).await);
        }
        self.exec.finish(exit);
        let Self {
            exec, mut outputs, ..
        } = self;
        // Later output is discarded, but still read, so that its writer does not get SIGPIPE. The
        // exec may be forgotten meanwhile.
        drop(exec);
        outputs.lift_limit();
        while outputs.next(CHUNK_BYTES_MAX).await.is_some() {}
    }

    /// Stores output as it arrives. Returns the keeper's last record; `None` if the keeper was
    /// killed.
    async fn until_leader_ends(&mut self, usage: &mut Usage) -> Option<Record> {
        let mut deadline = pin!(deadline(self.timeout));
        let (mut is_started, mut has_output, mut may_time_out) = (false, true, true);
        loop {
            tokio::select! {
                biased;
                record = self.status.next() => match record {
                    Some(Record::Started { pid }) => {
                        self.exec.started(pid);
                        is_started = true;
                    }
                    // Only a spare without a script reports this.
                    Some(Record::Spare { .. }) => {}
                    Some(end) => return Some(end),
                    None => {
                        self.exec.gone().wait().await;
                        return None;
                    }
                },
                () = &mut deadline, if may_time_out => {
                    may_time_out = false;
                    self.time_out();
                }
                chunk = next(&self.exec, &mut self.outputs), if is_started && has_output => {
                    match chunk {
                        Some(chunk) => hold(&self.exec, chunk, usage),
                        None => has_output = false,
                    }
                }
            }
        }
    }

    fn time_out(&self) {
        let (exec, grace) = (self.exec.clone(), self.grace);
        tokio::spawn(async move {
            if let Err(error) = exec.end(ExitCause::TimedOut, grace).await {
                log::line(format_args!(
                    "an exec that timed out was not ended: {error}"
                ));
            }
        });
    }

    /// Ends what the leader left behind, then lets its files be cleaned up.
    async fn clean_up(&self, cleanup: PendingCleanup) -> Changes {
        let mut gone = self.exec.gone();
        // A keeper without processes exits by itself, which spares the search for them.
        if tokio::time::timeout(KEEPER_EXIT, gone.wait())
            .await
            .is_err()
            && let Err(error) = self.exec.end(ExitCause::Cancelled, self.grace).await
        {
            log::line(format_args!("an exec was not ended: {error}"));
        }
        cleanup.finish().await
    }

    /// Stores what is in the pipes now; anything later was written after the leader's exit.
    async fn drain(&mut self, usage: &mut Usage) {
        if self.has_terminal {
            self.outputs.limit_to(TERMINAL_BYTES_MAX);
        } else {
            self.outputs.limit_to_present();
        }
        loop {
            let room = self.exec.room().await;
            let next = self.outputs.next(room);
            let chunk = if self.has_terminal {
                tokio::time::timeout(TERMINAL_DRAIN, next)
                    .await
                    .ok()
                    .flatten()
            } else {
                next.await
            };
            match chunk {
                Some(chunk) => hold(&self.exec, chunk, usage),
                None => return,
            }
        }
    }
}

async fn deadline(timeout: Option<Duration>) {
    match timeout {
        Some(timeout) => tokio::time::sleep(timeout).await,
        None => std::future::pending().await,
    }
}

async fn next(exec: &Exec, outputs: &mut Outputs) -> Option<Chunk> {
    let room = exec.room().await;
    outputs.next(room).await
}

fn hold(exec: &Exec, chunk: Chunk, usage: &mut Usage) {
    let bytes = chunk.data.len() as u64;
    match chunk.stream {
        Stream::Stdout | Stream::Unspecified => usage.stdout_bytes += bytes,
        Stream::Stderr => usage.stderr_bytes += bytes,
    }
    exec.output(chunk);
}

fn exit(end: Option<Record>, mut usage: Usage) -> Exit {
    let mut exit = Exit {
        cause: ExitCause::KeeperKilled.into(),
        ..Exit::default()
    };
    match end {
        Some(Record::Ended {
            status,
            user_us,
            system_us,
            max_rss_bytes,
        }) => {
            exit.cause = ExitCause::Exited.into();
            usage = Usage {
                user_us,
                system_us,
                max_rss_bytes,
                ..usage
            };
            match status {
                WaitStatus::Code(code) => exit.code = Some(code),
                WaitStatus::Signal(signal) => exit.signal = Some(signal),
            }
        }
        Some(Record::NotStarted { step, errno }) => {
            exit.cause = ExitCause::NotStarted.into();
            exit.start_error = Some(v1::StartError {
                step: step.name().into(),
                errno,
            });
        }
        Some(Record::Started { .. } | Record::Spare { .. }) | None => {}
    }
    exit.usage = Some(usage);
    exit
}
