//! Execs as the container's root.

use std::time::Duration;

use hotcell_agent_client::{AgentRefusal, Command, ExitCause};

use super::container::{Live, TestContainer, expect_not_found, expect_refused};
use super::sealed::{Status, expect_no_capabilities, expect_unwritable};
use super::{Outcome, Subject, claimed};

/// User and group id of root.
const ROOT: (u32, u32) = (0, 0);

pub(super) async fn root_without_permission_is_refused(subject: &Subject) -> Outcome {
    if !claimed(subject.traits.sealed, "to seal") {
        return Ok(());
    }
    let container = TestContainer::make(subject).await?;
    assert!(!container.agent.hello().can_switch_user);
    let command = as_root(&container, "echo no");
    let answer = match container.agent.start("root", &command).await {
        Ok(mut follow) => follow.next().await,
        Err(error) => Err(error),
    };
    expect_refused(answer, &AgentRefusal::Denied);
    container.end().await
}

pub(super) async fn root_has_its_uid_and_no_capabilities(subject: &Subject) -> Outcome {
    let Some(container) = rooted(subject).await? else {
        return Ok(());
    };
    let ran = container.run(&as_root(&container, "id -u; id -g")).await?;
    assert_eq!(ran.stdout_text(), "0\n0\n", "{}", ran.stderr_text());
    let ran = container
        .run(&as_root(&container, "cat /proc/self/status"))
        .await?;
    let status = Status::new(ran.stdout_text());
    expect_no_capabilities(&status)?;
    if subject.traits.linux {
        assert_eq!(status.fields("NoNewPrivs:")?, ["1"]);
    }
    assert_eq!(status.fields("Seccomp:")?, ["2"]);
    // Execs that do not ask for root keep their user, and inherit no capabilities from the agent.
    assert_eq!(container.said("id -u").await?, "1000\n");
    let status = container.said("cat /proc/self/status").await?;
    expect_no_capabilities(&Status::new(status))?;
    container.end().await
}

pub(super) async fn root_cannot_write_the_image(subject: &Subject) -> Outcome {
    let Some(container) = rooted(subject).await? else {
        return Ok(());
    };
    let script = "( : > /usr/probe ) 2> /dev/null && echo writable; mount -t tmpfs none /tmp \
                  2> /dev/null && echo mounted; :";
    let ran = container.run(&as_root(&container, script)).await?;
    assert_eq!(ran.stdout, b"");
    expect_unwritable(&container, "/etc/passwd").await?;
    container.end().await
}

pub(super) async fn an_exec_of_root_can_be_cancelled(subject: &Subject) -> Outcome {
    let Some(container) = rooted(subject).await? else {
        return Ok(());
    };
    let script = "trap '' TERM; echo ready; sleep 1000 & while :; do wait; done";
    let mut live = Live::start(&container.agent, &as_root(&container, script)).await?;
    live.until("ready").await?;
    let grace = Duration::from_millis(50);
    container.agent.cancel(&live.exec_id, grace).await?;
    let exit = live.end().await?.exit;
    assert_eq!((exit.cause, exit.signal), (ExitCause::Cancelled, Some(9)));
    container.end().await
}

pub(super) async fn what_root_leaves_behind_goes_with_the_container(subject: &Subject) -> Outcome {
    let Some(container) = rooted(subject).await? else {
        return Ok(());
    };
    // Root has no capability to override file permissions.
    container.said("mkdir open && chmod 777 . open").await?;
    let script = "umask 077 && mkdir -p closed/inner open/closed && echo secret > closed/file \
                  && echo secret > closed/inner/file && echo secret > open/closed/file \
                  && chmod 0 closed/inner && stat -c %u:%a closed";
    let ran = container.run(&as_root(&container, script)).await?;
    assert_eq!(ran.stdout_text(), "0:700\n", "{}", ran.stderr_text());
    // For the container's user, which may be the one who runs the engine, all of it is
    // inaccessible.
    let listed = container.shell("ls closed open/closed").await?;
    assert_ne!(listed.exit.code, Some(0));
    let id = container.id.clone();
    container.end().await?;
    expect_not_found(&subject.engine.destroy(&id).await);
    Ok(())
}

/// A container that allows root, if the engine supports it.
async fn rooted(subject: &Subject) -> anyhow::Result<Option<TestContainer<'_>>> {
    if !claimed(subject.traits.root, "to run as root") {
        return Ok(None);
    }
    let container = TestContainer::make_with(subject, |spec| spec.allow_root = true).await?;
    assert!(container.agent.hello().can_switch_user);
    Ok(Some(container))
}

fn as_root(container: &TestContainer<'_>, script: &str) -> Command {
    Command {
        user: Some(ROOT),
        ..container.sh(script)
    }
}
