//! `exec_start`, `exec_poll`, `exec_input`, `exec_cancel`, `list_execs`.

use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::world::{Client, PATIENCE, World, call, ok, refused, request, sh, shown, spawn};

/// Starts a shell command and does not wait.
async fn start(client: &Client, container: &str, script: &str) -> String {
    let arguments = json!({"container_id": container, "cmd": ["/bin/sh", "-c", script]});
    let said = ok(client, "exec_start", arguments).await;
    said.structured["exec_id"].as_str().unwrap().to_owned()
}

/// A text with `N` in place of each number.
fn without_numbers(text: &str) -> String {
    let mut without = String::new();
    for c in text.chars() {
        match c {
            '0'..='9' if without.ends_with('N') => {}
            '0'..='9' => without.push('N'),
            other => without.push(other),
        }
    }
    without
}

/// Polls until an exec is complete; returns its stdout and the last poll.
async fn finish(client: &Client, exec: &str) -> (String, Value) {
    let (mut stdout, mut after_seq) = (String::new(), json!(0));
    let deadline = Instant::now() + PATIENCE;
    loop {
        let poll = json!({"exec_id": exec, "after_seq": after_seq, "wait_s": 5});
        let said = ok(client, "exec_poll", poll).await;
        for message in said.structured["messages"].as_array().unwrap() {
            if message["stream"] == "stdout" {
                stdout.push_str(message["data"].as_str().unwrap());
            }
        }
        after_seq = said.structured["next_seq"].clone();
        if said.structured["complete"] == true {
            return (stdout, said.structured);
        }
        assert!(Instant::now() < deadline, "{said:?}");
    }
}

#[tokio::test]
async fn a_short_command_is_one_call() {
    let world = World::new().await;
    let client = world.client().await;
    let container = spawn(&client).await;
    let said = sh(&client, &container, "printf hello; printf oops >&2; exit 3").await;
    insta::assert_snapshot!(without_numbers(&said.text), @r#"
    hello
    [stderr]
    oops
    [e_ID failed; exit code N; N ms]
    "#);
    insta::assert_snapshot!(shown(&said.structured), @r#"
    {
      "complete": true,
      "exec_id": "e_ID",
      "exit_code": 3,
      "messages": [
        {
          "data": "hello",
          "seq": 1,
          "stream": "stdout",
          "ts": "TIME"
        },
        {
          "data": "oops",
          "seq": 2,
          "stream": "stderr",
          "ts": "TIME"
        }
      ],
      "next_seq": 2,
      "status": "failed",
      "truncated_bytes": 0,
      "usage": {
        "max_rss_bytes": "N",
        "stderr_bytes": 4,
        "stdout_bytes": 5,
        "system_ms": "N",
        "user_ms": "N",
        "wall_ms": "N"
      }
    }
    "#);
}

#[tokio::test]
async fn a_long_command_is_polled_fed_and_listed() {
    let world = World::new().await;
    let client = world.client().await;
    let container = spawn(&client).await;
    let exec = start(&client, &container, "read line; echo got $line; cat").await;
    until_only(&client, "running").await;
    let listed = ok(&client, "list_execs", json!({"container_id": container})).await;
    insta::assert_snapshot!(shown(&listed.structured), @r#"
    {
      "execs": [
        {
          "cmd": [
            "/bin/sh",
            "-c",
            "read line; echo got $line; cat"
          ],
          "container_id": "c_ID",
          "created_at": "TIME",
          "exec_id": "e_ID",
          "output_bytes": 0,
          "status": "running"
        }
      ]
    }
    "#);
    ok(
        &client,
        "exec_input",
        json!({"exec_id": exec, "data": "a\nb\n"}),
    )
    .await;
    let sent = ok(&client, "exec_input", json!({"exec_id": exec, "eof": true})).await;
    insta::assert_snapshot!(sent.text, @r#"sent 0 bytes to e_ID; exec_poll with exec_id=e_ID shows what it answers"#);
    let (stdout, last) = finish(&client, &exec).await;
    assert_eq!(
        (stdout.as_str(), &last["status"]),
        ("got a\nb\n", &json!("succeeded"))
    );
    let listed = ok(&client, "list_execs", json!({})).await;
    assert_eq!(listed.structured["execs"], json!([]));
    let listed = ok(&client, "list_execs", json!({"include_finished": true})).await;
    assert_eq!(listed.structured["execs"][0]["exit_code"], 0);
}

#[tokio::test]
async fn bytes_that_are_no_text_travel_as_base64() {
    let world = World::new().await;
    let client = world.client().await;
    let container = spawn(&client).await;
    let said = sh(&client, &container, r"printf '\377\376'").await;
    let message = &said.structured["messages"][0];
    assert_eq!(
        (&message["data"], &message["encoding"]),
        (&json!("//4="), &json!("base64"))
    );
    assert!(
        said.text.starts_with("[2 bytes as base64] //4=\n"),
        "{}",
        said.text
    );
}

#[tokio::test]
async fn a_text_has_as_much_output_as_structured_content() {
    let world = World::new().await;
    let client = world.client().await;
    let container = spawn(&client).await;
    let exec = start(&client, &container, "seq 100000").await;
    let (stdout, _) = finish(&client, &exec).await;
    assert_eq!(stdout.lines().count(), 100_000);
    let poll = json!({"exec_id": exec, "max_bytes": 4 << 20});
    let said = ok(&client, "exec_poll", poll).await;
    assert!(said.text.starts_with(&stdout), "{}", said.text.len());
    let said = ok(&client, "exec_poll", json!({"exec_id": exec})).await;
    assert!(said.text.len() < 66 << 10, "{}", said.text.len());
    assert_eq!(said.structured["complete"], false);
    let next = said.structured["next_seq"].to_string();
    assert!(said.text.contains(&format!("after_seq={next}")));
}

#[tokio::test]
async fn a_cancelled_command_ends_and_keeps_its_output() {
    let world = World::new().await;
    let client = world.client().await;
    let container = spawn(&client).await;
    let exec = start(&client, &container, "echo begun; sleep 600").await;
    let wait = json!({"exec_id": exec, "wait_s": 20});
    while ok(&client, "exec_poll", wait.clone()).await.structured["messages"] == json!([]) {}
    ok(&client, "exec_cancel", json!({"exec_id": exec})).await;
    let (stdout, last) = finish(&client, &exec).await;
    assert_eq!(
        (stdout.as_str(), &last["status"]),
        ("begun\n", &json!("cancelled"))
    );
    let again = ok(&client, "exec_cancel", json!({"exec_id": exec})).await;
    assert_eq!(again.structured["status"], "cancelled");
}

#[tokio::test]
async fn a_request_that_is_given_up_ends_its_command_unless_a_key_leads_back_to_it() {
    let world = World::new().await;
    let client = world.client().await;
    let container = spawn(&client).await;
    let arguments = |key: Option<&str>| json!({"container_id": container, "cmd": ["sleep", "600"], "wait_s": 50, "idempotency_key": key});
    for (key, status) in [(None, "cancelled"), (Some("k"), "running")] {
        let waiting = client.call_tool(request("exec_start", arguments(key)));
        tokio::select! {
            answered = waiting => panic!("{answered:?}"),
            () = until_only(&client, "running") => {}
        }
        until_only(&client, status).await;
    }
}

/// Waits until the newest exec has a status.
async fn until_only(client: &Client, status: &str) {
    let deadline = Instant::now() + PATIENCE;
    loop {
        let listed = ok(client, "list_execs", json!({"include_finished": true})).await;
        let execs = listed.structured["execs"].as_array().unwrap();
        if execs.last().is_some_and(|exec| exec["status"] == status) {
            return;
        }
        assert!(Instant::now() < deadline, "{execs:?}");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

#[tokio::test]
async fn a_command_that_cannot_be_run_says_why() {
    let world = World::new().await;
    let client = world.client().await;
    let id = spawn(&client).await;
    let missing = "e_00000000000000000000000000";
    let done = sh(&client, &id, "true").await.structured["exec_id"].clone();
    let said = [
        refused(
            &client,
            "exec_start",
            json!({"container_id": id, "cmd": [""]}),
        )
        .await,
        refused(
            &client,
            "exec_start",
            json!({"container_id": id, "cmd": ["true"], "timeout_s": 0}),
        )
        .await,
        refused(
            &client,
            "exec_start",
            json!({"container_id": id, "cmd": ["true"], "cwd": ""}),
        )
        .await,
        refused(
            &client,
            "exec_start",
            json!({"container_id": id, "cmd": ["true"], "as_root": true}),
        )
        .await,
        refused(
            &client,
            "exec_start",
            json!({"container_id": "nobody", "cmd": ["true"]}),
        )
        .await,
        refused(&client, "exec_poll", json!({"exec_id": missing})).await,
        refused(&client, "exec_poll", json!({"exec_id": "what"})).await,
        refused(&client, "exec_cancel", json!({"exec_id": missing})).await,
        refused(
            &client,
            "exec_input",
            json!({"exec_id": missing, "data": "x"}),
        )
        .await,
        refused(&client, "exec_input", json!({"exec_id": done})).await,
        refused(&client, "exec_input", json!({"exec_id": done, "rows": 1})).await,
        refused(&client, "exec_input", json!({"exec_id": done, "data": "x"})).await,
        refused(&client, "list_execs", json!({"container_id": "nobody"})).await,
    ];
    insta::assert_snapshot!(said.join("\n"), @r#"
    invalid_argument: cmd must name a program: a list such as ["ls", "-l"], its first entry not empty
    hint: correct the argument and call again
    invalid_argument: timeout_s must be more than 0 and at most 604800
    hint: correct the argument and call again
    invalid_argument: cwd must be a path of at most 4095 bytes without NUL
    hint: correct the argument and call again
    denied: running as root is not allowed here (rule `allow_as_root`)
    hint: leave `as_root` out: /workspace is writable without
    not_found: there is no container nobody
    hint: call list_containers to see what there is, or spawn to make one
    not_found: there is no exec e_ID
    hint: call list_execs with include_finished=true to see what there is
    not_found: there is no exec what
    hint: call list_execs with include_finished=true to see what there is
    not_found: there is no exec e_ID
    hint: call list_execs with include_finished=true to see what there is
    not_found: there is no exec e_ID
    hint: call list_execs with include_finished=true to see what there is
    invalid_argument: there is nothing to send
    hint: give data, eof, signal, or rows and cols
    invalid_argument: `rows` and `cols` go together
    hint: correct the argument and call again
    conflict: the exec has ended
    hint: exec_poll with exec_id=e_ID reads its output and status; exec_start runs it again
    not_found: there is no container nobody
    hint: call list_containers to see what there is, or spawn to make one
    "#);
    let failed = call(
        &client,
        "exec_start",
        json!({"container_id": id, "cmd": ["/no/such"], "wait_s": 20}),
    )
    .await;
    insta::assert_snapshot!(without_numbers(&failed.text), @r#"[e_ID failed; there is no program `/no/such` in the container, or not the interpreter it needs]"#);
    assert_eq!(failed.structured["not_started"], "no_program");
    let listed = json!({"container_id": id, "include_finished": true});
    let listed = ok(&client, "list_execs", listed).await;
    let causes = listed.structured["execs"].as_array().unwrap().iter();
    let causes: Vec<_> = causes.map(|exec| &exec["not_started"]).collect();
    assert!(causes.contains(&&json!("no_program")) && causes.contains(&&Value::Null));
}
