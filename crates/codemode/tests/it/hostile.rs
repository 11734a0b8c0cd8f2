//! Scripts that do not keep to the rules, and others that would be them.

#![expect(clippy::unwrap_used, reason = "a test may fail here")]

use std::sync::Arc;
use std::time::Duration;

use hotcell_codemode::Run;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, DuplexStream};

use crate::fixture::World;
use crate::scripts::{failed, result};

/// Longer than anything takes on the busiest machine.
const PATIENCE: Duration = Duration::from_mins(1);

fn frame(number: u32, body: &Value) -> Vec<u8> {
    let body = body.to_string().into_bytes();
    let length = u32::try_from(body.len()).unwrap();
    [&length.to_be_bytes()[..], &number.to_be_bytes(), &body].concat()
}

/// Opens a connection to a run and says hello.
async fn connect(run: &Arc<Run>, secret: &str) -> DuplexStream {
    let (mut ours, theirs) = tokio::io::duplex(1 << 16);
    let run = Arc::clone(run);
    tokio::spawn(async move { run.serve(theirs).await });
    let hello = frame(0, &json!({"op": "hello", "secret": secret}));
    ours.write_all(&hello).await.unwrap();
    ours
}

/// The next frame; `None` if the connection was closed.
async fn next(stream: &mut DuplexStream) -> Option<Value> {
    let read = async {
        let mut header = [0; 8];
        stream.read_exact(&mut header).await.ok()?;
        let length = u32::from_be_bytes(header[..4].try_into().unwrap());
        let mut body = vec![0; length as usize];
        stream.read_exact(&mut body).await.ok()?;
        serde_json::from_slice(&body).ok()
    };
    tokio::time::timeout(PATIENCE, read).await.unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_connection_needs_the_secret_of_its_own_run_and_there_is_only_one() {
    let world = World::new();
    let (mine, my_secret) = world.prepared("1", Vec::new());
    let (_, other_secret) = world.prepared("2", Vec::new());
    assert_eq!(next(&mut connect(&mine, &other_secret).await).await, None);
    assert_eq!(next(&mut connect(&mine, "").await).await, None);
    let mut first = connect(&mine, &my_secret).await;
    let welcome = next(&mut first).await.unwrap();
    assert_eq!(welcome["run_id"], mine.id().as_str());
    assert_eq!(next(&mut connect(&mine, &my_secret).await).await, None);
    // The first one still works, and a number that is used twice is answered twice.
    for _ in 0..2 {
        let ask = frame(7, &json!({"op": "memory_load", "key": "k"}));
        first.write_all(&ask).await.unwrap();
    }
    for _ in 0..2 {
        assert_eq!(next(&mut first).await, Some(json!({"ok": null})));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cut_frame_ends_the_run_and_a_claimed_gigabyte_costs_nothing() {
    let world = World::new();
    for tail in [&[0xff; 8][..], &[0, 0, 0, 9, 0, 0, 0, 1, b'{']] {
        let (run, secret) = world.prepared("1", Vec::new());
        let mut stream = connect(&run, &secret).await;
        next(&mut stream).await.unwrap();
        stream.write_all(tail).await.unwrap();
        stream.shutdown().await.unwrap();
        tokio::time::timeout(PATIENCE, run.until_told())
            .await
            .unwrap();
        assert_eq!(run.report().end, None, "it never said how it ended");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn arguments_that_are_too_long_or_too_deep_are_told_and_not_sent() {
    let world = World::new();
    let code = "
deep = []
for _ in range(100_000):
    deep = [deep]
told = []
for arguments in ({'text': 'x' * (100 << 20)}, {'text': deep}, {'text': float('nan')}, {'text': object()}):
    try:
        mcp.runtime.call_tool_sync('echo', 'echo', arguments)
    except MCPError as error:
        told.append(error.code)
told
";
    let report = world.run(code).await;
    assert_eq!(
        result(&report),
        &json!([
            "invalid_argument",
            "invalid_argument",
            "invalid_argument",
            "invalid_argument"
        ])
    );
    assert!(world.records.begun.lock().unwrap().is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn ten_thousand_calls_in_flight_are_all_answered() {
    let world = World::new();
    let code = "
import asyncio
said = await asyncio.gather(*(mcp_echo.echo(str(n)) for n in range(10_000)))
said == [str(n) for n in range(10_000)] or said[:20]
";
    let report = world.run(code).await;
    assert_eq!(result(&report), &json!(true));
    assert_eq!(report.calls_count, 10_000);
    assert_eq!(report.calls.len(), 100, "the others are only counted");
    let more = "await mcp_echo.echo('x')";
    assert_eq!(world.run(more).await.calls[0].status, "ok", "another run");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_forked_process_cannot_call() {
    let world = World::new();
    let code = "
import os
await mcp_echo.echo('parent')
read, write = os.pipe()
child = os.fork()
if not child:
    try:
        mcp_echo.echo.sync('child')
        told = 'called'
    except MCPError as error:
        told = error.code + ': ' + error.message
    os.write(write, told.encode())
    os._exit(0)
os.waitpid(child, 0)
[os.read(read, 1000).decode(), await mcp_echo.echo('still')]
";
    let report = world.run(code).await;
    let told = result(&report);
    assert_eq!(
        told,
        &json!([
            "unavailable: only the script's own process can call: it has forked",
            "still"
        ])
    );
    assert_eq!(report.calls_count, 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_is_not_part_of_the_run_is_out_of_reach() {
    let world = World::new();
    let report = world
        .run("mcp.runtime._ask('call', server='secret', tool='x', arguments={})")
        .await;
    assert!(
        failed(&report).contains("is not part of this run"),
        "{report:?}"
    );
    for op in ["tools", "resources", "prompts"] {
        let code = format!("mcp.runtime._ask('{op}', server='secret')");
        let report = world.run(&code).await;
        assert!(
            failed(&report).contains("is not part of this run"),
            "{report:?}"
        );
    }
}
