//! Execs in lists: only the columns that are shown are read.

use hotcell_domain::{ContainerId, ExecEnd, ExecId, Principal};
use rusqlite::{Connection, params};

use super::{command, ending};
use crate::database::Fault;
use crate::row::{FromRow, RowError, RowReader, all, sql_count};
use crate::{PageCursor, Store, StoreError, page};

/// An ended exec, as a list shows it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EndedExecRow {
    /// The id that `exec_start` returned.
    pub id: ExecId,
    /// The container that it ran in.
    pub container: ContainerId,
    /// Its first arguments; see [`crate::listed_argv`].
    pub argv: Vec<String>,
    /// When it was requested.
    pub created_unix_ms: u64,
    /// When it ended.
    pub ended_unix_ms: Option<u64>,
    /// How it ended.
    pub end: Option<ExecEnd>,
}

impl Store {
    /// Ended execs of a principal that are still stored, in one container or in all, newest first:
    /// at most `count_max` after the cursor.
    pub async fn ended_execs_page(
        &self,
        principal: Principal,
        container: Option<ContainerId>,
        after: Option<PageCursor<ExecId>>,
        count_max: usize,
    ) -> Result<Vec<EndedExecRow>, StoreError> {
        self.database
            .run("list execs", move |database| {
                let before = page::before(after.as_ref(), ExecId::as_str);
                let connection = database.read();
                ended(
                    connection,
                    &principal,
                    container.as_ref(),
                    before,
                    count_max,
                )
            })
            .await
    }
}

fn ended(
    connection: &Connection,
    principal: &Principal,
    container: Option<&ContainerId>,
    (created, id): (i64, &str),
    count_max: usize,
) -> Result<Vec<EndedExecRow>, Fault> {
    let everywhere = "SELECT id, container, command, created_unix_ms, ended_unix_ms, ending
        FROM execs WHERE principal = ? AND ended_unix_ms IS NOT NULL
            AND (created_unix_ms, id) < (?, ?)
        ORDER BY created_unix_ms DESC, id DESC LIMIT ?";
    let there = "SELECT id, container, command, created_unix_ms, ended_unix_ms, ending
        FROM execs WHERE principal = ? AND container = ? AND ended_unix_ms IS NOT NULL
            AND (created_unix_ms, id) < (?, ?)
        ORDER BY created_unix_ms DESC, id DESC LIMIT ?";
    let (principal, limit) = (principal.as_str(), sql_count(count_max));
    match container {
        None => all(
            &mut connection.prepare_cached(everywhere)?,
            params![principal, created, id, limit],
        ),
        Some(container) => all(
            &mut connection.prepare_cached(there)?,
            params![principal, container.as_str(), created, id, limit],
        ),
    }
}

impl FromRow for EndedExecRow {
    const TABLE: &'static str = "exec";

    fn from_row(row: &RowReader<'_>) -> Result<Self, RowError> {
        Ok(Self {
            id: row.parsed("id", ExecId::parse)?,
            container: row.parsed("container", ContainerId::parse)?,
            argv: row.parsed("command", command::read_argv)?,
            created_unix_ms: row.ms("created_unix_ms")?,
            ended_unix_ms: row.maybe_ms("ended_unix_ms")?,
            end: row.maybe("ending", ending::read)?,
        })
    }
}
