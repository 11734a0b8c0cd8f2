//! Calls to the engine's API. Each has a timeout, and failures are classified by what can be done
//! about them.
//!
//! Each call opens its own connection, so an engine that was restarted is found again.

use std::fmt;
use std::future::Future;
use std::time::Duration;

use bollard::errors::Error as ApiError;
use bollard::{API_DEFAULT_VERSION, Docker as Api};
use tokio::sync::OnceCell;

use super::config::{Flavor, Host, Tls};
use crate::EngineError;

/// Timeout of most calls. A busy engine needs seconds.
pub(super) const CALL_TIMEOUT: Duration = Duration::from_mins(1);

/// Attempts at a call that the engine tried and failed. Under load the programs with which
/// engines start and stop containers sometimes fail, and succeed the next time.
const TRIES_MAX: u32 = 3;

/// The pause before the second attempt; it doubles each time.
const TRY_PAUSE: Duration = Duration::from_millis(200);

/// The library's own timeout, longer than all of ours.
const TRANSPORT_TIMEOUT_S: u64 = 3600;

/// The kernel's message for a full disk, which engines pass on.
const NO_SPACE: &str = "no space left on device";

/// Connects to one engine.
#[derive(Debug)]
pub(super) struct Client {
    flavor: Flavor,
    host: Host,
    api: OnceCell<Api>,
}

/// A call that failed.
#[derive(Debug)]
pub(super) struct Fault {
    flavor: Flavor,
    step: &'static str,
    pub(super) kind: FaultKind,
    source: Box<dyn std::error::Error + Send + Sync>,
}

/// What kind of failure it was.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum FaultKind {
    /// The object does not exist.
    Missing,
    /// The object's state does not allow it, or the name is taken.
    Conflict,
    /// The engine does not answer, or broke off.
    Away,
    /// The engine's disk is full.
    Full,
    /// The engine failed or refused.
    Refused,
}

impl Client {
    pub(super) fn new(flavor: Flavor, host: Host) -> Self {
        Self {
            flavor,
            host,
            api: OnceCell::new(),
        }
    }

    pub(super) fn host(&self) -> &Host {
        &self.host
    }

    /// The API over a new connection.
    pub(super) async fn api(&self) -> Result<&Api, Fault> {
        let connect = || async { connect(&self.host) };
        self.api
            .get_or_try_init(connect)
            .await
            .map_err(|error| self.fault("find the engine", error))
    }

    /// Makes a call with the usual timeout.
    pub(super) async fn call<'a, T, F>(
        &'a self,
        step: &'static str,
        work: impl FnOnce(&'a Api) -> F,
    ) -> Result<T, Fault>
    where
        F: Future<Output = Result<T, ApiError>>,
    {
        self.call_within(CALL_TIMEOUT, step, work).await
    }

    /// Makes a call.
    pub(super) async fn call_within<'a, T, F>(
        &'a self,
        limit: Duration,
        step: &'static str,
        work: impl FnOnce(&'a Api) -> F,
    ) -> Result<T, Fault>
    where
        F: Future<Output = Result<T, ApiError>>,
    {
        let api = self.api().await?;
        match tokio::time::timeout(limit, work(api)).await {
            Ok(answer) => answer.map_err(|error| self.fault(step, error)),
            Err(_) => Err(self.fault(step, ApiError::RequestTimeoutError)),
        }
    }

    /// Classifies a failure.
    pub(super) fn fault(&self, step: &'static str, mut error: ApiError) -> Fault {
        if let ApiError::JsonDataError { contents, .. } = &mut error {
            // It contains the whole response, which does not belong in a log.
            contents.clear();
        }
        Fault {
            flavor: self.flavor,
            step,
            kind: kind(&error),
            source: error.into(),
        }
    }

    /// The failure for a stream of responses that was cut off.
    pub(super) fn cut(&self, step: &'static str) -> Fault {
        let cut = std::io::Error::from(std::io::ErrorKind::UnexpectedEof);
        self.fault(step, ApiError::IOError { err: cut })
    }
}

impl Fault {
    /// The engine's message, for the operator and for classification.
    pub(super) fn text(&self) -> String {
        self.source.to_string()
    }

    /// Whether the engine tried and failed, so that another attempt may succeed.
    pub(super) fn is_worth_another_try(&self) -> bool {
        self.kind == FaultKind::Refused
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "could not {}: {}", self.step, self.source)
    }
}

impl From<Fault> for EngineError {
    fn from(fault: Fault) -> Self {
        match fault.kind {
            FaultKind::Away => Self::Unavailable {
                engine: fault.flavor.name(),
                hint: fault.flavor.hint(),
                source: fault.source,
            },
            FaultKind::Full => {
                let (step, source) = (fault.step, fault.source);
                tracing::warn!(engine = fault.flavor.name(), step, %source, "the disk is full");
                Self::Exhausted { resource: "disk" }
            }
            FaultKind::Missing | FaultKind::Conflict | FaultKind::Refused => Self::Engine {
                step: fault.step,
                source: fault.source,
            },
        }
    }
}

/// Turns "does not exist" into `None`.
pub(super) fn optional<T>(answer: Result<T, Fault>) -> Result<Option<T>, Fault> {
    match answer {
        Ok(value) => Ok(Some(value)),
        Err(fault) if fault.kind == FaultKind::Missing => Ok(None),
        Err(fault) => Err(fault),
    }
}

/// Repeats a call until it succeeds, fails for good, or has used up its attempts.
pub(super) async fn repeat<T, E, F>(
    work: impl Fn() -> F,
    is_worth_another_try: impl Fn(&E) -> bool,
) -> Result<T, E>
where
    E: fmt::Display,
    F: Future<Output = Result<T, E>>,
{
    let mut pause = TRY_PAUSE;
    for _ in 1..TRIES_MAX {
        match work().await {
            Err(error) if is_worth_another_try(&error) => {
                tracing::warn!(%error, "the engine failed, and is asked again");
            }
            ended => return ended,
        }
        tokio::time::sleep(pause).await;
        pause *= 2;
    }
    work().await
}

fn connect(host: &Host) -> Result<Api, ApiError> {
    match host {
        Host::Unix(path) => {
            let path = path.to_string_lossy();
            Api::connect_with_unix(&path, TRANSPORT_TIMEOUT_S, API_DEFAULT_VERSION)
        }
        Host::Tcp(address) => {
            Api::connect_with_http(address, TRANSPORT_TIMEOUT_S, API_DEFAULT_VERSION)
        }
        Host::Tls { address, tls } => {
            check_files(tls)?;
            Api::connect_with_ssl(
                address,
                &tls.key,
                &tls.cert,
                &tls.ca,
                TRANSPORT_TIMEOUT_S,
                API_DEFAULT_VERSION,
            )
        }
    }
}

/// Checks the certificates first: the library ignores one that it cannot read, and the engine then
/// only says that ours is bad.
fn check_files(tls: &Tls) -> Result<(), ApiError> {
    for path in [&tls.ca, &tls.cert, &tls.key] {
        std::fs::File::open(path).map_err(|error| {
            let message = format!("{} cannot be read: {error}", path.display());
            let err = std::io::Error::new(error.kind(), message);
            ApiError::IOError { err }
        })?;
    }
    Ok(())
}

#[expect(
    clippy::wildcard_enum_match_arm,
    reason = "another crate's errors: those we can do something about are named"
)]
fn kind(error: &ApiError) -> FaultKind {
    match error {
        ApiError::DockerResponseServerError { message, .. } if message.contains(NO_SPACE) => {
            FaultKind::Full
        }
        ApiError::DockerStreamError { error } if error.contains(NO_SPACE) => FaultKind::Full,
        ApiError::DockerResponseServerError { status_code, .. } => match status_code {
            404 => FaultKind::Missing,
            409 => FaultKind::Conflict,
            502..=504 => FaultKind::Away,
            _ => FaultKind::Refused,
        },
        // An error within the stream of a pull has no status code.
        ApiError::DockerStreamError { error } if is_about_nothing(error) => FaultKind::Missing,
        ApiError::RequestTimeoutError
        | ApiError::IOError { .. }
        | ApiError::HyperResponseError { .. }
        | ApiError::HyperLegacyError { .. }
        | ApiError::SocketNotFoundError(_) => FaultKind::Away,
        _ => FaultKind::Refused,
    }
}

/// Whether a registry said that it has no such image.
fn is_about_nothing(error: &str) -> bool {
    [
        "manifest unknown",
        "name unknown",
        "repository does not exist",
    ]
    .iter()
    .any(|words| error.contains(words))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn said(status_code: u16) -> FaultKind {
        let message = String::new();
        kind(&ApiError::DockerResponseServerError {
            status_code,
            message,
        })
    }

    #[test]
    fn failures_are_sorted_by_what_can_be_done() {
        assert_eq!(said(404), FaultKind::Missing);
        assert_eq!(said(409), FaultKind::Conflict);
        assert_eq!(said(503), FaultKind::Away);
        assert_eq!(said(500), FaultKind::Refused);
        assert_eq!(kind(&ApiError::RequestTimeoutError), FaultKind::Away);
        let streamed = |error: &str| {
            let error = error.to_owned();
            kind(&ApiError::DockerStreamError { error })
        };
        assert_eq!(
            streamed("reading manifest one: manifest unknown"),
            FaultKind::Missing
        );
        assert_eq!(streamed("connection refused"), FaultKind::Refused);
    }

    #[tokio::test]
    async fn a_socket_that_is_not_there_is_an_engine_that_is_away() {
        let host = Host::Unix("/nonexistent/engine.sock".into());
        let client = Client::new(Flavor::Podman, host);
        let fault = client
            .call("ask", bollard::Docker::ping)
            .await
            .expect_err("away");
        let error = EngineError::from(fault);
        let said = error.to_string();
        assert!(
            said.starts_with("podman does not answer: start Podman"),
            "{said}"
        );
    }
}
