//! Migrations, numbered.
//!
//! A released migration is never changed. The database's `user_version` is the number of migrations
//! it has had. A new database begins with a snapshot of the schema that some of them lead to, which
//! takes a third of their time: `hotcell run` makes one each time.

use rusqlite::{Connection, TransactionBehavior};

const STEPS: [&str; 12] = [
    include_str!("../../migrations/0001.sql"),
    include_str!("../../migrations/0002.sql"),
    include_str!("../../migrations/0003.sql"),
    include_str!("../../migrations/0004.sql"),
    include_str!("../../migrations/0005.sql"),
    include_str!("../../migrations/0006.sql"),
    include_str!("../../migrations/0007.sql"),
    include_str!("../../migrations/0008.sql"),
    include_str!("../../migrations/0009.sql"),
    include_str!("../../migrations/0010.sql"),
    include_str!("../../migrations/0011.sql"),
    include_str!("../../migrations/0012.sql"),
];

/// The schema after the first [`SNAPSHOT_STEPS`] migrations. It may be older than the newest one.
const SNAPSHOT: &str = include_str!("../../migrations/snapshot.sql");
const SNAPSHOT_STEPS: u32 = 9;

#[expect(clippy::cast_possible_truncation, reason = "it is a short list")]
pub(crate) const KNOWN: u32 = STEPS.len() as u32;

/// The schema version of a database; 0 has no tables.
pub(crate) fn version(connection: &Connection) -> rusqlite::Result<u32> {
    connection.query_row("PRAGMA user_version", [], |row| row.get(0))
}

/// Applies the missing migrations, each in its own transaction.
pub(super) fn migrate(connection: &mut Connection) -> rusqlite::Result<()> {
    if version(connection)? == 0 {
        apply(connection, SNAPSHOT, SNAPSHOT_STEPS)?;
    }
    migrate_by(connection, &STEPS)
}

fn migrate_by(connection: &mut Connection, steps: &[&str]) -> rusqlite::Result<()> {
    let taken = version(connection)?;
    for (number, step) in (1_u32..).zip(steps).filter(|(number, _)| *number > taken) {
        apply(connection, step, number)?;
    }
    Ok(())
}

/// Runs a step that leads to the schema version `number`, all of it or nothing.
fn apply(connection: &mut Connection, step: &str, number: u32) -> rusqlite::Result<()> {
    let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
    transaction.execute_batch(step)?;
    transaction.pragma_update(None, "user_version", number)?;
    transaction.commit()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn schema(connection: &Connection) -> Vec<Option<String>> {
        let mut statement = connection
            .prepare("SELECT sql FROM sqlite_schema ORDER BY name")
            .unwrap();
        let rows = statement.query_map([], |row| row.get(0)).unwrap();
        rows.map(Result::unwrap).collect()
    }

    #[test]
    fn the_snapshot_is_what_the_migrations_before_it_make() {
        let count = SNAPSHOT_STEPS as usize;
        let mut migrated = Connection::open_in_memory().unwrap();
        migrate_by(&mut migrated, &STEPS[..count]).unwrap();
        let mut begun = Connection::open_in_memory().unwrap();
        apply(&mut begun, SNAPSHOT, SNAPSHOT_STEPS).unwrap();
        assert_eq!(schema(&begun), schema(&migrated));
        assert_eq!(version(&begun).unwrap(), version(&migrated).unwrap());
    }

    #[test]
    fn every_version_becomes_the_newest() {
        let mut fresh = Connection::open_in_memory().unwrap();
        migrate(&mut fresh).unwrap();
        for from in 1..=STEPS.len() {
            let mut old = Connection::open_in_memory().unwrap();
            migrate_by(&mut old, &STEPS[..from]).unwrap();
            assert_eq!(version(&old).unwrap() as usize, from);
            migrate(&mut old).unwrap();
            migrate(&mut old).unwrap();
            assert_eq!(version(&old).unwrap(), KNOWN);
            assert_eq!(schema(&old), schema(&fresh));
        }
    }

    #[test]
    fn a_row_from_before_the_place_of_its_engine_was_noted_has_none() {
        let mut old = Connection::open_in_memory().unwrap();
        migrate_by(&mut old, &STEPS[..4]).unwrap();
        old.execute("INSERT INTO warm VALUES ('a', 1, 'docker')", [])
            .unwrap();
        migrate(&mut old).unwrap();
        let read = |row: &rusqlite::Row<'_>| Ok((row.get(0)?, row.get(1)?));
        let engine: (String, Option<String>) = old
            .query_row("SELECT engine, engine_host FROM warm", [], read)
            .unwrap();
        assert_eq!(engine, ("docker".to_owned(), None));
    }

    #[test]
    fn what_has_ended_before_it_was_counted_is_counted() {
        let mut old = Connection::open_in_memory().unwrap();
        migrate_by(&mut old, &STEPS[..7]).unwrap();
        let exec = "INSERT INTO execs VALUES (?, 'c', ?, NULL, '', NULL, 1, ?, NULL, 0)";
        for (id, principal, ended) in [("a", "x", Some(1)), ("b", "x", None), ("c", "y", Some(1))] {
            old.execute(exec, (id, principal, ended)).unwrap();
        }
        migrate(&mut old).unwrap();
        let count = |principal: &str| -> i64 {
            let sql = "SELECT execs FROM ended WHERE principal = ?";
            old.query_row(sql, [principal], |row| row.get(0)).unwrap()
        };
        assert_eq!((count("x"), count("y")), (1, 1));
        old.execute("UPDATE execs SET ended_unix_ms = 2 WHERE id = 'b'", [])
            .unwrap();
        assert_eq!(count("x"), 2);
    }

    #[test]
    fn a_step_that_fails_leaves_the_database_where_it_was() {
        let steps = [
            STEPS[0],
            "ALTER TABLE execs ADD COLUMN extra TEXT",
            "CREATE TABLE more (id TEXT); SELECT * FROM nowhere",
        ];
        let mut connection = Connection::open_in_memory().unwrap();
        assert!(migrate_by(&mut connection, &steps).is_err());
        assert_eq!(version(&connection).unwrap(), 2);
        assert!(
            !schema(&connection)
                .iter()
                .flatten()
                .any(|sql| sql.contains("more"))
        );
    }

    #[test]
    fn variables_move_out_of_the_spec_and_those_of_what_has_ended_are_forgotten() {
        let mut connection = Connection::open_in_memory().unwrap();
        migrate_by(&mut connection, &STEPS[..4]).unwrap();
        let insert = "INSERT INTO containers VALUES (?, '', NULL, ?, NULL, '', '', 0, NULL, '', 0, 0, NULL, ?, 0)";
        let spec = r#"{"image":"host","env":{"TOKEN":"a \"b\""},"pids":1}"#;
        let ended = Some(9);
        for (id, spec, ended) in [("a", spec, None), ("b", spec, ended), ("c", "{", None)] {
            connection.execute(insert, (id, spec, ended)).unwrap();
        }
        migrate(&mut connection).unwrap();
        let mut statement = connection
            .prepare("SELECT spec, env FROM containers ORDER BY id")
            .unwrap();
        let rows = statement.query_map([], |row| Ok((row.get(0)?, row.get(1)?)));
        let rows: Vec<(String, Option<String>)> = rows.unwrap().map(Result::unwrap).collect();
        let plain = r#"{"image":"host","pids":1}"#.to_owned();
        let variables = r#"{"TOKEN":"a \"b\""}"#.to_owned();
        let expected = [
            (plain.clone(), Some(variables)),
            (plain, None),
            ("{".to_owned(), None),
        ];
        assert_eq!(rows, expected);
    }
}
