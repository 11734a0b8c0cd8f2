//! `hotcell state export` and `import`: a copy taken while the server works becomes a state
//! directory, all of it or nothing.

#![expect(clippy::unwrap_used, reason = "a test may fail here")]

use std::io::Read;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use serde_json::{Value, json};

use crate::support::home::Home;
use crate::support::mcp::Client;
use crate::support::scratch;

/// What the exec of a sample wrote.
const OUTPUT: &str = "one\ntwö\n";

/// Makes containers, an exec with output, keys, a session, a token and events.
pub(crate) fn sample(home: &Home, client: &mut Client) {
    let spawn = json!({ "alias": "ended", "idempotency_key": "key-of-ended" });
    client.ok("spawn", spawn);
    client.ok("spawn", json!({ "alias": "living", "persistent": true }));
    let script = "printf 'one\\ntwö\\n'";
    let run = json!({ "container_id": "ended", "cmd": ["sh", "-c", script], "wait_s": 30,
        "idempotency_key": "key-of-exec" });
    client.ok("exec_start", run);
    client.ok("kill", json!({ "container_id": "ended", "force": true }));
    client.ok("execute_code", snippet());
    let added = home.run(&["token", "add", "ci"]);
    assert!(added.status.success(), "{added:?}");
}

fn snippet() -> Value {
    json!({ "session": "notes", "language": "sh", "code": "echo kept" })
}

/// Demands that the session of a sample is remembered, though its container is gone.
pub(crate) fn demand_session(client: &mut Client) {
    let ran = client.ok("execute_code", snippet());
    assert_eq!(ran["session_is_new"], true, "{ran}");
    let note = ran["note"].as_str().unwrap_or_default();
    assert!(note.contains("session notes had ended"), "{ran}");
}

/// Serves a state that was restored and finds everything in it, and what else `more` asks for.
pub(crate) fn demand(home: &Home, more: fn(&mut Client)) {
    let server = home.serve_with(&["--drain-grace-s", "0"]);
    let mut client = server.client();
    let listed = client.ok("list_containers", json!({ "include_stopped": true }));
    let named = |alias: &str| -> Value {
        let all = listed["containers"].as_array().unwrap().iter();
        let mut named = all.filter(|one| one["alias"] == alias);
        named
            .next()
            .unwrap_or_else(|| panic!("{alias}: {listed}"))
            .clone()
    };
    assert_eq!(named("ended")["status"], "stopped");
    // No engine has it any more.
    assert_eq!(named("living")["status"], "failed");
    let id: String = database(home.path())
        .query_row(
            "SELECT id FROM execs WHERE key = 'key-of-exec'",
            [],
            |row| row.get(0),
        )
        .unwrap();
    let exec = json!(id);
    let mut text = String::new();
    let end = client.follow(&exec, |message| {
        text.push_str(message["data"].as_str().unwrap());
    });
    assert_eq!(
        (text.as_str(), &end["status"]),
        (OUTPUT, &json!("succeeded"))
    );
    // Its key leads to the container that ended, and to no new one.
    let spawn = json!({ "alias": "ended", "idempotency_key": "key-of-ended" });
    let again = client.ok("spawn", spawn);
    assert_eq!(again["container_id"], named("ended")["container_id"]);
    let tokens = home.run(&["token", "list", "--json"]);
    assert!(String::from_utf8_lossy(&tokens.stdout).contains("ci"));
    let events = home.run(&["audit", "query", "--json", "--target", &id]);
    assert!(String::from_utf8_lossy(&events.stdout).contains("EXEC_COMPLETE"));
    more(&mut client);
    agrees(home);
    assert!(server.terminate().success());
    agrees(home);
}

/// Rows, logs, audit log and engine agree.
pub(crate) fn agrees(home: &Home) {
    for words in [["state", "check"], ["audit", "verify"]] {
        let ran = home.run(&words);
        let said = String::from_utf8_lossy(&ran.stdout).into_owned();
        assert!(ran.status.success(), "{words:?}: {said}");
    }
}

pub(crate) fn database(state: &Path) -> rusqlite::Connection {
    rusqlite::Connection::open(state.join("hotcell.db")).unwrap()
}

fn export(home: &Home, to: &Path) {
    let ran = home.run(&["state", "export", to.to_str().unwrap()]);
    assert!(ran.status.success(), "{ran:?}");
}

fn import_refused(home: &Home, from: &Path) -> String {
    let ran = home.run(&["state", "import", from.to_str().unwrap()]);
    let said = String::from_utf8(ran.stderr).unwrap();
    assert_eq!(ran.status.code(), Some(1), "{said}");
    said
}

fn restored(from: &Path) -> Home {
    let home = Home::new();
    let ran = home.run(&["state", "import", from.to_str().unwrap()]);
    assert!(ran.status.success(), "{ran:?}");
    home
}

#[test]
fn a_copy_of_a_server_at_work_is_a_state_directory_with_everything_in_it() {
    let (home, place) = (Home::new(), scratch());
    let copy = place.path().join("copy.tar");
    let server = home.serve_with(&["--drain-grace-s", "0", "--audit-segment-bytes", "4k"]);
    let mut client = server.client();
    sample(&home, &mut client);
    // An exec writes while it is copied.
    let script = "i=0; while :; do echo $i; i=$((i+1)); done";
    let run = json!({ "container_id": "living", "cmd": ["sh", "-c", script] });
    client.ok("exec_start", run);
    export(&home, &copy);
    let mode = copy.metadata().unwrap().permissions().mode() & 0o777;
    assert_eq!(mode, 0o600);
    let left: Vec<_> = place.path().read_dir().unwrap().flatten().collect();
    assert_eq!(left.len(), 1, "{left:?}");
    let again = home.run(&["state", "export", copy.to_str().unwrap()]);
    let said = String::from_utf8(again.stderr).unwrap();
    assert!(said.contains("exists already"), "{said}");
    client.ok("kill", json!({ "container_id": "living", "force": true }));
    assert!(server.terminate().success());
    agrees(&home);

    let restored = restored(&copy);
    demand(&restored, demand_session);
}

#[test]
fn a_copy_without_a_server_is_the_same() {
    let (home, place) = (Home::new(), scratch());
    let server = home.serve_with(&["--drain-grace-s", "0"]);
    sample(&home, &mut server.client());
    assert!(server.terminate().success());
    let copy = place.path().join("copy.tar");
    export(&home, &copy);
    demand(&restored(&copy), demand_session);
    let server = home.serve();
    server
        .client()
        .ok("kill", json!({ "container_id": "living" }));
    assert!(server.terminate().success());
}

#[test]
fn a_copy_on_stdout_is_the_same_and_says_what_is_not_in_it() {
    let (home, place) = (Home::new(), scratch());
    let server = home.serve_with(&["--drain-grace-s", "0"]);
    let mut client = server.client();
    sample(&home, &mut client);
    let ran = home.run(&["state", "export", "-"]);
    assert!(ran.status.success(), "{ran:?}");
    let said = String::from_utf8(ran.stderr).unwrap();
    assert!(said.contains("workspaces and images are not in"), "{said}");
    client.ok("kill", json!({ "container_id": "living", "force": true }));
    assert!(server.terminate().success());
    let copy = place.path().join("copy.tar");
    std::fs::write(&copy, &ran.stdout[..ran.stdout.len() / 2]).unwrap();
    import_refused(&Home::new(), &copy);
    std::fs::write(&copy, &ran.stdout).unwrap();
    demand(&restored(&copy), demand_session);
}

#[test]
fn a_state_directory_in_use_is_never_replaced() {
    let (home, place) = (Home::new(), scratch());
    let copy = place.path().join("copy.tar");
    let server = home.serve_with(&["--drain-grace-s", "0", "--warm", "0"]);
    export(&home, &copy);
    let said = import_refused(&home, &copy);
    assert!(said.contains("not empty"), "{said}");
    server.client().ok("list_containers", json!({}));
    assert!(server.terminate().success());
    let said = import_refused(&home, &copy);
    assert!(said.contains("aside"), "{said}");
}

/// Changes an archive: each file is given to `change`, which answers what comes in its place.
fn altered(
    copy: &Path,
    to: PathBuf,
    mut change: impl FnMut(&str, Vec<u8>) -> Vec<(String, Vec<u8>)>,
) -> PathBuf {
    let mut archive = tar::Archive::new(std::fs::File::open(copy).unwrap());
    let mut builder = tar::Builder::new(std::fs::File::create(&to).unwrap());
    for entry in archive.entries().unwrap() {
        let mut entry = entry.unwrap();
        let name = entry.path().unwrap().to_str().unwrap().to_owned();
        let mut data = Vec::new();
        entry.read_to_end(&mut data).unwrap();
        for (name, data) in change(&name, data) {
            let mut header = tar::Header::new_ustar();
            header.set_size(data.len() as u64);
            header.set_mode(0o600);
            // As it stands: the crate would refuse some of these names.
            let raw = name.as_bytes();
            header.as_mut_bytes()[..raw.len()].copy_from_slice(raw);
            header.set_cksum();
            builder.append(&header, data.as_slice()).unwrap();
        }
    }
    builder.finish().unwrap();
    to
}

#[test]
fn a_copy_that_is_damaged_incomplete_or_hostile_is_refused_and_nothing_is_written() {
    type Change = fn(&str, Vec<u8>) -> Vec<(String, Vec<u8>)>;
    let (home, place) = (Home::new(), scratch());
    let server = home.serve_with(&["--drain-grace-s", "0", "--warm", "0"]);
    let mut client = server.client();
    sample(&home, &mut client);
    let copy = place.path().join("copy.tar");
    export(&home, &copy);
    client.ok("kill", json!({ "container_id": "living", "force": true }));
    assert!(server.terminate().success());
    let cases: [(&str, Change); 8] = [
        ("damaged", |name, mut data| {
            if name == "hotcell.db" {
                data[5000] ^= 1;
            }
            vec![(name.to_owned(), data)]
        }),
        ("is missing", |name, data| {
            let is_log = name.starts_with("logs/");
            if is_log {
                Vec::new()
            } else {
                vec![(name.to_owned(), data)]
            }
        }),
        ("no manifest", |name, data| {
            let is_it = name == "manifest.json";
            if is_it {
                Vec::new()
            } else {
                vec![(name.to_owned(), data)]
            }
        }),
        ("does not belong", |name, data| {
            let more = ("../../evil".to_owned(), b"evil".to_vec());
            vec![more, (name.to_owned(), data)]
        }),
        ("does not belong", |name, data| {
            let more = ("hotcell.sock".to_owned(), b"evil".to_vec());
            vec![more, (name.to_owned(), data)]
        }),
        ("twice", |name, data| {
            let one = (name.to_owned(), data);
            if name == "hotcell.db" {
                vec![one.clone(), one]
            } else {
                vec![one]
            }
        }),
        ("newer Hotcell", |name, mut data| {
            if name == "manifest.json" {
                let mut manifest: Value = serde_json::from_slice(&data).unwrap();
                manifest["schema"] = json!(9999);
                data = manifest.to_string().into_bytes();
            }
            vec![(name.to_owned(), data)]
        }),
        ("does not know", |name, data| {
            let mut all = vec![(name.to_owned(), data.clone())];
            if name.starts_with("logs/") {
                all.push((name.replace(".head", ".tail1"), data));
            }
            all
        }),
    ];
    let empty = Home::new();
    let parent = empty.path().parent().unwrap();
    let before = parent.read_dir().unwrap().count();
    for (number, (words, change)) in cases.into_iter().enumerate() {
        let altered = altered(&copy, place.path().join(format!("{number}.tar")), change);
        let said = import_refused(&empty, &altered);
        assert!(said.contains(words), "{words}: {said}");
        assert_eq!(empty.path().read_dir().unwrap().count(), 0, "{words}");
    }
    let garbage = place.path().join("garbage");
    std::fs::write(&garbage, vec![7; 100_000]).unwrap();
    import_refused(&empty, &garbage);
    let is_staging =
        |entry: &std::fs::DirEntry| entry.path().display().to_string().contains(".import-");
    let staged = parent
        .read_dir()
        .unwrap()
        .flatten()
        .filter(is_staging)
        .count();
    assert_eq!((staged, before > 0), (0, true));
    // The copy itself is good.
    let ran = empty.run(&["state", "import", copy.to_str().unwrap()]);
    assert!(ran.status.success(), "{ran:?}");
    demand(&empty, demand_session);
}

#[test]
fn a_check_names_what_disagrees_and_the_next_server_settles_it() {
    let home = Home::new();
    let server = home.serve_with(&["--drain-grace-s", "0", "--warm", "0"]);
    let mut client = server.client();
    let id = client.ok("spawn", json!({ "persistent": true }))["container_id"].clone();
    agrees(&home);
    server.kill();
    agrees(&home);
    // The container goes, and another workspace is there, which belongs to nobody.
    let id = hotcell_domain::ContainerId::parse(id.as_str().unwrap()).unwrap();
    let engine = crate::support::engine(&home.engine_home());
    let runtime = tokio::runtime::Runtime::new().unwrap();
    runtime
        .block_on(hotcell_engine::Engine::destroy(&engine, &id))
        .unwrap();
    drop(engine);
    let node = crate::support::new_id().as_str().replacen("c_", "n_", 1);
    std::fs::create_dir_all(home.path().join("tree").join(&node)).unwrap();
    std::fs::write(home.path().join("tokens.json"), "{").unwrap();
    let ran = home.run(&["state", "check", "--json"]);
    assert_eq!(ran.status.code(), Some(1), "{ran:?}");
    let said: Value = serde_json::from_slice(&ran.stdout).unwrap();
    let found = |index: usize| {
        let one = &said["differences"][index];
        assert!(one["fix"].as_str().unwrap().len() > 10, "{one}");
        (
            one["kind"].as_str().unwrap(),
            one["subject"].as_str().unwrap(),
        )
    };
    assert_eq!(found(0), ("container_missing", id.as_str()));
    assert_eq!(found(1), ("workspace_unowned", node.as_str()));
    assert_eq!(found(2), ("tokens_unreadable", "tokens.json"));
    assert_eq!(said["differences"].as_array().unwrap().len(), 3, "{said}");
    let text = String::from_utf8(home.run(&["state", "check"]).stdout).unwrap();
    assert!(
        text.contains("3 differences") && text.contains("→ start"),
        "{text}"
    );

    std::fs::remove_file(home.path().join("tokens.json")).unwrap();
    let server = home.serve_with(&["--drain-grace-s", "0"]);
    agrees(&home);
    assert!(server.terminate().success());
    agrees(&home);
    let nowhere = home.run(&["state", "check", "--state-dir", "/nonexistent"]);
    assert_eq!(nowhere.status.code(), Some(1));
}
