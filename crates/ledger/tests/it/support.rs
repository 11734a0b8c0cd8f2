//! A ledger in a directory of its own.

use std::fs;
use std::path::{Path, PathBuf};

use hotcell_ledger::{
    Anchor, AnchorStore, Event, EventName, Ledger, LedgerSettings, MemoryAnchor, Verdict, Who,
    events, verify,
};
use tempfile::TempDir;

pub(crate) struct Fixture {
    pub directory: TempDir,
    pub anchor: MemoryAnchor,
}

impl Fixture {
    pub(crate) fn new() -> Self {
        Self {
            directory: tempfile::tempdir().unwrap(),
            anchor: MemoryAnchor::default(),
        }
    }

    pub(crate) fn path(&self) -> &Path {
        self.directory.path()
    }

    pub(crate) fn settings(&self) -> LedgerSettings {
        LedgerSettings::new(self.path().to_owned())
    }

    pub(crate) fn open(&self) -> Ledger {
        self.open_with(self.settings())
    }

    pub(crate) fn open_with(&self, settings: LedgerSettings) -> Ledger {
        Ledger::open(settings, Box::new(self.anchor.clone())).unwrap()
    }

    pub(crate) fn anchored(&self) -> Option<Anchor> {
        self.anchor.load().unwrap()
    }

    pub(crate) fn verdict(&self) -> Verdict {
        verify(self.path(), self.anchored()).unwrap()
    }

    /// What is wrong, in words.
    pub(crate) fn faults(&self) -> Vec<String> {
        let faults = self.verdict().faults;
        let said = |fault: &hotcell_ledger::Fault| {
            let (from, to) = fault.events;
            format!("{} {from}-{to}", fault.kind.as_str())
        };
        faults.iter().map(said).collect()
    }

    /// A ledger of so many events, closed.
    pub(crate) async fn filled(&self, count: u64) {
        let ledger = self.open();
        for number in 0..count {
            record(&ledger, number).await;
        }
    }

    /// The segments' names.
    pub(crate) fn segments(&self) -> Vec<String> {
        let mut names: Vec<_> = fs::read_dir(self.path())
            .unwrap()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect();
        names.sort();
        names
    }

    /// The segment that is being written.
    pub(crate) fn newest(&self) -> PathBuf {
        self.path().join(self.segments().last().unwrap())
    }

    /// The targets of all events, in order.
    pub(crate) fn targets(&self) -> Vec<String> {
        let mut targets = Vec::new();
        events(self.path(), |line| {
            let event: serde_json::Value = serde_json::from_slice(line).unwrap();
            targets.push(event["target"].as_str().unwrap().to_owned());
            std::ops::ControlFlow::Continue(())
        })
        .unwrap();
        targets
    }
}

/// Records an event and waits for it.
pub(crate) async fn record(ledger: &Ledger, number: u64) {
    let target = number.to_string();
    let event = Event::new(EventName::ExecStart, 1_000 + number, Who::Server, &target);
    let ticket = ledger.record(&event);
    ledger.recorded(ticket).await.unwrap();
}
