//! State directories of earlier schemas: today's server migrates them and loses nothing.
//!
//! `fixtures/state-schema-N.tar.gz` is what `hotcell state export` wrote of [`state_copy::sample`] by
//! the last program with schema N. Before a migration is added,
//! `HOTCELL_WRITE_FIXTURE=1 cargo test -p hotcell --test it upgrade::` writes the one of today,
//! and a line in `FIXTURES` has it tested for ever.

#![expect(clippy::unwrap_used, reason = "a test may fail here")]

use std::io::{Read, Write};
use std::path::Path;

use flate2::Compression;
use flate2::read::GzDecoder;
use flate2::write::GzEncoder;
use hotcell_store::SCHEMA;
use serde_json::json;

use crate::state_copy::{agrees, database, demand, demand_session, sample};
use crate::support::home::Home;
use crate::support::mcp::Client;
use crate::support::scratch;

/// The schema, its state, and what [`state_copy::sample`] made then beyond what it always has.
type Fixture = (u32, &'static [u8], fn(&mut Client));

const FIXTURES: [Fixture; 3] = [
    (
        9,
        include_bytes!("../fixtures/state-schema-9.tar.gz"),
        |_| (),
    ),
    (
        10,
        include_bytes!("../fixtures/state-schema-10.tar.gz"),
        demand_session,
    ),
    (
        11,
        include_bytes!("../fixtures/state-schema-11.tar.gz"),
        demand_session,
    ),
];

/// What ended long ago is forgotten, and so are keys: the fixture becomes as old as if it had been
/// made just now.
const SHIFT: &str = "
    CREATE TEMP TABLE shift AS SELECT CAST(unixepoch('subsec') * 1000 AS INTEGER)
        - (SELECT max(ended_unix_ms) FROM containers) AS ms;
    UPDATE containers SET created_unix_ms = created_unix_ms + (SELECT ms FROM shift),
        last_used_unix_ms = last_used_unix_ms + (SELECT ms FROM shift),
        ended_unix_ms = ended_unix_ms + (SELECT ms FROM shift);
    UPDATE execs SET created_unix_ms = created_unix_ms + (SELECT ms FROM shift),
        ended_unix_ms = ended_unix_ms + (SELECT ms FROM shift);
    DROP TABLE shift;";

#[test]
fn a_state_of_every_schema_that_was_kept_is_migrated_and_nothing_of_it_is_lost() {
    for (schema, fixture, more) in FIXTURES {
        let place = scratch();
        let copy = place.path().join("copy.tar");
        let mut plain = Vec::new();
        GzDecoder::new(fixture).read_to_end(&mut plain).unwrap();
        std::fs::write(&copy, plain).unwrap();
        let home = Home::new();
        let ran = home.run(&["state", "import", copy.to_str().unwrap()]);
        assert!(ran.status.success(), "schema {schema}: {ran:?}");
        assert_eq!(version(home.path()), schema);
        database(home.path()).execute_batch(SHIFT).unwrap();
        demand(&home, more);
        assert_eq!(version(home.path()), SCHEMA);
    }
}

fn version(state: &Path) -> u32 {
    let read = |row: &rusqlite::Row<'_>| row.get(0);
    let connection = database(state);
    connection
        .query_row("PRAGMA user_version", [], read)
        .unwrap()
}

#[test]
fn there_is_a_state_of_every_schema_before_this_one() {
    let kept = FIXTURES.map(|(schema, ..)| schema);
    let first = kept[0];
    for schema in first..SCHEMA {
        assert!(
            kept.contains(&schema),
            "write the fixture of schema {schema} with the program that had it: see above"
        );
    }
}

#[test]
fn the_state_of_this_schema_can_become_a_fixture() {
    let (home, place) = (Home::new(), scratch());
    let copy = place.path().join("copy.tar");
    let server = home.serve_with(&["--drain-grace-s", "0", "--warm", "0"]);
    let mut client = server.client();
    sample(&home, &mut client);
    let ran = home.run(&["state", "export", copy.to_str().unwrap()]);
    assert!(ran.status.success(), "{ran:?}");
    client.ok("kill", json!({ "container_id": "living", "force": true }));
    assert!(server.terminate().success());
    agrees(&home);
    let mut encoder = GzEncoder::new(Vec::new(), Compression::best());
    encoder.write_all(&std::fs::read(copy).unwrap()).unwrap();
    let fixture = encoder.finish().unwrap();
    // It is kept in the repository.
    assert!(fixture.len() < 32 << 10, "{} bytes", fixture.len());
    if std::env::var_os("HOTCELL_WRITE_FIXTURE").is_some() {
        let name = format!("tests/fixtures/state-schema-{SCHEMA}.tar.gz");
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(name);
        std::fs::write(path, fixture).unwrap();
    }
}
