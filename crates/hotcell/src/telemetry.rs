//! Logging, which goes to stderr: stdout belongs to the protocol, or to a command's own output.

use std::io::IsTerminal;
use std::sync::OnceLock;

use tracing::Subscriber;
use tracing_subscriber::filter::{LevelFilter, Targets};
use tracing_subscriber::layer::{Layer, SubscriberExt};
use tracing_subscriber::registry::LookupSpan;
use tracing_subscriber::reload;
use tracing_subscriber::util::SubscriberInitExt;

use crate::cli::{LogArgs, LogFormat};

/// The prefix of our crates.
const OURS: &str = "hotcell";

/// What to log: `error` to `trace`, or `off`; also by part, as in `warn,hotcell_service=debug`. An
/// empty one means the default.
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

/// Changes the level of the process's only subscriber.
static LEVEL: OnceLock<Box<dyn Fn(Targets) + Send + Sync>> = OnceLock::new();

/// Starts logging. By default: our own messages from `level`, warnings of libraries, and only
/// errors of the protocol library, because it warns when a client hangs up.
pub(crate) fn start(arguments: &LogArgs, level: LevelFilter) {
    let (targets, handle) = reload::Layer::new(targets(arguments, level));
    let subscriber = tracing_subscriber::registry().with(targets);
    match arguments.log_format {
        LogFormat::Text => subscriber.with(text_lines()).init(),
        LogFormat::Json => subscriber.with(json_lines()).init(),
    }
    let change = move |targets| {
        // Fails only if the subscriber is gone.
        let _ = handle.reload(targets);
    };
    let _ = LEVEL.set(Box::new(change));
}

/// Changes the level. The format stays.
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

/// The fields of a line: `timestamp`, `level`, `fields` (with `message`), `target`, `span` and
/// `spans`.
fn json_lines<S: Subscriber + for<'a> LookupSpan<'a>>() -> impl Layer<S> {
    tracing_subscriber::fmt::layer()
        .json()
        .with_writer(std::io::stderr)
}
