//! The anchor of the audit log: one row.
//!
//! The ledger's thread is not async, so these methods block.

use std::path::Path;

use rusqlite::{Connection, OptionalExtension as _, params};

use crate::database::{self, Fault};
use crate::{OpenError, Store, StoreError};

/// The last known position of the audit log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LedgerAnchorRow {
    /// The last event that is known to be on disk.
    pub seq: u64,
    /// Its hash, in hexadecimal digits.
    pub hash: String,
    /// The first event that retention has kept.
    pub first_kept: u64,
}

impl Store {
    /// Reads the anchor. Blocks, so not for async tasks.
    pub fn ledger_anchor(&self) -> Result<Option<LedgerAnchorRow>, StoreError> {
        self.database
            .run_blocking("read the audit log's anchor", |database| {
                Ok(read(database.read())?)
            })
    }

    /// Stores the anchor. Blocks, so not for async tasks.
    pub fn set_ledger_anchor(&self, row: LedgerAnchorRow) -> Result<(), StoreError> {
        let sql =
            "INSERT OR REPLACE INTO ledger_anchor (id, seq, hash, first_kept) VALUES (1, ?, ?, ?)";
        self.database
            .run_blocking("note the audit log's anchor", move |database| {
                let transaction = database.write()?;
                let (seq, first_kept) = (number(row.seq)?, number(row.first_kept)?);
                transaction
                    .prepare_cached(sql)?
                    .execute(params![seq, row.hash, first_kept])?;
                Ok(transaction.commit()?)
            })
    }
}

/// Reads the anchor of a state directory whose server may be running. Changes nothing and takes
/// no lock; `None` if there is no database, or one from before there was an audit log.
pub fn read_ledger_anchor(directory: &Path) -> Result<Option<LedgerAnchorRow>, OpenError> {
    let failed = |error| OpenError::io("read the audit log's anchor", directory, error);
    let Some(connection) = database::open_to_read(directory).map_err(failed)? else {
        return Ok(None);
    };
    let has_table = "SELECT 1 FROM sqlite_schema WHERE name = 'ledger_anchor'";
    let found = connection.query_row(has_table, [], |_| Ok(())).optional();
    match found.map_err(failed)? {
        None => Ok(None),
        Some(()) => read(&connection).map_err(failed),
    }
}

pub(crate) fn read(connection: &Connection) -> rusqlite::Result<Option<LedgerAnchorRow>> {
    let sql = "SELECT seq, hash, first_kept FROM ledger_anchor";
    let mut statement = connection.prepare_cached(sql)?;
    let row = statement.query_row([], |row| {
        Ok(LedgerAnchorRow {
            seq: row.get::<_, i64>(0)?.unsigned_abs(),
            hash: row.get(1)?,
            first_kept: row.get::<_, i64>(2)?.unsigned_abs(),
        })
    });
    row.optional()
}

fn number(number: u64) -> Result<i64, Fault> {
    i64::try_from(number).map_err(|_| Fault::Misuse("the number of an event is too large"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(seq: u64) -> LedgerAnchorRow {
        LedgerAnchorRow {
            seq,
            hash: "ab".repeat(32),
            first_kept: 1,
        }
    }

    #[test]
    fn the_newest_anchor_is_read_back_by_this_process_and_by_others() {
        let directory = tempfile::tempdir().unwrap();
        assert_eq!(read_ledger_anchor(directory.path()).unwrap(), None);
        let store = Store::open(directory.path()).unwrap();
        assert_eq!(store.ledger_anchor().unwrap(), None);
        for seq in [7, 9] {
            store.set_ledger_anchor(row(seq)).unwrap();
            assert_eq!(store.ledger_anchor().unwrap(), Some(row(seq)));
            let read = read_ledger_anchor(directory.path()).unwrap();
            assert_eq!(read, Some(row(seq)), "while the server runs");
        }
        drop(store);
        let read = read_ledger_anchor(directory.path()).unwrap();
        assert_eq!(read, Some(row(9)), "while none does");
        let store = Store::open(directory.path()).unwrap();
        assert_eq!(store.ledger_anchor().unwrap(), Some(row(9)));
    }
}
