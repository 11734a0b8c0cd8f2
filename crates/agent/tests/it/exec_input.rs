//! Input of an exec: stdin by offsets, and terminals.

use std::time::Duration;

use hotcell_agent_api::v1::{ExecStart, ExitCause, ResizeRequest, Winsize};
use tonic::Code;

use crate::harness::{self, Agent, command, shell, variable};

fn cat(id: &str) -> ExecStart {
    ExecStart {
        stdin: true,
        ..command(id, &["cat"])
    }
}

fn terminal(id: &str, script: &str) -> ExecStart {
    ExecStart {
        stdin: true,
        tty: Some(Winsize { rows: 24, cols: 80 }),
        env: vec![variable("PATH", "/usr/bin:/bin"), variable("TERM", "dumb")],
        ..shell(id, script)
    }
}

#[tokio::test]
async fn input_that_is_repeated_is_written_once() {
    let agent = Agent::start().await;
    let exec = agent.start_exec(cat("in")).await.unwrap();
    assert_eq!(agent.input("in", 0, "hello ", false).await.unwrap(), 6);
    assert_eq!(agent.input("in", 0, "hello ", false).await.unwrap(), 6);
    assert_eq!(agent.input("in", 3, "lo world", false).await.unwrap(), 11);
    let gap = agent.input("in", 12, "x", false).await.unwrap_err();
    assert_eq!(gap.code(), Code::FailedPrecondition);
    assert_eq!(agent.input("in", 11, "", true).await.unwrap(), 11);
    assert_eq!(agent.input("in", 11, "", true).await.unwrap(), 11);
    assert_eq!(exec.finish().await.text(), "hello world");
    let closed = agent.input("in", 11, "more", false).await.unwrap_err();
    assert_eq!(closed.code(), Code::FailedPrecondition);
}

#[tokio::test]
async fn without_stdin_a_command_reads_the_end_at_once() {
    let agent = Agent::start().await;
    assert_eq!(
        agent.run(command("none", &["cat"])).await.exit.code,
        Some(0)
    );
    let refused = agent.input("none", 0, "x", false).await.unwrap_err();
    assert_eq!(refused.code(), Code::FailedPrecondition);
    let unknown = agent.input("unknown", 0, "x", false).await.unwrap_err();
    assert_eq!(unknown.code(), Code::NotFound);
}

#[tokio::test]
async fn input_waits_for_its_reader_and_ends_with_it() {
    let agent = Agent::start().await;
    let mut start = shell("deaf", "echo ready; exec sleep 60");
    start.stdin = true;
    let mut exec = agent.start_exec(start).await.unwrap();
    exec.until_stdout_has("ready").await;
    let mut client = agent.client.clone();
    let request = hotcell_agent_api::v1::InputRequest {
        exec_id: "deaf".into(),
        offset: 0,
        data: vec![0; 1 << 20].into(),
        eof: false,
    };
    let waiting = tokio::spawn(async move { client.input(request).await });
    let done = tokio::time::timeout(Duration::from_millis(100), async {
        while !waiting.is_finished() {
            tokio::task::yield_now().await;
        }
    });
    assert!(done.await.is_err(), "a megabyte does not fit into a pipe");
    agent.cancel("deaf", 0).await.unwrap();
    let refused = harness::within(waiting).await.unwrap().unwrap_err();
    assert_eq!(refused.code(), Code::FailedPrecondition);
    exec.finish().await;
}

#[tokio::test]
async fn a_megabyte_goes_through_in_order() {
    let agent = Agent::start().await;
    let exec = agent.start_exec(cat("big")).await.unwrap();
    let data: Vec<u8> = (0..1_u32 << 18).flat_map(u32::to_le_bytes).collect();
    let expected = data.clone();
    let (done, accepted) = tokio::join!(exec.finish(), agent.input("big", 0, data, true));
    assert_eq!(accepted.unwrap(), 1 << 20);
    assert!(done.stdout == expected);
}

#[tokio::test]
async fn a_terminal_has_its_size_and_is_told_of_a_new_one() {
    let agent = Agent::start().await;
    let script =
        "stty size; trap 'stty size; exit' WINCH; echo ready; while :; do sleep 0.02; done";
    let mut exec = agent.start_exec(terminal("tty", script)).await.unwrap();
    assert!(
        exec.until_stdout_has("ready")
            .await
            .starts_with("24 80\r\n")
    );
    let size = Some(Winsize {
        rows: 40,
        cols: 132,
    });
    let resize = ResizeRequest {
        exec_id: "tty".into(),
        size,
    };
    agent.client.clone().resize(resize).await.unwrap();
    let done = exec.finish().await;
    assert!(done.text().ends_with("40 132\r\n"), "{:?}", done.text());
    assert_eq!(done.exit.code, Some(0));
}

#[tokio::test]
async fn control_c_interrupts_the_foreground_of_a_terminal() {
    let agent = Agent::start().await;
    let mut exec = agent
        .start_exec(terminal("int", "echo ready; exec sleep 60"))
        .await
        .unwrap();
    exec.until_stdout_has("ready").await;
    agent.input("int", 0, "\x03", false).await.unwrap();
    let done = exec.finish().await;
    assert_eq!(
        (done.exit.cause(), done.exit.signal),
        (ExitCause::Exited, Some(2))
    );
}

#[tokio::test]
async fn the_end_of_input_ends_a_reader_on_a_terminal() {
    let agent = Agent::start().await;
    for (id, text) in [("line", "whole line\n"), ("part", "part of a line")] {
        let exec = agent
            .start_exec(terminal(id, "stty -echo; echo ready; exec cat"))
            .await;
        let mut exec = exec.unwrap();
        exec.until_stdout_has("ready").await;
        agent.input(id, 0, text, true).await.unwrap();
        let done = exec.finish().await;
        let expected = text.replace('\n', "\r\n");
        assert!(done.text().ends_with(&expected), "{:?}", done.text());
        assert_eq!(done.exit.code, Some(0));
    }
}

#[tokio::test]
async fn all_of_a_terminals_output_comes_before_its_exit() {
    let agent = Agent::start().await;
    for index in 0..5 {
        let start = terminal(&index.to_string(), "seq 1 5000; echo done >&2");
        let done = agent.run(start).await;
        assert!(done.text().ends_with("5000\r\ndone\r\n"));
        assert_eq!(done.text().lines().count(), 5001);
    }
}

#[tokio::test]
async fn a_terminal_without_stdin_reads_the_end_at_once() {
    let agent = Agent::start().await;
    let mut start = terminal(
        "blind",
        "cat; test -t 0 || test -t 1 && echo out is a terminal",
    );
    start.stdin = false;
    assert_eq!(agent.run(start).await.text(), "out is a terminal\r\n");
}

#[tokio::test]
async fn only_a_terminal_has_a_size() {
    let agent = Agent::start().await;
    let exec = agent.start_exec(cat("pipes")).await.unwrap();
    let resize = |rows, size| ResizeRequest {
        exec_id: "pipes".into(),
        size: if size {
            Some(Winsize { rows, cols: 1 })
        } else {
            None
        },
    };
    let refused = agent
        .client
        .clone()
        .resize(resize(1, true))
        .await
        .unwrap_err();
    assert_eq!(refused.code(), Code::FailedPrecondition);
    let refused = agent
        .client
        .clone()
        .resize(resize(1 << 20, true))
        .await
        .unwrap_err();
    assert_eq!(refused.code(), Code::InvalidArgument);
    let refused = agent
        .client
        .clone()
        .resize(resize(0, false))
        .await
        .unwrap_err();
    assert_eq!(refused.code(), Code::InvalidArgument);
    agent.input("pipes", 0, "", true).await.unwrap();
    exec.finish().await;
}
