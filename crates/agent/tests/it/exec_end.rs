//! Ending execs: the whole process tree ends, whatever it did to hide.

use hotcell_agent_api::v1::{ExitCause, ShutdownRequest, SignalRequest};
use tonic::Code;

use crate::harness::{Agent, children, command, is_alive, shell, signal, until};

/// A typical daemon: double-forked, in its own session, ignoring SIGTERM.
const DAEMON: &str = "(setsid sh -c 'trap \"\" TERM HUP INT; (echo daemon=$$; while :; do sleep 0.05; done) & exit' &) ; \
     echo leader=$$; ";

#[tokio::test]
async fn a_timeout_ends_the_exec_and_keeps_its_output() {
    let agent = Agent::start().await;
    // On a busy machine the timeout may come before the shell has printed its word.
    for timeout_ms in [100, 2000, 40_000] {
        let mut start = shell(&timeout_ms.to_string(), "echo before; sleep 100 & wait");
        start.timeout_ms = timeout_ms;
        let done = agent.run(start).await;
        assert_eq!(
            (done.exit.cause(), done.exit.signal),
            (ExitCause::TimedOut, Some(15))
        );
        if timeout_ms == 40_000 || !done.stdout.is_empty() {
            assert_eq!(done.text(), "before\n");
            break;
        }
    }
    until("no keeper is left", || children(agent.pid()).is_empty()).await;
}

#[tokio::test]
async fn a_cancel_ends_a_double_forked_daemon_in_its_own_session() {
    let agent = Agent::start().await;
    let script = "setsid sh -c '(trap \"\" TERM; echo daemon=$$; exec 2>/dev/null; while :; do sleep 0.05; done) & ' & \
                  echo leader=$$; wait; sleep 60";
    let mut exec = agent.start_exec(shell("daemon", script)).await.unwrap();
    exec.until_stdout_has("leader=").await;
    exec.until_stdout_has("daemon=").await;
    let keeper = children(agent.pid())[0];
    until("the daemon has come back to the keeper", || {
        children(keeper).len() == 2
    })
    .await;
    let daemon: Vec<i32> = children(keeper);
    agent.cancel("daemon", 100).await.unwrap();
    assert!(
        daemon.iter().all(|pid| !is_alive(*pid)),
        "nobody is left when Cancel answers"
    );
    assert!(children(agent.pid()).is_empty());
    assert_eq!(exec.finish().await.exit.cause(), ExitCause::Cancelled);
}

#[tokio::test]
async fn a_cancel_after_the_leaders_end_ends_what_it_left_behind() {
    let agent = Agent::start().await;
    let done = agent.run(shell("left", DAEMON)).await;
    assert_eq!(done.exit.cause(), ExitCause::Exited);
    assert_eq!(
        children(agent.pid()).len(),
        1,
        "the keeper stays with the daemon"
    );
    agent.cancel("left", 0).await.unwrap();
    assert!(children(agent.pid()).is_empty());
    agent.cancel("left", 0).await.unwrap();
}

#[tokio::test]
async fn a_cancel_with_grace_lets_a_process_clean_up() {
    let agent = Agent::start().await;
    let script = "trap 'echo cleaned; exit 3' TERM; echo ready; while :; do sleep 0.02; done";
    let mut exec = agent.start_exec(shell("polite", script)).await.unwrap();
    exec.until_stdout_has("ready").await;
    agent.cancel("polite", 60_000).await.unwrap();
    let done = exec.finish().await;
    assert!(done.text().ends_with("cleaned\n"));
    assert_eq!(
        (done.exit.cause(), done.exit.code),
        (ExitCause::Cancelled, Some(3))
    );
}

#[tokio::test]
async fn a_stopped_process_is_woken_to_be_ended() {
    let agent = Agent::start().await;
    let script = "trap 'echo cleaned; exit 0' TERM; echo ready; kill -STOP $$; sleep 60";
    let mut exec = agent.start_exec(shell("stopped", script)).await.unwrap();
    let leader = exec.started().await;
    exec.until_stdout_has("ready").await;
    until("it is stopped", || state(leader) == Some('T')).await;
    agent.cancel("stopped", 60_000).await.unwrap();
    assert_eq!(exec.finish().await.text(), "ready\ncleaned\n");
}

fn state(pid: i32) -> Option<char> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    stat.rsplit_once(") ")?.1.chars().next()
}

#[tokio::test]
async fn a_fork_bomb_is_ended() {
    let agent = Agent::start().await;
    // Each generation replaces itself until its counter runs out: bounded, but never the same
    // processes from one scan to the next.
    let script = "bomb() { [ $1 -gt 0 ] || exec sleep 60; \
                  (bomb $(($1 - 1)) &); (bomb $(($1 - 1)) &); sleep 0.01; }; \
                  trap '' TERM; bomb 6 & echo ready; sleep 60";
    let mut exec = agent.start_exec(shell("bomb", script)).await.unwrap();
    exec.until_stdout_has("ready").await;
    agent.cancel("bomb", 0).await.unwrap();
    assert!(children(agent.pid()).is_empty());
    let done = exec.finish().await;
    assert_eq!(
        (done.exit.cause(), done.exit.signal),
        (ExitCause::Cancelled, Some(9))
    );
}

#[tokio::test]
async fn processes_that_respawn_each_other_are_ended() {
    let agent = Agent::start().await;
    // A chain that never stops: each link starts the next one and exits.
    let script = "cat > /dev/null & link='sh -c \"$0\" \"$0\" & exit'; sh -c \"$link\" \"$link\"; \
                  echo ready; sleep 60";
    let mut exec = agent.start_exec(shell("chain", script)).await.unwrap();
    exec.until_stdout_has("ready").await;
    agent.cancel("chain", 0).await.unwrap();
    assert!(children(agent.pid()).is_empty());
    exec.finish().await;
}

#[tokio::test]
async fn a_killed_keeper_takes_its_exec_along_and_no_other() {
    let agent = Agent::start().await;
    let mut other = command("other", &["cat"]);
    other.stdin = true;
    let mut other = agent.start_exec(other).await.unwrap();
    let other_leader = other.started().await;
    let other_keeper = children(agent.pid())[0];
    let script = "echo before; setsid sleep 61 & sleep 62 & echo ready; exec sleep 63";
    let mut exec = agent.start_exec(shell("victim", script)).await.unwrap();
    exec.until_stdout_has("ready").await;
    let keeper = children(agent.pid())
        .into_iter()
        .find(|pid| *pid != other_keeper)
        .unwrap();
    until("all three sleep", || {
        let leader = children(keeper);
        leader.len() == 1 && children(leader[0]).len() == 2
    })
    .await;
    let mut family = children(keeper);
    family.extend(children(family[0]));
    signal(keeper, "KILL");
    let done = exec.finish().await;
    assert_eq!(done.exit.cause(), ExitCause::KeeperKilled);
    assert!(family.iter().all(|pid| !is_alive(*pid)));
    assert_eq!(children(agent.pid()), [other_keeper]);
    assert!(is_alive(other_leader));
    agent.input("other", 0, "still here", true).await.unwrap();
    assert_eq!(other.finish().await.text(), "still here");
}

#[tokio::test]
async fn a_stopped_keeper_does_not_hold_up_a_cancel() {
    let agent = Agent::start().await;
    let mut exec = agent
        .start_exec(shell("held", "echo ready; sleep 60"))
        .await
        .unwrap();
    exec.until_stdout_has("ready").await;
    signal(children(agent.pid())[0], "STOP");
    agent.cancel("held", 0).await.unwrap();
    assert_eq!(exec.finish().await.exit.cause(), ExitCause::Cancelled);
}

#[tokio::test]
async fn a_signal_reaches_the_group_or_the_whole_tree() {
    let agent = Agent::start().await;
    let script = "trap 'echo leader-got-it' USR1; \
                  setsid sh -c \"trap 'echo other-got-it; exit' USR1; echo other-ready; while :; do sleep 0.02; done\" & \
                  echo leader-ready; while :; do sleep 0.02; done";
    let mut exec = agent.start_exec(shell("signals", script)).await.unwrap();
    exec.until_stdout_has("leader-ready").await;
    exec.until_stdout_has("other-ready").await;
    let send = |signal, whole_tree| {
        let request = SignalRequest {
            exec_id: "signals".into(),
            signal,
            whole_tree,
        };
        let mut client = agent.client.clone();
        async move { client.signal(request).await }
    };
    send(10, false).await.unwrap();
    let stdout = exec.until_stdout_has("leader-got-it").await;
    assert!(!stdout.contains("other-got-it"));
    send(10, true).await.unwrap();
    exec.until_stdout_has("other-got-it").await;
    assert_eq!(
        send(0, false).await.unwrap_err().code(),
        Code::InvalidArgument
    );
    assert_eq!(
        send(65, false).await.unwrap_err().code(),
        Code::InvalidArgument
    );
    send(9, true).await.unwrap();
    let done = exec.finish().await;
    assert_eq!(
        (done.exit.cause(), done.exit.signal),
        (ExitCause::Exited, Some(9))
    );
    assert_eq!(
        send(10, false).await.unwrap_err().code(),
        Code::FailedPrecondition
    );
}

#[tokio::test]
async fn a_shutdown_ends_every_exec_and_the_agent() {
    let mut agent = Agent::start().await;
    let first = agent.start_exec(shell("first", "sleep 60")).await.unwrap();
    let left = agent.run(shell("left", DAEMON)).await;
    assert_eq!(left.exit.code, Some(0));
    agent
        .client
        .clone()
        .shutdown(ShutdownRequest { grace_ms: 50 })
        .await
        .unwrap();
    assert_eq!(first.finish().await.exit.cause(), ExitCause::Cancelled);
    let status = agent.ended().await;
    assert!(status.success());
}

#[tokio::test]
async fn an_agent_that_lingers_ends_after_its_last_connection_with_all_it_started() {
    let mut agent = Agent::start().await;
    let mut exec = agent
        .start_exec(shell("left", "echo ready; sleep 60"))
        .await
        .unwrap();
    let leader = exec.started().await;
    drop(exec);
    agent.disconnect();
    assert!(agent.ended().await.success());
    assert!(!is_alive(leader));
}
