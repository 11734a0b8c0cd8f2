//! Warm interpreters.

use anyhow::bail;
use hotcell_agent_client::{Command, Feature, Interpreter, WriteOptions};

use super::container::{Live, Ran, TestContainer};
use super::exec_input::feed;
use super::{Outcome, Subject};
use crate::python::{Script, scripts, without_addresses};

/// The scripts that are run on engines that do not run all of them.
const SOME: [&str; 12] = [
    "argv",
    "atexit_order",
    "exit_text",
    "finalizers",
    "main_module",
    "multiprocessing_spawn",
    "process_attributes",
    "sigint",
    "stack_is_ours",
    "stdin_lines",
    "threads_outlive_main",
    "traceback_chained",
];

/// Attempts until a warm interpreter is ready. Each waits for one that is starting.
const ATTEMPTS_MAX: usize = 50;

/// Attempts where none can succeed.
const ATTEMPTS_IN_VAIN: usize = 3;

/// Prints whether a warm interpreter runs the script, which only its command line shows.
const TELL: &str = "print('hotcell' in open('/proc/self/cmdline').read())";

pub(super) async fn a_warmed_interpreter_does_what_a_new_one_does(subject: &Subject) -> Outcome {
    let container = TestContainer::make(subject).await?;
    if container.shell("command -v python3").await?.exit.code != Some(0) {
        crate::not_claimed("the image has no Python");
        return container.end().await;
    }
    if container.is_older(Feature::WarmPython) {
        return container.end().await;
    }
    let env = python(&container, &[]).env;
    let agent = &container.agent;
    agent.warm_up(Interpreter::Python, b"python3", &env).await?;
    let is_warm = until_warm(&container).await?;
    // gVisor has no subreapers, so a zygote gives up there; scripts run anyway.
    assert_eq!(is_warm, subject.traits.orphans, "it can be warmed up");
    let has_all = subject.traits.user_namespace;
    for script in scripts() {
        if has_all || SOME.contains(&script.name.as_str()) {
            let new = run(&container, &script, false).await?;
            let warm = run(&container, &script, true).await?;
            assert_eq!(seen(&warm), seen(&new), "{}", script.name);
        }
    }
    if is_warm {
        assert!(until_warm(&container).await?, "none of them ended it");
    }
    container.end().await
}

async fn until_warm(container: &TestContainer<'_>) -> anyhow::Result<bool> {
    write(container, "tells.py", TELL.as_bytes()).await?;
    let mut command = python(container, &["tells.py"]);
    command.warm_interpreter = Some(Interpreter::Python);
    let attempts = if container.subject.traits.orphans {
        ATTEMPTS_MAX
    } else {
        ATTEMPTS_IN_VAIN
    };
    for _ in 0..attempts {
        let ran = container.run(&command).await?;
        match ran.stdout_text().trim() {
            "True" => return Ok(true),
            "False" => {}
            other => bail!("{other} {}", ran.stderr_text()),
        }
    }
    Ok(false)
}

async fn run(
    container: &TestContainer<'_>,
    script: &Script,
    may_be_warm: bool,
) -> anyhow::Result<Ran> {
    container.said("rm -rf ./* .local .cache").await?;
    let file = format!("{}.py", script.name);
    write(container, &file, &script.source).await?;
    let mut arguments = vec![file.as_str()];
    arguments.extend(script.args.iter().map(String::as_str));
    let mut command = python(container, &arguments);
    if let Some((name, value)) = &script.env {
        command
            .env
            .push((name.clone().into(), value.clone().into()));
    }
    command.warm_interpreter = may_be_warm.then_some(Interpreter::Python);
    command.stdin = !script.stdin.is_empty();
    let live = Live::start(&container.agent, &command).await?;
    if command.stdin {
        // A script may end without reading its input.
        let _ = feed(&container.agent, &live.exec_id, &script.stdin).await;
    }
    live.end().await
}

fn python(container: &TestContainer<'_>, arguments: &[&str]) -> Command {
    let mut command = Command::new(std::iter::once(&"python3").chain(arguments).copied());
    command.cwd = container.root().into();
    let home = (b"HOME".to_vec(), container.root().into());
    command
        .env
        .extend([home, (b"LANG".to_vec(), b"C.UTF-8".to_vec())]);
    command
}

async fn write(container: &TestContainer<'_>, path: &str, content: &[u8]) -> Outcome {
    let agent = &container.agent;
    let content = bytes::Bytes::copy_from_slice(content);
    agent
        .write_all(path.as_bytes(), content, WriteOptions::default())
        .await?;
    Ok(())
}

fn seen(ran: &Ran) -> (String, String, Option<u8>, Option<u8>) {
    (
        without_addresses(&ran.stdout),
        without_addresses(&ran.stderr),
        ran.exit.code,
        ran.exit.signal,
    )
}
