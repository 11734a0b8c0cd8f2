//! What the audit log hears of what the service does by itself, and what still works while the log
//! cannot be written.

use std::fs;
use std::ops::ControlFlow;
use std::path::PathBuf;
use std::time::Duration;

use hotcell_domain::{Command, ExecStatus};
use hotcell_engine::Engine as _;
use hotcell_ledger::{
    Event, EventName, Ledger, LedgerSettings, MemoryAnchor, OnFailure, Who, events,
};
use hotcell_service::{Abandonment, Poll, Service, ServiceError, Settings, Spawn, Start};
use hotcell_testkit::world::open_sh;
use tokio::sync::oneshot;

use crate::fixture::{Fixture, attach, by_id, me, until};

/// So soon that a test need not wait.
const TICK: Duration = Duration::from_millis(20);

/// A service that records, and where.
struct Recorded {
    fixture: Fixture,
    directory: PathBuf,
    _scratch: tempfile::TempDir,
}

impl Recorded {
    fn new() -> Self {
        let scratch = tempfile::tempdir().expect("a directory can be made");
        let directory = scratch.path().join("audit");
        let settings = LedgerSettings {
            // Each event begins a segment, so each needs the directory.
            segment_bytes: 1,
            on_failure: OnFailure::Stop,
            ..LedgerSettings::new(directory.clone())
        };
        let ledger = Ledger::open(settings, Box::new(MemoryAnchor::default()));
        let mut fixture = Fixture::new();
        fixture.settings.ledger = Some(ledger.expect("it can be opened"));
        Self {
            fixture,
            directory,
            _scratch: scratch,
        }
    }

    fn ledger(&self) -> &Ledger {
        self.fixture.settings.ledger.as_ref().expect("it has one")
    }

    /// Each event's line.
    fn lines(&self) -> Vec<String> {
        let mut lines = Vec::new();
        let read = events(&self.directory, |line| {
            lines.push(String::from_utf8_lossy(line).into_owned());
            ControlFlow::Continue(())
        });
        read.expect("it can be read");
        lines
    }

    fn lines_of(&self, name: EventName) -> Vec<String> {
        let is_it = format!("\"event\":\"{}\"", name.as_str());
        let mut lines = self.lines();
        lines.retain(|line| line.contains(&is_it));
        lines
    }

    /// From now on nothing can be written, root or not.
    async fn breaks(&self) {
        fs::rename(&self.directory, self.away()).expect("it is there");
        let event = Event::new(EventName::FsWrite, 0, Who::Server, "probe");
        drop(self.ledger().record(&event));
        until("the log fails", async || self.ledger().is_failing()).await;
    }

    async fn is_mended(&self) {
        fs::rename(self.away(), &self.directory).expect("it is away");
        until("the log is written", async || !self.ledger().is_failing()).await;
        until("nothing waits", async || self.ledger().queue_length() == 0).await;
    }

    fn away(&self) -> PathBuf {
        self.directory.with_extension("away")
    }
}

fn start(command: Command) -> Start {
    Start {
        command,
        key: None,
        abandonment: Abandonment::default(),
    }
}

fn halted<T: std::fmt::Debug>(result: Result<T, ServiceError>) -> (String, &'static str) {
    match result {
        Err(ServiceError::Halted { reason, hint }) => (reason, hint),
        other => panic!("not refused for its record: {other:?}"),
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_timers_record_what_they_changed_and_nothing_else() {
    let mut recorded = Recorded::new();
    recorded.fixture.settings.gc_interval = TICK;
    recorded.fixture.settings.reconcile_interval = TICK;
    let service = recorded.fixture.start().await;
    let short = Spawn {
        ttl_s: Some(60),
        ..Spawn::default()
    };
    let expires = service.spawn(&me(), short).await.unwrap();
    service.spawn(&me(), Spawn::default()).await.unwrap();
    // Ticks pass: a reconciliation is noted in the status each time.
    let ticks = async || service.status(&me()).await.unwrap().reconciled.unwrap().0;
    for _ in 0..3 {
        let before = ticks().await;
        recorded.fixture.advance(Duration::from_secs(1));
        until("a tick", async || ticks().await > before).await;
    }
    assert_eq!(recorded.lines_of(EventName::SystemGc), [""; 0]);
    assert_eq!(recorded.lines_of(EventName::SystemReconcile), [""; 0]);

    recorded.fixture.advance(Duration::from_mins(1));
    let collected = async || recorded.lines_of(EventName::SystemGc).len() == 1;
    until("the expired container is collected", collected).await;
    let line = recorded.lines_of(EventName::SystemGc).remove(0);
    let counted = "\"args\":{\"expired_containers\":1,";
    assert!(line.contains(counted) && line.contains(expires.id.as_str()));
    assert!(!line.contains("\"principal\""), "nobody asked: {line}");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_start_records_what_it_found_of_another_server() {
    let recorded = Recorded::new();
    let service = recorded.fixture.start().await;
    let lost = service.spawn(&me(), Spawn::default()).await.unwrap();
    drop(service);
    let engine = recorded.fixture.engine();
    engine.destroy(&lost.id).await.unwrap();
    let service = recorded.fixture.start().await;
    let lines = recorded.lines_of(EventName::SystemReconcile);
    assert_eq!(lines.len(), 1, "{lines:?}");
    assert!(lines[0].contains("\"cleaned\":1"), "{}", lines[0]);
    // Who asks for it is told as before, with what came of it.
    service.reconcile(&me()).await.unwrap();
    let lines = recorded.lines_of(EventName::SystemReconcile);
    assert!(lines[1].contains("\"principal\":\"local\""), "{}", lines[1]);
    assert!(lines[1].contains("\"discovered\":0"), "{}", lines[1]);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_runs_can_be_ended_while_the_log_cannot_be_written() {
    let recorded = Recorded::new();
    let service = recorded.fixture.start().await;
    let container = service.spawn(&me(), Spawn::default()).await.unwrap();
    let target = by_id(&container);
    let waits = start(open_sh("read line"));
    let exec = service.exec_start(&me(), &target, waits).await.unwrap();
    recorded.breaks().await;
    let (reason, hint) = halted(attach(&service, &target, "s").await);
    assert!(reason.contains("nothing was done"), "{reason}");
    assert!(hint.contains("kill, exec_cancel"), "{hint}");
    halted(service.spawn(&me(), Spawn::default()).await);

    service.exec_cancel(&me(), &exec).await.unwrap();
    let poll = Poll {
        after_seq: 0,
        wait: Duration::from_secs(30),
        bytes_max: 1 << 10,
        until_end: true,
    };
    let ended = service.exec_poll(&me(), &exec, poll).await.unwrap();
    assert_eq!(ended.status, ExecStatus::Cancelled);
    service.kill(&me(), &target, true).await.unwrap();
    recorded.fixture.until_held(0).await;
    recorded.is_mended().await;
    // What was ended meanwhile is recorded, and what was refused has left nothing.
    assert_eq!(recorded.lines_of(EventName::ExecCancel).len(), 1);
    assert_eq!(recorded.lines_of(EventName::ContainerKill).len(), 1);
    assert_eq!(recorded.lines_of(EventName::ContainerAttach), [""; 0]);
    assert_eq!(recorded.lines_of(EventName::ContainerSpawn).len(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn who_is_not_told_the_result_is_told_that_it_was_done() {
    let recorded = Recorded::new();
    let service: Service = recorded.fixture.start().await;
    let (go, gone) = oneshot::channel();
    let (begin, has_begun) = oneshot::channel();
    let settings = Settings {
        attachments_max: 7,
        ..recorded.fixture.settings.clone()
    };
    let read = async move {
        begin.send(()).expect("somebody waits");
        gone.await.expect("it is told");
        Ok(settings)
    };
    let caller = me();
    let reload = service.reload(&caller, read);
    let meanwhile = async {
        has_begun.await.expect("it begins");
        recorded.breaks().await;
        go.send(()).expect("it waits");
    };
    let (reloaded, ()) = tokio::join!(reload, meanwhile);
    let (reason, hint) = halted(reloaded);
    assert!(reason.starts_with("the operation was done"), "{reason}");
    assert!(hint.contains("do not just repeat it"), "{hint}");
    recorded.is_mended().await;
    assert_eq!(recorded.lines_of(EventName::SystemReload).len(), 1);
}
