//! Input for running commands.

use bytes::Bytes;
use hotcell_agent_client::{Agent, AgentError, Command, Winsize};

use super::container::{Live, TestContainer, noise};
use super::{Outcome, Subject, claimed};

/// Bytes per input call in these cases.
const INPUT_BYTES: usize = 32 << 10;

/// `SIGUSR1`.
const USER_SIGNAL: u32 = 10;

const SMALL: Winsize = Winsize { rows: 24, cols: 80 };

pub(super) async fn stdin_is_echoed_until_its_end(subject: &Subject) -> Outcome {
    let container = TestContainer::make(subject).await?;
    let data = noise(1 << 20);
    let live = Live::start(&container.agent, &interactive(&container, "cat")).await?;
    let exec_id = live.exec_id.clone();
    let (accepted, ran) = tokio::join!(feed(&container.agent, &exec_id, &data), live.end());
    assert_eq!(accepted?, 1 << 20);
    let ran = ran?;
    assert!(ran.stdout == data, "what came back differs");
    assert_eq!(ran.exit.code, Some(0));
    container.end().await
}

pub(super) async fn without_stdin_a_reader_sees_the_end_at_once(subject: &Subject) -> Outcome {
    let container = TestContainer::make(subject).await?;
    let ran = container.shell("cat; echo end").await?;
    assert_eq!(ran.stdout, b"end\n");
    container.end().await
}

pub(super) async fn repeated_input_is_accepted_once(subject: &Subject) -> Outcome {
    let container = TestContainer::make(subject).await?;
    let live = Live::start(&container.agent, &interactive(&container, "cat")).await?;
    let exec_id = live.exec_id.clone();
    let agent = &container.agent;
    assert_eq!(agent.input(&exec_id, 0, "abc".into(), false).await?, 3);
    assert_eq!(agent.input(&exec_id, 0, "abc".into(), false).await?, 3);
    assert_eq!(agent.input(&exec_id, 0, "abcde".into(), false).await?, 5);
    assert_eq!(agent.input(&exec_id, 5, Bytes::new(), true).await?, 5);
    assert_eq!(live.end().await?.stdout, b"abcde");
    container.end().await
}

pub(super) async fn output_is_seen_before_the_exit(subject: &Subject) -> Outcome {
    let container = TestContainer::make(subject).await?;
    let script = "echo first; read answer; echo \"second $answer\" >&2";
    let mut live = Live::start(&container.agent, &interactive(&container, script)).await?;
    // The process cannot continue before it gets an answer, and it gets one only after its first
    // line was seen.
    live.until("first\n").await?;
    assert!(!live.has_ended());
    let input = "yes\n".into();
    container
        .agent
        .input(&live.exec_id, 0, input, false)
        .await?;
    let ran = live.end().await?;
    assert_eq!(ran.stdout, b"first\n");
    assert_eq!(ran.stderr, b"second yes\n");
    container.end().await
}

pub(super) async fn a_terminal_has_the_size_it_was_given(subject: &Subject) -> Outcome {
    let container = TestContainer::make(subject).await?;
    let script = "[ -t 0 ] && [ -t 1 ] && [ -t 2 ] && stty size; read x; stty size; exit 5";
    let command = Command {
        tty: Some(SMALL),
        ..interactive(&container, script)
    };
    let mut live = Live::start(&container.agent, &command).await?;
    live.until("24 80\r\n").await?;
    let wide = Winsize {
        rows: 50,
        cols: 132,
    };
    container.agent.resize(&live.exec_id, wide).await?;
    let input = "\n".into();
    container
        .agent
        .input(&live.exec_id, 0, input, false)
        .await?;
    live.until("50 132\r\n").await?;
    let ran = live.end().await?;
    assert_eq!(ran.exit.code, Some(5));
    assert_eq!(ran.stderr, b"", "a terminal has one stream");
    container.end().await
}

pub(super) async fn a_terminal_passes_an_interrupt_on(subject: &Subject) -> Outcome {
    // gVisor's terminals deliver the byte and send no signal.
    if !claimed(
        subject.traits.linux || !subject.traits.sealed,
        "to run Linux",
    ) {
        return Ok(());
    }
    let container = TestContainer::make(subject).await?;
    let script =
        "trap 'echo interrupted; exit 6' INT; echo ready; sleep 1000 & while :; do wait; done";
    let command = Command {
        tty: Some(SMALL),
        ..interactive(&container, script)
    };
    let mut live = Live::start(&container.agent, &command).await?;
    live.until("ready\r\n").await?;
    let control_c = Bytes::from_static(b"\x03");
    container
        .agent
        .input(&live.exec_id, 0, control_c, false)
        .await?;
    // The echo of the key may come between this word and its newline.
    live.until("interrupted").await?;
    let exec_id = live.exec_id.clone();
    assert_eq!(live.end().await?.exit.code, Some(6));
    // A background process of a shell ignores SIGINT.
    container
        .agent
        .cancel(&exec_id, std::time::Duration::ZERO)
        .await?;
    container.end().await
}

pub(super) async fn a_signal_reaches_the_process(subject: &Subject) -> Outcome {
    let container = TestContainer::make(subject).await?;
    let script = "trap 'echo caught; exit 7' USR1; echo ready; sleep 1000 & while :; do wait; done";
    for whole_tree in [false, true] {
        let mut live = Live::start(&container.agent, &container.sh(script)).await?;
        live.until("ready\n").await?;
        container
            .agent
            .signal(&live.exec_id, USER_SIGNAL, whole_tree)
            .await?;
        let ran = live.end().await?;
        assert_eq!(ran.stdout, b"ready\ncaught\n");
        assert_eq!(ran.exit.code, Some(7));
    }
    container.end().await
}

/// Writes everything to an exec's stdin and closes it; returns how much was accepted.
pub(super) async fn feed(agent: &Agent, exec_id: &str, data: &[u8]) -> Result<u64, AgentError> {
    let mut offset = 0;
    for piece in data.chunks(INPUT_BYTES) {
        let piece = Bytes::copy_from_slice(piece);
        offset = agent.input(exec_id, offset, piece, false).await?;
    }
    agent.input(exec_id, offset, Bytes::new(), true).await
}

/// A shell script with an open stdin.
pub(super) fn interactive(container: &TestContainer<'_>, script: &str) -> Command {
    Command {
        stdin: true,
        ..container.sh(script)
    }
}
