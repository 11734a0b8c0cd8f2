//! The server is killed, as by a power cut of its own, and the next one goes on from where it was.
//! What must be true whenever it dies, under load, is in `chaos`.

#![expect(clippy::unwrap_used, reason = "a test may fail here")]

use std::time::Duration;

use hotcell_domain::ContainerId;
use rustix::process::Signal;
use serde_json::{Value, json};

use crate::crash::moment::Moments;
use crate::support::mcp::Client;
use crate::support::server::Server;
use crate::support::{self, home::Home};

fn serve(home: &Home) -> Server {
    home.serve_with(&["--drain-grace-s", "0"])
}

/// All output of an exec to its end, and the last answer.
fn follow(client: &mut Client, exec: &Value) -> (String, Value) {
    let mut text = String::new();
    let end = client.follow(exec, |message| {
        text.push_str(message["data"].as_str().unwrap());
    });
    (text, end)
}

fn parsed(id: &Value) -> ContainerId {
    ContainerId::parse(id.as_str().unwrap()).unwrap()
}

/// Checks that every listed container answers, kills them all and checks that nothing is left.
fn end(home: &Home, server: Server) {
    let ids = home.containers();
    let mut client = server.client();
    let listed = client.ok("list_containers", json!({}));
    for container in listed["containers"].as_array().unwrap() {
        let id = &container["container_id"];
        client.ok("fs_list", json!({ "container_id": id, "path": "." }));
        client.ok("kill", json!({ "container_id": id, "force": true }));
        let left = support::leftovers(&parsed(id), &home.engine_home());
        assert_eq!(left, [] as [String; 0]);
    }
    // Only warm containers may be left.
    assert!(server.terminate().success());
    home.assert_empty(&ids);
}

#[test]
fn a_spawn_that_was_answered_is_there_after_a_crash() {
    let home = Home::new();
    let server = serve(&home);
    let made = server.client().ok("spawn", json!({ "alias": "answered" }));
    server.kill();
    let server = serve(&home);
    let listed = server.client().ok("list_containers", json!({}));
    assert_eq!(
        listed["containers"][0]["container_id"],
        made["container_id"]
    );
    assert_eq!(listed["containers"][0]["alias"], "answered");
    end(&home, server);
}

#[test]
fn killed_in_the_middle_of_output_it_loses_and_repeats_no_byte() {
    let home = Home::new();
    let server = serve(&home);
    let mut client = server.client();
    client.ok("spawn", json!({ "alias": "cell" }));
    // Characters of two bytes, so that some are cut.
    let script = "i=0; while [ $i -lt 40000 ]; do echo \"é$i\"; i=$((i+1)); done";
    let run = json!({ "container_id": "cell", "cmd": ["sh", "-c", script] });
    let exec = client.ok("exec_start", run)["exec_id"].clone();
    let mut server = Some(server);
    let mut moments = Moments::of(7);
    for _ in 0..6 {
        // A moment that is not known before is the point here: there is no event to wait for.
        std::thread::sleep(Duration::from_micros(moments.below(40_000)));
        server.take().unwrap().kill();
        server = Some(serve(&home));
    }
    let server = server.unwrap();
    let (text, last) = follow(&mut server.client(), &exec);
    let expected = (0..40_000)
        .map(|number| format!("é{number}\n"))
        .collect::<Vec<_>>()
        .concat();
    assert!(
        text == expected,
        "{} and {} bytes",
        text.len(),
        expected.len()
    );
    assert_eq!(last["status"], "succeeded", "{last}");
    end(&home, server);
}

#[test]
fn queued_execs_run_after_a_crash_in_their_order() {
    let home = Home::new();
    let server = home.serve_with(&["--execs-running-max", "1"]);
    let mut client = server.client();
    client.ok("spawn", json!({ "alias": "cell" }));
    let gate = json!({ "container_id": "cell", "cmd": ["sh", "-c", "until [ -e go ]; do sleep 0.01; done"] });
    client.ok("exec_start", gate);
    let mut queued = Vec::new();
    for number in 0..5 {
        let run = json!({ "container_id": "cell", "cmd": ["sh", "-c", format!("echo {number} >> order")] });
        let started = client.ok("exec_start", run);
        assert_eq!(started["status"], "queued");
        queued.push(started["exec_id"].clone());
    }
    server.kill();
    let server = home.serve_with(&["--execs-running-max", "1", "--drain-grace-s", "0"]);
    let mut client = server.client();
    client.ok(
        "fs_write",
        json!({ "container_id": "cell", "path": "go", "content": "" }),
    );
    for exec in &queued {
        let (_, end) = follow(&mut client, exec);
        assert_eq!(end["status"], "succeeded", "{end}");
    }
    let order = client.ok(
        "fs_read",
        json!({ "container_id": "cell", "path": "order" }),
    );
    assert_eq!(order["content"], "0\n1\n2\n3\n4\n");
    end(&home, server);
}

#[test]
fn an_exec_that_ends_while_no_server_runs_is_known_to_the_next() {
    let home = Home::new();
    let server = serve(&home);
    let mut client = server.client();
    let id = client.ok("spawn", json!({ "alias": "cell" }))["container_id"].clone();
    let script = "until [ -e go ]; do sleep 0.01; done; echo told; exit 3";
    let run = json!({ "container_id": "cell", "cmd": ["sh", "-c", script] });
    let exec = client.ok("exec_start", run)["exec_id"].clone();
    let second =
        json!({ "container_id": "cell", "cmd": ["sh", "-c", "echo on; sleep 0.2; touch go"] });
    let second = client.ok("exec_start", second)["exec_id"].clone();
    client.ok("exec_poll", json!({ "exec_id": second, "wait_s": 30 }));
    server.kill();
    let go = support::workspace(&home.engine_home(), &parsed(&id)).join("go");
    support::wait_until("the exec may go on", || go.exists());
    let server = serve(&home);
    let (text, last) = follow(&mut server.client(), &exec);
    assert_eq!(
        (text.as_str(), &last["exit_code"], &last["status"]),
        ("told\n", &json!(3), &json!("failed"))
    );
    end(&home, server);
}

/// Removes a container behind the back of all servers.
fn destroy(home: &Home, id: &Value) {
    let engine = support::engine(&home.engine_home());
    let runtime = tokio::runtime::Runtime::new().unwrap();
    runtime
        .block_on(hotcell_engine::Engine::destroy(&engine, &parsed(id)))
        .unwrap();
}

/// Starts a command that runs longer than its call; returns the task.
fn begin(client: &mut Client, container: &str, script: &str) -> Value {
    let cmd = ["sh", "-c", script];
    let run = json!({ "container_id": container, "cmd": cmd, "wait_s": 50 });
    let task = client.call("exec_start", run);
    assert_eq!(
        (&task["resultType"], &task["status"]),
        (&json!("task"), &json!("working"))
    );
    task["taskId"].clone()
}

fn task(client: &mut Client, id: &Value) -> Value {
    let asked = json!({ "taskId": id });
    client.request("tasks/get", asked).expect("it is known")
}

/// A task, once it has ended.
fn ended(client: &mut Client, id: &Value) -> Value {
    let mut last = Value::Null;
    support::wait_until("the task ends", || {
        last = task(client, id);
        last["status"] != "working"
    });
    last
}

#[test]
fn tasks_of_a_killed_server_are_those_of_the_next() {
    let home = Home::new();
    let server = serve(&home);
    let mut client = Client::taking_tasks(&server.url);
    client.ok("spawn", json!({ "alias": "cell" }));
    let doomed = client.ok("spawn", json!({ "alias": "doomed" }))["container_id"].clone();
    let script = "until [ -e go ]; do sleep 0.01; done; echo late; exit 4";
    let finished = begin(&mut client, "cell", script);
    let cancelled = begin(&mut client, "cell", "sleep 1000");
    let lost = begin(&mut client, "doomed", "sleep 1000");
    server.kill();
    destroy(&home, &doomed);

    let server = serve(&home);
    let mut client = Client::taking_tasks(&server.url);
    for id in [&finished, &cancelled] {
        assert_eq!(task(&mut client, id)["status"], "working");
    }
    let write = json!({ "container_id": "cell", "path": "go", "content": "" });
    client.ok("fs_write", write);
    let end = ended(&mut client, &finished);
    let result = &end["result"]["structuredContent"];
    assert_eq!(
        (
            &end["status"],
            &result["exit_code"],
            &result["messages"][0]["data"]
        ),
        (&json!("completed"), &json!(4), &json!("late\n"))
    );
    let asked = json!({ "taskId": cancelled });
    client.request("tasks/cancel", asked).expect("it is known");
    assert_eq!(ended(&mut client, &cancelled)["status"], "cancelled");
    let end = ended(&mut client, &lost);
    let result = &end["result"]["structuredContent"];
    assert_eq!(
        (&end["status"], &result["status"], &result["reason"]),
        (
            &json!("completed"),
            &json!("lost"),
            &json!("its container ended under it")
        )
    );
    self::end(&home, server);
}

#[test]
fn a_container_that_died_while_no_server_ran_is_noted_and_its_execs_are_lost() {
    let home = Home::new();
    let server = serve(&home);
    let mut client = server.client();
    let id = client.ok("spawn", json!({ "alias": "cell" }))["container_id"].clone();
    let run = json!({ "container_id": "cell", "cmd": ["sleep", "1000"] });
    let exec = client.ok("exec_start", run)["exec_id"].clone();
    server.kill();
    destroy(&home, &id);
    let server = serve(&home);
    let (_, last) = follow(&mut server.client(), &exec);
    assert_eq!(last["status"], "lost", "{last}");
    let read = json!({ "container_id": id, "path": "." });
    assert_eq!(server.client().refused("fs_list", read), "not_found");
    // Its alias is free again.
    server.client().ok("spawn", json!({ "alias": "cell" }));
    end(&home, server);
}

/// What the engine wrote down about a container.
fn record(home: &Home, id: &Value) -> (std::path::PathBuf, Value) {
    let containers = home.engine_home().join("containers");
    let path = containers.join(id.as_str().unwrap()).join("state.json");
    let text = std::fs::read(&path).unwrap();
    (path, serde_json::from_slice(&text).unwrap())
}

/// Kills the container's agent, like the OOM killer.
fn kill_agent(home: &Home, id: &Value) {
    let pid = record(home, id).1["record"]["pid"].as_u64().unwrap();
    support::server::send(u32::try_from(pid).unwrap(), Signal::KILL);
}

fn expect_kept(client: &mut Client, id: &Value, exec: &Value) {
    let (_, last) = follow(client, exec);
    assert_eq!(last["status"], "lost", "{last}");
    let read = json!({ "container_id": id, "cmd": ["cat", "kept"] });
    let read = client.ok("exec_start", read)["exec_id"].clone();
    assert_eq!(follow(client, &read).0, "before");
}

#[test]
fn a_persistent_workspace_outlives_its_agent_and_its_host() {
    let home = Home::new();
    let server = serve(&home);
    let mut client = server.client();
    let id = client.ok("spawn", json!({ "persistent": true }))["container_id"].clone();
    let write = json!({ "container_id": id, "path": "kept", "content": "before" });
    client.ok("fs_write", write);
    let run = json!({ "container_id": id, "cmd": ["sleep", "1000"] });
    let exec = client.ok("exec_start", run.clone())["exec_id"].clone();
    kill_agent(&home, &id);
    expect_kept(&mut client, &id, &exec);

    let exec = client.ok("exec_start", run)["exec_id"].clone();
    server.kill();
    kill_agent(&home, &id);
    // The host was started again: what ran then is somebody else's number now.
    let (path, mut record) = record(&home, &id);
    record["boot_id"] = json!("of another time");
    record["record"]["pid"] = json!(std::process::id());
    std::fs::write(path, record.to_string()).unwrap();
    let server = serve(&home);
    expect_kept(&mut server.client(), &id, &exec);
    server.client().ok("kill", json!({ "container_id": id }));
    end(&home, server);
}
