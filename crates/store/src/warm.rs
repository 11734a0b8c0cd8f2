//! Warm containers: ready, without an owner.
//!
//! A container is stored here before its engine creates it, and moved to `containers` in the
//! transaction that hands it out. So after a crash, a container is found in exactly one of the two
//! tables.

use hotcell_domain::{ContainerId, EngineId};
use rusqlite::{Connection, params};

use crate::container::{by_key, insert as insert_container};
use crate::database::Fault;
use crate::row::{FromRow, RowError, RowReader, all, sql_ms};
use crate::{ContainerInsert, ContainerRow, Store, StoreError};

/// A warm container.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WarmRow {
    /// Its owner will use the same id.
    pub id: ContainerId,
    /// When the row was stored.
    pub created_unix_ms: u64,
    /// The engine that runs it; the name is empty if it was not recorded.
    pub engine: EngineId,
}

impl Store {
    /// Stores a warm container that is about to be created.
    pub async fn insert_warm(
        &self,
        id: ContainerId,
        created_unix_ms: u64,
        engine: EngineId,
    ) -> Result<(), StoreError> {
        let sql = "INSERT INTO warm VALUES (?, ?, ?, ?)";
        self.database
            .run("note a warm container", move |database| {
                let transaction = database.write()?;
                transaction.prepare_cached(sql)?.execute(params![
                    id.as_str(),
                    sql_ms(created_unix_ms),
                    engine.name,
                    engine.host
                ])?;
                Ok(transaction.commit()?)
            })
            .await
    }

    /// Every warm container, oldest first.
    pub async fn warm(&self) -> Result<Vec<WarmRow>, StoreError> {
        let sql = "SELECT * FROM warm ORDER BY created_unix_ms, id";
        self.database
            .run("list warm containers", move |database| {
                all(&mut database.read().prepare_cached(sql)?, [])
            })
            .await
    }

    /// Deletes a warm container. Idempotent.
    pub async fn forget_warm(&self, id: ContainerId) -> Result<(), StoreError> {
        self.database
            .run("forget a warm container", move |database| {
                let transaction = database.write()?;
                delete(&transaction, &id)?;
                Ok(transaction.commit()?)
            })
            .await
    }

    /// Hands out a warm container: replaces its row by `row`, which has the same id. Nothing
    /// changes if the principal used the same key at `keys_since_unix_ms` or later, or on `Err`.
    pub async fn claim_warm(
        &self,
        row: ContainerRow,
        keys_since_unix_ms: u64,
    ) -> Result<ContainerInsert, StoreError> {
        self.database
            .run("hand out a warm container", move |database| {
                let transaction = database.write()?;
                if let Some(before) = by_key(&transaction, &row, keys_since_unix_ms)? {
                    return Ok(ContainerInsert::Existing(Box::new(before)));
                }
                if delete(&transaction, &row.id)? == 0 {
                    return Err(Fault::missing("warm container", &row.id));
                }
                insert_container(&transaction, &row)?;
                transaction.commit()?;
                Ok(ContainerInsert::New)
            })
            .await
    }
}

fn delete(connection: &Connection, id: &ContainerId) -> Result<usize, Fault> {
    let sql = "DELETE FROM warm WHERE id = ?";
    Ok(connection.prepare_cached(sql)?.execute([id.as_str()])?)
}

impl FromRow for WarmRow {
    const TABLE: &'static str = "warm container";

    fn from_row(row: &RowReader<'_>) -> Result<Self, RowError> {
        Ok(Self {
            id: row.parsed("id", ContainerId::parse)?,
            created_unix_ms: row.ms("created_unix_ms")?,
            engine: row.engine()?,
        })
    }
}

#[cfg(test)]
mod tests {
    use hotcell_domain::{Alias, Name};

    use super::*;
    use crate::samples;

    async fn note(store: &Store, number: u64) -> WarmRow {
        let id = samples::container(number).id;
        let engine = EngineId::at("docker", "tcp://a:1".to_owned());
        let noted = store.insert_warm(id.clone(), number, engine.clone());
        noted.await.unwrap();
        WarmRow {
            id,
            created_unix_ms: number,
            engine,
        }
    }

    #[tokio::test]
    async fn a_claimed_container_has_moved_from_one_table_to_the_other() {
        let (_directory, store) = samples::store();
        let (first, second) = (note(&store, 1).await, note(&store, 2).await);
        assert_eq!(store.warm().await.unwrap(), [first, second.clone()]);
        let row = ContainerRow {
            is_warm: true,
            ..samples::container(1)
        };
        let claimed = store.claim_warm(row.clone(), 0).await.unwrap();
        assert_eq!(claimed, ContainerInsert::New);
        assert_eq!(store.warm().await.unwrap(), [second]);
        assert_eq!(store.active_containers().await.unwrap(), [row]);
    }

    #[tokio::test]
    async fn no_container_is_claimed_twice_or_unless_it_is_warm() {
        let (_directory, store) = samples::store();
        note(&store, 1).await;
        store.claim_warm(samples::container(1), 0).await.unwrap();
        for number in [1, 2] {
            let claimed = store.claim_warm(samples::container(number), 0).await;
            assert!(matches!(claimed, Err(StoreError::Failed { .. })));
        }
        assert_eq!(store.active_containers().await.unwrap().len(), 1);
    }

    #[tokio::test]
    async fn a_claim_that_loses_leaves_the_container_warm() {
        let (_directory, store) = samples::store();
        let warm = note(&store, 2).await;
        let named = |number| ContainerRow {
            alias: Some(Alias::parse("box").unwrap()),
            key: Some(Name::parse(&format!("k{number}")).unwrap()),
            ..samples::container(number)
        };
        store.insert_container(named(1), 0).await.unwrap();
        let refused = store.claim_warm(named(2), 0).await;
        assert!(matches!(refused, Err(StoreError::AliasTaken)));
        let again = ContainerRow {
            key: named(1).key,
            ..samples::container(2)
        };
        let before = store.claim_warm(again, 0).await.unwrap();
        assert_eq!(before, ContainerInsert::Existing(Box::new(named(1))));
        let left = store.warm().await.unwrap();
        assert_eq!(left, std::slice::from_ref(&warm));
        store.forget_warm(warm.id.clone()).await.unwrap();
        store.forget_warm(warm.id).await.unwrap();
        assert_eq!(store.warm().await.unwrap(), []);
    }
}
