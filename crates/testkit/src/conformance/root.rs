//! Execs as the container's root.

use std::time::Duration;

use hotcell_agent_client::{AgentRefusal, Command, ExitCause};

use super::cell::{Cell, Live, expect_not_found, expect_refused};
use super::sealed::{Status, expect_no_capabilities, expect_unwritable};
use super::{Outcome, Subject, claimed};

/// Root's user and group.
const ROOT: (u32, u32) = (0, 0);

pub(super) async fn root_without_permission_is_refused(subject: &Subject) -> Outcome {
    if !claimed(subject.traits.sealed, "to seal") {
        return Ok(());
    }
    let cell = Cell::make(subject).await?;
    assert!(!cell.agent.hello().can_switch_user);
    let command = as_root(&cell, "echo no");
    let answer = match cell.agent.start("root", &command).await {
        Ok(mut follow) => follow.next().await,
        Err(error) => Err(error),
    };
    expect_refused(answer, &AgentRefusal::Denied);
    cell.end().await
}

pub(super) async fn root_has_its_uid_and_no_capabilities(subject: &Subject) -> Outcome {
    let Some(cell) = rooted(subject).await? else {
        return Ok(());
    };
    let ran = cell.run(&as_root(&cell, "id -u; id -g")).await?;
    assert_eq!(ran.stdout_text(), "0\n0\n", "{}", ran.stderr_text());
    let ran = cell.run(&as_root(&cell, "cat /proc/self/status")).await?;
    let status = Status::new(ran.stdout_text());
    expect_no_capabilities(&status)?;
    if subject.traits.linux {
        assert_eq!(status.fields("NoNewPrivs:")?, ["1"]);
    }
    assert_eq!(status.fields("Seccomp:")?, ["2"]);
    // Those who do not ask stay who they are, and have nothing of the agent's either.
    assert_eq!(cell.said("id -u").await?, "1000\n");
    let status = cell.said("cat /proc/self/status").await?;
    expect_no_capabilities(&Status::new(status))?;
    cell.end().await
}

pub(super) async fn root_cannot_write_the_image(subject: &Subject) -> Outcome {
    let Some(cell) = rooted(subject).await? else {
        return Ok(());
    };
    let script = "( : > /usr/probe ) 2> /dev/null && echo writable; mount -t tmpfs none /tmp \
                  2> /dev/null && echo mounted; :";
    let ran = cell.run(&as_root(&cell, script)).await?;
    assert_eq!(ran.stdout, b"");
    expect_unwritable(&cell, "/etc/passwd").await?;
    cell.end().await
}

pub(super) async fn an_exec_of_root_can_be_cancelled(subject: &Subject) -> Outcome {
    let Some(cell) = rooted(subject).await? else {
        return Ok(());
    };
    let script = "trap '' TERM; echo ready; sleep 1000 & while :; do wait; done";
    let mut live = Live::start(&cell.agent, &as_root(&cell, script)).await?;
    live.until("ready").await?;
    let grace = Duration::from_millis(50);
    cell.agent.cancel(&live.exec_id, grace).await?;
    let exit = live.end().await?.exit;
    assert_eq!((exit.cause, exit.signal), (ExitCause::Cancelled, Some(9)));
    cell.end().await
}

pub(super) async fn what_root_leaves_behind_goes_with_the_container(subject: &Subject) -> Outcome {
    let Some(cell) = rooted(subject).await? else {
        return Ok(());
    };
    // Root has no capability to write where only the user may.
    cell.said("mkdir open && chmod 777 . open").await?;
    let script = "umask 077 && mkdir -p closed/inner open/closed && echo secret > closed/file \
                  && echo secret > closed/inner/file && echo secret > open/closed/file \
                  && chmod 0 closed/inner && stat -c %u:%a closed";
    let ran = cell.run(&as_root(&cell, script)).await?;
    assert_eq!(ran.stdout_text(), "0:700\n", "{}", ran.stderr_text());
    // To the user, which may be who runs the engine, all of it is closed.
    let listed = cell.shell("ls closed open/closed").await?;
    assert_ne!(listed.exit.code, Some(0));
    let id = cell.id.clone();
    cell.end().await?;
    expect_not_found(&subject.engine.destroy(&id).await);
    Ok(())
}

/// A container that allows root, if the engine has such.
async fn rooted(subject: &Subject) -> anyhow::Result<Option<Cell<'_>>> {
    if !claimed(subject.traits.root, "to run as root") {
        return Ok(None);
    }
    let cell = Cell::make_with(subject, |spec| spec.allow_root = true).await?;
    assert!(cell.agent.hello().can_switch_user);
    Ok(Some(cell))
}

fn as_root(cell: &Cell<'_>, script: &str) -> Command {
    Command {
        user: Some(ROOT),
        ..cell.sh(script)
    }
}
