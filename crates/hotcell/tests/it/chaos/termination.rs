//! SIGTERM under load: everything that has begun is finished and reported.

use serde_json::json;

use super::caller::{Answer, Caller};
use crate::support::home::Home;

const CALLERS: usize = 4;

/// The answers to one caller: execs, each with its expected output.
type Told = Vec<(String, String)>;

/// Runs commands until the server accepts no more. Each is answered with its whole output.
fn work(home: &Home, caller_number: usize, told: &std::sync::mpsc::Sender<()>) -> Told {
    let mut caller = Caller::connect(home).unwrap();
    let container = caller.ok("spawn", &json!({}))["container_id"].clone();
    let mut done = Told::new();
    for number in 0.. {
        let expected = format!("{caller_number}.{number}\n");
        let script = format!("sleep 0.05; printf '{caller_number}.{number}\\n'");
        let start = json!({ "container_id": container, "cmd": ["sh", "-c", script], "wait_s": 30 });
        match caller.call("exec_start", &start) {
            Answer::Done(ran) => {
                assert_eq!(ran["status"], "succeeded", "{ran}");
                assert_eq!(ran["messages"][0]["data"], expected, "{ran}");
                done.push((ran["exec_id"].as_str().unwrap().to_owned(), expected));
                // The test may have received enough.
                let _ = told.send(());
            }
            Answer::Refused(why) => {
                assert_eq!(why["code"], "unavailable", "{why}");
                return done;
            }
            Answer::Gone => panic!("an exec that had begun was not told"),
        }
    }
    done
}

#[test]
fn a_server_that_is_told_to_stop_under_load_reports_every_exec_that_it_took() {
    let home = Home::new();
    let server = home.serve_with(&["--drain-grace-s", "60"]);
    let (told, heard) = std::sync::mpsc::channel();
    let all: Vec<Told> = std::thread::scope(|scope| {
        let home = &home;
        let callers: Vec<_> = (0..CALLERS)
            .map(|number| {
                let told = told.clone();
                scope.spawn(move || work(home, number, &told))
            })
            .collect();
        for _ in 0..CALLERS * 3 {
            heard.recv_timeout(crate::support::deadline()).unwrap();
        }
        assert!(server.terminate().success());
        callers.into_iter().map(|one| one.join().unwrap()).collect()
    });
    let server = home.serve_with(&["--drain-grace-s", "0"]);
    let mut caller = Caller::connect(&home).unwrap();
    for (exec, expected) in all.iter().flatten() {
        let (output, end) = caller.follow(exec);
        assert_eq!((&output, &end["status"]), (expected, &json!("succeeded")));
    }
    assert!(server.terminate().success());
}
