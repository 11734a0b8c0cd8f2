//! Notebooks: one interpreter per container that keeps its state between cells.
//!
//! ```text
//! run_cell ─▶ place ─▶ turn ─▶ kernel (adopted or started) ─▶ cell ─▶ recorded as an ended exec
//! ```
//!
//! The kernel is two Python processes, which are one exec of the agent's under an id of our own:
//! it is in no list, belongs to nobody's quota, and a later server finds it by its id. Cells run one
//! at a time, in the order in which they were asked for. Each is recorded as an exec that has
//! ended, so that its output is read like any other.
//!
//! What a kernel says is the word of the code that runs in it, and counts for its session alone. A
//! kernel that does not end a cell in time, or breaks its protocol, is ended by the agent.

mod cell;
mod kernel;
mod record;

use std::sync::Arc;
use std::time::Duration;

use hotcell_agent_client::CellValue;
use hotcell_domain::{Caller, Env, ExecEnd, ExecId, NotStarted};
use tokio::sync::{Mutex, Semaphore};

use self::kernel::Kernel;
use super::sink::OutputSink;
use super::table::{ExecTable, TableInner};
use crate::{Abandonment, ServiceError};

/// Cells of one container that run or wait.
const CELLS_MAX: usize = 64;

/// The notebook of one container.
pub(super) struct Notebook {
    /// Whoever holds it may use the kernel. It is fair.
    turn: Mutex<Option<Kernel>>,
    places: Semaphore,
}

/// Code that is to run in a notebook.
#[derive(Debug, Clone)]
pub(crate) struct Cell {
    pub(crate) code: String,
    pub(crate) arguments: Vec<String>,
    /// What it reads; nothing if there is none.
    pub(crate) stdin: Option<String>,
    /// How long it may run. Then it is interrupted, and ended if that does not help.
    pub(crate) timeout: Duration,
    /// End the interpreter first.
    pub(crate) restart: bool,
    /// Variables of an interpreter that is started for it.
    pub(crate) env: Env,
    /// How the names of its pictures begin.
    pub(crate) figures: String,
    /// An abandoned cell is interrupted.
    pub(crate) abandonment: Abandonment,
}

/// A cell that has run.
#[derive(Debug, Clone)]
pub(crate) struct CellRun {
    pub(crate) exec: ExecId,
    pub(crate) end: ExecEnd,
    pub(crate) values: CellValues,
}

/// What a cell tells besides its output.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct CellValues {
    /// The value of its last expression.
    pub result: Option<CellValue>,
    /// What it displayed, in order.
    pub displayed: Vec<CellValue>,
    /// How many more values it displayed.
    pub left_out: u64,
    /// Whether the interpreter was started for this cell: it knows nothing of earlier ones.
    pub is_new: bool,
    /// Whether the interpreter ended with this cell: what it knew is gone.
    pub is_gone: bool,
}

/// Why there is no interpreter.
pub(crate) enum NoKernel {
    /// The container has no Python.
    NotStarted(NotStarted),
    Service(ServiceError),
}

impl Notebook {
    pub(super) fn new() -> Self {
        Self {
            turn: Mutex::new(None),
            places: Semaphore::new(CELLS_MAX),
        }
    }
}

impl ExecTable {
    /// Runs a cell in the container's notebook, which is started if there is none, once those
    /// before it have ended.
    ///
    /// Dropping the future does not stop the cell; its [`Abandonment`] does.
    pub(crate) async fn run_cell(&self, caller: &Caller, cell: Cell) -> Result<CellRun, NoKernel> {
        let (shared, caller) = (Arc::clone(&self.0), caller.clone());
        // A task of its own: a channel on which half of a frame was read could not be used again.
        let run = async move { shared.run_cell(&caller, cell).await };
        let ran = self.0.environment.tasks.spawn(run).await;
        let ran = ran.ok().flatten();
        ran.unwrap_or_else(|| Err(ServiceError::stopping().into()))
    }
}

impl TableInner {
    async fn run_cell(self: &Arc<Self>, caller: &Caller, cell: Cell) -> Result<CellRun, NoKernel> {
        let Ok(_place) = self.notebook.places.try_acquire() else {
            return Err(full().into());
        };
        let mut turn = tokio::select! {
            turn = self.notebook.turn.lock() => turn,
            () = cell.abandonment.abandoned() => return Err(abandoned().into()),
        };
        if self.closing.borrow().is_some() {
            return Err(ServiceError::no_container(&self.container).into());
        }
        if cell.restart {
            self.end_notebook(turn.take()).await?;
        }
        let (mut kernel, is_new) = self.kernel(turn.take(), &cell.env).await?;
        let row = self.cell_row(caller, &cell, kernel.cells + 1);
        let mut sink = OutputSink::Log(self.cell_log(&row));
        // It runs, whoever asks: a container that is busy with a cell is not idle.
        self.take_slot();
        let ran = self.run_in(&mut kernel, &cell, &row, &mut sink).await;
        self.free_slot();
        self.start_queued();
        if ran.is_gone {
            // It may be that nothing of it is left to end.
            let _ = self.end_notebook(Some(kernel)).await;
        } else {
            *turn = ran.is_connected.then_some(kernel);
        }
        drop(turn);
        let exec = row.id.clone();
        let end = ran.end;
        self.record_cell(row, &mut sink, &end).await?;
        if let Some(error) = ran.not_stored {
            return Err(ServiceError::from(error).into());
        }
        let values = CellValues {
            result: ran.cell.result,
            displayed: ran.cell.displayed,
            left_out: ran.cell.left_out,
            is_new,
            is_gone: ran.is_gone,
        };
        Ok(CellRun { exec, end, values })
    }
}

fn full() -> ServiceError {
    ServiceError::Exhausted {
        reason: format!(
            "{CELLS_MAX} stateful calls run or wait in this session; wait until some have ended"
        ),
    }
}

fn abandoned() -> ServiceError {
    ServiceError::Unavailable {
        reason: "nobody waits for it any more".to_owned(),
        source: None,
    }
}

impl From<ServiceError> for NoKernel {
    fn from(error: ServiceError) -> Self {
        Self::Service(error)
    }
}
