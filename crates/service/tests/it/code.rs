//! Snippets and their sessions.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use hotcell_domain::{Caller, ContainerRef, ExecStatus, Language, NotStarted};
use hotcell_service::{
    Abandonment, CodeFile, CodeRequest, CodeRun, FilePath, Progress, Service, ServiceError,
    SessionView, WriteOptions, default_session,
};
use hotcell_testkit::fake::{Fake, Faults};

use crate::fixture::{Fixture, me, name, somebody_else, until};

/// A snippet of the default session.
pub(crate) fn snippet(language: &str, source: &str) -> CodeRequest {
    CodeRequest {
        language: Language::by_name(language).expect("a language"),
        source: Bytes::copy_from_slice(source.as_bytes()),
        session: default_session(),
        files: Vec::new(),
        arguments: Vec::new(),
        stdin: None,
        timeout: None,
        packages: Vec::new(),
        step: tokio::sync::watch::Sender::default(),
        is_cold: true,
        stateful: false,
        restart: false,
        progress: Progress::default(),
        abandonment: Abandonment::default(),
    }
}

fn sh(source: &str) -> CodeRequest {
    snippet("sh", source)
}

async fn run_as(service: &Service, caller: &Caller, request: CodeRequest) -> CodeRun {
    service.run_code(caller, request).await.expect("it runs")
}

pub(crate) async fn run(service: &Service, request: CodeRequest) -> CodeRun {
    run_as(service, &me(), request).await
}

/// What a run wrote: both streams.
pub(crate) async fn wrote(service: &Service, run: &CodeRun) -> (String, String) {
    let output = service
        .code_output(&me(), &run.exec, &run.end, &run.owner)
        .await;
    let output = output.expect("it is kept");
    (output.stdout.head, output.stderr.head)
}

async fn stdout(service: &Service, request: CodeRequest) -> String {
    let run = run(service, request).await;
    let (stdout, stderr) = wrote(service, &run).await;
    assert_eq!(run.end.status, ExecStatus::Succeeded, "{stdout}{stderr}");
    stdout
}

#[tokio::test(flavor = "multi_thread")]
async fn a_session_is_made_once_and_keeps_its_files() {
    let fixture = Fixture::new();
    let service = fixture.start().await;
    let calls = (0..4).map(|number| {
        let service = service.clone();
        let request = sh(&format!("echo {number} > file-{number}"));
        tokio::spawn(async move { run(&service, request).await })
    });
    let mut runs = Vec::new();
    for call in calls.collect::<Vec<_>>() {
        runs.push(call.await.expect("it does not panic"));
    }
    let new = runs.iter().filter(|run| run.session.is_new).count();
    assert_eq!(new, 1, "one of them made it");
    assert!(runs.iter().all(|run| !run.session.had_ended));
    let said = stdout(&service, sh("cat file-*; pwd")).await;
    assert!(said.starts_with("0\n1\n2\n3\n/"), "{said}");
    let listed = service.containers(&me(), false).await.expect("a list");
    assert_eq!(listed.len(), 1);
    assert_eq!(listed[0].session, Some(default_session()));

    let other = CodeRequest {
        session: name("another session"),
        ..sh("ls")
    };
    let other = run(&service, other).await;
    assert!(other.session.is_new);
    assert_eq!(wrote(&service, &other).await.0.matches("file").count(), 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn nobody_sees_the_session_of_another_principal() {
    let fixture = Fixture::new();
    let service = fixture.start().await;
    stdout(&service, sh("echo mine > secret")).await;
    let theirs = run_as(&service, &somebody_else(), sh("cat secret")).await;
    assert!(theirs.session.is_new);
    assert_eq!(theirs.end.status, ExecStatus::Failed);
    let found = service.session(&somebody_else(), &name("nope")).await;
    assert!(matches!(found, Err(ServiceError::NotFound { .. })));
    let output = service
        .code_output(&me(), &theirs.exec, &theirs.end, &theirs.owner)
        .await;
    assert!(matches!(output, Err(ServiceError::NotFound { .. })));
}

#[tokio::test(flavor = "multi_thread")]
async fn an_idle_session_ends_and_its_successor_says_so() {
    let fixture = Fixture::new();
    let service = fixture.start().await;
    stdout(&service, sh("echo > file")).await;
    fixture.advance(Duration::from_secs(899));
    let collected = service.collect_garbage(&me(), false).await.expect("done");
    assert_eq!(collected.idle_containers, 0);
    fixture.advance(Duration::from_secs(1));
    // The end of a snippet is published a moment before its slot is free.
    until("the session has ended", async || {
        let collected = service.collect_garbage(&me(), false).await.expect("done");
        collected.idle_containers == 1
    })
    .await;
    let found = service.session(&me(), &default_session()).await;
    assert!(matches!(found, Err(ServiceError::NotFound { .. })));

    let run = run(&service, sh("ls")).await;
    assert!(run.session.is_new && run.session.had_ended);
    assert_eq!(wrote(&service, &run).await.0.matches("file").count(), 0);
    let again = self::run(&service, sh("true")).await;
    assert!(!again.session.is_new && !again.session.had_ended);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_session_that_was_killed_is_made_anew() {
    let fixture = Fixture::new();
    let service = fixture.start().await;
    let first = run(&service, sh("true")).await;
    let target = ContainerRef::Id(first.session.container.clone());
    let killing = {
        let (service, target) = (service.clone(), target.clone());
        tokio::spawn(async move { service.kill(&me(), &target, false).await })
    };
    // Before, while or after it is ended: a call runs, or is told to ask again.
    let mut second = loop {
        match service.run_code(&me(), sh("true")).await {
            Ok(run) => break run,
            Err(error) => assert!(
                matches!(error, ServiceError::Unavailable { .. }),
                "{error:?}"
            ),
        }
    };
    killing.await.expect("no panic").expect("it is killed");
    if !second.session.had_ended {
        second = run(&service, sh("true")).await;
    }
    assert!(second.session.is_new && second.session.had_ended);
    assert_ne!(second.session.container, first.session.container);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_session_survives_the_death_of_its_server() {
    let fixture = Fixture::new();
    let service = fixture.start().await;
    let before = run(&service, sh("echo still here > file")).await;
    drop(service);
    let service = fixture.start().await;
    let after = run(&service, sh("cat file")).await;
    assert_eq!(after.session.container, before.session.container);
    assert!(!after.session.is_new);
    assert_eq!(wrote(&service, &after).await.0, "still here\n");
}

#[tokio::test(flavor = "multi_thread")]
async fn files_are_written_first_and_arguments_and_input_reach_the_snippet() {
    let fixture = Fixture::new();
    let service = fixture.start().await;
    let file = |path: &str, data: &'static [u8]| CodeFile {
        path: FilePath::parse(path.as_bytes()).expect("a path"),
        data: Bytes::from_static(data),
    };
    let request = CodeRequest {
        files: vec![file("data/a", b"A"), file("/workspace/b", &[0xff])],
        arguments: vec!["one two".to_owned()],
        stdin: Some("typed".to_owned()),
        ..sh("cat data/a; wc -c < b; echo \"$1\"; cat")
    };
    let said = stdout(&service, request).await;
    assert_eq!(said, "A1\none two\ntyped");

    let request = CodeRequest {
        files: vec![file("c", b"C"), file("../out", b"X")],
        ..sh("true")
    };
    let refused = service.run_code(&me(), request).await;
    assert!(
        matches!(refused, Err(ServiceError::Batch { index: 1, .. })),
        "{refused:?}"
    );
    let said = stdout(&service, sh("[ -e c ] || echo all or none")).await;
    assert_eq!(said, "all or none\n");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_runs_in_the_background_ends_with_its_snippet() {
    let fixture = Fixture::new();
    background_ends(&fixture.start().await).await;
}

async fn background_ends(service: &Service) {
    let source = "(trap '' TERM; echo begun; echo $$ > pid; while :; do sleep 0.01; done) &\n\
                  while [ ! -s pid ]; do sleep 0.01; done; exit 3";
    let run = run(service, sh(source)).await;
    assert_eq!(run.end.exit_code, Some(3));
    assert_eq!(wrote(service, &run).await.0, "begun\n");
    let said = stdout(service, sh("kill -0 $(cat pid) 2>/dev/null || echo gone")).await;
    assert_eq!(said, "gone\n");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_source_is_gone_when_the_snippet_has_run() {
    let fixture = Fixture::new();
    source_goes(&fixture.start().await).await;
}

async fn source_goes(service: &Service) {
    let said = stdout(service, sh("ls snippet_*; echo $0")).await;
    assert_eq!(said.lines().count(), 2, "{said}");
    crate::fixture::until("the source is removed", async || {
        let said = stdout(service, sh("ls snippet_* | wc -l")).await;
        said.trim() == "1"
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_ends_a_snippet_is_told_truthfully() {
    let fixture = Fixture::new();
    let service = fixture.start().await;
    let request = CodeRequest {
        timeout: Some(Duration::from_millis(300)),
        ..sh("trap '' TERM; echo before; exec 1>&-; while :; do sleep 0.01; done")
    };
    let slow = run(&service, request).await;
    assert_eq!(slow.end.status, ExecStatus::TimedOut);
    assert_eq!(wrote(&service, &slow).await.0, "before\n");
    let killed = run(&service, sh("kill -SEGV $$")).await;
    assert_eq!(killed.end.signal, Some(11));
    assert_eq!(stdout(&service, sh("echo clean")).await, "clean\n");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_language_that_is_not_there_is_refused_with_those_that_are() {
    let fixture = Fixture::new();
    let service = fixture.start().await;
    // The fake engine's containers have the programs of this host.
    let rust = service
        .run_code(&me(), snippet("rust", "fn main() {}"))
        .await;
    let own = rust.as_ref().ok().map(|run| run.exec.clone());
    match rust {
        Err(ServiceError::Invalid { reason }) => {
            assert!(
                reason.contains("cannot run rust; it has python"),
                "{reason}"
            );
        }
        Ok(run) => assert_ne!(run.end.not_started, Some(NotStarted::NoProgram)),
        Err(error) => panic!("{error}"),
    }
    let status = service.status(&me()).await.expect("a status");
    let (image, languages) = status.languages.first().expect("one image is known");
    assert_eq!(image, "host");
    assert!(languages.contains(&"sh") && languages.contains(&"python"));
    let execs = service.execs(&me(), None, true).await.expect("a list");
    assert!(
        execs.iter().all(|exec| Some(&exec.id) == own.as_ref()),
        "asking what is there is no exec of the caller: {execs:?}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn only_what_a_snippet_made_or_changed_is_its_artifact() {
    let fixture = Fixture::new();
    artifacts_are_told(&fixture.start().await).await;
}

async fn artifacts_are_told(service: &Service) {
    let first = run(
        service,
        sh("mkdir -p artifacts/deep; echo 1 > artifacts/a; echo 2 > artifacts/deep/b"),
    )
    .await;
    let paths = |run: &CodeRun| -> Vec<String> {
        let files = run.artifacts.files.iter();
        files
            .map(|file| String::from_utf8_lossy(&file.path).into_owned())
            .collect()
    };
    assert_eq!(paths(&first), ["artifacts/a", "artifacts/deep/b"]);
    assert!(paths(&run(service, sh("cat artifacts/a")).await).is_empty());
    let changed = run(
        service,
        sh("echo changed > artifacts/a; ln -s a artifacts/link; mkfifo artifacts/pipe"),
    )
    .await;
    assert_eq!(paths(&changed), ["artifacts/a"], "only plain files");
    let many = "cd artifacts; i=0; while [ $i -lt 1200 ]; do : > many-$i; i=$((i+1)); done";
    let many = run(service, sh(many)).await;
    assert!(many.artifacts.has_more && many.artifacts.files.len() <= 1000);
    let linked = run(service, sh("rm -rf artifacts; ln -s / artifacts")).await;
    assert!(paths(&linked).is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn an_older_agents_snippets_are_cleaned_up_by_calls() {
    let fixture = Fixture::new();
    let older = hotcell_testkit::agent::older_program();
    let engine = Fake::new(older, fixture.containers.path().to_owned(), Faults::none());
    let service = fixture.start_on(Arc::new(engine)).await;
    background_ends(&service).await;
    source_goes(&service).await;
    artifacts_are_told(&service).await;
    let request = CodeRequest {
        stdin: Some("said\n".to_owned()),
        ..sh("cat")
    };
    assert_eq!(stdout(&service, request).await, "said\n");
}

#[tokio::test(flavor = "multi_thread")]
async fn long_output_is_cut_in_the_middle_and_the_cut_is_exact() {
    let mut fixture = Fixture::new();
    fixture.settings.code.output_chars_max = 1000;
    let service = fixture.start().await;
    let long = run(
        &service,
        sh("printf begin; head -c 3000000 /dev/zero | tr '\\0' x; printf end; printf oops >&2"),
    )
    .await;
    let output = service
        .code_output(&me(), &long.exec, &long.end, &long.owner)
        .await;
    let output = output.expect("it is kept");
    assert!(output.stdout.head.starts_with("beginxxx") && output.stdout.head.len() == 500);
    let tail = output.stdout.tail.expect("something is left out");
    assert!(tail.ends_with("xxxend") && tail.len() == 500);
    assert_eq!(output.stdout.left_out_bytes, 3_000_008 - 1000);
    assert_eq!(output.stderr.head, "oops");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_session_is_opened_for_a_file_as_for_code() {
    let fixture = Fixture::new();
    let service = fixture.start().await;
    let open = async || -> SessionView {
        let (me, name) = (me(), default_session());
        let opened = service.open_session(&me, &name, Progress::default());
        opened.await.expect("a session")
    };
    let session = open().await;
    assert!(session.is_new);
    let target = ContainerRef::Id(session.container.clone());
    let path = FilePath::parse(b"f").expect("a path");
    let data = Bytes::from_static(b"hello");
    let me = me();
    let written = service.file_write(&me, &target, &path, data, WriteOptions::default());
    written.await.expect("it is written");
    assert!(!open().await.is_new);
    assert_eq!(stdout(&service, sh("cat f")).await, "hello");
}
