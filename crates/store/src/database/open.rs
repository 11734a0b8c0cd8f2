//! Opens the database. Nothing is written before the file has proved to be ours.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::ErrorKind;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

use rusqlite::config::DbConfig;
use rusqlite::{Connection, ErrorCode, OpenFlags};

use super::scrub::Scrubber;
use super::{Database, FILE_NAME, FileIdentity, schema};
use crate::OpenError;

/// How long to wait for another process that reads the database.
const BUSY_MS_MAX: u64 = 5000;

/// A database up to this size is checked completely, which takes milliseconds. In a larger one,
/// only what has to be read anyway is checked.
const CHECK_BYTES_MAX: u64 = 2 << 20;

/// The size to which the write-ahead log is truncated after a burst.
const WAL_BYTES_KEPT: u64 = 16 << 20;

/// More than this crate has prepared statements.
const STATEMENTS_MAX: usize = 64;

/// The first bytes of every SQLite database.
const MAGIC: &[u8] = b"SQLite format 3\0";

/// The smallest page size of a database.
const PAGE_BYTES_MIN: usize = 512;

/// Why a database is rejected.
#[derive(Debug, thiserror::Error)]
enum RejectReason {
    #[error("newer")]
    Newer(u32),
    #[error("its check says: {0}")]
    Check(String),
    #[error("it holds the tables of another program")]
    Foreign,
    #[error("it does not begin as a database does")]
    Beginning,
    #[error("the database that this log belongs to is missing or empty")]
    LogAlone,
    #[error(transparent)]
    Sql(#[from] rusqlite::Error),
    #[error(transparent)]
    Io(#[from] std::io::Error),
}

/// Opens the database in `directory`, creating or migrating it as needed. On `Err` the database and
/// its write-ahead log are unchanged, unless a migration failed midway: then they are as the last
/// complete migration left them.
pub(crate) fn open(directory: &Path) -> Result<Database, OpenError> {
    let path = directory.join(FILE_NAME);
    let log = with_suffix(&path, "-wal");
    if size(&log) > 0 && size(&path) == 0 {
        return Err(damaged(log, RejectReason::LogAlone));
    }
    let refused = |error| said(directory, &path, error);
    begins_well(&path).map_err(refused)?;
    let mut connection = connect(&path).map_err(refused)?;
    look(&connection, &path).map_err(refused)?;
    prepare(&mut connection).map_err(refused)?;
    let identities = [path.clone(), log].map(FileIdentity::of);
    let files: Result<Vec<_>, _> = identities.into_iter().collect();
    let files = files.map_err(|error| OpenError::io("find the database", directory, error))?;
    let second = open_connection(&path).map_err(|error| refused(error.into()))?;
    let scrubber = Scrubber::start(second)
        .map_err(|error| OpenError::io("start a thread", directory, error))?;
    Ok(Database {
        scrubber: Some(scrubber),
        has_forgotten: false,
        connection,
        files,
    })
}

/// A database in memory; `directory` is only used in errors.
pub(crate) fn in_memory(directory: &Path) -> Result<Database, OpenError> {
    let connection = connect_in_memory()
        .map_err(|error| OpenError::io("open a database in memory", directory, error))?;
    Ok(Database {
        scrubber: None,
        has_forgotten: false,
        connection,
        files: Vec::new(),
    })
}

fn connect_in_memory() -> rusqlite::Result<Connection> {
    let mut connection = Connection::open_in_memory()?;
    connection.execute_batch("PRAGMA foreign_keys = ON")?;
    schema::migrate(&mut connection)?;
    connection.set_prepared_statement_cache_capacity(STATEMENTS_MAX);
    Ok(connection)
}

/// Syncs committed transactions to disk. SQLite does so only at a checkpoint, which may be much
/// later.
///
/// The database file must not be opened here: closing it would release SQLite's locks on it. What
/// is no longer in the write-ahead log is already on disk.
pub(crate) fn sync(directory: &Path) -> std::io::Result<()> {
    let log = with_suffix(&directory.join(FILE_NAME), "-wal");
    File::open(log)?.sync_all()?;
    File::open(directory)?.sync_all()
}

/// Checks the first bytes. SQLite treats a file shorter than a page as empty and would overwrite
/// it.
fn begins_well(path: &Path) -> Result<(), RejectReason> {
    let mut beginning = [0; PAGE_BYTES_MIN];
    match File::open(path).and_then(|file| file.read_exact_at(&mut beginning, 0)) {
        Ok(()) if beginning.starts_with(MAGIC) => Ok(()),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(()),
        Err(error) if error.kind() != ErrorKind::UnexpectedEof => Err(error.into()),
        Err(_) if size(path) == 0 => Ok(()),
        Ok(()) | Err(_) => Err(RejectReason::Beginning),
    }
}

fn connect(path: &Path) -> Result<Connection, RejectReason> {
    // SQLite gives its other files the same mode.
    File::options()
        .create(true)
        .append(true)
        .mode(0o600)
        .open(path)?;
    let connection = open_connection(path)?;
    // Closing would checkpoint the write-ahead log: not before we know that the database is ours.
    connection.set_db_config(DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, true)?;
    Ok(connection)
}

fn open_connection(path: &Path) -> rusqlite::Result<Connection> {
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let connection = Connection::open_with_flags(path, flags)?;
    connection.busy_timeout(Duration::from_millis(BUSY_MS_MAX))?;
    Ok(connection)
}

/// Opens the database read-only, while a server may use it; `None` if there is none.
pub(crate) fn open_to_read(directory: &Path) -> rusqlite::Result<Option<Connection>> {
    let path = directory.join(FILE_NAME);
    if size(&path) == 0 {
        return Ok(None);
    }
    let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let connection = Connection::open_with_flags(&path, flags)?;
    connection.busy_timeout(Duration::from_millis(BUSY_MS_MAX))?;
    match connection.query_row("PRAGMA schema_version", [], |_| Ok(())) {
        // SQLite wants to create files beside it. On a read-only disk that is not needed: without a
        // write-ahead log, everything is in the database file.
        Err(error) if is_unwritable(&error) && size(&with_suffix(&path, "-wal")) == 0 => {
            let flags = flags | OpenFlags::SQLITE_OPEN_URI;
            Connection::open_with_flags(immutable(&path), flags).map(Some)
        }
        Err(error) => Err(error),
        Ok(()) => Ok(Some(connection)),
    }
}

fn is_unwritable(error: &rusqlite::Error) -> bool {
    let code = error.sqlite_error_code();
    matches!(code, Some(ErrorCode::CannotOpen | ErrorCode::ReadOnly))
}

/// The URI of a database that nobody changes.
fn immutable(path: &Path) -> OsString {
    let mut uri = OsString::from("file:");
    for byte in path.as_os_str().as_bytes() {
        match byte {
            b'%' | b'?' | b'#' => uri.push(format!("%{byte:02x}")),
            byte => uri.push(OsStr::from_bytes(&[*byte])),
        }
    }
    uri.push("?immutable=1");
    uri
}

/// Reads enough to know whether the database is ours.
fn look(connection: &Connection, path: &Path) -> Result<(), RejectReason> {
    let found = schema::version(connection)?;
    if found > schema::KNOWN {
        return Err(RejectReason::Newer(found));
    }
    let tables: u32 =
        connection.query_row("SELECT count(*) FROM sqlite_schema", [], |row| row.get(0))?;
    if found == 0 && tables > 0 {
        return Err(RejectReason::Foreign);
    }
    if size(path) <= CHECK_BYTES_MAX {
        let verdict: String =
            connection.query_row("PRAGMA quick_check(1)", [], |row| row.get(0))?;
        if verdict != "ok" {
            return Err(RejectReason::Check(verdict));
        }
    }
    Ok(())
}

fn prepare(connection: &mut Connection) -> Result<(), RejectReason> {
    connection.query_row("PRAGMA journal_mode = WAL", [], |_| Ok(()))?;
    connection.execute_batch("PRAGMA synchronous = NORMAL; PRAGMA foreign_keys = ON")?;
    // Deleted values may have been secret, so they are overwritten.
    connection.query_row("PRAGMA secure_delete = ON", [], |_| Ok(()))?;
    let limit = format!("PRAGMA journal_size_limit = {WAL_BYTES_KEPT}");
    connection.query_row(&limit, [], |_| Ok(()))?;
    schema::migrate(connection)?;
    connection.set_db_config(DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, false)?;
    connection.set_prepared_statement_cache_capacity(STATEMENTS_MAX);
    // A read creates the write-ahead log at the latest, and it exists until we close.
    connection.query_row("SELECT count(*) FROM containers", [], |_| Ok(()))?;
    Ok(())
}

fn said(directory: &Path, path: &Path, refused: RejectReason) -> OpenError {
    match refused {
        RejectReason::Newer(found) => OpenError::Newer {
            directory: directory.to_owned(),
            found,
            known: schema::KNOWN,
        },
        RejectReason::Sql(error) if is_damage(&error) => damaged(path.to_owned(), error.into()),
        RejectReason::Check(_)
        | RejectReason::Foreign
        | RejectReason::LogAlone
        | RejectReason::Beginning => damaged(path.to_owned(), refused),
        RejectReason::Sql(_) | RejectReason::Io(_) => {
            OpenError::io("open the database", directory, refused)
        }
    }
}

fn damaged(path: PathBuf, refused: RejectReason) -> OpenError {
    OpenError::Damaged {
        path,
        source: refused.into(),
    }
}

pub(crate) fn is_damage(error: &rusqlite::Error) -> bool {
    let code = error.sqlite_error_code();
    // An unreadable schema is reported as an error of the statement that needed it.
    matches!(
        code,
        Some(ErrorCode::NotADatabase | ErrorCode::DatabaseCorrupt | ErrorCode::Unknown)
    )
}

fn with_suffix(path: &Path, suffix: &str) -> PathBuf {
    let mut name = OsString::from(path);
    name.push(suffix);
    PathBuf::from(name)
}

fn size(path: &Path) -> u64 {
    std::fs::metadata(path).map_or(0, |found| found.len())
}

#[cfg(test)]
mod tests;
