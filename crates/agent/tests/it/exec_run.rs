//! Starting commands, and how their end is reported.

use hotcell_agent_api::v1::exec_event::Event;
use hotcell_agent_api::v1::{ExitCause, ForgetRequest, HelloRequest, ListExecsRequest};
use tonic::Code;

use crate::harness::{self, Agent, command, shell, until, variable};

#[tokio::test]
async fn an_exit_code_and_both_streams_come_back() {
    let agent = Agent::start().await;
    let done = agent.sh("echo out; echo err >&2; exit 7").await;
    assert_eq!(
        (&done.stdout[..], &done.stderr[..]),
        (&b"out\n"[..], &b"err\n"[..])
    );
    assert_eq!(
        (done.exit.cause(), done.exit.code),
        (ExitCause::Exited, Some(7))
    );
    let usage = done.exit.usage.unwrap();
    assert_eq!((usage.stdout_bytes, usage.stderr_bytes), (4, 4));
    assert!(usage.wall_us > 0 && usage.max_rss_bytes > 0);
}

#[tokio::test]
async fn a_signal_that_was_not_ours_is_told() {
    let agent = Agent::start().await;
    let done = agent.sh("kill -SEGV $$").await;
    assert_eq!(
        (done.exit.cause(), done.exit.signal),
        (ExitCause::Exited, Some(11))
    );
    assert_eq!(done.exit.code, None);
}

#[tokio::test]
async fn the_environment_is_exactly_the_one_that_was_asked_for() {
    let agent = Agent::start().await;
    let mut start = command("env", &["/usr/bin/env"]);
    start.env = vec![variable("B", "2 = \u{e9}"), variable("A", "")];
    assert_eq!(agent.run(start).await.text(), "B=2 = \u{e9}\nA=\n");
}

#[tokio::test]
async fn a_command_starts_in_its_directory_with_default_signals_and_mask() {
    let agent = Agent::start().await;
    let mut start = shell(
        "state",
        "pwd; umask; grep -E '^Sig(Blk|Ign)' /proc/self/status",
    );
    start.cwd = "/usr/bin".into();
    let done = agent.run(start).await;
    let zero = "0".repeat(16);
    assert_eq!(
        done.text(),
        format!("/usr/bin\n0022\nSigBlk:\t{zero}\nSigIgn:\t{zero}\n")
    );
}

#[tokio::test]
async fn a_command_has_three_descriptors_and_they_are_pipes() {
    let agent = Agent::start().await;
    let mut start = command("three", &["cat"]);
    start.stdin = true;
    let mut exec = agent.start_exec(start).await.unwrap();
    let leader = exec.started().await;
    // Once it echoes, the dynamic linker has closed its files.
    agent.input("three", 0, "ready", false).await.unwrap();
    exec.until_stdout_has("ready").await;
    let mut open: Vec<_> = std::fs::read_dir(format!("/proc/{leader}/fd"))
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .map(|path| (path.clone(), std::fs::read_link(path).unwrap()))
        .collect();
    open.sort();
    let names = open
        .iter()
        .map(|(path, _)| path.file_name().unwrap().to_str().unwrap());
    assert_eq!(names.collect::<Vec<_>>(), ["0", "1", "2"]);
    assert!(
        open.iter()
            .all(|(_, target)| target.to_str().unwrap().starts_with("pipe:"))
    );
}

#[tokio::test]
async fn a_missing_command_a_bad_directory_and_a_directory_are_not_started() {
    let agent = Agent::start().await;
    let mut nowhere = command("nowhere", &["true"]);
    nowhere.cwd = "/does/not/exist".into();
    let cases = [
        (command("missing", &["no-such-command"]), "execve", 2),
        (command("absolute", &["/no/such/command"]), "execve", 2),
        (command("directory", &["/tmp"]), "execve", 13),
        (nowhere, "chdir", 2),
    ];
    for (start, step, errno) in cases {
        let done = agent.run(start).await;
        assert_eq!(done.exit.cause(), ExitCause::NotStarted);
        let error = done.exit.start_error.unwrap();
        assert_eq!((error.step.as_str(), error.errno), (step, errno));
        assert_eq!((done.exit.code, done.exit.signal), (None, None));
    }
    until("no keeper is left", || {
        harness::children(agent.pid()).is_empty()
    })
    .await;
}

#[tokio::test]
async fn output_is_byte_for_byte_what_was_written() {
    let agent = Agent::start().await;
    let script = r"printf '\377\376\000\200x'; head -c 300000 /dev/zero";
    let done = agent.sh(script).await;
    assert_eq!(&done.stdout[..5], b"\xff\xfe\0\x80x");
    assert_eq!(done.stdout.len(), 300_005);
}

#[tokio::test]
async fn output_streams_before_the_end() {
    let agent = Agent::start().await;
    let mut start = shell("early", "echo early; cat");
    start.stdin = true;
    let mut exec = agent.start_exec(start).await.unwrap();
    exec.until_stdout_has("early").await;
    agent.input("early", 0, "late", true).await.unwrap();
    assert_eq!(exec.finish().await.text(), "early\nlate");
}

#[tokio::test]
async fn a_running_exec_cannot_be_forgotten_and_a_finished_one_can() {
    let agent = Agent::start().await;
    let mut start = command("kept", &["cat"]);
    start.stdin = true;
    let mut exec = agent.start_exec(start).await.unwrap();
    exec.started().await;
    let forget = || ForgetRequest {
        exec_id: "kept".into(),
    };
    let refused = agent.client.clone().forget(forget()).await.unwrap_err();
    assert_eq!(refused.code(), Code::FailedPrecondition);
    agent.input("kept", 0, "", true).await.unwrap();
    exec.finish().await;
    agent.client.clone().forget(forget()).await.unwrap();
    let refused = agent.client.clone().forget(forget()).await.unwrap_err();
    assert_eq!(refused.code(), Code::NotFound);
    let list = agent
        .client
        .clone()
        .list_execs(ListExecsRequest {})
        .await
        .unwrap();
    assert!(list.into_inner().execs.is_empty());
}

#[tokio::test]
async fn what_a_background_process_writes_after_the_end_does_not_kill_it() {
    let agent = Agent::start().await;
    let directory = tempfile::tempdir().unwrap();
    let gate = directory.path().join("gate");
    let proof = directory.path().join("proof");
    let script = format!(
        "(while [ ! -e {0} ]; do sleep 0.01; done; head -c 1000000 /dev/zero; echo alive > {1}) & \
         echo leader",
        gate.display(),
        proof.display(),
    );
    let done = agent.run(shell("left", &script)).await;
    assert_eq!((done.text(), done.exit.code), ("leader\n", Some(0)));
    std::fs::write(&gate, "").unwrap();
    until("the background process wrote", || proof.exists()).await;
}

#[tokio::test]
async fn execs_over_the_bound_are_refused_until_one_is_settled() {
    let agent = Agent::start().await;
    let forgettable = agent.start_exec(command("first", &["true"])).await.unwrap();
    forgettable.finish().await;
    for index in 1..hotcell_agent_api::bounds::EXECS_MAX {
        // Not acknowledged, so none of them may be dropped.
        let mut exec = agent
            .start_exec(command(&index.to_string(), &["true"]))
            .await
            .unwrap();
        while !matches!(
            exec.next().await.unwrap().unwrap().event,
            Some(Event::Exit(_))
        ) {}
    }
    agent.until_acknowledged("first").await;
    let last = agent.start_exec(command("over", &["true"])).await.unwrap();
    drop(last);
    let over = agent
        .start_exec(command("too many", &["true"]))
        .await
        .err()
        .unwrap();
    assert_eq!(over.code(), Code::InvalidArgument);
    let over = agent
        .start_exec(command("too-many", &["true"]))
        .await
        .err()
        .unwrap();
    assert_eq!(over.code(), Code::ResourceExhausted);
    assert_eq!(
        agent.resume("first", 0).await.err().unwrap().code(),
        Code::NotFound
    );
}

#[tokio::test]
async fn hello_tells_who_answers() {
    let agent = Agent::start().await;
    let hello = agent
        .client
        .clone()
        .hello(HelloRequest::default())
        .await
        .unwrap();
    let hello = hello.into_inner();
    assert_eq!((hello.protocol, hello.root.as_str()), (1, "/tmp"));
    assert_eq!(hello.boot_id.len(), 16);
    let again = agent
        .another_connection()
        .await
        .hello(HelloRequest::default())
        .await;
    assert_eq!(again.unwrap().into_inner().boot_id, hello.boot_id);
    assert_eq!(hello.uid, rustix::process::geteuid().as_raw());
}

#[tokio::test]
async fn another_user_is_become_or_refused() {
    let agent = Agent::start().await;
    let mut start = shell(
        "other",
        "id -u; id -g; id -G; grep CapEff /proc/self/status",
    );
    start.uid = Some(12345);
    start.gid = Some(54321);
    let hello = agent
        .client
        .clone()
        .hello(HelloRequest::default())
        .await
        .unwrap();
    if hello.into_inner().can_switch_user {
        let done = agent.run(start).await;
        assert_eq!(
            done.text(),
            "12345\n54321\n54321\nCapEff:\t0000000000000000\n"
        );
    } else {
        let refused = agent.start_exec(start).await.err().unwrap();
        assert_eq!(refused.code(), Code::PermissionDenied);
    }
}

/// The capabilities that the embedded engine leaves to an agent that may run commands as root.
/// Inheritable ones come first: they cannot be added once the bounding set is empty.
const MAY_SWITCH_USER: [&str; 9] = [
    "setpriv",
    "--inh-caps=+setuid,+setgid,+kill",
    "setpriv",
    "--reuid=12345",
    "--regid=12345",
    "--clear-groups",
    "--ambient-caps=+setuid,+setgid,+kill",
    "--bounding-set=-all",
    "--no-new-privs",
];

#[tokio::test]
async fn no_capability_of_the_agent_reaches_a_command() {
    if !rustix::process::geteuid().is_root() {
        let reason = "only root can give an agent capabilities to lose";
        hotcell_testkit::skip(hotcell_testkit::Need::Root, reason);
        return;
    }
    let agent = Agent::start_by(&MAY_SWITCH_USER).await;
    let hello = agent
        .client
        .clone()
        .hello(HelloRequest::default())
        .await
        .unwrap();
    let hello = hello.into_inner();
    assert_eq!((hello.uid, hello.can_switch_user), (12345, true));
    let script = "id -u; grep -E '^Cap(Inh|Prm|Eff|Amb)' /proc/self/status | cut -f2 | sort -u";
    let zero = "0".repeat(16);
    for uid in [12345, 0, 54321] {
        let mut start = shell(&uid.to_string(), script);
        (start.uid, start.gid) = (Some(uid), Some(uid));
        assert_eq!(agent.run(start).await.text(), format!("{uid}\n{zero}\n"));
    }
    let mut root = shell(
        "root",
        "trap '' TERM; echo ready; while :; do sleep 0.02; done",
    );
    (root.uid, root.gid) = (Some(0), Some(0));
    let mut root = agent.start_exec(root).await.unwrap();
    root.until_stdout_has("ready").await;
    agent.cancel("root", 50).await.unwrap();
    assert_eq!(root.finish().await.exit.cause(), ExitCause::Cancelled);
}

#[tokio::test]
async fn a_command_cannot_read_its_agent_or_its_keeper() {
    // Root can read everything, so its agent runs as an ordinary user.
    let wrapper: &[&str] = if rustix::process::geteuid().is_root() {
        &MAY_SWITCH_USER
    } else {
        &[]
    };
    let agent = Agent::start_by(wrapper).await;
    let keeper = "keeper=$(cut -d' ' -f4 /proc/$$/stat)";
    let script = format!(
        "{keeper}; for p in $keeper {}; do for f in mem environ fd; do \
         head -c1 /proc/$p/$f >/dev/null 2>&1 && echo open $f; ls /proc/$p/$f/0 2>/dev/null; done; done; echo tried",
        agent.pid(),
    );
    assert_eq!(agent.sh(&script).await.text(), "tried\n");
}
