//! Execs: what was requested, and how it ended.

mod command;
mod ended;
mod ending;

use std::sync::Arc;

use hotcell_domain::{Command, ContainerId, ExecEnd, ExecId, Name, Principal};
use rusqlite::{Connection, OptionalExtension, named_params, params};

use crate::database::{Database, Fault};
use crate::row::{FromRow, RowError, RowReader, all, first, sql_count, sql_ms, sql_number};
use crate::{Store, StoreError};

pub use command::{ARGV_BYTES_KEPT, listed_argv};
pub use ended::EndedExecRow;

/// An exec as requested, and its current state.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ExecRow {
    /// Also its id in the agent.
    pub id: ExecId,
    /// The container that it runs in.
    pub container: ContainerId,
    /// The owner.
    pub principal: Principal,
    /// The idempotency key of the request.
    pub key: Option<Name>,
    /// The command. When the exec ends, environment and input are deleted, because they may contain
    /// secrets, and only the first [`ARGV_BYTES_KEPT`] of its arguments are kept.
    pub command: Command,
    /// When it was requested.
    pub created_unix_ms: u64,
    /// The container's OOM kill count at the start, to recognize new kills.
    pub oom_kills_before: u64,
    /// When it ended.
    pub ended_unix_ms: Option<u64>,
    /// How it ended; `None` while it is queued or running.
    pub end: Option<ExecEnd>,
}

/// The result of storing a request for an exec.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ExecInsert {
    /// The row was stored.
    New,
    /// The same key was used before.
    Existing(Box<ExecRow>),
}

impl Store {
    /// Stores a new exec, unless the same key was used for its container at `keys_since_unix_ms` or
    /// later.
    pub async fn insert_exec(
        &self,
        row: ExecRow,
        keys_since_unix_ms: u64,
    ) -> Result<ExecInsert, StoreError> {
        let query = move |database: &mut Database| {
            let transaction = database.write()?;
            if let Some(before) = by_key(&transaction, &row, keys_since_unix_ms)? {
                return Ok(ExecInsert::Existing(Box::new(before)));
            }
            insert(&transaction, &row)?;
            transaction.commit()?;
            Ok(ExecInsert::New)
        };
        self.database.run("note an exec", query).await
    }

    /// Stores how an exec ended and the size of its log, and deletes its environment, its input and
    /// the rest of long arguments. An exec that has ended stays unchanged.
    pub async fn end_exec(
        &self,
        id: ExecId,
        end: ExecEnd,
        ended_unix_ms: u64,
    ) -> Result<(), StoreError> {
        let logs = Arc::clone(&self.logs);
        let query = move |database: &mut Database| {
            if !end.status.is_final() {
                return Err(Fault::Misuse("an exec ends with a final status"));
            }
            let log_bytes = logs.bytes_at_end(&id);
            let transaction = database.write()?;
            set_end(&transaction, &id, &end, ended_unix_ms, log_bytes)?;
            cut_command(&transaction, &id)?;
            transaction.commit()?;
            database.note_forgotten();
            Ok(())
        };
        self.database.run("note the end of an exec", query).await
    }

    /// One exec of a principal. A foreign one takes as long as a missing one.
    pub async fn exec(
        &self,
        principal: Principal,
        id: ExecId,
    ) -> Result<Option<ExecRow>, StoreError> {
        let sql = "SELECT * FROM execs WHERE id = ? AND principal = ?";
        self.database
            .run("look up an exec", move |database| {
                let params = [id.as_str(), principal.as_str()];
                first(&mut database.read().prepare_cached(sql)?, params)
            })
            .await
    }

    /// All execs that have not ended, oldest first.
    pub async fn active_execs(&self) -> Result<Vec<ExecRow>, StoreError> {
        let sql = "SELECT * FROM execs WHERE ended_unix_ms IS NULL
                   ORDER BY created_unix_ms, id";
        self.database
            .run("list execs", move |database| {
                all(&mut database.read().prepare_cached(sql)?, [])
            })
            .await
    }
}

fn by_key(
    connection: &Connection,
    row: &ExecRow,
    since_unix_ms: u64,
) -> Result<Option<ExecRow>, Fault> {
    let Some(key) = &row.key else {
        return Ok(None);
    };
    let sql = "SELECT * FROM execs
               WHERE container = ? AND key = ? AND created_unix_ms >= ?
               ORDER BY created_unix_ms DESC LIMIT 1";
    let params = params![row.container.as_str(), key.as_str(), sql_ms(since_unix_ms)];
    first(&mut connection.prepare_cached(sql)?, params)
}

fn insert(connection: &Connection, row: &ExecRow) -> Result<(), Fault> {
    let sql = "INSERT INTO execs VALUES (
        :id, :container, :principal, :key, :command, :secrets, :created, :ended, :ending,
        :oom_kills_before, 0)";
    let is_living = row.end.is_none();
    if is_living != row.ended_unix_ms.is_none() {
        return Err(Fault::Misuse("an exec has an end when it has ended"));
    }
    connection.prepare_cached(sql)?.execute(named_params! {
        ":id": row.id.as_str(),
        ":container": row.container.as_str(),
        ":principal": row.principal.as_str(),
        ":key": row.key.as_ref().map(Name::as_str),
        ":command": command::write(&row.command),
        ":secrets": is_living.then(|| command::write_secrets(&row.command)),
        ":created": sql_ms(row.created_unix_ms),
        ":ended": row.ended_unix_ms.map(sql_ms),
        ":ending": row.end.as_ref().map(ending::write),
        ":oom_kills_before": sql_number(row.oom_kills_before),
    })?;
    Ok(())
}

fn set_end(
    connection: &Connection,
    id: &ExecId,
    end: &ExecEnd,
    ended_unix_ms: u64,
    log_bytes: u64,
) -> Result<(), Fault> {
    let sql = "UPDATE execs SET
                   ending = coalesce(ending, :ending),
                   log_bytes = iif(ended_unix_ms IS NULL, :log_bytes, log_bytes),
                   ended_unix_ms = coalesce(ended_unix_ms, :ended),
                   secrets = NULL
               WHERE id = :id";
    let found = connection.prepare_cached(sql)?.execute(named_params! {
        ":id": id.as_str(),
        ":ending": ending::write(end),
        ":ended": sql_ms(ended_unix_ms),
        ":log_bytes": sql_number(log_bytes),
    })?;
    if found == 0 {
        return Err(Fault::missing("exec", id));
    }
    Ok(())
}

/// Shortens a long command; leaves an unreadable one unchanged.
fn cut_command(connection: &Connection, id: &ExecId) -> Result<(), Fault> {
    let sql = "SELECT command FROM execs WHERE id = ? AND octet_length(command) > ?";
    let long = connection
        .prepare_cached(sql)?
        .query_row(params![id.as_str(), sql_count(ARGV_BYTES_KEPT)], |row| {
            row.get::<_, String>(0)
        })
        .optional()?;
    if let Some(cut) = long.as_deref().and_then(command::cut) {
        let sql = "UPDATE execs SET command = ? WHERE id = ?";
        let params = params![cut, id.as_str()];
        connection.prepare_cached(sql)?.execute(params)?;
    }
    Ok(())
}

impl FromRow for ExecRow {
    const TABLE: &'static str = "exec";

    fn from_row(row: &RowReader<'_>) -> Result<Self, RowError> {
        let secrets: Option<String> = row.raw("secrets")?;
        Ok(Self {
            id: row.parsed("id", ExecId::parse)?,
            container: row.parsed("container", ContainerId::parse)?,
            principal: Principal::new(row.parsed("principal", Name::parse)?),
            key: row.maybe("key", Name::parse)?,
            command: row.parsed("command", |text| command::read(text, secrets.as_deref()))?,
            created_unix_ms: row.ms("created_unix_ms")?,
            oom_kills_before: row.number("oom_kills_before")?,
            ended_unix_ms: row.maybe_ms("ended_unix_ms")?,
            end: row.maybe("ending", ending::read)?,
        })
    }
}

#[cfg(test)]
mod tests;
