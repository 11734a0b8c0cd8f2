//! Runs one case: with its own runtime and engine, a deadline, and a check for leftovers.

use std::any::Any;
use std::future::Future;
use std::panic::{AssertUnwindSafe, resume_unwind};
use std::time::Duration;

use futures_util::FutureExt as _;

use super::{Case, Subject, list};

/// The deadline of a case. Only a hanging case reaches it: on a busy machine cases take several
/// times as long.
const CASE_TIMEOUT: Duration = Duration::from_mins(5);

/// How long ending the leftovers of a failed case may take.
const CLEANUP_TIMEOUT: Duration = Duration::from_mins(2);

/// How long blocking work may delay the end of the runtime.
const RUNTIME_END_TIMEOUT: Duration = Duration::from_secs(5);

/// Set on an emulated machine: a factor for all deadlines.
const SLOW_HOST_VARIABLE: &str = "HOTCELL_SLOW_HOST";
const SLOW_HOST_FACTOR: u32 = 5;

/// Runs a case on the engine that `make` opens. If there is no such engine, `make` reports that and
/// returns `None`, and the case passes.
///
/// # Panics
///
/// If the case fails, takes too long, or leaves a container.
pub fn run<M, F, S>(name: &str, make: M)
where
    M: FnOnce() -> F,
    F: Future<Output = S>,
    S: Into<Option<Subject>>,
{
    let case = list::find(name);
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .expect("a test can have a runtime");
    let ended = runtime.block_on(async {
        let Some(subject) = make().await.into() else {
            return Ok(Vec::new());
        };
        let ended = guarded(case, &subject).await;
        let left = leftovers(&subject).await;
        drop(subject);
        ended.map(|()| left)
    });
    runtime.shutdown_timeout(RUNTIME_END_TIMEOUT);
    match ended {
        Err(Failure::Panic(panic)) => resume_unwind(panic),
        Err(Failure::Error(error)) => panic!("{name}: {error}"),
        Ok(left) => assert!(left.is_empty(), "{name} left behind: {left:?}"),
    }
}

/// How a case failed.
enum Failure {
    /// The message is already on stderr.
    Panic(Box<dyn Any + Send>),
    Error(String),
}

async fn guarded(case: &Case, subject: &Subject) -> Result<(), Failure> {
    let body = tokio::time::timeout(slowed(CASE_TIMEOUT), (case.body)(subject));
    match AssertUnwindSafe(body).catch_unwind().await {
        Ok(Ok(Ok(()))) => Ok(()),
        Ok(Ok(Err(error))) => Err(Failure::Error(format!("{error:?}"))),
        Ok(Err(_)) => Err(Failure::Error("it did not end in time".to_owned())),
        Err(panic) => Err(Failure::Panic(panic)),
    }
}

/// Containers that the engine still has. They are ended, so that a failure leaves nothing but its
/// message.
async fn leftovers(subject: &Subject) -> Vec<String> {
    let sweep = async {
        let mut left = Vec::new();
        match subject.engine.list().await {
            Err(error) => left.push(format!("could not list: {error:?}")),
            Ok(containers) => {
                for container in containers {
                    let ended = subject.engine.destroy(&container.id).await;
                    left.push(format!("{container:?}, destroyed now: {ended:?}"));
                }
            }
        }
        left
    };
    tokio::time::timeout(slowed(CLEANUP_TIMEOUT), sweep)
        .await
        .unwrap_or_else(|_| vec!["whatever did not end in time".to_owned()])
}

/// A deadline, multiplied on a slow host.
pub(super) fn slowed(limit: Duration) -> Duration {
    match std::env::var_os(SLOW_HOST_VARIABLE) {
        Some(_) => limit * SLOW_HOST_FACTOR,
        None => limit,
    }
}
