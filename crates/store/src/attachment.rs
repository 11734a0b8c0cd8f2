//! Attachments: which clients work in a container.

use std::collections::HashMap;

use hotcell_domain::{ContainerId, Name, Principal};
use rusqlite::{Connection, params};

use crate::database::Fault;
use crate::row::{FromRow, RowError, RowReader, all, first, sql_ms};
use crate::{Store, StoreError};

/// A client session that works in a container.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AttachmentRow {
    /// The container it works in.
    pub container: ContainerId,
    /// The client's name, as it reports it.
    pub client_name: Name,
    /// The session, as the client names it.
    pub session_id: Name,
    /// When it attached.
    pub attached_unix_ms: u64,
}

impl Store {
    /// Stores an attachment and returns it; one that exists already stays unchanged. `None` if the
    /// container already has `attachments_max` others.
    pub async fn attach(
        &self,
        row: AttachmentRow,
        attachments_max: usize,
    ) -> Result<Option<AttachmentRow>, StoreError> {
        self.database
            .run("note an attachment", move |database| {
                let transaction = database.write()?;
                if let Some(before) = find(&transaction, &row)? {
                    return Ok(Some(before));
                }
                if count(&transaction, &row.container)? >= attachments_max {
                    return Ok(None);
                }
                insert(&transaction, &row)?;
                transaction.commit()?;
                Ok(Some(row))
            })
            .await
    }

    /// The attachments of a container, oldest first.
    pub async fn attachments(
        &self,
        container: ContainerId,
    ) -> Result<Vec<AttachmentRow>, StoreError> {
        let sql = "SELECT *, container AS id FROM attachments WHERE container = ?
                   ORDER BY attached_unix_ms, client_name, session_id";
        self.database
            .run("list attachments", move |database| {
                let mut statement = database.read().prepare_cached(sql)?;
                all(&mut statement, [container.as_str()])
            })
            .await
    }

    /// The attachments of all active containers of a principal, oldest first per container, in one
    /// query.
    pub async fn attachments_of(
        &self,
        principal: Principal,
    ) -> Result<HashMap<ContainerId, Vec<AttachmentRow>>, StoreError> {
        let sql = "SELECT attachments.*, container AS id
                   FROM containers JOIN attachments ON container = containers.id
                   WHERE principal = ? AND ended_unix_ms IS NULL
                   ORDER BY attached_unix_ms, client_name, session_id";
        let rows = self.database.run("list attachments", move |database| {
            let mut statement = database.read().prepare_cached(sql)?;
            all::<AttachmentRow>(&mut statement, [principal.as_str()])
        });
        let mut by_container: HashMap<_, Vec<_>> = HashMap::new();
        for row in rows.await? {
            let container = row.container.clone();
            by_container.entry(container).or_default().push(row);
        }
        Ok(by_container)
    }
}

fn find(connection: &Connection, row: &AttachmentRow) -> Result<Option<AttachmentRow>, Fault> {
    let sql = "SELECT *, container AS id FROM attachments
               WHERE container = ? AND client_name = ? AND session_id = ?";
    let [container, client, session] = names(row);
    let params = params![container, client, session];
    first(&mut connection.prepare_cached(sql)?, params)
}

fn count(connection: &Connection, container: &ContainerId) -> Result<usize, Fault> {
    let sql = "SELECT count(*) FROM attachments WHERE container = ?";
    let mut statement = connection.prepare_cached(sql)?;
    let count: i64 = statement.query_row([container.as_str()], |row| row.get(0))?;
    Ok(usize::try_from(count).unwrap_or(usize::MAX))
}

fn insert(connection: &Connection, row: &AttachmentRow) -> Result<(), Fault> {
    let sql = "INSERT INTO attachments VALUES (?, ?, ?, ?)";
    let [container, client, session] = names(row);
    let params = params![container, client, session, sql_ms(row.attached_unix_ms)];
    connection.prepare_cached(sql)?.execute(params)?;
    Ok(())
}

fn names(row: &AttachmentRow) -> [&str; 3] {
    [
        row.container.as_str(),
        row.client_name.as_str(),
        row.session_id.as_str(),
    ]
}

impl FromRow for AttachmentRow {
    const TABLE: &'static str = "attachment to container";

    fn from_row(row: &RowReader<'_>) -> Result<Self, RowError> {
        Ok(Self {
            container: row.parsed("container", ContainerId::parse)?,
            client_name: row.parsed("client_name", Name::parse)?,
            session_id: row.parsed("session_id", Name::parse)?,
            attached_unix_ms: row.ms("attached_unix_ms")?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::samples;

    fn attachment(session: &str, unix_ms: u64) -> AttachmentRow {
        AttachmentRow {
            container: samples::container(1).id,
            client_name: Name::parse("client").unwrap(),
            session_id: Name::parse(session).unwrap(),
            attached_unix_ms: unix_ms,
        }
    }

    #[tokio::test]
    async fn attaching_again_answers_the_first_time() {
        let (_directory, store) = samples::store();
        store
            .insert_container(samples::container(1), 0)
            .await
            .unwrap();
        let first = attachment("a", 10);
        assert_eq!(
            store.attach(first.clone(), 2).await.unwrap(),
            Some(first.clone())
        );
        let again = attachment("a", 20);
        assert_eq!(store.attach(again, 2).await.unwrap(), Some(first.clone()));
        let second = attachment("b", 5);
        assert!(store.attach(second.clone(), 2).await.unwrap().is_some());
        let listed = store.attachments(first.container.clone()).await.unwrap();
        assert_eq!(listed, [second, first]);
    }

    #[tokio::test]
    async fn attachments_are_bounded_and_those_that_are_there_stay() {
        let (_directory, store) = samples::store();
        store
            .insert_container(samples::container(1), 0)
            .await
            .unwrap();
        assert!(store.attach(attachment("a", 1), 1).await.unwrap().is_some());
        assert_eq!(store.attach(attachment("b", 1), 1).await.unwrap(), None);
        assert!(store.attach(attachment("a", 2), 1).await.unwrap().is_some());
    }

    #[tokio::test]
    async fn attachments_of_a_principal_are_those_of_its_containers_that_have_not_ended() {
        let (_directory, store) = samples::store();
        let to = |number, session| AttachmentRow {
            container: samples::container(number).id,
            ..attachment(session, number)
        };
        let mut foreign = samples::container(4);
        foreign.principal = Principal::new(Name::parse("somebody").unwrap());
        for row in [1, 2, 3]
            .map(samples::container)
            .into_iter()
            .chain([foreign])
        {
            store.insert_container(row, 0).await.unwrap();
        }
        for (number, session) in [(1, "b"), (1, "a"), (3, "a"), (4, "a")] {
            store.attach(to(number, session), 9).await.unwrap();
        }
        let ended = samples::container(3).id;
        let ended = store.set_container_phase(ended, hotcell_domain::Phase::Stopped, Some(9));
        ended.await.unwrap();
        let found = store.attachments_of(Principal::local()).await.unwrap();
        let expected = [(samples::container(1).id, vec![to(1, "a"), to(1, "b")])];
        assert_eq!(found, HashMap::from(expected));
    }

    #[tokio::test]
    async fn nobody_is_attached_to_a_container_that_is_not_there() {
        let (_directory, store) = samples::store();
        let refused = store.attach(attachment("a", 1), 1).await;
        assert!(matches!(refused, Err(StoreError::Failed { .. })));
    }
}
