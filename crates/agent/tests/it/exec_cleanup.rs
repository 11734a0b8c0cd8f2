//! What the agent does once a command has ended, and the input that comes with its start.

use hotcell_agent_api::v1::{Changes, Cleanup, ExecStart, ExitCause};
use tonic::Code;

use crate::harness::{Agent, Finished, children, shell, until};

/// A directory below the agent's root, `/tmp`.
fn directory() -> (tempfile::TempDir, String) {
    let directory = tempfile::tempdir_in("/tmp").expect("a directory");
    let path = directory.path().to_string_lossy().into_owned();
    (directory, path)
}

fn cleaned(id: &str, script: &str, remove: &str, report: &str) -> ExecStart {
    ExecStart {
        cleanup: Some(Cleanup {
            remove: remove.to_owned().into(),
            report: report.to_owned().into(),
        }),
        ..shell(id, script)
    }
}

fn names(finished: &Finished) -> Vec<String> {
    let Changes { files, more } = finished.exit.changes.clone().expect("it was asked for");
    assert!(!more);
    let name = |path: &[u8]| {
        let path = String::from_utf8_lossy(path);
        path.rsplit('/').next().unwrap_or_default().to_owned()
    };
    files.iter().map(|file| name(&file.path)).collect()
}

#[tokio::test]
async fn what_a_command_leaves_is_ended_removed_and_reported() {
    let agent = Agent::start().await;
    let (_directory, path) = directory();
    let (source, report) = (format!("{path}/source"), format!("{path}/out"));
    std::fs::write(&source, "x").unwrap();
    std::fs::create_dir(&report).unwrap();
    for name in ["same", "changed", "gone"] {
        std::fs::write(format!("{report}/{name}"), "before").unwrap();
    }
    let script = format!(
        "cd {report} && mkdir deep && echo new > deep/new && echo more >> changed && rm gone && \
         ln -s same link && mkfifo fifo && test -e {source} && echo there; \
         (trap '' TERM; while :; do sleep 0.05; done) &"
    );
    let mut start = cleaned("leaves", &script, &source, &report);
    start.grace_ms = 50;
    let done = agent.run(start).await;
    assert_eq!(done.text(), "there\n", "the file was there until the end");
    assert_eq!(done.exit.cause(), ExitCause::Exited, "{:?}", done.exit);
    assert_eq!(names(&done), ["changed", "new"]);
    assert!(!std::fs::exists(&source).unwrap());
    assert!(
        children(agent.pid()).is_empty(),
        "nothing runs when the exit is told"
    );
}

#[tokio::test]
async fn without_a_cleanup_nothing_is_ended_or_removed() {
    let agent = Agent::start().await;
    let (_directory, path) = directory();
    let done = agent
        .sh(&format!("echo x > {path}/file; sleep 100 &"))
        .await;
    assert_eq!(done.exit.changes, None);
    assert!(std::fs::exists(format!("{path}/file")).unwrap());
    assert_eq!(children(agent.pid()).len(), 1);
}

#[tokio::test]
async fn what_is_not_there_or_no_directory_is_no_failure() {
    let agent = Agent::start().await;
    let (_directory, path) = directory();
    let done = agent
        .run(cleaned(
            "nothing",
            "true",
            &format!("{path}/no"),
            &format!("{path}/no"),
        ))
        .await;
    assert_eq!(names(&done), [""; 0]);
    // A tree is not removed, and a link out of the root is not followed.
    let script = format!("mkdir -p {path}/dir/deep && ln -s /etc {path}/etc");
    let start = cleaned(
        "hostile",
        &script,
        &format!("{path}/dir"),
        &format!("{path}/etc"),
    );
    assert_eq!(names(&agent.run(start).await), [""; 0]);
    assert!(std::fs::exists(format!("{path}/dir/deep")).unwrap());
    let start = cleaned("leads out", "true", "", "../etc");
    let refused = agent
        .start_exec(ExecStart {
            exec_id: "out".into(),
            ..start
        })
        .await;
    assert_eq!(refused.err().unwrap().code(), Code::InvalidArgument);
}

#[tokio::test]
async fn a_timeout_is_told_once_the_cleanup_is_done() {
    let agent = Agent::start().await;
    let (_directory, path) = directory();
    let source = format!("{path}/source");
    std::fs::write(&source, "x").unwrap();
    let mut start = cleaned(
        "slow",
        "trap '' TERM; while :; do sleep 0.05; done",
        &source,
        "",
    );
    (start.timeout_ms, start.grace_ms) = (50, 50);
    let done = agent.run(start).await;
    assert_eq!(done.exit.cause(), ExitCause::TimedOut);
    assert_eq!(names(&done), [""; 0]);
    assert!(!std::fs::exists(&source).unwrap());
    until("no keeper is left", || children(agent.pid()).is_empty()).await;
}

#[tokio::test]
async fn input_that_comes_with_the_start_is_all_of_it() {
    let agent = Agent::start().await;
    let start = |id: &str, script: &str, input: &str| ExecStart {
        stdin: true,
        input: Some(input.to_owned().into()),
        ..shell(id, script)
    };
    let long = "line\n".repeat(6000);
    assert_eq!(agent.run(start("all", "cat", &long)).await.text(), long);
    assert_eq!(agent.run(start("none", "cat", "")).await.text(), "");
    let unread = agent
        .run(start("unread", "exec <&-; echo done", &long))
        .await;
    assert_eq!(unread.text(), "done\n");
    // A start that is repeated writes nothing twice.
    let slow = "read first; echo $first; cat";
    let first = agent.start_exec(start("twice", slow, "a\nb\n")).await;
    let again = agent.start_exec(start("twice", slow, "a\nb\n")).await;
    assert_eq!(again.unwrap().finish().await.text(), "a\nb\n");
    drop(first);
}
