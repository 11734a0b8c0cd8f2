//! Runs one cell: its output, its limits, its end.

use std::sync::atomic::Ordering;
use std::time::Duration;

use hotcell_agent_client::{
    CellEnd, NotebookDeath, NotebookError, NotebookEvent, NotebookFrame, NotebookRequest, Output,
};
use hotcell_domain::{ExecEnd, ExecStatus, Usage};
use hotcell_store::{ExecRow, StoreError};
use tokio::time::Instant;

use super::Cell;
use super::kernel::Kernel;
use crate::disk::why_ended;
use crate::environment::millis;
use crate::exec::batch::Batch;
use crate::exec::sink::OutputSink;
use crate::exec::table::TableInner;

/// A log write is started once this much output is collected.
const BATCH_BYTES: usize = 128 << 10;

/// How long the kernel may take to receive a request.
const SEND_TIMEOUT: Duration = Duration::from_secs(30);

const CUT_OFF: &str =
    "the connection to the container was lost and it was interrupted; variables are kept";

/// The signal of the OOM killer.
const SIGKILL: u8 = 9;

/// A cell that has run.
pub(super) struct Ran {
    pub(super) end: ExecEnd,
    /// The values that it reported; none if its interpreter ended.
    pub(super) cell: CellEnd,
    /// Whether the interpreter has ended or must be ended.
    pub(super) is_gone: bool,
    /// Whether the kernel's channel can be used for the next cell.
    pub(super) is_connected: bool,
    /// Why its output could not be written to its log.
    pub(super) not_stored: Option<StoreError>,
}

/// Why a cell was interrupted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Interrupt {
    Timeout,
    Abandoned,
}

/// How the cell ended.
enum Ending {
    Ended(CellEnd),
    Died(NotebookDeath),
    /// It continued although it was interrupted.
    Deaf,
    Broken(NotebookError),
}

/// A running cell.
struct Running<'a> {
    cell: &'a Cell,
    kernel: &'a mut Kernel,
    sink: &'a mut OutputSink,
    id: u64,
    created_unix_ms: u64,
    pieces: u64,
    stdout_bytes: u64,
    stderr_bytes: u64,
    interrupt: Option<Interrupt>,
    not_stored: Option<StoreError>,
}

impl TableInner {
    /// Runs a cell until it has ended, or until its interpreter must be ended.
    pub(super) async fn run_in(
        &self,
        kernel: &mut Kernel,
        cell: &Cell,
        row: &ExecRow,
        sink: &mut OutputSink,
    ) -> Ran {
        let began = Instant::now();
        let disk_ends = self.disk_ends.load(Ordering::Acquire);
        kernel.cells += 1;
        let mut running = Running {
            id: kernel.cells,
            cell,
            kernel,
            sink,
            created_unix_ms: row.created_unix_ms,
            pieces: 0,
            stdout_bytes: 0,
            stderr_bytes: 0,
            interrupt: None,
            not_stored: None,
        };
        let ending = running.run(self).await;
        let usage = Usage {
            wall_ms: millis(began.elapsed()),
            stdout_bytes: running.stdout_bytes,
            stderr_bytes: running.stderr_bytes,
            ..Usage::default()
        };
        let (interrupt, not_stored) = (running.interrupt, running.not_stored.take());
        let mut ran = self.judge_cell(ending, interrupt, row, kernel, usage).await;
        if let (Some(Interrupt::Timeout), Some(reason)) = (interrupt, &mut ran.end.reason) {
            let after = cell.timeout.as_secs_f64();
            *reason = format!("after timeout_s = {after} {reason}");
        }
        if ran.is_gone && self.disk_ends.load(Ordering::Acquire) != disk_ends {
            ran.end.status = ExecStatus::DiskLimit;
            let why = why_ended(&self.limits);
            ran.end.reason = Some(format!("{why}; the interpreter's variables are gone"));
        }
        ran.not_stored = not_stored;
        ran
    }

    async fn judge_cell(
        &self,
        ending: Ending,
        interrupt: Option<Interrupt>,
        row: &ExecRow,
        kernel: &mut Kernel,
        usage: Usage,
    ) -> Ran {
        let mut ran = Ran {
            end: ExecEnd {
                status: status(interrupt).unwrap_or(ExecStatus::Failed),
                exit_code: None,
                signal: None,
                reason: None,
                not_started: None,
                usage: Some(usage),
            },
            cell: CellEnd::default(),
            is_gone: true,
            is_connected: false,
            not_stored: None,
        };
        match ending {
            Ending::Ended(cell) => {
                if interrupt.is_none() && cell.exit_code == 0 {
                    ran.end.status = ExecStatus::Succeeded;
                }
                ran.end.exit_code = Some(cell.exit_code);
                let kept = "it was interrupted; variables are kept";
                ran.end.reason = interrupt.map(|_| kept.to_owned());
                ran.end.usage = Some(Usage {
                    user_ms: cell.user_us / 1000,
                    system_ms: cell.system_us / 1000,
                    max_rss_bytes: cell.max_rss_bytes,
                    ..usage
                });
                ran.cell = cell;
                (ran.is_gone, ran.is_connected) = (false, true);
            }
            Ending::Died(death) => {
                (ran.end.exit_code, ran.end.signal) = (death.code, death.signal);
                let may_be_oom = death.signal == Some(SIGKILL);
                self.lose_state(&mut ran.end, may_be_oom, row, "the interpreter ended")
                    .await;
            }
            Ending::Deaf => {
                let why = "the interrupt had no effect and the interpreter was killed";
                self.lose_state(&mut ran.end, false, row, why).await;
            }
            Ending::Broken(error) => {
                tracing::debug!(exec.id = %row.id, %error, "a notebook is cut off");
                if self.closing.borrow().is_some() {
                    ran.end = ExecEnd {
                        usage: Some(usage),
                        ..self.closed_end(row.oom_kills_before)
                    };
                } else if let Some(again) = self.adopt_again(kernel).await {
                    *kernel = again;
                    ran.end.reason = Some(CUT_OFF.to_owned());
                    (ran.is_gone, ran.is_connected) = (false, true);
                } else {
                    let why = "the interpreter ended or closed its channel";
                    self.lose_state(&mut ran.end, true, row, why).await;
                }
            }
        }
        ran
    }

    /// Records that the interpreter is gone, and with it the state, perhaps because the container
    /// ran out of memory.
    async fn lose_state(&self, end: &mut ExecEnd, may_be_oom: bool, row: &ExecRow, why: &str) {
        if may_be_oom && self.had_oom_kills(row.oom_kills_before).await {
            end.status = ExecStatus::OomKilled;
            end.reason = Some(
                "the container ran out of memory and the interpreter was killed; its variables are gone"
                    .to_owned(),
            );
            return;
        }
        end.reason = Some(format!("{why}; its variables are gone"));
    }
}

fn status(interrupt: Option<Interrupt>) -> Option<ExecStatus> {
    interrupt.map(|interrupt| match interrupt {
        Interrupt::Timeout => ExecStatus::TimedOut,
        Interrupt::Abandoned => ExecStatus::Cancelled,
    })
}

impl Running<'_> {
    async fn run(&mut self, table: &TableInner) -> Ending {
        let request = NotebookRequest::Run {
            id: self.id,
            cell: self.id,
            code: &self.cell.code,
            stdin: self.cell.stdin.as_deref(),
            args: &self.cell.arguments,
            figures: &self.cell.figures,
        };
        if let Err(error) = send(self.kernel, &request).await {
            return Ending::Broken(error);
        }
        let grace = table.environment.settings().kill_grace;
        let mut deadline = Instant::now() + self.cell.timeout;
        loop {
            let interrupt = tokio::select! {
                frame = self.kernel.channel.next() => {
                    match self.take(table, frame).await {
                        Some(ending) => return ending,
                        None => continue,
                    }
                }
                () = tokio::time::sleep_until(deadline) => Interrupt::Timeout,
                () = self.cell.abandonment.abandoned(), if self.interrupt.is_none() => Interrupt::Abandoned,
            };
            if self.interrupt.is_some() {
                return Ending::Deaf;
            }
            self.interrupt = Some(interrupt);
            deadline = Instant::now() + grace;
            let request = NotebookRequest::Interrupt { id: self.id };
            if let Err(error) = send(self.kernel, &request).await {
                return Ending::Broken(error);
            }
        }
    }

    /// Handles a frame. If it is output, frames that have already arrived are added to the same
    /// batch.
    async fn take(
        &mut self,
        table: &TableInner,
        frame: Result<NotebookFrame, NotebookError>,
    ) -> Option<Ending> {
        let now = table.environment.clock.unix_ms();
        let mut batch = Batch::new(self.created_unix_ms.min(now)..=now);
        let mut next = Some(frame);
        let mut ending = None;
        while let Some(frame) = next.take() {
            ending = self.add(&mut batch, frame, now);
            if ending.is_none() && batch.bytes() < BATCH_BYTES {
                next = tokio::select! {
                    biased;
                    frame = self.kernel.channel.next() => Some(frame),
                    () = std::future::ready(()) => None,
                };
            }
        }
        self.keep(table, batch).await;
        ending
    }

    /// Adds output to the batch; returns the cell's end if the event is that.
    fn add(
        &mut self,
        batch: &mut Batch,
        frame: Result<NotebookFrame, NotebookError>,
        now: u64,
    ) -> Option<Ending> {
        let (output, data) = match frame {
            Ok(NotebookFrame::Stdout(data)) => (Output::Stdout, data),
            Ok(NotebookFrame::Stderr(data)) => (Output::Stderr, data),
            Ok(NotebookFrame::Event(event)) => return self.ending(event),
            Err(error) => return Some(Ending::Broken(error)),
        };
        let bytes = data.len() as u64;
        match output {
            Output::Stdout => self.stdout_bytes += bytes,
            Output::Stderr => self.stderr_bytes += bytes,
        }
        if bytes > 0 {
            self.pieces += 1;
            batch.add(self.pieces, now, output, data);
        }
        None
    }

    fn ending(&self, event: NotebookEvent) -> Option<Ending> {
        match event {
            NotebookEvent::End(end) if end.id == self.id => Some(Ending::Ended(end)),
            NotebookEvent::Died(death) => Some(Ending::Died(death)),
            // From an earlier cell, or forged.
            NotebookEvent::End(_) | NotebookEvent::Hello(_) => None,
        }
    }

    /// Writes output to the log. After a failure, further output is only counted: the cell must
    /// still be able to end.
    async fn keep(&mut self, table: &TableInner, batch: Batch) {
        let bytes = batch.bytes() as u64;
        if bytes == 0 || self.not_stored.is_some() {
            return;
        }
        table.environment.metrics.exec_wrote(bytes);
        if let Err(error) = self.sink.append(batch.into_pieces()).await {
            table.environment.metrics.store_failed();
            self.not_stored = Some(error);
        }
    }
}

async fn send(kernel: &mut Kernel, request: &NotebookRequest<'_>) -> Result<(), NotebookError> {
    let sent = tokio::time::timeout(SEND_TIMEOUT, kernel.channel.send(request)).await;
    sent.unwrap_or(Err(NotebookError::Closed(None)))
}
