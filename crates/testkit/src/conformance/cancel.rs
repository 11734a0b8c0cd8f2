//! Ending commands early, with all their processes.

use std::time::Duration;

use anyhow::Context as _;
use hotcell_agent_client::{AgentRefusal, Command, ExitCause};

use super::container::{Live, Ran, TestContainer, expect_refused};
use super::{Outcome, Subject, claimed};

/// Usually enough for a shell to print its first word; otherwise the next one is tried.
const TIMEOUTS: [Duration; 3] = [
    Duration::from_millis(700),
    Duration::from_secs(5),
    Duration::from_mins(1),
];

/// Time between SIGTERM and SIGKILL for a process that ignores the former.
const SHORT_GRACE: Duration = Duration::from_millis(100);

/// Time between SIGTERM and SIGKILL for a process that obeys the former.
const LONG_GRACE: Duration = Duration::from_secs(30);

/// Starts a daemon that has left its session and its parent, prints its pid, and stays.
const DAEMON: &str = "\
    rm -f daemon.pid; \
    if command -v setsid > /dev/null; then away=setsid; else away=; fi; \
    ( ( $away sh -c 'echo $$ > daemon.new; mv daemon.new daemon.pid; \
        trap \"\" TERM HUP; while :; do sleep 1000; done' \
        < /dev/null > /dev/null 2>&1 & ) & ); \
    while [ ! -e daemon.pid ]; do :; done; \
    echo \"daemon $(cat daemon.pid) up\"";

pub(super) async fn a_timeout_ends_the_command_and_keeps_its_output(subject: &Subject) -> Outcome {
    let container = TestContainer::make(subject).await?;
    let command = Command {
        grace: LONG_GRACE,
        ..container.sh("echo before; sleep 1000; echo after")
    };
    let ran = timed_out(&container, command).await?;
    assert_eq!(ran.exit.signal, Some(15));
    assert_eq!(ran.stdout, b"before\n");
    container.end().await
}

/// Runs a command until it times out, with enough time to print something first.
async fn timed_out(container: &TestContainer<'_>, mut command: Command) -> anyhow::Result<Ran> {
    let mut ran = None;
    for timeout in TIMEOUTS {
        command.timeout = Some(timeout);
        let ended = container.run(&command).await?;
        assert_eq!(ended.exit.cause, ExitCause::TimedOut);
        assert!(ended.exit.usage.wall >= timeout, "{:?}", ended.exit.usage);
        let is_silent = ended.stdout.is_empty();
        ran = Some(ended);
        if !is_silent {
            break;
        }
    }
    ran.context("it was tried")
}

pub(super) async fn a_timeout_kills_what_ignores_the_warning(subject: &Subject) -> Outcome {
    let container = TestContainer::make(subject).await?;
    let command = Command {
        grace: SHORT_GRACE,
        ..container.sh("trap '' TERM; echo before; while :; do sleep 1000; done")
    };
    let ran = timed_out(&container, command).await?;
    assert_eq!(ran.exit.signal, Some(9));
    assert_eq!(ran.stdout, b"before\n");
    container.end().await
}

pub(super) async fn cancel_ends_the_command(subject: &Subject) -> Outcome {
    let container = TestContainer::make(subject).await?;
    // A shell that has just forked may receive the signal meant for its child, so the trap kills
    // the child explicitly: how the shell handles that must not matter here.
    let script = "trap 'kill -9 $!; echo bye; exit 4' TERM; sleep 1000 & echo hi; \
                  while :; do wait; done";
    let mut live = Live::start(&container.agent, &container.sh(script)).await?;
    live.until("hi\n").await?;
    container.agent.cancel(&live.exec_id, LONG_GRACE).await?;
    let ran = live.end().await?;
    assert_eq!(ran.exit.cause, ExitCause::Cancelled);
    assert_eq!(ran.exit.code, Some(4));
    assert_eq!(ran.stdout, b"hi\nbye\n");
    container.end().await
}

pub(super) async fn cancel_kills_a_daemon_that_left_its_session(subject: &Subject) -> Outcome {
    if !claimed(subject.traits.orphans, "to keep orphans with their exec") {
        return Ok(());
    }
    let container = TestContainer::make(subject).await?;
    let script = format!("{DAEMON}; sleep 1000");
    let mut live = Live::start(&container.agent, &container.sh(&script)).await?;
    live.until(" up\n").await?;
    let pid = daemon_pid(&live.stdout_text());
    assert!(is_alive(&container, &pid).await?);
    container.agent.cancel(&live.exec_id, SHORT_GRACE).await?;
    assert!(!is_alive(&container, &pid).await?, "the daemon lives");
    assert_eq!(live.end().await?.exit.cause, ExitCause::Cancelled);
    container.end().await
}

pub(super) async fn cancel_ends_what_a_finished_exec_left_behind(subject: &Subject) -> Outcome {
    if !claimed(subject.traits.orphans, "to keep orphans with their exec") {
        return Ok(());
    }
    let container = TestContainer::make(subject).await?;
    let live = Live::start(&container.agent, &container.sh(DAEMON)).await?;
    let exec_id = live.exec_id.clone();
    let ran = live.end().await?;
    assert_eq!(ran.exit.cause, ExitCause::Exited);
    let pid = daemon_pid(&ran.stdout_text());
    assert!(
        is_alive(&container, &pid).await?,
        "the daemon should live on"
    );
    container.agent.cancel(&exec_id, SHORT_GRACE).await?;
    assert!(!is_alive(&container, &pid).await?, "the daemon lives");
    container.end().await
}

pub(super) async fn an_unknown_exec_is_not_found(subject: &Subject) -> Outcome {
    let container = TestContainer::make(subject).await?;
    let agent = &container.agent;
    let missing = AgentRefusal::NotFound;
    expect_refused(agent.cancel("none", SHORT_GRACE).await, &missing);
    expect_refused(agent.signal("none", 15, false).await, &missing);
    expect_refused(agent.forget("none").await, &missing);
    expect_refused(agent.input("none", 0, "x".into(), false).await, &missing);
    let resumed = match agent.resume("none", 0).await {
        Ok(mut follow) => follow.next().await,
        Err(error) => Err(error),
    };
    expect_refused(resumed, &missing);
    container.end().await
}

/// The number in `daemon NUMBER up`.
fn daemon_pid(said: &str) -> String {
    let number = said.split_whitespace().nth(1);
    number.expect("the daemon's pid was said").to_owned()
}

async fn is_alive(container: &TestContainer<'_>, pid: &str) -> anyhow::Result<bool> {
    let ran = container.shell(&format!("kill -0 {pid}")).await?;
    Ok(ran.exit.code == Some(0))
}
