//! Checks the database and the output logs of a state directory, without changing them. A server
//! may be running: then a difference that it is about to settle may be visible for a moment, so the
//! caller repeats the check before reporting it.
//!
//! Rows are read in portions, each in a short transaction, so that a long check does not prevent
//! the server from truncating its write-ahead log.

use std::collections::BTreeSet;
use std::fmt;
use std::path::Path;

use hotcell_domain::{ContainerId, EngineId, ExecId, ExecStatus, Phase};
use rusqlite::Connection;

use crate::database;
use crate::exec::ExecRow;
use crate::log::{LogHealth, Logs};
use crate::row::{FromRow, RowError, RowReader};
use crate::warm::WarmRow;
use crate::{ContainerRow, LedgerAnchorRow, OpenError, StoreError, ledger_anchor};

/// Rows per portion.
const PORTION: i64 = 512;

/// Most differences that are reported.
const FAULTS_MAX: usize = 1000;

/// The contents of a state directory, and the differences that were found.
#[derive(Debug, Default)]
pub struct StoreCheck {
    /// The schema version of the database.
    pub schema: u32,
    /// Whether this program writes that schema. Rows of an older schema are not read: the next
    /// server migrates them first.
    pub is_current: bool,
    /// Live containers.
    pub containers: Vec<ContainerState>,
    /// Warm containers.
    pub warm: Vec<WarmRow>,
    /// Number of execs, including ended ones.
    pub execs: u64,
    /// Number of output logs.
    pub logs: u64,
    /// Their size on disk.
    pub log_bytes: u64,
    /// The anchor of the audit log.
    pub anchor: Option<LedgerAnchorRow>,
    /// The differences that were found.
    pub faults: Vec<StoreFault>,
}

/// The state of a container, as its row says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ContainerState {
    /// The container id.
    pub id: ContainerId,
    /// The current phase.
    pub phase: Phase,
    /// The engine that runs it.
    pub engine: EngineId,
}

/// A difference within the database, or between it and the logs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoreFault {
    /// The kind of difference.
    pub kind: StoreFaultKind,
    /// The container, exec or principal; empty if it is the database itself.
    pub subject: String,
    /// A description for people.
    pub found: String,
}

/// The kinds of differences.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StoreFaultKind {
    /// SQLite reports that the database is damaged.
    Database,
    /// A row is unreadable.
    Row,
    /// The totals of ended objects do not match the rows.
    Sums,
    /// An exec is running, but its container has ended or is unknown.
    ExecWithoutContainer,
    /// The log of an exec is missing or has another size than recorded.
    LogSize,
    /// A log has an unreadable part.
    LogDamaged,
    /// A log contains less than the exec wrote.
    LogIncomplete,
    /// A log belongs to no exec.
    LogWithoutExec,
}

impl StoreFaultKind {
    /// The name for programs.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Database => "database_damaged",
            Self::Row => "row_unreadable",
            Self::Sums => "sums_wrong",
            Self::ExecWithoutContainer => "exec_without_container",
            Self::LogSize => "log_size",
            Self::LogDamaged => "log_damaged",
            Self::LogIncomplete => "log_incomplete",
            Self::LogWithoutExec => "log_without_exec",
        }
    }
}

/// Checks a state directory; `None` if it has no database. Takes no lock and writes nothing.
pub fn check(directory: &Path) -> Result<Option<StoreCheck>, OpenError> {
    let failed = |error| OpenError::io("read the database", directory, error);
    let Some(connection) = database::open_to_read(directory).map_err(failed)? else {
        return Ok(None);
    };
    let logs = Logs::new(directory.join("logs"), None);
    let mut check = Check {
        connection: &connection,
        // Listed before the rows: a log is created after its exec's row.
        unowned: logs.list().unwrap_or_default(),
        logs: &logs,
        found: StoreCheck::default(),
    };
    check.found.logs = check.unowned.len() as u64;
    match check.run(directory) {
        Ok(()) => Ok(Some(check.found)),
        Err(CheckError::Open(error)) => Err(error),
        Err(CheckError::Sql(error)) if database::is_damage(&error) => {
            check.fault(StoreFaultKind::Database, "", &error);
            Ok(Some(check.found))
        }
        Err(CheckError::Sql(error)) => Err(failed(error)),
    }
}

enum CheckError {
    Open(OpenError),
    Sql(rusqlite::Error),
}

impl From<rusqlite::Error> for CheckError {
    fn from(error: rusqlite::Error) -> Self {
        Self::Sql(error)
    }
}

struct Check<'a> {
    connection: &'a Connection,
    logs: &'a Logs,
    unowned: BTreeSet<ExecId>,
    found: StoreCheck,
}

impl Check<'_> {
    fn run(&mut self, directory: &Path) -> Result<(), CheckError> {
        let schema = database::schema_version(self.connection)?;
        let known = database::SCHEMA_KNOWN;
        if schema > known {
            return Err(CheckError::Open(OpenError::Newer {
                directory: directory.to_owned(),
                found: schema,
                known,
            }));
        }
        self.found.schema = schema;
        self.found.is_current = schema == known;
        self.database()?;
        if !self.found.is_current {
            return Ok(());
        }
        self.found.anchor = ledger_anchor::read(self.connection)?;
        self.containers()?;
        self.warm()?;
        self.execs()?;
        self.sums()?;
        for id in std::mem::take(&mut self.unowned) {
            self.found.log_bytes += self.logs.bytes(&id);
            let found = "an output log belongs to no exec";
            self.fault(StoreFaultKind::LogWithoutExec, id.as_str(), &found);
        }
        Ok(())
    }

    fn fault(&mut self, kind: StoreFaultKind, subject: &str, found: &dyn fmt::Display) {
        if self.found.faults.len() < FAULTS_MAX {
            self.found.faults.push(StoreFault {
                kind,
                subject: subject.to_owned(),
                found: found.to_string(),
            });
        }
    }

    fn database(&mut self) -> rusqlite::Result<()> {
        let verdict: String =
            self.connection
                .query_row("PRAGMA integrity_check(1)", [], |row| row.get(0))?;
        if verdict != "ok" {
            self.fault(StoreFaultKind::Database, "", &verdict);
        }
        Ok(())
    }

    fn containers(&mut self) -> rusqlite::Result<()> {
        let sql = "SELECT * FROM containers WHERE id > ? ORDER BY id LIMIT ?";
        self.all(sql, |check, row: ContainerRow| {
            if row.ended_unix_ms.is_none() {
                check.found.containers.push(ContainerState {
                    id: row.id,
                    phase: row.phase,
                    engine: row.engine,
                });
            }
        })
    }

    fn warm(&mut self) -> rusqlite::Result<()> {
        let sql = "SELECT * FROM warm WHERE id > ? ORDER BY id LIMIT ?";
        self.all(sql, |check, row: WarmRow| check.found.warm.push(row))
    }

    fn execs(&mut self) -> rusqlite::Result<()> {
        let sql = "SELECT execs.*, containers.id IS NOT NULL
                       AND containers.ended_unix_ms IS NULL AS has_container
                   FROM execs LEFT JOIN containers ON containers.id = execs.container
                   WHERE execs.id > ? ORDER BY execs.id LIMIT ?";
        self.all(sql, |check, row| check.exec(&row))
    }

    fn exec(&mut self, row: &CheckedExec) {
        self.found.execs += 1;
        let id = row.exec.id.clone();
        let has_log = self.unowned.remove(&id);
        let is_living = row.exec.end.is_none();
        if is_living && !row.has_container {
            let found = "it has not ended, and its container has";
            self.fault(StoreFaultKind::ExecWithoutContainer, id.as_str(), &found);
        }
        // The log of a running exec is being written.
        if is_living || (!has_log && row.log_bytes == 0) {
            return;
        }
        let bytes = self.logs.bytes(&id);
        self.found.log_bytes += bytes;
        if bytes != row.log_bytes {
            let found = format!("its output log has {bytes} bytes, not {}", row.log_bytes);
            return self.fault(StoreFaultKind::LogSize, id.as_str(), &found);
        }
        match self.logs.health(&id) {
            Err(error) => self.fault(StoreFaultKind::LogDamaged, id.as_str(), &error),
            Ok(health) => self.exec_log(&row.exec, health),
        }
    }

    /// Checks the log of an ended exec. Output that a container had not delivered when it died is
    /// missing, and so is the end of the last record if the server died then.
    fn exec_log(&mut self, exec: &ExecRow, health: LogHealth) {
        let id = exec.id.as_str();
        let end = exec.end.as_ref();
        let is_lost = end.is_none_or(|end| end.status == ExecStatus::Lost);
        if health.is_damaged || health.is_torn && !is_lost {
            let found = "its output log is damaged: the output cannot be read to its end";
            return self.fault(StoreFaultKind::LogDamaged, id, &found);
        }
        let usage = end.and_then(|end| end.usage).filter(|_| !is_lost);
        let written = usage.map(|usage| usage.stdout_bytes.saturating_add(usage.stderr_bytes));
        // Text that the server added is in the log, too.
        if let Some(written) = written.filter(|written| *written > health.output_bytes) {
            let logged = health.output_bytes;
            let found = format!("its output log holds {logged} bytes of output, not {written}");
            self.fault(StoreFaultKind::LogIncomplete, id, &found);
        }
    }

    fn sums(&mut self) -> rusqlite::Result<()> {
        let sql = "WITH counted AS (
                       SELECT principal, sum(execs), sum(log_bytes), sum(containers) FROM (
                           SELECT principal, 1 AS execs, log_bytes, 0 AS containers FROM execs
                               WHERE ended_unix_ms IS NOT NULL
                           UNION ALL
                           SELECT principal, 0, 0, 1 FROM containers
                               WHERE ended_unix_ms IS NOT NULL
                       ) GROUP BY principal)
                   SELECT principal FROM (SELECT * FROM ended EXCEPT SELECT * FROM counted)
                   UNION
                   SELECT principal FROM (SELECT * FROM counted EXCEPT SELECT * FROM ended)";
        let mut statement = self.connection.prepare(sql)?;
        let principals = statement.query_map([], |row| row.get::<_, String>(0))?;
        for principal in principals.collect::<Result<Vec<_>, _>>()? {
            let found = "the sums of what this principal's ended execs take are wrong";
            self.fault(StoreFaultKind::Sums, &principal, &found);
        }
        Ok(())
    }

    /// Reads a table in portions, ordered by id.
    fn all<T: FromRow>(
        &mut self,
        sql: &str,
        mut take: impl FnMut(&mut Self, T),
    ) -> rusqlite::Result<()> {
        let mut last = String::new();
        loop {
            let (portion, next) = portion::<T>(self.connection, sql, &last)?;
            let Some(next) = next else { return Ok(()) };
            for row in portion {
                match row {
                    Ok(row) => take(self, row),
                    Err(error) => self.fault(StoreFaultKind::Row, error.id(), &error),
                }
            }
            last = next;
        }
    }
}

type Portion<T> = Vec<Result<T, RowError>>;

/// The rows after an id, and the last id among them.
fn portion<T: FromRow>(
    connection: &Connection,
    sql: &str,
    after: &str,
) -> rusqlite::Result<(Portion<T>, Option<String>)> {
    let mut statement = connection.prepare_cached(sql)?;
    let mut rows = statement.query(rusqlite::params![after, PORTION])?;
    let (mut portion, mut last) = (Vec::new(), None);
    while let Some(row) = rows.next()? {
        last = Some(row.get("id")?);
        let table = T::TABLE;
        portion.push(T::from_row(&RowReader { row, table }));
    }
    Ok((portion, last))
}

struct CheckedExec {
    exec: ExecRow,
    log_bytes: u64,
    has_container: bool,
}

impl FromRow for CheckedExec {
    const TABLE: &'static str = ExecRow::TABLE;

    fn from_row(row: &RowReader<'_>) -> Result<Self, RowError> {
        Ok(Self {
            exec: ExecRow::from_row(row)?,
            log_bytes: row.number("log_bytes")?,
            has_container: row.raw("has_container")?,
        })
    }
}

/// Copies the current database into an empty file, for a copy of the state. A server may continue
/// to write. Returns the schema version of the copy.
pub fn copy_database(directory: &Path, copy: &Path) -> Result<u32, OpenError> {
    let failed = |error| OpenError::io("copy the database", directory, error);
    let connection = database::open_to_read(directory).map_err(failed)?;
    let Some(connection) = connection else {
        let missing = std::io::Error::from(std::io::ErrorKind::NotFound);
        return Err(OpenError::io("find the database", directory, missing));
    };
    let Some(path) = copy.to_str() else {
        let odd = std::io::Error::from(std::io::ErrorKind::InvalidFilename);
        return Err(OpenError::io("name the copy of the database", copy, odd));
    };
    connection
        .execute("VACUUM INTO ?", [path])
        .map_err(failed)?;
    let copied = database::schema_version(&connection).map_err(failed)?;
    Ok(copied)
}

/// Visits the current version of each log file that a copy of the database knows, with its name and
/// length. Execs whose log was removed since the copy was taken are removed from the copy, because
/// the server has deleted them meanwhile.
pub fn copy_logs<E: From<StoreError>>(
    directory: &Path,
    copy: &Path,
    mut visit: impl FnMut(&str, std::fs::File, u64) -> Result<(), E>,
) -> Result<(), E> {
    let failed = |error: rusqlite::Error| StoreError::failed("read the copied database", error);
    let connection = Connection::open(copy).map_err(failed)?;
    let logs = Logs::new(directory.join("logs"), None);
    let (sql, mut last) = (
        "SELECT id, log_bytes FROM execs WHERE id > ? ORDER BY id LIMIT ?",
        String::new(),
    );
    loop {
        let rows = ids_and_bytes(&connection, sql, &last).map_err(failed)?;
        let Some((next, _)) = rows.last() else { break };
        last.clone_from(next);
        for (id, log_bytes) in &rows {
            let Ok(parsed) = ExecId::parse(id) else {
                continue;
            };
            let files = logs.files(&parsed)?;
            if files.is_empty() && *log_bytes > 0 {
                let forget = "DELETE FROM execs WHERE id = ?";
                connection.execute(forget, [id]).map_err(failed)?;
            }
            for (name, file, bytes) in files {
                visit(&name, file, bytes)?;
            }
        }
    }
    Ok(())
}

fn ids_and_bytes(
    connection: &Connection,
    sql: &str,
    after: &str,
) -> rusqlite::Result<Vec<(String, i64)>> {
    let mut statement = connection.prepare_cached(sql)?;
    let rows = statement.query_map(rusqlite::params![after, PORTION], |row| {
        Ok((row.get(0)?, row.get(1)?))
    })?;
    rows.collect()
}

/// Whether this is the name of a log file.
pub fn is_log_name(name: &str) -> bool {
    crate::log::is_file_name(name)
}

/// The schema version that this program writes; it can read all older ones.
pub const SCHEMA: u32 = database::SCHEMA_KNOWN;

#[cfg(test)]
mod tests;
