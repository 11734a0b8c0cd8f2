//! Execs whose output is streamed to the caller, and snippets.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on fails")]

use std::path::Path;
use std::time::Duration;

use bytes::Bytes;
use hotcell_domain::{Command, ContainerRef, ExecEnd, ExecStatus, Language, Stream};
use hotcell_service::{ExecStream, ServiceError, Settings, Snippet};
use hotcell_testkit::fake::Faults;
use hotcell_testkit::world::{PATIENCE, World, eventually, open_sh, said, sh};

/// All output of an exec, and its result.
struct Followed {
    stdout: Vec<u8>,
    stderr: Vec<u8>,
    end: ExecEnd,
}

async fn stream(world: &World, container: &ContainerRef, command: Command) -> ExecStream {
    let started = world.service.exec_stream(&world.caller, container, command);
    started.await.unwrap()
}

async fn follow(mut exec: ExecStream) -> Followed {
    let (mut stdout, mut stderr) = (Vec::new(), Vec::new());
    let mut last = 0;
    let read = async {
        while let Some(message) = exec.next().await {
            last += 1;
            assert_eq!(message.seq, last, "numbered one by one");
            match message.stream {
                Stream::Stdout => stdout.extend_from_slice(&message.data),
                Stream::Stderr => stderr.extend_from_slice(&message.data),
            }
        }
        exec.end().await.unwrap()
    };
    let end = tokio::time::timeout(PATIENCE, read).await.unwrap();
    Followed {
        stdout,
        stderr,
        end,
    }
}

fn log_files(world: &World) -> usize {
    std::fs::read_dir(world.logs()).unwrap().count()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_streamed_exec_delivers_every_byte_and_its_end_and_writes_no_log() {
    // A log would keep a thousandth of it.
    let settings = Settings {
        output_bytes_max: 4 << 10,
        ..Settings::default()
    };
    let world = World::with(settings, Faults::none()).await;
    let container = world.spawn().await;
    let script = "head -c 4194304 /dev/zero; echo err >&2; exit 3";
    let followed = follow(stream(&world, &container, sh(script)).await).await;
    assert_eq!(followed.stdout.len(), 4 << 20);
    assert_eq!(followed.stderr, b"err\n");
    assert_eq!(followed.end.exit_code, Some(3));
    assert_eq!(log_files(&world), 0);
    // An exec that is not streamed has a log.
    world.run(&container, "echo kept").await;
    assert_ne!(log_files(&world), 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_streamed_exec_waits_for_whoever_reads_it() {
    let world = World::new().await;
    let container = world.spawn().await;
    let marks = world.root(&container);
    let script = "n=0; while [ $n -lt 64 ]; do head -c 65536 /dev/zero; n=$((n + 1)); \
                  echo $n > step; done";
    let mut exec = stream(&world, &container, sh(script)).await;
    let first = exec.next().await.unwrap();
    eventually("it begins", || marks.join("step").exists()).await;
    // It stops when its pipe, the agent and the channel are full: long before its end.
    let step = || -> u32 {
        let text = std::fs::read_to_string(marks.join("step")).unwrap_or_default();
        text.trim().parse().unwrap_or(0)
    };
    let mut before = 0;
    while step() > before {
        before = step();
        tokio::time::sleep(Duration::from_millis(300)).await;
    }
    assert!(before < 32, "{before} of 64 pieces were written");
    let rest = follow_after(exec, first.seq).await;
    assert_eq!(first.data.len() + rest, 64 * 65536);
    assert_eq!(step(), 64);
}

async fn follow_after(mut exec: ExecStream, mut last: u64) -> usize {
    let mut bytes = 0;
    while let Some(message) = exec.next().await {
        assert_eq!(message.seq, last + 1);
        last += 1;
        bytes += message.data.len();
    }
    assert_eq!(exec.end().await.unwrap().status, ExecStatus::Succeeded);
    bytes
}

#[tokio::test(flavor = "multi_thread")]
async fn when_nobody_follows_a_streamed_exec_any_more_it_goes_on() {
    let world = World::new().await;
    let container = world.spawn().await;
    let script = "head -c 4194304 /dev/zero; touch done";
    let exec = stream(&world, &container, sh(script)).await;
    let end = exec.end().await.unwrap();
    assert_eq!(end.status, ExecStatus::Succeeded);
    assert!(world.root(&container).join("done").exists());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_streamed_exec_reads_what_is_written_and_can_be_cancelled() {
    let world = World::new().await;
    let container = world.spawn().await;
    let exec = stream(&world, &container, open_sh("cat; echo end >&2")).await;
    let stdin = exec.stdin();
    // More than the pipe holds: it waits for the reader and not for a deadline.
    let text = Bytes::from(b"some words\n".repeat(50_000));
    let (written, closed) = (text.clone(), Bytes::new());
    let write = async {
        stdin.write(written, false).await.unwrap();
        stdin.write(closed, true).await.unwrap();
    };
    let (followed, ()) = tokio::join!(follow(exec), write);
    assert_eq!(followed.stdout, text);
    assert_eq!(followed.stderr, b"end\n");
    let refused = stdin.write(Bytes::from_static(b"more"), false).await;
    assert!(said(refused).starts_with("conflict"));

    let mut exec = stream(&world, &container, sh("echo a; sleep 1000")).await;
    exec.next().await.unwrap();
    let cancelled = world.service.exec_cancel(&world.caller, exec.id()).await;
    assert_eq!(cancelled.unwrap(), ExecStatus::Cancelled);
    assert_eq!(follow(exec).await.end.status, ExecStatus::Cancelled);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_streamed_exec_ends_with_its_container_and_one_that_waits_ends_too() {
    let settings = Settings {
        execs_running_max: 1,
        ..Settings::default()
    };
    let world = World::with(settings, Faults::none()).await;
    let container = world.spawn().await;
    let mut runs = stream(&world, &container, sh("echo a; sleep 1000")).await;
    let waits = stream(&world, &container, sh("echo never")).await;
    runs.next().await.unwrap();
    let killed = world.service.kill(&world.caller, &container, true).await;
    killed.unwrap();
    for exec in [runs, waits] {
        let followed = follow(exec).await;
        assert_eq!(followed.end.status, ExecStatus::Cancelled);
        assert_eq!(followed.stdout, b"");
    }
}

/// A compiler that waits until `others` of its kind have begun, and again until they are done, so
/// that they run concurrently however slow the machine is. It takes `-o PROGRAM SOURCE`.
fn slow_compiler(directory: &Path, others: usize) {
    let script = format!(
        "#!/bin/sh\n\
         meet() {{ : > $MEETING/$1.$$; while [ $(ls $MEETING | grep -c ^$1) -lt {others} ]; do sleep 0.01; done; }}\n\
         meet begin; cp \"$3\" \"$2\"; chmod 755 \"$2\"; meet done\n"
    );
    let path = directory.join("cc");
    std::fs::write(&path, script).unwrap();
    let executable = std::os::unix::fs::PermissionsExt::from_mode(0o755);
    std::fs::set_permissions(&path, executable).unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn compiled_snippets_that_run_at_once_in_one_container_do_not_meet() {
    let world = World::new().await;
    let container = world.spawn().await;
    let tools = tempfile::tempdir().unwrap();
    let meeting = tempfile::tempdir().unwrap();
    slow_compiler(tools.path(), 2);
    let path = format!("{}:/usr/bin:/bin", tools.path().display());
    let run = async |name: &'static str| {
        let snippet = Snippet {
            language: Language::by_name("c").unwrap(),
            path: format!("{name}.c"),
            source: Bytes::from(format!("#!/bin/sh\necho {name} \"$@\"\n")),
        };
        let words = vec!["a b".to_owned()];
        let staged = world
            .service
            .stage_snippet(&world.caller, &container, snippet, words);
        let mut command = staged.await.unwrap();
        command.env.set("PATH", &path).unwrap();
        let directory = meeting.path().to_str().unwrap();
        command.env.set("MEETING", directory).unwrap();
        command
            .env
            .set("TMPDIR", tools.path().to_str().unwrap())
            .unwrap();
        follow(stream(&world, &container, command).await).await
    };
    let (one, other) = tokio::join!(run("one"), run("other"));
    for (followed, name) in [(one, "one"), (other, "other")] {
        let told = String::from_utf8_lossy(&followed.stderr).into_owned();
        let printed = String::from_utf8_lossy(&followed.stdout).into_owned();
        assert_eq!(printed, format!("{name} a b\n"), "{told}");
        assert_eq!(followed.end.status, ExecStatus::Succeeded, "{told}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_snippet_that_is_too_large_or_leads_out_of_the_workspace_is_refused() {
    let world = World::new().await;
    let container = world.spawn().await;
    let stage = async |path: &str, bytes: usize| -> Result<Command, ServiceError> {
        let snippet = Snippet {
            language: Language::by_name("sh").unwrap(),
            path: path.to_owned(),
            source: vec![b'#'; bytes].into(),
        };
        world
            .service
            .stage_snippet(&world.caller, &container, snippet, Vec::new())
            .await
    };
    let large = hotcell_service::SNIPPET_BYTES_MAX + 1;
    assert!(said(stage("a.sh", large).await).starts_with("invalid: code may have at most"));
    assert!(said(stage("/etc/a.sh", 1).await).starts_with("invalid: the path of code"));
    assert!(said(stage("../a.sh", 1).await).starts_with("denied"));
    stage("a.sh", 1).await.unwrap();
}
