//! Records a cell as an ended exec, so that its output is read, listed and bounded like any other.

use std::sync::PoisonError;
use std::sync::atomic::Ordering;
use std::time::Duration;

use hotcell_domain::{Caller, Command, ExecEnd};
use hotcell_store::{ExecRow, LogWriter};

use super::Cell;
use crate::ServiceError;
use crate::exec::sink::OutputSink;
use crate::exec::table::TableInner;

impl TableInner {
    /// The row of a cell that is about to run. It is stored only when the cell has ended: after a
    /// crash, the next server must not run it again.
    pub(super) fn cell_row(&self, caller: &Caller, cell: &Cell, number: u64) -> ExecRow {
        let environment = &self.environment;
        let (now, random) = (environment.clock.unix_ms(), environment.random.bytes());
        let mut ids = self.ids.lock().unwrap_or_else(PoisonError::into_inner);
        let (id, created_unix_ms) = ids.next(now, random);
        let argv = vec!["python3".to_owned(), format!("<cell {number}>")];
        let mut command = Command::new(argv).expect("two short words are a command");
        // Invalid timeouts were rejected before.
        let _ = command.set_timeout_s(cell.timeout.as_secs_f64());
        ExecRow {
            id,
            container: self.container.clone(),
            principal: caller.principal.clone(),
            key: None,
            command,
            created_unix_ms,
            oom_kills_before: self.oom_kills.load(Ordering::Relaxed),
            ended_unix_ms: None,
            end: None,
        }
    }

    pub(super) fn cell_log(&self, row: &ExecRow) -> LogWriter {
        let environment = &self.environment;
        let output_bytes_max = environment.settings().output_bytes_max;
        environment.store.log_writer(&row.id, output_bytes_max)
    }

    /// Stores a cell that has ended.
    pub(super) async fn record_cell(
        &self,
        row: ExecRow,
        sink: &mut OutputSink,
        end: &ExecEnd,
    ) -> Result<(), ServiceError> {
        let environment = &self.environment;
        let now = environment.clock.unix_ms();
        let ids = (
            row.principal.as_str(),
            row.id.as_str(),
            row.container.as_str(),
        );
        let recording = environment.record_exec_end(ids, end, now);
        let (id, principal) = (row.id.clone(), row.principal.clone());
        environment.metrics.exec_started();
        sink.finish(now).await?;
        environment.store.insert_exec(row, now).await?;
        environment.store.end_exec(id, end.clone(), now).await?;
        let wall = end.usage.map_or(0, |usage| usage.wall_ms);
        let wall = Duration::from_millis(wall);
        environment.metrics.exec_ended(end.status, wall);
        let _ = recording.written().await;
        environment.prune_excess(&principal).await;
        Ok(())
    }
}
