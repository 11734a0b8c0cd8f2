//! Deletes old rows and logs.
//!
//! Rows are deleted first, in portions, with other queries in between; then all logs without a row.
//! A crash between the two therefore leaves nothing for ever.

mod excess;

use std::collections::BTreeSet;
use std::sync::Arc;

use hotcell_domain::ExecId;
use rusqlite::params;

use crate::database::{Database, Fault};
use crate::row::{sql_count, sql_ms};
use crate::{Store, StoreError, blocking};

pub use excess::Retention;

/// Rows per transaction.
const PORTION: usize = 256;

impl Store {
    /// Deletes containers that ended before the given time, with their attachments; returns how
    /// many.
    pub async fn prune_containers(&self, ended_before_unix_ms: u64) -> Result<u64, StoreError> {
        let sql = "DELETE FROM containers WHERE id IN (
                       SELECT id FROM containers WHERE ended_unix_ms < ? LIMIT ?)";
        self.forget("forget containers", sql, ended_before_unix_ms)
            .await
    }

    /// Deletes execs that ended before the given time, with their logs; returns how many. Also
    /// deletes logs without an exec.
    pub async fn prune_execs(&self, ended_before_unix_ms: u64) -> Result<u64, StoreError> {
        let sql = "DELETE FROM execs WHERE id IN (
                       SELECT id FROM execs WHERE ended_unix_ms < ? LIMIT ?)";
        let count = self
            .forget("forget execs", sql, ended_before_unix_ms)
            .await?;
        self.prune_orphan_logs().await?;
        Ok(count)
    }

    /// How many execs and containers could be deleted.
    pub async fn prunable(&self, ended_before_unix_ms: u64) -> Result<(u64, u64), StoreError> {
        let sql = "SELECT (SELECT count(*) FROM execs WHERE ended_unix_ms < ?1),
                          (SELECT count(*) FROM containers WHERE ended_unix_ms < ?1)";
        self.database
            .run("count what can be forgotten", move |database| {
                let mut statement = database.read().prepare_cached(sql)?;
                let count = |row: &rusqlite::Row<'_>| Ok((row.get(0)?, row.get(1)?));
                let counts: (i64, i64) =
                    statement.query_row([sql_ms(ended_before_unix_ms)], count)?;
                Ok((counts.0.unsigned_abs(), counts.1.unsigned_abs()))
            })
            .await
    }

    async fn forget(
        &self,
        step: &'static str,
        sql: &'static str,
        before_unix_ms: u64,
    ) -> Result<u64, StoreError> {
        let mut total = 0;
        loop {
            let portion = move |database: &mut Database| delete(database, sql, before_unix_ms);
            let count = self.database.run(step, portion).await?;
            total += count as u64;
            if count < PORTION {
                return Ok(total);
            }
        }
    }

    /// Deletes logs that belong to no exec. A log is created after its exec's row, so listing the
    /// logs before the rows never deletes the log of a new exec.
    async fn prune_orphan_logs(&self) -> Result<(), StoreError> {
        let logs = Arc::clone(&self.logs);
        let listed: Vec<ExecId> = blocking("list logs", move || logs.list())
            .await?
            .into_iter()
            .collect();
        for portion in listed.chunks(PORTION) {
            let portion = portion.to_vec();
            let orphans = self
                .database
                .run("look up logs", move |database| unknown(database, portion))
                .await?;
            let logs = Arc::clone(&self.logs);
            blocking("remove logs", move || {
                orphans.iter().try_for_each(|id| logs.remove(id))
            })
            .await?;
        }
        Ok(())
    }
}

fn delete(database: &mut Database, sql: &str, before_unix_ms: u64) -> Result<usize, Fault> {
    let transaction = database.write()?;
    let count = transaction
        .prepare_cached(sql)?
        .execute(params![sql_ms(before_unix_ms), sql_count(PORTION)])?;
    transaction.commit()?;
    Ok(count)
}

fn unknown(database: &Database, ids: Vec<ExecId>) -> Result<BTreeSet<ExecId>, Fault> {
    let sql = "SELECT 1 FROM execs WHERE id = ?";
    let mut statement = database.read().prepare_cached(sql)?;
    let mut unknown = BTreeSet::new();
    for id in ids {
        if !statement.exists([id.as_str()])? {
            unknown.insert(id);
        }
    }
    Ok(unknown)
}

#[cfg(test)]
mod tests;
