//! Notebooks: one interpreter per container that keeps its state between cells.
//!
//! ```text
//! run_cell ─▶ admit ─▶ turn ─▶ kernel (adopted or started) ─▶ cell ─▶ recorded as an ended exec
//! ```
//!
//! The kernel is two Python processes, which are one exec of the agent under a reserved id: it is
//! in no list, counts towards no quota, and a later server finds it by its id. Cells run one at a
//! time, in the order of their requests. Each is recorded as an ended exec, so that its output is
//! read like that of any other.
//!
//! A kernel's messages are under the control of the code that runs in it, so they are trusted only
//! for their own session. The agent ends a kernel that does not finish a cell in time or breaks the
//! protocol.

mod cell;
mod kernel;
mod record;

use std::sync::Arc;
use std::time::Duration;

use hotcell_agent_client::CellValue;
use hotcell_domain::{Caller, Env, ExecEnd, ExecId, NotStarted};
use tokio::sync::{Mutex, OwnedMutexGuard, OwnedSemaphorePermit, Semaphore};

use self::kernel::Kernel;
use super::sink::OutputSink;
use super::table::{ExecTable, TableInner};
use crate::{Abandonment, ServiceError};

/// Cells per container, running or waiting.
const CELLS_MAX: usize = 64;

/// The notebook of one container.
pub(super) struct Notebook {
    /// The right to use the kernel. The mutex is fair, so cells run in order.
    turn: Arc<Mutex<Option<Kernel>>>,
    places: Arc<Semaphore>,
}

/// The right to run the next cell of a notebook, until it is dropped.
pub(crate) struct CellTurn {
    kernel: OwnedMutexGuard<Option<Kernel>>,
    _place: OwnedSemaphorePermit,
}

/// Code to run in a notebook.
#[derive(Debug, Clone)]
pub(crate) struct Cell {
    pub(crate) code: String,
    pub(crate) arguments: Vec<String>,
    /// Text for standard input; `None` means empty.
    pub(crate) stdin: Option<String>,
    /// When this has passed, the cell is interrupted; if it still runs then, its interpreter is
    /// ended.
    pub(crate) timeout: Duration,
    /// End the interpreter before the cell runs.
    pub(crate) restart: bool,
    /// Environment variables of the interpreter, if one is started for this cell.
    pub(crate) env: Env,
    /// Prefix of the names of its pictures.
    pub(crate) figures: String,
    /// Whether the caller still waits. An abandoned cell is interrupted.
    pub(crate) abandonment: Abandonment,
}

/// A cell that has run.
#[derive(Debug, Clone)]
pub(crate) struct CellRun {
    pub(crate) exec: ExecId,
    pub(crate) end: ExecEnd,
    pub(crate) values: CellValues,
}

/// The values that a cell reports besides its output.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct CellValues {
    /// The value of its last expression.
    pub result: Option<CellValue>,
    /// The values that it displayed, in order.
    pub displayed: Vec<CellValue>,
    /// Number of displayed values that were left out.
    pub left_out: u64,
    /// Whether the interpreter was started for this cell, so that no earlier state exists.
    pub is_new: bool,
    /// Whether the interpreter ended with this cell, so that its state is lost.
    pub is_gone: bool,
}

/// Why a cell could not run.
pub(crate) enum NoKernel {
    /// The interpreter could not be started, mostly because the image has no Python.
    NotStarted(NotStarted),
    Service(ServiceError),
}

impl Notebook {
    pub(super) fn new() -> Self {
        Self {
            turn: Arc::default(),
            places: Arc::new(Semaphore::new(CELLS_MAX)),
        }
    }
}

impl ExecTable {
    /// Waits until all earlier cells of the container's notebook have ended, in the order of the
    /// calls. `abandonment`: nobody waits for the turn any more.
    pub(crate) async fn cell_turn(
        &self,
        abandonment: &Abandonment,
    ) -> Result<CellTurn, ServiceError> {
        let notebook = &self.0.notebook;
        let place = Arc::clone(&notebook.places).try_acquire_owned();
        let place = place.map_err(|_| full())?;
        let kernel = tokio::select! {
            kernel = Arc::clone(&notebook.turn).lock_owned() => kernel,
            () = abandonment.abandoned() => return Err(abandoned()),
        };
        Ok(CellTurn {
            kernel,
            _place: place,
        })
    }

    /// Runs a cell in the container's notebook. Starts the interpreter if there is none. The turn
    /// comes back: the next cell waits until it is dropped.
    ///
    /// Dropping the future does not stop the cell; its [`Abandonment`] does.
    pub(crate) async fn run_cell(
        &self,
        caller: &Caller,
        turn: CellTurn,
        cell: Cell,
    ) -> Result<(CellRun, CellTurn), NoKernel> {
        let (shared, caller) = (Arc::clone(&self.0), caller.clone());
        // In a task of its own: if a read stopped in the middle of a frame, the channel could not
        // be used again.
        let run = async move { shared.run_cell(&caller, turn, cell).await };
        let ran = self.0.environment.tasks.spawn(run).await;
        let ran = ran.ok().flatten();
        ran.unwrap_or_else(|| Err(ServiceError::stopping().into()))
    }
}

impl TableInner {
    async fn run_cell(
        self: &Arc<Self>,
        caller: &Caller,
        mut turn: CellTurn,
        cell: Cell,
    ) -> Result<(CellRun, CellTurn), NoKernel> {
        if self.closing.borrow().is_some() {
            return Err(ServiceError::no_container(&self.container).into());
        }
        if cell.restart {
            self.end_notebook(turn.kernel.take()).await?;
        }
        let (mut kernel, is_new) = self.kernel(turn.kernel.take(), &cell.env).await?;
        let row = self.cell_row(caller, &cell, kernel.cells + 1);
        let mut sink = OutputSink::Log(self.cell_log(&row));
        // The container is busy while a cell runs, even if the caller has gone away.
        self.take_slot();
        self.begin_egress(&row.id).await;
        let ran = self.run_in(&mut kernel, &cell, &row, &mut sink).await;
        self.finish_egress(&row.id);
        self.free_slot();
        self.start_queued();
        if ran.is_gone {
            // Fails if the interpreter has already ended.
            let _ = self.end_notebook(Some(kernel)).await;
        } else {
            *turn.kernel = ran.is_connected.then_some(kernel);
        }
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
        Ok((CellRun { exec, end, values }, turn))
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
