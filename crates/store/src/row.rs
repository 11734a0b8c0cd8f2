//! Converts rows to domain types. Everything read is parsed again, and an unreadable row does not
//! hide the others.

use std::fmt::Display;

use hotcell_domain::EngineId;
use rusqlite::{CachedStatement, Params, Row};

use crate::database::Fault;

/// A row with an invalid value.
#[derive(Debug, thiserror::Error)]
#[error("{table} {id} cannot be read: {column}: {reason}")]
pub(crate) struct RowError {
    table: &'static str,
    id: String,
    column: &'static str,
    reason: String,
}

impl RowError {
    /// The id of the row; empty if that cannot be read either.
    pub(crate) fn id(&self) -> &str {
        &self.id
    }
}

/// Reads the columns of a row by name.
pub(crate) struct RowReader<'row> {
    pub(crate) row: &'row Row<'row>,
    pub(crate) table: &'static str,
}

impl RowReader<'_> {
    pub(crate) fn raw<T: rusqlite::types::FromSql>(
        &self,
        column: &'static str,
    ) -> Result<T, RowError> {
        self.row
            .get(column)
            .map_err(|reason| self.bad(column, reason))
    }

    pub(crate) fn parsed<T, E: Display>(
        &self,
        column: &'static str,
        parse: impl FnOnce(&str) -> Result<T, E>,
    ) -> Result<T, RowError> {
        let text: String = self.raw(column)?;
        parse(&text).map_err(|reason| self.bad(column, reason))
    }

    pub(crate) fn maybe<T, E: Display>(
        &self,
        column: &'static str,
        parse: impl FnOnce(&str) -> Result<T, E>,
    ) -> Result<Option<T>, RowError> {
        let text: Option<String> = self.raw(column)?;
        text.map(|text| parse(&text).map_err(|reason| self.bad(column, reason)))
            .transpose()
    }

    pub(crate) fn number(&self, column: &'static str) -> Result<u64, RowError> {
        let number: i64 = self.raw(column)?;
        u64::try_from(number).map_err(|reason| self.bad(column, reason))
    }

    pub(crate) fn engine(&self) -> Result<EngineId, RowError> {
        Ok(EngineId {
            name: self.raw("engine")?,
            host: self.raw("engine_host")?,
        })
    }

    pub(crate) fn ms(&self, column: &'static str) -> Result<u64, RowError> {
        self.number(column)
    }

    pub(crate) fn maybe_ms(&self, column: &'static str) -> Result<Option<u64>, RowError> {
        let ms: Option<i64> = self.raw(column)?;
        ms.map(|ms| u64::try_from(ms).map_err(|reason| self.bad(column, reason)))
            .transpose()
    }

    /// The error for an invalid column.
    pub(crate) fn bad(&self, column: &'static str, reason: impl Display) -> RowError {
        RowError {
            table: self.table,
            id: self.row.get("id").unwrap_or_default(),
            column,
            reason: reason.to_string(),
        }
    }
}

/// A type that is read from rows.
pub(crate) trait FromRow: Sized {
    const TABLE: &'static str;

    fn from_row(row: &RowReader<'_>) -> Result<Self, RowError>;
}

/// The first row, if any.
pub(crate) fn first<T: FromRow>(
    statement: &mut CachedStatement<'_>,
    params: impl Params,
) -> Result<Option<T>, Fault> {
    let mut rows = statement.query(params)?;
    let Some(row) = rows.next()? else {
        return Ok(None);
    };
    let table = T::TABLE;
    Ok(Some(T::from_row(&RowReader { row, table })?))
}

/// All readable rows. The others are logged.
pub(crate) fn all<T: FromRow>(
    statement: &mut CachedStatement<'_>,
    params: impl Params,
) -> Result<Vec<T>, Fault> {
    let mut rows = statement.query(params)?;
    let mut all = Vec::new();
    let table = T::TABLE;
    while let Some(row) = rows.next()? {
        match T::from_row(&RowReader { row, table }) {
            Ok(one) => all.push(one),
            Err(error) => tracing::error!(%error, "a row is skipped"),
        }
    }
    Ok(all)
}

/// Converts a number to SQLite's integer type.
pub(crate) fn sql_number(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

pub(crate) fn sql_ms(unix_ms: u64) -> i64 {
    sql_number(unix_ms)
}

pub(crate) fn sql_count(count: usize) -> i64 {
    i64::try_from(count).unwrap_or(i64::MAX)
}
