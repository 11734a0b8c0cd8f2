//! Sample rows for tests.

use hotcell_domain::{
    Command, ContainerId, ContainerSpec, EngineId, ExecEnd, ExecId, ExecStatus, ImageRef, Labels,
    Name, Phase, Principal,
};
use std::sync::Arc;
use tempfile::TempDir;

use crate::log::{FileWriter, read};
use crate::{ContainerRow, ExecRow, LogPage, Store, StoreError};

/// A store in a temporary directory.
pub(crate) fn store() -> (TempDir, Store) {
    let directory = tempfile::tempdir().unwrap();
    let store = Store::open(directory.path()).unwrap();
    (directory, store)
}

impl Store {
    /// The synchronous writer of a log.
    pub(crate) fn log_file(
        &self,
        id: &ExecId,
        output_bytes_max: u64,
    ) -> Result<FileWriter, StoreError> {
        FileWriter::open(Arc::clone(&self.logs), id, output_bytes_max)
    }

    /// What [`Store::read_log`] returns, without a runtime.
    pub(crate) fn read_log_file(
        &self,
        id: &ExecId,
        after_seq: u64,
        bytes_max: usize,
    ) -> Result<LogPage, StoreError> {
        read(&self.logs, id, after_seq, bytes_max)
    }
}

/// The results of 32 concurrent calls, each on its own thread.
pub(crate) fn at_once<T: Send>(ask: impl AsyncFn(u64) -> T + Sync) -> Vec<T> {
    let ask = &|number| {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .build()
            .unwrap();
        runtime.block_on(ask(number))
    };
    std::thread::scope(|scope| {
        let asking: Vec<_> = (0..32)
            .map(|number| scope.spawn(move || ask(number)))
            .collect();
        asking
            .into_iter()
            .map(|thread| thread.join().unwrap())
            .collect()
    })
}

pub(crate) fn name(text: &str) -> Name {
    Name::parse(text).unwrap()
}

/// A container requested at `number` ms.
pub(crate) fn container(number: u64) -> ContainerRow {
    ContainerRow {
        id: ContainerId::from_parts(number, [7; 10]),
        principal: Principal::local(),
        alias: None,
        spec: ContainerSpec::new(ImageRef::Host),
        image_digest: None,
        engine: EngineId::named("embedded"),
        labels: Labels::default(),
        is_persistent: false,
        key: None,
        phase: Phase::Creating,
        created_unix_ms: number,
        last_used_unix_ms: number,
        expires_unix_ms: None,
        ended_unix_ms: None,
        is_warm: false,
        session: None,
        egress: None,
    }
}

/// An exec requested at `number` ms, in container 1.
pub(crate) fn exec(number: u64) -> ExecRow {
    ExecRow {
        id: ExecId::from_parts(number, [7; 10]),
        container: container(1).id,
        principal: Principal::local(),
        key: None,
        command: Command::new(vec!["true".to_owned()]).unwrap(),
        created_unix_ms: number,
        oom_kills_before: 0,
        ended_unix_ms: None,
        end: None,
    }
}

pub(crate) fn end(status: ExecStatus) -> ExecEnd {
    ExecEnd {
        status,
        exit_code: None,
        signal: None,
        reason: None,
        not_started: None,
        usage: None,
    }
}
