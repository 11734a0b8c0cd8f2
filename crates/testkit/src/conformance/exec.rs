//! Commands: what they can do, and how they end.

use futures_util::future::join_all;
use hotcell_agent_client::{Command, ExitCause};
use hotcell_domain::ImageRef;

use super::container::{Live, Ran, TestContainer, noise};
use super::exec_input::{feed, interactive};
use super::{Outcome, Subject, claimed};

/// `ENOENT`.
const NO_SUCH_FILE: i32 = 2;

/// `EACCES`.
const PERMISSION_DENIED: i32 = 13;

/// Below the kernel's limit of 128 KiB for one argument.
const LONG_ARGUMENT_BYTES: usize = 100_000;

/// Concurrent execs.
const AT_ONCE: u8 = 32;

pub(super) async fn stdout_and_stderr_are_separate(subject: &Subject) -> Outcome {
    let container = TestContainer::make(subject).await?;
    let ran = container.shell("echo out; echo err >&2; echo more").await?;
    assert_eq!(ran.stdout, b"out\nmore\n");
    assert_eq!(ran.stderr, b"err\n");
    assert_eq!(ran.exit.cause, ExitCause::Exited);
    container.end().await
}

pub(super) async fn the_exit_code_is_told(subject: &Subject) -> Outcome {
    let container = TestContainer::make(subject).await?;
    for code in [0, 1, 7, 255] {
        let exit = container.shell(&format!("exit {code}")).await?.exit;
        assert_eq!((exit.code, exit.signal), (Some(code), None));
        assert_eq!(exit.cause, ExitCause::Exited);
    }
    container.end().await
}

pub(super) async fn the_signal_that_ended_it_is_told(subject: &Subject) -> Outcome {
    let container = TestContainer::make(subject).await?;
    for signal in [9, 15] {
        let exit = container.shell(&format!("kill -{signal} $$")).await?.exit;
        assert_eq!((exit.code, exit.signal), (None, Some(signal)));
        assert_eq!(exit.cause, ExitCause::Exited);
    }
    container.end().await
}

pub(super) async fn a_missing_command_is_not_started(subject: &Subject) -> Outcome {
    let container = TestContainer::make(subject).await?;
    for command in ["no-such-command", "/no/such/command"] {
        let ran = container.run(&Command::new([command])).await?;
        expect_not_started(&ran, NO_SUCH_FILE);
    }
    container.end().await
}

pub(super) async fn a_file_that_is_not_executable_is_not_started(subject: &Subject) -> Outcome {
    let container = TestContainer::make(subject).await?;
    container
        .said("echo 'echo no' > plain; chmod 644 plain")
        .await?;
    let ran = container
        .run(&Command::new([container.beneath("plain")]))
        .await?;
    expect_not_started(&ran, PERMISSION_DENIED);
    container.end().await
}

pub(super) async fn a_missing_directory_is_not_started(subject: &Subject) -> Outcome {
    let container = TestContainer::make(subject).await?;
    let command = Command {
        cwd: container.beneath("missing").into(),
        ..container.sh("echo no")
    };
    expect_not_started(&container.run(&command).await?, NO_SUCH_FILE);
    container.end().await
}

pub(super) async fn it_runs_in_the_directory_it_was_given(subject: &Subject) -> Outcome {
    let container = TestContainer::make(subject).await?;
    container.said("mkdir sub").await?;
    for cwd in [
        "/".to_owned(),
        container.root().to_owned(),
        container.beneath("sub"),
    ] {
        let mut command = Command::new(["/bin/sh", "-c", "pwd -P"]);
        command.cwd = cwd.clone().into();
        let ran = container.run(&command).await?;
        assert_eq!(ran.stdout_text(), format!("{cwd}\n"));
    }
    container.end().await
}

pub(super) async fn the_environment_is_exactly_what_was_given(subject: &Subject) -> Outcome {
    let container = TestContainer::make(subject).await?;
    let mut command = Command::new(["env"]);
    command.env.push((b"EMPTY".to_vec(), Vec::new()));
    command.env.push((b"WORDS".to_vec(), b"a b=c $x".to_vec()));
    let ran = container.run(&command).await?;
    let mut lines: Vec<_> = ran.stdout.split(|byte| *byte == b'\n').collect();
    lines.sort_unstable();
    let expected: [&[u8]; 4] = [
        b"",
        b"EMPTY=",
        b"PATH=/usr/local/bin:/usr/bin:/bin",
        b"WORDS=a b=c $x",
    ];
    assert_eq!(lines, expected, "{}", ran.stdout_text());
    container.end().await
}

pub(super) async fn the_agent_tells_the_variables_of_its_image(subject: &Subject) -> Outcome {
    if !claimed(matches!(subject.image, ImageRef::Oci(_)), "to have images") {
        return Ok(());
    }
    let container = TestContainer::make(subject).await?;
    let wanted: (&[u8], &[u8]) = (b"FROM_IMAGE", b"yes");
    let told: Vec<_> = container.agent.hello().variables().collect();
    assert!(told.contains(&wanted), "{told:?}");
    assert_eq!(container.said("echo ${FROM_IMAGE-unset}").await?, "unset\n");
    container.end().await
}

pub(super) async fn a_long_argument_arrives_whole(subject: &Subject) -> Outcome {
    let container = TestContainer::make(subject).await?;
    let mut command = container.sh("printf %s \"$1\"");
    command.argv.push(b"sh".to_vec());
    let long: Vec<u8> = (0..LONG_ARGUMENT_BYTES).map(letter).collect();
    command.argv.push(long.clone());
    assert!(container.run(&command).await?.stdout == long);
    container.end().await
}

pub(super) async fn a_mebibyte_of_binary_output_arrives_byte_for_byte(
    subject: &Subject,
) -> Outcome {
    let container = TestContainer::make(subject).await?;

    let data = noise(1 << 20);
    let script = "cat > blob; cat blob; cat blob >&2";
    let live = Live::start(&container.agent, &interactive(&container, script)).await?;
    let exec_id = live.exec_id.clone();
    let (fed, ran) = tokio::join!(feed(&container.agent, &exec_id, &data), live.end());
    let ran = ran?;
    fed?;
    assert!(ran.stdout == data, "stdout differs");
    assert!(ran.stderr == data, "stderr differs");
    let usage = ran.exit.usage;
    assert_eq!((usage.stdout_bytes, usage.stderr_bytes), (1 << 20, 1 << 20));
    container.end().await
}

pub(super) async fn a_broken_pipe_ends_the_writer_quietly(subject: &Subject) -> Outcome {
    let container = TestContainer::make(subject).await?;
    let ran = container.shell("yes | head -n 1").await?;
    assert_eq!(ran.stdout_text(), "y\n");
    assert_eq!(ran.stderr_text(), "");
    assert_eq!(ran.exit.code, Some(0));
    container.end().await
}

pub(super) async fn usage_is_counted(subject: &Subject) -> Outcome {
    let container = TestContainer::make(subject).await?;
    let script = "i=0; while [ $i -lt 200000 ]; do i=$((i+1)); done; echo out; echo er >&2";
    let usage = container.shell(script).await?.exit.usage;
    let processor = usage.user + usage.system;
    assert!(!processor.is_zero());
    assert!(!usage.wall.is_zero());
    // One thread; the kernel counts in ticks, so allow for a few.
    let tick = std::time::Duration::from_millis(20);
    assert!(processor <= usage.wall + tick, "{usage:?}");
    assert!(usage.max_rss_bytes >= 100 << 10, "{usage:?}");
    assert_eq!((usage.stdout_bytes, usage.stderr_bytes), (4, 3));
    container.end().await
}

pub(super) async fn thirty_two_execs_run_at_once(subject: &Subject) -> Outcome {
    let container = TestContainer::make(subject).await?;
    let start = |number: u8| {
        let script = format!("echo {number}; read answer; exit {number}");
        let command = Command {
            stdin: true,
            ..container.sh(&script)
        };
        let agent = &container.agent;
        async move {
            let mut live = Live::start(agent, &command).await?;
            live.until(&format!("{number}\n")).await?;
            anyhow::Ok(live)
        }
    };
    let started = join_all((0..AT_ONCE).map(start)).await;
    let running = container.agent.list_execs().await?;
    assert_eq!(running.iter().filter(|exec| exec.running).count(), 32);
    for (number, live) in (0..).zip(started) {
        let live = live?;
        let agent = &container.agent;
        agent.input(&live.exec_id, 0, "\n".into(), true).await?;
        let ran = live.end().await?;
        assert_eq!(ran.exit.code, Some(number));
        assert_eq!(ran.stdout_text(), format!("{number}\n"));
    }
    container.end().await
}

pub(super) async fn a_background_process_does_not_hold_up_the_exit(subject: &Subject) -> Outcome {
    let container = TestContainer::make(subject).await?;
    // The sleeping process keeps both pipes open.
    let live = Live::start(&container.agent, &container.sh("sleep 1000 & echo $!")).await?;
    let exec_id = live.exec_id.clone();
    let ran = live.end().await?;
    assert_eq!(ran.exit.code, Some(0));
    let pid = ran.stdout_text();
    assert_eq!(container.said(&format!("kill -0 {pid}")).await?, "");
    container
        .agent
        .cancel(&exec_id, std::time::Duration::ZERO)
        .await?;
    container.end().await
}

/// It never ran, for this reason, and wrote nothing.
fn expect_not_started(ran: &Ran, wanted: i32) {
    let ExitCause::NotStarted { errno, .. } = &ran.exit.cause else {
        panic!("it ended with {:?}", ran.exit);
    };
    assert_eq!(*errno, wanted);
    assert_eq!((ran.exit.code, ran.exit.signal), (None, None));
    assert_eq!((&*ran.stdout, &*ran.stderr), (&b""[..], &b""[..]));
}

fn letter(index: usize) -> u8 {
    b"abcdefghijklmnopqrstuvwxyz"[index * 7 % 26]
}
