//! Deletes a principal's oldest ended execs and containers beyond its limits.
//!
//! Triggers maintain the totals in the table `ended`, so checking them reads one row.

use hotcell_domain::{ExecId, Name, Principal};
use rusqlite::{CachedStatement, Connection, OptionalExtension, params};

use super::PORTION;
use crate::database::{Database, Fault};
use crate::row::{sql_count, sql_number};
use crate::{Store, StoreError, blocking};

/// Limits per principal on ended execs and containers. The newest exec is always kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Retention {
    /// Ended execs.
    pub execs_max: u64,
    /// Total size of their logs.
    pub log_bytes_max: u64,
    /// Ended containers.
    pub containers_max: u64,
}

/// The totals of one principal.
struct EndedTotals {
    execs: u64,
    log_bytes: u64,
    containers: u64,
}

impl Store {
    /// Deletes the oldest ended execs, with their logs, and ended containers of a principal beyond
    /// its limits. Returns how many of each.
    pub async fn prune_excess(
        &self,
        principal: Principal,
        retention: Retention,
    ) -> Result<(u64, u64), StoreError> {
        let mut total = (0, 0);
        loop {
            let principal = principal.clone();
            let portion = move |database: &mut Database| forget(database, &principal, retention);
            let (execs, containers) = self
                .database
                .run("forget what is too much", portion)
                .await?;
            let count = execs.len();
            total.0 += count as u64;
            total.1 += containers as u64;
            if !execs.is_empty() {
                let logs = std::sync::Arc::clone(&self.logs);
                blocking("remove logs", move || {
                    execs.iter().try_for_each(|id| logs.remove(id))
                })
                .await?;
            }
            if count < PORTION && containers < PORTION {
                return Ok(total);
            }
        }
    }

    /// The principals that are beyond their limits.
    pub async fn principals_with_excess(
        &self,
        retention: Retention,
    ) -> Result<Vec<Principal>, StoreError> {
        let sql = "SELECT principal FROM ended
                   WHERE (execs > ?1 OR log_bytes > ?2) AND execs > 1 OR containers > ?3";
        self.database
            .run("look for what is too much", move |database| {
                let mut statement = database.read().prepare_cached(sql)?;
                let maxima = [
                    retention.execs_max,
                    retention.log_bytes_max,
                    retention.containers_max,
                ];
                principals(&mut statement, maxima.map(sql_number))
            })
            .await
    }

    /// The principals of whom ended containers are remembered.
    pub async fn principals_with_ended_containers(&self) -> Result<Vec<Principal>, StoreError> {
        let sql = "SELECT principal FROM ended WHERE containers > 0";
        self.database
            .run("list principals", move |database| {
                principals(&mut database.read().prepare_cached(sql)?, [])
            })
            .await
    }
}

fn principals(
    statement: &mut CachedStatement<'_>,
    params: impl rusqlite::Params,
) -> Result<Vec<Principal>, Fault> {
    let rows = statement.query_map(params, |row| row.get(0))?;
    let names = rows.collect::<Result<Vec<String>, _>>()?;
    let names = names.iter().filter_map(|name| Name::parse(name).ok());
    Ok(names.map(Principal::new).collect())
}

/// Deletes one portion; returns the execs whose logs can be deleted, and the number of containers.
fn forget(
    database: &mut Database,
    principal: &Principal,
    retention: Retention,
) -> Result<(Vec<ExecId>, usize), Fault> {
    let Some(mut ended) = ended(database.read(), principal)? else {
        return Ok((Vec::new(), 0));
    };
    let is_over = |ended: &EndedTotals| {
        ended.execs > 1
            && (ended.execs > retention.execs_max || ended.log_bytes > retention.log_bytes_max)
    };
    let excess = ended.containers.saturating_sub(retention.containers_max);
    if !is_over(&ended) && excess == 0 {
        return Ok((Vec::new(), 0));
    }
    let transaction = database.write()?;
    let mut gone = Vec::new();
    for (id, log_bytes) in oldest(&transaction, principal)? {
        if !is_over(&ended) {
            break;
        }
        let sql = "DELETE FROM execs WHERE id = ?";
        transaction.prepare_cached(sql)?.execute([&id])?;
        ended.execs -= 1;
        ended.log_bytes = ended.log_bytes.saturating_sub(log_bytes);
        gone.extend(ExecId::parse(&id).ok());
    }
    let excess = usize::try_from(excess).unwrap_or(usize::MAX).min(PORTION);
    let sql = "DELETE FROM containers WHERE id IN (
                   SELECT id FROM containers WHERE principal = ? AND ended_unix_ms IS NOT NULL
                   ORDER BY ended_unix_ms, id LIMIT ?)";
    let containers = transaction
        .prepare_cached(sql)?
        .execute(params![principal.as_str(), sql_count(excess)])?;
    transaction.commit()?;
    Ok((gone, containers))
}

fn ended(connection: &Connection, principal: &Principal) -> Result<Option<EndedTotals>, Fault> {
    let sql = "SELECT execs, log_bytes, containers FROM ended WHERE principal = ?";
    let number = |row: &rusqlite::Row<'_>, at| row.get(at).map(i64::unsigned_abs);
    let found = connection
        .prepare_cached(sql)?
        .query_row([principal.as_str()], |row| {
            Ok(EndedTotals {
                execs: number(row, 0)?,
                log_bytes: number(row, 1)?,
                containers: number(row, 2)?,
            })
        });
    Ok(found.optional()?)
}

/// Ids and log sizes of the execs that ended first, one portion.
fn oldest(connection: &Connection, principal: &Principal) -> Result<Vec<(String, u64)>, Fault> {
    let sql = "SELECT id, log_bytes FROM execs
               WHERE principal = ? AND ended_unix_ms IS NOT NULL
               ORDER BY ended_unix_ms, id LIMIT ?";
    let mut statement = connection.prepare_cached(sql)?;
    let rows = statement.query_map(params![principal.as_str(), sql_count(PORTION)], |row| {
        Ok((row.get(0)?, row.get::<_, i64>(1)?.unsigned_abs()))
    })?;
    Ok(rows.collect::<Result<_, _>>()?)
}
