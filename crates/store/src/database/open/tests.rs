use std::fs;

use super::*;

/// All files of a directory with their content.
fn contents(directory: &Path) -> Vec<(PathBuf, Vec<u8>)> {
    let mut files: Vec<_> = ["hotcell.db", "hotcell.db-wal"]
        .map(|name| directory.join(name))
        .into_iter()
        .filter(|path| path.exists())
        .map(|path| (path.clone(), fs::read(path).unwrap()))
        .collect();
    files.sort();
    files
}

/// Opening fails and changes nothing.
fn refused(directory: &Path) -> OpenError {
    let before = contents(directory);
    let error = open(directory).err().expect("it must be refused");
    let after = contents(directory);
    let kept = before.iter().all(|file| after.contains(file));
    assert!(kept, "a refused database was changed");
    error
}

/// A database with a non-empty write-ahead log, as after a kill.
fn left_by_a_kill(directory: &Path, sql: &str) {
    drop(open(directory).unwrap());
    let connection = connect(&directory.join(FILE_NAME)).unwrap();
    connection.execute_batch(sql).unwrap();
    drop(connection);
    assert!(size(&directory.join("hotcell.db-wal")) > 0);
}

#[test]
fn what_is_not_a_database_is_damaged_and_stays_as_it_is() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join(FILE_NAME);
    for bytes in [&b"x"[..], &[0; 4096], &[0xff; 10_000], b"SQLite format 3\0"] {
        fs::write(&path, bytes).unwrap();
        fs::write(directory.path().join("hotcell.db-wal"), [7; 5000]).unwrap();
        let error = refused(directory.path());
        assert!(matches!(error, OpenError::Damaged { .. }), "{error:?}");
    }
}

#[test]
fn a_damaged_page_is_found_and_nothing_is_changed() {
    let directory = tempfile::tempdir().unwrap();
    drop(open(directory.path()).unwrap());
    let path = directory.path().join(FILE_NAME);
    let good = fs::read(&path).unwrap();
    for page in 0..good.len() / 4096 {
        let mut bad = good.clone();
        bad[page * 4096 + 100 * usize::from(page == 0)..(page + 1) * 4096].fill(0x5a);
        fs::write(&path, bad).unwrap();
        let error = refused(directory.path());
        assert!(
            matches!(error, OpenError::Damaged { .. }),
            "page {page}: {error:?}"
        );
    }
    let half = good.len() / 2 / 4096 * 4096;
    fs::write(&path, &good[..half]).unwrap();
    assert!(matches!(
        refused(directory.path()),
        OpenError::Damaged { .. }
    ));
}

#[test]
fn a_newer_database_is_left_to_its_program() {
    let directory = tempfile::tempdir().unwrap();
    left_by_a_kill(directory.path(), "PRAGMA user_version = 99");
    let error = refused(directory.path());
    assert!(matches!(
        error,
        OpenError::Newer {
            found: 99,
            known: schema::KNOWN,
            ..
        }
    ));
    assert!(size(&directory.path().join("hotcell.db-wal")) > 0);
}

#[test]
fn the_database_of_another_program_is_not_taken() {
    let directory = tempfile::tempdir().unwrap();
    let connection = Connection::open(directory.path().join(FILE_NAME)).unwrap();
    connection
        .execute_batch("CREATE TABLE theirs (id)")
        .unwrap();
    drop(connection);
    assert!(matches!(
        refused(directory.path()),
        OpenError::Damaged { .. }
    ));
}

#[test]
fn a_log_whose_database_is_gone_is_not_thrown_away() {
    let directory = tempfile::tempdir().unwrap();
    left_by_a_kill(
        directory.path(),
        "INSERT INTO execs VALUES ('a','b','c',NULL,'','',1,NULL,NULL,0,0)",
    );
    let path = directory.path().join(FILE_NAME);
    fs::remove_file(&path).unwrap();
    let wal = directory.path().join("hotcell.db-wal");
    let is_wal = |error| matches!(error, OpenError::Damaged { path, .. } if path == wal);
    assert!(is_wal(refused(directory.path())));
    fs::write(&path, "").unwrap();
    assert!(is_wal(refused(directory.path())));
}

#[test]
fn an_empty_file_becomes_a_database() {
    let directory = tempfile::tempdir().unwrap();
    fs::write(directory.path().join(FILE_NAME), "").unwrap();
    let database = open(directory.path()).unwrap();
    assert_eq!(schema::version(database.read()).unwrap(), schema::KNOWN);
}

#[test]
fn what_a_kill_left_in_the_log_is_there() {
    let directory = tempfile::tempdir().unwrap();
    let row = "INSERT INTO execs VALUES ('a','b','c',NULL,'','',1,NULL,NULL,0,0)";
    left_by_a_kill(directory.path(), row);
    let database = open(directory.path()).unwrap();
    let count = "SELECT count(*) FROM execs";
    let count: u32 = database
        .read()
        .query_row(count, [], |row| row.get(0))
        .unwrap();
    assert_eq!(count, 1);
}

#[test]
fn a_directory_that_cannot_be_written_is_named() {
    let error = open(Path::new("/proc/self")).err().unwrap();
    assert!(matches!(error, OpenError::Io { .. }), "{error:?}");
    assert!(error.to_string().contains("/proc/self"), "{error}");
}
