//! Snippets in an interpreter that keeps its state.

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use futures_util::FutureExt as _;
use futures_util::future::join_all;
use hotcell_domain::{ContainerRef, ExecStatus};
use hotcell_service::{
    Abandonment, CellForm, CellValues, CodeRequest, CodeRun, Service, ServiceError,
};

use hotcell_testkit::Need;

use crate::code::{run, snippet, wrote};
use crate::fixture::{Fixture, me, somebody_else, until};

fn cell(source: &str) -> CodeRequest {
    CodeRequest {
        stateful: true,
        is_cold: false,
        ..snippet("python", source)
    }
}

fn short(source: &str) -> CodeRequest {
    CodeRequest {
        timeout: Some(Duration::from_millis(500)),
        ..cell(source)
    }
}

fn values(run: &CodeRun) -> &CellValues {
    run.notebook.as_ref().expect("it is stateful")
}

/// The text of the result of a cell that succeeds.
async fn result(service: &Service, source: &str) -> String {
    let run = run(service, cell(source)).await;
    let (stdout, stderr) = wrote(service, &run).await;
    let succeeded = run.end.status == ExecStatus::Succeeded;
    assert!(succeeded, "{:?} {stdout} {stderr}", run.end);
    let result = values(&run).result.as_ref().expect("a result");
    result.text.clone()
}

fn reason(run: &CodeRun) -> &str {
    run.end.reason.as_deref().unwrap_or_default()
}

#[test]
fn a_kernel_passes_the_tests_that_are_written_in_its_language() {
    let tests = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/notebook/test_kernel.py");
    let Ok(run) = Command::new("python3")
        .arg("-W")
        .arg("error")
        .arg(tests)
        .output()
    else {
        return hotcell_testkit::skip(Need::Programs, "there is no python3");
    };
    let said = String::from_utf8_lossy(&run.stderr);
    assert!(run.status.success(), "{said}");
    assert!(said.contains("OK"), "{said}");
}

#[tokio::test(flavor = "multi_thread")]
async fn variables_survive_from_cell_to_cell_until_a_restart() {
    let fixture = Fixture::new();
    let service = fixture.start().await;
    let first = run(&service, cell("import math\nx = 6\nprint('out')")).await;
    assert_eq!(first.end.exit_code, Some(0), "{:?}", first.end);
    assert!(values(&first).is_new && values(&first).result.is_none());
    assert_eq!(wrote(&service, &first).await.0, "out\n");
    let usage = first.end.usage.expect("it is known");
    assert_eq!((usage.stdout_bytes, usage.stderr_bytes), (4, 0));
    assert_eq!(result(&service, "math.floor(x * 7.1)").await, "42");
    let plain = run(&service, snippet("python", "print(x)")).await;
    assert_eq!(plain.end.status, ExecStatus::Failed, "another process");

    let restarted = CodeRequest {
        restart: true,
        ..cell("x")
    };
    let restarted = run(&service, restarted).await;
    assert!(values(&restarted).is_new);
    let stderr = wrote(&service, &restarted).await.1;
    assert!(stderr.contains("NameError"), "{stderr}");
    assert!(!stderr.contains("hotcell"), "{stderr}");
}

#[tokio::test(flavor = "multi_thread")]
async fn cells_run_one_at_a_time_and_each_gets_its_own_output() {
    let fixture = Fixture::new();
    let service = fixture.start().await;
    run(&service, cell("import time\nn = 0")).await;
    let calls = (0..12).map(|number| {
        let service = service.clone();
        let source = format!("t = n\ntime.sleep(0.005)\nn = t + 1\nprint({number})");
        tokio::spawn(async move {
            let run = run(&service, cell(&source)).await;
            wrote(&service, &run).await.0
        })
    });
    for (number, call) in calls.collect::<Vec<_>>().into_iter().enumerate() {
        assert_eq!(call.await.expect("no panic"), format!("{number}\n"));
    }
    assert_eq!(result(&service, "n").await, "12");
}

/// A service whose interrupts are waited for, however busy this machine is.
async fn patient(fixture: &mut Fixture) -> Service {
    fixture.settings.kill_grace = Duration::from_mins(1);
    fixture.start().await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_timeout_interrupts_and_keeps_the_state() {
    let mut fixture = Fixture::new();
    let service = patient(&mut fixture).await;
    run(&service, cell("x = 'kept'")).await;
    let slow = run(&service, short("while True: pass")).await;
    assert_eq!(slow.end.status, ExecStatus::TimedOut);
    assert!(reason(&slow).contains("variables are kept"), "{slow:?}");
    assert!(!values(&slow).is_gone);
    let stderr = wrote(&service, &slow).await.1;
    assert!(stderr.contains("KeyboardInterrupt"), "{stderr}");
    assert_eq!(result(&service, "x").await, "'kept'");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cell_that_ignores_the_interrupt_is_killed_with_all_it_started_and_loses_the_state() {
    let fixture = Fixture::new();
    let service = fixture.start().await;
    let prepared = "import subprocess, time\nchild = subprocess.Popen(['sleep', '1000'])\n\
        def deaf():\n    while True:\n        try:\n            time.sleep(1)\n        except KeyboardInterrupt: pass\n\
        child.pid";
    let child = result(&service, prepared).await;
    let child = Path::new("/proc").join(child);
    assert!(child.exists(), "it runs while its cell has ended");
    let deaf = CodeRequest {
        timeout: Some(Duration::from_secs(2)),
        ..cell("deaf()")
    };
    let deaf = run(&service, deaf).await;
    assert_eq!(deaf.end.status, ExecStatus::TimedOut);
    assert!(reason(&deaf).contains("variables are gone"), "{deaf:?}");
    assert!(values(&deaf).is_gone);
    assert!(!child.exists(), "all its processes are ended");
    let next = run(&service, cell("'deaf' in globals()")).await;
    assert!(values(&next).is_new);
    let text = values(&next).result.as_ref().map(|value| &*value.text);
    assert_eq!(text, Some("False"));
}

#[tokio::test(flavor = "multi_thread")]
async fn an_abandoned_cell_is_interrupted_and_the_state_stays() {
    let mut fixture = Fixture::new();
    let service = patient(&mut fixture).await;
    let first = run(&service, cell("x = 1")).await;
    let (abandonment, waiting) = Abandonment::new();
    let request = CodeRequest {
        abandonment,
        ..cell("open('begun', 'w').close()\nimport time\ntime.sleep(1000)")
    };
    let running = {
        let service = service.clone();
        tokio::spawn(async move { service.run_code(&me(), request).await })
    };
    let target = ContainerRef::Id(first.session.container.clone());
    let begun = hotcell_service::FilePath::parse(b"begun").expect("a path");
    until("the cell runs", async || {
        service.file_stat(&me(), &target, &begun).await.is_ok()
    })
    .await;
    fixture.advance(Duration::from_hours(1));
    let collected = service.collect_garbage(&me(), false).await.expect("done");
    assert_eq!(collected.idle_containers, 0, "its session is not idle");
    drop(waiting);
    let ended = running.await.expect("no panic").expect("it ends");
    assert_eq!(ended.end.status, ExecStatus::Cancelled);
    assert_eq!(result(&service, "x").await, "1");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_state_survives_the_death_of_the_server() {
    let fixture = Fixture::new();
    let service = fixture.start().await;
    run(&service, cell("x = 'still here'")).await;
    drop(service);
    let service = fixture.start().await;
    let after = run(&service, cell("x")).await;
    assert!(!values(&after).is_new, "{after:?}");
    let text = values(&after).result.as_ref().map(|value| &*value.text);
    assert_eq!(text, Some("'still here'"));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_notebook_is_no_exec_of_its_owner_but_its_cells_are() {
    let fixture = Fixture::new();
    let service = fixture.start().await;
    let one = run(&service, cell("print('once')")).await;
    let running = service.execs(&me(), None, false).await.expect("a list");
    assert!(running.is_empty(), "{running:?}");
    let ended = service.execs(&me(), None, true).await.expect("a list");
    assert_eq!(ended.len(), 1);
    assert_eq!((&ended[0].id, &*ended[0].argv[1]), (&one.exec, "<cell 1>"));
    let stranger = somebody_else();
    let theirs = service.code_output(&stranger, &one.exec, &one.end, &one.owner);
    assert!(matches!(theirs.await, Err(ServiceError::NotFound { .. })));
}

#[tokio::test(flavor = "multi_thread")]
async fn rich_values_are_files_of_the_session_and_artifacts_of_the_call() {
    let fixture = Fixture::new();
    let service = fixture.start().await;
    let source = "class V:\n    def _repr_png_(self): return b'\\x89PNG'\n    def __repr__(self): return 'V()'\ndisplay(1)\nV()";
    let run = run(&service, cell(source)).await;
    let result = values(&run).result.as_ref().expect("a result");
    assert_eq!(result.text, "V()");
    let Some(CellForm::File { mime_type, path }) = &result.form else {
        panic!("{result:?}");
    };
    assert_eq!(*mime_type, "image/png");
    assert_eq!(values(&run).displayed[0].text, "1");
    let files = run.artifacts.files.iter();
    let paths: Vec<_> = files
        .map(|file| String::from_utf8_lossy(&file.path))
        .collect();
    assert_eq!(paths, [path.as_str()]);
}

#[tokio::test(flavor = "multi_thread")]
async fn code_that_attacks_its_notebook_loses_its_own_state_and_nothing_else() {
    let fixture = Fixture::new();
    let service = fixture.start().await;
    for (attack, exit_code) in [
        ("import os; os._exit(7)", Some(7)),
        (
            "import os, signal; os.kill(os.getppid(), signal.SIGKILL); import time; time.sleep(1000)",
            None,
        ),
        (
            "import os; os.closerange(3, 1000); import time; time.sleep(1000)",
            None,
        ),
        (
            "import os, glob\nfor path in glob.glob('/proc/%d/fd/*' % os.getppid()):\n    try:\n        os.write(os.open(path, os.O_WRONLY), b'\\xff' * 100)\n    except OSError: pass\nos.kill(os.getppid(), 9)\nimport time; time.sleep(1000)",
            None,
        ),
    ] {
        run(&service, cell("x = 1")).await;
        let attacked = run(&service, cell(attack)).await;
        assert_eq!(attacked.end.status, ExecStatus::Failed, "{attacked:?}");
        assert!(
            reason(&attacked).contains("variables are gone"),
            "{attacked:?}"
        );
        assert_eq!(attacked.end.exit_code, exit_code, "{attack}");
        let next = run(&service, cell("'x' in globals()")).await;
        assert!(values(&next).is_new, "{attack}: {next:?}");
        assert_eq!(next.end.status, ExecStatus::Succeeded, "{attack}");
    }
    let forged = "import json, os, stat, struct\n\
        fds = [int(n) for n in os.listdir('/proc/self/fd') if int(n) >= 200]\n\
        channel = [fd for fd in fds if stat.S_ISSOCK(os.fstat(fd).st_mode)][0]\n\
        data = json.dumps({'event': 'end', 'id': 2, 'code': 0, 'result': {'text': 'x' * 10**6}}).encode()\n\
        os.write(channel, struct.pack('>I', len(data)) + data)";
    let forged = run(&service, cell(forged)).await;
    assert!(forged.end.status.is_final(), "{forged:?}");
    assert_eq!(result(&service, "1 + 1").await, "2");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_notebook_cannot_run_is_refused() {
    let fixture = Fixture::new();
    let service = fixture.start().await;
    let requests = [
        CodeRequest {
            stateful: true,
            is_cold: false,
            ..snippet("sh", "true")
        },
        CodeRequest {
            restart: true,
            ..snippet("python", "1")
        },
        CodeRequest {
            is_cold: true,
            ..cell("1")
        },
    ];
    for request in requests {
        let refused = service.run_code(&me(), request).await;
        assert!(
            matches!(refused, Err(ServiceError::Invalid { .. })),
            "{refused:?}"
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn queued_cells_run_in_the_order_of_their_calls_and_have_their_own_artifacts() {
    let fixture = Fixture::new();
    let service = fixture.start().await;
    let prepare = "import os, time; order = []; os.makedirs('artifacts')";
    run(&service, cell(prepare)).await;
    let hold = "open('begun', 'w').close()\nwhile not os.path.exists('go'): time.sleep(0.01)";
    let holding = tokio::spawn({
        let (service, hold) = (service.clone(), cell(hold));
        async move { run(&service, hold).await }
    });
    let has_begun = snippet("sh", "[ -e begun ]");
    until("the first cell runs", async || {
        run(&service, has_begun.clone()).await.end.exit_code == Some(0)
    })
    .await;
    let mut calls: Vec<_> = (0..6)
        .map(|number| {
            let source = format!("order.append({number}); open('artifacts/{number}', 'w').close()");
            let (service, cell) = (service.clone(), cell(&source));
            Box::pin(async move { run(&service, cell).await })
        })
        .collect();
    // Each is asked for before the next one.
    for call in &mut calls {
        assert!(call.as_mut().now_or_never().is_none());
    }
    run(&service, snippet("sh", "touch go")).await;
    for (number, ran) in join_all(calls).await.into_iter().enumerate() {
        let files = ran.artifacts.files.iter();
        let paths: Vec<_> = files
            .map(|file| String::from_utf8_lossy(&file.path))
            .collect();
        assert_eq!(paths, [format!("artifacts/{number}")]);
    }
    assert_eq!(result(&service, "order").await, "[0, 1, 2, 3, 4, 5]");
    holding.await.expect("it ends");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_was_put_beside_our_modules_keeps_one_interpreter_from_starting_and_not_the_next() {
    let fixture = Fixture::new();
    let service = fixture.start().await;
    let attack = "import os; d = os.environ['HOME'] + '/.hotcell/python/'\n\
        open(d + 'encodings.py', 'w').write('raise SystemExit(9)')\n\
        os.makedirs(d + 'PIL/__pycache__'); open(d + 'PIL/__pycache__/x.pyc', 'w').close()";
    run(&service, snippet("python", attack)).await;
    let cold = |source| CodeRequest {
        is_cold: true,
        ..snippet("python", source)
    };
    let broken = run(&service, cold("print(1)")).await;
    assert_eq!(broken.end.status, ExecStatus::Failed, "{broken:?}");
    let next = run(&service, cold("print(1)")).await;
    assert_eq!(next.end.status, ExecStatus::Succeeded, "{next:?}");
    let list = "ls -A .hotcell/python .hotcell/python/PIL | grep -v __pycache__ | tr '\\n' ' '";
    let listed = run(&service, snippet("sh", list)).await;
    let listed = wrote(&service, &listed).await.0;
    assert!(
        !listed.contains("encodings") && listed.contains("__init__.py"),
        "{listed}"
    );
    // A notebook that could not start is the same.
    run(
        &service,
        snippet("python", attack.replace("PIL/__pycache__", "y").as_str()),
    )
    .await;
    let refused = service.run_code(&me(), cell("1")).await;
    assert!(
        matches!(refused, Err(ServiceError::Unavailable { .. })),
        "{refused:?}"
    );
    assert_eq!(result(&service, "1 + 1").await, "2");
}
