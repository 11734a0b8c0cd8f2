//! Logs go to stderr: stdout belongs to the protocol, or to a command's own output.

use std::io::IsTerminal;
use std::sync::OnceLock;

use tracing::Subscriber;
use tracing_subscriber::filter::{LevelFilter, Targets};
use tracing_subscriber::layer::{Layer, SubscriberExt};
use tracing_subscriber::registry::LookupSpan;
use tracing_subscriber::reload;
use tracing_subscriber::util::SubscriberInitExt;

use crate::cli::{LogArgs, LogFormat};

/// Our own crates.
const OURS: &str = "hotcell";

/// What is logged: `error` to `trace`, or `off`; also by part, as in `warn,hotcell_service=debug`.
/// An empty one says nothing.
#[derive(Debug, Clone)]
pub(crate) struct LogFilter(Option<Targets>);

impl LogFilter {
    pub(crate) fn parse(text: &str) -> Result<Self, String> {
        if text.is_empty() {
            return Ok(Self(None));
        }
        let parsed = text.parse().map(|targets| Self(Some(targets)));
        parsed.map_err(|_| {
            "is not `error` to `trace`, or `off` (--log-level, HOTCELL_LOG)".to_owned()
        })
    }
}

/// Changes what is logged, of the one subscriber that a process has.
static LEVEL: OnceLock<Box<dyn Fn(Targets) + Send + Sync>> = OnceLock::new();

/// Starts logging: of us, if nobody says anything, what is at least as grave as `level`; of the
/// libraries below us, warnings; of the protocol's, errors only, because a client that hangs up
/// is none of ours.
pub(crate) fn start(arguments: &LogArgs, level: LevelFilter) {
    let (targets, handle) = reload::Layer::new(targets(arguments, level));
    let subscriber = tracing_subscriber::registry().with(targets);
    match arguments.log_format {
        LogFormat::Text => subscriber.with(text_lines()).init(),
        LogFormat::Json => subscriber.with(json_lines()).init(),
    }
    let change = move |targets| {
        // It fails only if there is no subscriber any more.
        let _ = handle.reload(targets);
    };
    let _ = LEVEL.set(Box::new(change));
}

/// Logs more or less from now on. The format stays.
pub(crate) fn change_level(arguments: &LogArgs, level: LevelFilter) {
    if let Some(change) = LEVEL.get() {
        change(targets(arguments, level));
    }
}

fn targets(arguments: &LogArgs, level: LevelFilter) -> Targets {
    let asked = arguments.log_level.as_ref();
    let asked = asked.and_then(|LogFilter(targets)| targets.clone());
    asked.unwrap_or_else(|| {
        Targets::new()
            .with_default(LevelFilter::WARN)
            .with_target("rmcp", LevelFilter::ERROR)
            .with_target(OURS, level)
    })
}

fn text_lines<S: Subscriber + for<'a> LookupSpan<'a>>() -> impl Layer<S> {
    tracing_subscriber::fmt::layer()
        .with_writer(std::io::stderr)
        .with_ansi(std::io::stderr().is_terminal())
        .with_target(false)
}

/// `timestamp`, `level`, `fields` (with `message`), `target`, `span` and `spans`.
fn json_lines<S: Subscriber + for<'a> LookupSpan<'a>>() -> impl Layer<S> {
    tracing_subscriber::fmt::layer()
        .json()
        .with_writer(std::io::stderr)
}
