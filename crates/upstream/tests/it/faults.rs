//! Servers that hang, crash, flood and lie. None of them hurts another.

use std::sync::Arc;
use std::time::Duration;

use hotcell_upstream::{Launch, Template, UpstreamError};
use serde_json::json;
use tokio::sync::mpsc;

use crate::fixture::{
    Bench, PATIENCE, Scratch, call, fake, logged, name, program, structured, until,
};

#[tokio::test]
async fn a_server_that_hangs_at_its_start_holds_up_nobody_else() {
    let mut hanging = fake("hangs", &["hang"]);
    hanging.timeouts.start = Duration::from_millis(1500);
    let bench = Arc::new(Bench::new(vec![hanging, fake("ok", &[])]));
    let other = Arc::clone(&bench);
    let hung = tokio::spawn(async move { other.call("hangs", "echo", &json!({})).await });
    bench.call("ok", "echo", &json!({})).await.unwrap();
    let error = hung.await.unwrap().unwrap_err();
    assert_eq!(
        error.to_string(),
        "the MCP server `hangs` could not be started: it was not ready within 1.5 seconds"
    );
}

#[tokio::test]
async fn a_call_that_hangs_times_out_and_is_cancelled_and_others_go_on() {
    let state = Scratch::new();
    let log = state.path().join("log");
    let bench = Bench::new(vec![fake("a", &[&format!("log={}", log.display())])]);
    bench.call("a", "echo", &json!({})).await.unwrap();
    let mut hanging = call("a", "hang", &json!({}));
    hanging.timeout = Duration::from_millis(300);
    let visible = bench.local();
    let nothing = json!({});
    let (hung, echoed) = tokio::join!(
        visible.call_tool(hanging),
        bench.call("a", "echo", &nothing)
    );
    echoed.unwrap();
    assert!(matches!(hung.unwrap_err(), UpstreamError::Timeout { .. }));
    until(|| {
        logged(&log)
            .iter()
            .any(|message| message["method"] == "notifications/cancelled")
    })
    .await;
    let called = logged(&log)
        .into_iter()
        .find(|message| message["params"]["name"] == "hang")
        .unwrap();
    let cancelled = logged(&log)
        .into_iter()
        .find(|message| message["method"] == "notifications/cancelled")
        .unwrap();
    assert_eq!(cancelled["params"]["requestId"], called["id"]);
}

#[tokio::test]
async fn an_answer_after_the_timeout_reaches_nobody() {
    let bench = Bench::new(vec![fake("a", &[])]);
    bench.call("a", "echo", &json!({})).await.unwrap();
    let mut late = call("a", "slow", &json!({ "seconds": 0.5, "from": "late" }));
    late.timeout = Duration::from_millis(50);
    let error = bench.local().call_tool(late).await.unwrap_err();
    assert!(matches!(error, UpstreamError::Timeout { .. }), "{error}");
    // This one is still running when the late answer comes.
    let next = json!({ "seconds": 1, "from": "next" });
    let answered = bench.call("a", "slow", &next).await.unwrap();
    assert_eq!(structured(&answered)["got"]["from"], "next");
    assert_eq!(bench.local().servers()[0].health.as_str(), "running");
}

#[tokio::test]
async fn a_caller_that_leaves_cancels_its_call() {
    let state = Scratch::new();
    let log = state.path().join("log");
    let bench = Bench::new(vec![fake("a", &[&format!("log={}", log.display())])]);
    bench.call("a", "echo", &json!({})).await.unwrap();
    let visible = bench.local();
    let calling =
        tokio::spawn(async move { visible.call_tool(call("a", "hang", &json!({}))).await });
    until(|| {
        logged(&log)
            .iter()
            .any(|message| message["params"]["name"] == "hang")
    })
    .await;
    calling.abort();
    until(|| {
        logged(&log)
            .iter()
            .any(|message| message["method"] == "notifications/cancelled")
    })
    .await;
}

#[tokio::test]
async fn calls_of_one_server_run_in_parallel() {
    let bench = Bench::new(vec![fake("a", &[])]);
    bench.call("a", "echo", &json!({})).await.unwrap();
    let visible = bench.local();
    // It never answers.
    let hanging =
        tokio::spawn(async move { visible.call_tool(call("a", "hang", &json!({}))).await });
    let calls: Vec<_> = (0..200)
        .map(|number| {
            let visible = bench.local();
            tokio::spawn(async move {
                visible
                    .call_tool(call("a", "echo", &json!({ "n": number })))
                    .await
            })
        })
        .collect();
    for (number, call) in calls.into_iter().enumerate() {
        assert_eq!(
            structured(&call.await.unwrap().unwrap())["got"]["n"],
            number
        );
    }
    hanging.abort();
}

#[tokio::test]
async fn garbage_floods_and_second_answers_are_ignored() {
    let bench = Bench::new(vec![fake("a", &[])]);
    for tool in ["garbage", "twice", "ask"] {
        let result = bench.call("a", tool, &json!({ "x": tool })).await.unwrap();
        assert_eq!(structured(&result)["got"]["x"], tool);
    }
    bench
        .call("a", "flood", &json!({ "mebibytes": 1024 }))
        .await
        .unwrap();
}

#[tokio::test]
async fn a_large_answer_arrives_and_one_that_is_too_large_is_told() {
    let bench = Bench::new(vec![fake("a", &[])]);
    let result = bench
        .call("a", "large", &json!({ "mebibytes": 20 }))
        .await
        .unwrap();
    let hotcell_upstream::Content::Text { text } = &result.content[0] else {
        panic!("{result:?}");
    };
    assert_eq!(text.len(), 20 << 20);
    let error = bench
        .call("a", "large", &json!({ "mebibytes": 65 }))
        .await
        .unwrap_err();
    assert_eq!(
        error.to_string(),
        "the answer of the MCP server `a` is larger than 67108864 bytes"
    );
    bench.call("a", "echo", &json!({})).await.unwrap();
}

#[tokio::test]
async fn progress_is_handed_on() {
    let bench = Bench::new(vec![fake("a", &[])]);
    let (sender, mut receiver) = mpsc::channel(8);
    let mut slow = call("a", "slow", &json!({}));
    slow.progress = Some(sender);
    bench.local().call_tool(slow).await.unwrap();
    let mut steps = Vec::new();
    while let Some(update) = receiver.recv().await {
        steps.push((update.progress, update.total));
    }
    assert_eq!(
        steps,
        [(1.0, Some(3.0)), (2.0, Some(3.0)), (3.0, Some(3.0))]
    );
}

#[tokio::test]
async fn an_error_of_a_server_is_escaped_and_says_no_secret() {
    let mut entry = fake("a", &[]);
    if let Launch::Stdio(program) = &mut entry.launch {
        program.environment = vec![("SECRET".to_owned(), Template::literal("hunter2hunter2"))];
    }
    let bench = Bench::new(vec![entry]);
    let error = bench.call("a", "fail", &json!({})).await.unwrap_err();
    assert_eq!(
        error.to_string(),
        "the MCP server `a` answered with error -5: bad \\u{1b}[2J [redacted]"
    );
}

#[tokio::test]
async fn a_listing_without_end_is_cut_off() {
    let bench = Bench::new(vec![fake("a", &["endless"])]);
    let listed = bench.local().definitions(&name("a")).await.unwrap();
    assert_eq!(listed.tools.len(), 2);
    assert!(listed.skipped_count > 0);
}

#[tokio::test]
async fn what_cannot_be_started_is_told_without_a_path() {
    let bench = Bench::new(vec![
        program("none", "/no/such/program", &[]),
        fake("old", &["old"]),
    ]);
    let error = bench.call("none", "echo", &json!({})).await.unwrap_err();
    let said = "the MCP server `none` could not be started: its program or working directory does not exist";
    assert_eq!(error.to_string(), said);
    let error = bench.call("old", "echo", &json!({})).await.unwrap_err();
    assert!(
        error
            .to_string()
            .ends_with("it speaks no revision of MCP that we know"),
        "{error}"
    );
}

#[tokio::test]
async fn a_server_that_ignores_its_end_is_killed_with_what_it_started() {
    let state = Scratch::new();
    let pids = state.path().join("pids");
    let script = format!(
        "sleep 3600 & echo $! $$ > {}; exec python3 \"$0\" deaf",
        pids.display()
    );
    let fake = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/it/fake_server.py");
    let bench = Bench::new(vec![program("a", "sh", &["-c", &script, fake])]);
    bench.call("a", "echo", &json!({})).await.unwrap();
    let pids: Vec<String> = std::fs::read_to_string(&pids)
        .unwrap()
        .split_whitespace()
        .map(str::to_owned)
        .collect();
    let is_alive = |pid: &String| {
        let status = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
        !status.is_empty() && !status.contains(") Z ")
    };
    assert!(pids.len() == 2 && pids.iter().all(is_alive), "{pids:?}");
    tokio::time::timeout(PATIENCE, bench.upstreams.stop())
        .await
        .unwrap();
    until(|| !pids.iter().any(is_alive)).await;
}
