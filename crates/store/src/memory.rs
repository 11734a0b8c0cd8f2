//! What scripts of a principal remember.

use hotcell_domain::Principal;
use rusqlite::{Connection, params};

use crate::database::Fault;
use crate::row::{FromRow, RowError, RowReader, all, first, sql_ms};
use crate::{Store, StoreError};

/// Something that is remembered.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MemoryRow {
    /// What kind of thing it is; keys of different spaces never meet.
    pub space: String,
    /// Its name.
    pub key: String,
    /// What it is; empty in lists.
    pub value: String,
    /// What was noted with it.
    pub metadata: Option<String>,
    /// Grows with every save, from 1.
    pub version: u64,
    /// Of the value.
    pub bytes: u64,
    /// When it was first saved.
    pub created_unix_ms: u64,
    /// When it was last saved.
    pub updated_unix_ms: u64,
}

/// Something to remember.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MemorySave {
    /// Whose it is.
    pub principal: Principal,
    /// The space.
    pub space: String,
    /// The key.
    pub key: String,
    /// The value.
    pub value: String,
    /// What is noted with it.
    pub metadata: Option<String>,
    /// Only if it has this version; 0: only if there is none.
    pub if_version: Option<u64>,
    /// Now.
    pub unix_ms: u64,
}

/// How much a principal may remember.
#[derive(Debug, Clone, Copy)]
pub struct MemoryLimit {
    /// Entries of all spaces.
    pub entries_max: u64,
    /// Bytes of their keys, values and metadata.
    pub bytes_max: u64,
}

/// What became of a save.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MemorySaved {
    /// It has this version now.
    Version(u64),
    /// It has this version, and another was expected; 0: there is none.
    Conflict(u64),
    /// The principal remembers as much as it may.
    Full,
}

const COLUMNS: &str = "space, key, key AS id, metadata, version, created_unix_ms, updated_unix_ms, length(CAST(value AS BLOB)) AS bytes";

impl Store {
    /// Saves in one step: of several that expect the same version, one succeeds.
    pub async fn save_memory(
        &self,
        save: MemorySave,
        limit: MemoryLimit,
    ) -> Result<MemorySaved, StoreError> {
        self.database
            .run("save a memory", move |database| {
                let transaction = database.write()?;
                let before = version(&transaction, &save)?;
                if save.if_version.is_some_and(|expected| expected != before) {
                    return Ok(MemorySaved::Conflict(before));
                }
                upsert(&transaction, &save)?;
                if exceeds(&transaction, &save.principal, limit)? {
                    return Ok(MemorySaved::Full);
                }
                transaction.commit()?;
                Ok(MemorySaved::Version(before + 1))
            })
            .await
    }

    /// Loads one.
    pub async fn memory(
        &self,
        principal: Principal,
        space: String,
        key: String,
    ) -> Result<Option<MemoryRow>, StoreError> {
        let sql = format!(
            "SELECT {COLUMNS}, value FROM memory WHERE principal = ? AND space = ? AND key = ?"
        );
        self.database
            .run("load a memory", move |database| {
                let mut statement = database.read().prepare_cached(&sql)?;
                first(&mut statement, params![principal.as_str(), space, key])
            })
            .await
    }

    /// Those whose keys begin so, by key; of all spaces if none is named. Without values.
    pub async fn memories(
        &self,
        principal: Principal,
        space: Option<String>,
        prefix: String,
    ) -> Result<Vec<MemoryRow>, StoreError> {
        let sql = format!(
            "SELECT {COLUMNS}, '' AS value FROM memory WHERE principal = ?1
             AND (?2 IS NULL OR space = ?2) AND substr(key, 1, length(?3)) = ?3 ORDER BY space, key"
        );
        self.database
            .run("list memories", move |database| {
                let mut statement = database.read().prepare_cached(&sql)?;
                all(&mut statement, params![principal.as_str(), space, prefix])
            })
            .await
    }

    /// Deletes one; whether there was one.
    pub async fn delete_memory(
        &self,
        principal: Principal,
        space: String,
        key: String,
    ) -> Result<bool, StoreError> {
        let sql = "DELETE FROM memory WHERE principal = ? AND space = ? AND key = ?";
        self.database
            .run("delete a memory", move |database| {
                let transaction = database.write()?;
                let params = params![principal.as_str(), space, key];
                let deleted = transaction.prepare_cached(sql)?.execute(params)?;
                transaction.commit()?;
                Ok(deleted > 0)
            })
            .await
    }
}

/// The version that there is; 0 if there is none.
fn version(connection: &Connection, save: &MemorySave) -> Result<u64, Fault> {
    let sql = "SELECT coalesce(max(version), 0) FROM memory
               WHERE principal = ? AND space = ? AND key = ?";
    let params = params![save.principal.as_str(), save.space, save.key];
    let mut statement = connection.prepare_cached(sql)?;
    let version: i64 = statement.query_row(params, |row| row.get(0))?;
    Ok(version.unsigned_abs())
}

fn upsert(connection: &Connection, save: &MemorySave) -> Result<(), Fault> {
    let sql = "INSERT INTO memory VALUES (?1, ?2, ?3, ?4, ?5, 1, ?6, ?6)
               ON CONFLICT (principal, space, key) DO UPDATE SET value = ?4, metadata = ?5,
                   version = version + 1, updated_unix_ms = ?6";
    let now = sql_ms(save.unix_ms);
    connection.prepare_cached(sql)?.execute(params![
        save.principal.as_str(),
        save.space,
        save.key,
        save.value,
        save.metadata,
        now
    ])?;
    Ok(())
}

fn exceeds(
    connection: &Connection,
    principal: &Principal,
    limit: MemoryLimit,
) -> Result<bool, Fault> {
    let sql =
        "SELECT count(*), coalesce(sum(length(CAST(key AS BLOB)) + length(CAST(value AS BLOB))
                   + coalesce(length(CAST(metadata AS BLOB)), 0)), 0)
               FROM memory WHERE principal = ?";
    let mut statement = connection.prepare_cached(sql)?;
    let (entries, bytes): (i64, i64) =
        statement.query_row([principal.as_str()], |row| Ok((row.get(0)?, row.get(1)?)))?;
    Ok(entries.unsigned_abs() > limit.entries_max || bytes.unsigned_abs() > limit.bytes_max)
}

impl FromRow for MemoryRow {
    const TABLE: &'static str = "memory";

    fn from_row(row: &RowReader<'_>) -> Result<Self, RowError> {
        Ok(Self {
            space: row.raw("space")?,
            key: row.raw("key")?,
            value: row.raw("value")?,
            metadata: row.raw("metadata")?,
            version: row.number("version")?,
            bytes: row.number("bytes")?,
            created_unix_ms: row.ms("created_unix_ms")?,
            updated_unix_ms: row.ms("updated_unix_ms")?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::samples;

    const LIMIT: MemoryLimit = MemoryLimit {
        entries_max: 3,
        bytes_max: 100,
    };

    fn save(key: &str, value: &str, if_version: Option<u64>) -> MemorySave {
        MemorySave {
            principal: Principal::local(),
            space: "memory".to_owned(),
            key: key.to_owned(),
            value: value.to_owned(),
            metadata: None,
            if_version,
            unix_ms: 5,
        }
    }

    #[tokio::test]
    async fn of_two_that_expect_the_same_version_one_saves() {
        let (_directory, store) = samples::store();
        let first = store.save_memory(save("k", "1", Some(0)), LIMIT);
        let second = store.save_memory(save("k", "2", Some(0)), LIMIT);
        let (first, second) = tokio::join!(first, second);
        let saved = [first.unwrap(), second.unwrap()];
        assert!(saved.contains(&MemorySaved::Version(1)), "{saved:?}");
        assert!(saved.contains(&MemorySaved::Conflict(1)), "{saved:?}");
        let again = store
            .save_memory(save("k", "3", None), LIMIT)
            .await
            .unwrap();
        assert_eq!(again, MemorySaved::Version(2));
    }

    #[tokio::test]
    async fn what_is_too_much_is_not_saved_and_what_was_there_stays() {
        let (_directory, store) = samples::store();
        let long = "x".repeat(200);
        store
            .save_memory(save("k", "1", None), LIMIT)
            .await
            .unwrap();
        let full = store.save_memory(save("k", &long, None), LIMIT).await;
        assert_eq!(full.unwrap(), MemorySaved::Full);
        for key in ["l", "m"] {
            store
                .save_memory(save(key, "1", None), LIMIT)
                .await
                .unwrap();
        }
        let full = store.save_memory(save("n", "1", None), LIMIT).await;
        assert_eq!(full.unwrap(), MemorySaved::Full);
        let local = Principal::local;
        let found = store.memory(local(), "memory".to_owned(), "k".to_owned());
        assert_eq!(found.await.unwrap().unwrap().value, "1");
        let keys = store.memories(local(), None, String::new()).await.unwrap();
        let keys: Vec<_> = keys.iter().map(|row| row.key.as_str()).collect();
        assert_eq!(keys, ["k", "l", "m"]);
    }

    #[tokio::test]
    async fn nobody_sees_what_another_remembers() {
        let (_directory, store) = samples::store();
        store
            .save_memory(save("k", "1", None), LIMIT)
            .await
            .unwrap();
        let other = Principal::new(hotcell_domain::Name::parse("somebody").unwrap());
        let (space, key) = ("memory".to_owned(), "k".to_owned());
        let found = store
            .memory(other.clone(), space.clone(), key.clone())
            .await;
        assert_eq!(found.unwrap(), None);
        let deleted = store.delete_memory(other, space.clone(), key.clone()).await;
        assert!(!deleted.unwrap());
        let deleted = store.delete_memory(Principal::local(), space, key).await;
        assert!(deleted.unwrap());
    }
}
