//! Calls that scripts made of other MCP servers.

use hotcell_domain::{Principal, RunId};
use rusqlite::params;

use crate::row::{FromRow, RowError, RowReader, all, sql_ms};
use crate::{Store, StoreError};

/// A call that is about to be sent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CallInsert {
    /// The run.
    pub run: RunId,
    /// Its number within the run, from 1.
    pub number: u64,
    /// Whose run it is.
    pub principal: Principal,
    /// The server.
    pub server: String,
    /// The tool.
    pub tool: String,
    /// Equal for equal calls.
    pub digest: String,
    /// When it is sent.
    pub began_unix_ms: u64,
}

/// How a call ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CallOutcome {
    /// The server answered.
    Answered,
    /// It was not done.
    Failed,
}

/// A call of an earlier run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CallRow {
    /// Its number within the run.
    pub number: u64,
    /// The server.
    pub server: String,
    /// The tool.
    pub tool: String,
    /// Equal for equal calls.
    pub digest: String,
    /// `None`: nobody knows whether it was done.
    pub outcome: Option<CallOutcome>,
    /// What the server answered, if that was kept.
    pub result: Option<String>,
}

impl CallOutcome {
    fn as_str(self) -> &'static str {
        match self {
            Self::Answered => "answered",
            Self::Failed => "failed",
        }
    }

    fn parse(text: &str) -> Result<Self, String> {
        match text {
            "answered" => Ok(Self::Answered),
            "failed" => Ok(Self::Failed),
            other => Err(format!("`{other}` is no outcome")),
        }
    }
}

impl Store {
    /// Notes a call before it is sent, and its run with the first; of a principal's runs only the
    /// newest `runs_max` are kept.
    pub async fn begin_call(&self, call: CallInsert, runs_max: u32) -> Result<(), StoreError> {
        let run = "INSERT OR IGNORE INTO runs VALUES (?, ?, ?)";
        let old = "DELETE FROM runs WHERE id IN (SELECT id FROM runs WHERE principal = ?
                   ORDER BY created_unix_ms DESC, id DESC LIMIT -1 OFFSET ?)";
        let insert = "INSERT INTO calls VALUES (?, ?, ?, ?, ?, ?, NULL, NULL, NULL)";
        self.database
            .run("note a call", move |database| {
                let transaction = database.write()?;
                let began = sql_ms(call.began_unix_ms);
                let (id, principal) = (call.run.as_str(), call.principal.as_str());
                let mut runs = transaction.prepare_cached(run)?;
                if runs.execute(params![id, principal, began])? > 0 {
                    transaction
                        .prepare_cached(old)?
                        .execute(params![principal, runs_max])?;
                }
                drop(runs);
                let number = sql_ms(call.number);
                transaction.prepare_cached(insert)?.execute(params![
                    id,
                    number,
                    call.server,
                    call.tool,
                    call.digest,
                    began
                ])?;
                Ok(transaction.commit()?)
            })
            .await
    }

    /// Notes how a call ended.
    pub async fn end_call(
        &self,
        run: RunId,
        number: u64,
        ended_unix_ms: u64,
        outcome: CallOutcome,
        result: Option<String>,
    ) -> Result<(), StoreError> {
        let sql = "UPDATE calls SET ended_unix_ms = ?, outcome = ?, result = ?
                   WHERE run = ? AND number = ?";
        self.database
            .run("note the end of a call", move |database| {
                let transaction = database.write()?;
                let ended = sql_ms(ended_unix_ms);
                let number = sql_ms(number);
                transaction.prepare_cached(sql)?.execute(params![
                    ended,
                    outcome.as_str(),
                    result,
                    run.as_str(),
                    number
                ])?;
                Ok(transaction.commit()?)
            })
            .await
    }

    /// The calls of a principal's run in order; `None` if there is no such run, or it made none.
    pub async fn calls_of(
        &self,
        principal: Principal,
        run: RunId,
    ) -> Result<Option<Vec<CallRow>>, StoreError> {
        let sql = "SELECT calls.*, run AS id FROM runs JOIN calls ON run = runs.id
                   WHERE runs.id = ? AND principal = ? ORDER BY number";
        self.database
            .run("list calls", move |database| {
                let mut statement = database.read().prepare_cached(sql)?;
                let rows = all(&mut statement, [run.as_str(), principal.as_str()])?;
                Ok((!rows.is_empty()).then_some(rows))
            })
            .await
    }
}

impl FromRow for CallRow {
    const TABLE: &'static str = "call of run";

    fn from_row(row: &RowReader<'_>) -> Result<Self, RowError> {
        Ok(Self {
            number: row.number("number")?,
            server: row.raw("server")?,
            tool: row.raw("tool")?,
            digest: row.raw("digest")?,
            outcome: row.maybe("outcome", CallOutcome::parse)?,
            result: row.raw("result")?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::samples;

    fn call(run: u64, number: u64) -> CallInsert {
        CallInsert {
            run: RunId::from_parts(run, [0; 10]),
            number,
            principal: Principal::local(),
            server: "s".to_owned(),
            tool: "t".to_owned(),
            digest: format!("d{number}"),
            began_unix_ms: run,
        }
    }

    #[tokio::test]
    async fn a_call_without_an_end_has_no_outcome_and_is_its_principals_alone() {
        let (_directory, store) = samples::store();
        store.begin_call(call(1, 1), 5).await.unwrap();
        store.begin_call(call(1, 2), 5).await.unwrap();
        let run = call(1, 1).run;
        let result = Some("{}".to_owned());
        let ended = store.end_call(run.clone(), 1, 9, CallOutcome::Answered, result);
        ended.await.unwrap();
        let calls = store.calls_of(Principal::local(), run.clone()).await;
        let calls = calls.unwrap().unwrap();
        assert_eq!(calls[0].outcome, Some(CallOutcome::Answered));
        assert_eq!(calls[0].result.as_deref(), Some("{}"));
        assert_eq!((calls[1].number, calls[1].outcome), (2, None));
        let other = Principal::new(hotcell_domain::Name::parse("somebody").unwrap());
        assert_eq!(store.calls_of(other, run).await.unwrap(), None);
    }

    #[tokio::test]
    async fn only_the_newest_runs_are_kept() {
        let (_directory, store) = samples::store();
        for run in 1..=4 {
            store.begin_call(call(run, 1), 2).await.unwrap();
        }
        for (run, is_kept) in [(1, false), (2, false), (3, true), (4, true)] {
            let calls = store.calls_of(Principal::local(), call(run, 1).run);
            assert_eq!(calls.await.unwrap().is_some(), is_kept, "run {run}");
        }
    }
}
