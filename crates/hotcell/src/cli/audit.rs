//! `hotcell audit`, and the settings of the audit log.

use std::ops::RangeInclusive;
use std::path::PathBuf;
use std::time::{Duration, SystemTime};

use clap::builder::BoolishValueParser;
use clap::{ArgAction, Args, Subcommand, ValueEnum};
use hotcell_domain::{Bytes, parse_rfc3339};

use super::StateArgs;

/// Settings of the audit log.
#[derive(Debug, Args)]
#[command(next_help_heading = "Audit")]
pub(crate) struct AuditLogArgs {
    /// Keep an audit log of every operation
    #[arg(
        long,
        value_name = "BOOL",
        action = ArgAction::Set,
        default_value_t = true,
        env = "HOTCELL_AUDIT",
        value_parser = BoolishValueParser::new()
    )]
    pub(crate) audit: bool,

    /// Directory of the audit log [default: audit in the state directory]
    #[arg(long, value_name = "DIR", env = "HOTCELL_AUDIT_DIR")]
    pub(crate) audit_dir: Option<PathBuf>,

    /// Start a new segment of the audit log at this size (or after a day), and compress the old one
    #[arg(long, value_name = "SIZE", default_value = "16m", value_parser = parse_segment_bytes, env = "HOTCELL_AUDIT_SEGMENT_BYTES")]
    pub(crate) audit_segment_bytes: u64,

    /// Remove segments of the audit log after this many days (0 = never)
    #[arg(
        long,
        value_name = "DAYS",
        default_value_t = 90,
        env = "HOTCELL_AUDIT_RETENTION_DAYS"
    )]
    pub(crate) audit_retention_days: u16,

    /// Disk space for the audit log; the oldest segments are removed first
    #[arg(long, value_name = "SIZE", default_value = "1g", value_parser = Bytes::parse, env = "HOTCELL_AUDIT_BYTES_MAX")]
    pub(crate) audit_bytes_max: Bytes,

    /// What to do with operations while the audit log cannot be written
    #[arg(
        long,
        value_enum,
        default_value = "stop",
        env = "HOTCELL_AUDIT_ON_FAILURE"
    )]
    pub(crate) audit_on_failure: OnFailureChoice,

    /// Also record operations that only look: lists, polls, stat, status
    #[arg(long, env = "HOTCELL_AUDIT_READS", value_parser = BoolishValueParser::new())]
    pub(crate) audit_reads: bool,
}

/// What happens to operations while the audit log cannot be written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum OnFailureChoice {
    /// Refuse operations that would be recorded, except kill and `exec_cancel`
    Stop,
    /// Go on without the audit log
    Continue,
}

/// The arguments of `hotcell audit`.
#[derive(Debug, Args)]
pub(crate) struct AuditArgs {
    #[command(subcommand)]
    pub(crate) command: AuditCommand,
}

#[derive(Debug, Subcommand)]
pub(crate) enum AuditCommand {
    /// Show the newest events
    Tail(AuditTailArgs),
    /// Show the events that match
    Query(AuditQueryArgs),
    /// Check that no event was changed, removed, moved or added; exits with 1 if one was
    Verify(AuditVerifyArgs),
    /// Write events as JSON lines, to a file or to stdout
    Export(AuditExportArgs),
}

/// The location of the audit log.
#[derive(Debug, Clone, Args)]
pub(crate) struct AuditPlaceArgs {
    /// Directory of the audit log [default: audit in the state directory]
    #[arg(long, value_name = "DIR", env = "HOTCELL_AUDIT_DIR")]
    pub(crate) audit_dir: Option<PathBuf>,

    #[command(flatten)]
    pub(crate) state: StateArgs,
}

/// The arguments of `hotcell audit tail`.
#[derive(Debug, Args)]
pub(crate) struct AuditTailArgs {
    /// Go on as events come
    #[arg(long, short)]
    pub(crate) follow: bool,

    /// How many events to show
    #[arg(long, short = 'n', value_name = "N", default_value_t = 10, value_parser = parse_count)]
    pub(crate) lines: usize,

    /// Print each event as a line of JSON
    #[arg(long)]
    pub(crate) json: bool,

    #[command(flatten)]
    pub(crate) place: AuditPlaceArgs,
}

/// The arguments of `hotcell audit query`.
#[derive(Debug, Args)]
pub(crate) struct AuditQueryArgs {
    /// Only events of this principal
    #[arg(long, value_name = "NAME")]
    pub(crate) principal: Option<String>,

    /// Only these events, such as `EXEC_START`; repeat the flag or separate with commas
    #[arg(long, value_name = "EVENT", value_delimiter = ',')]
    pub(crate) event: Vec<String>,

    /// Only events with this outcome: ok, denied, failed, abandoned
    #[arg(long, value_name = "OUTCOME")]
    pub(crate) outcome: Option<String>,

    /// Only events about this container, exec or image
    #[arg(long, value_name = "TARGET")]
    pub(crate) target: Option<String>,

    #[command(flatten)]
    pub(crate) span: AuditSpanArgs,

    /// Print each event as a line of JSON
    #[arg(long)]
    pub(crate) json: bool,

    #[command(flatten)]
    pub(crate) place: AuditPlaceArgs,
}

/// A period of time.
#[derive(Debug, Clone, Args)]
pub(crate) struct AuditSpanArgs {
    /// Only events since then: how long ago (30m, 1h, 7d) or an RFC 3339 time
    #[arg(long, value_name = "TIME", value_parser = parse_time)]
    pub(crate) since: Option<u64>,

    /// Only events until then, written the same way
    #[arg(long, value_name = "TIME", value_parser = parse_time)]
    pub(crate) until: Option<u64>,
}

/// The arguments of `hotcell audit verify`.
#[derive(Debug, Args)]
pub(crate) struct AuditVerifyArgs {
    /// Print the findings and the hash of the last event as JSON
    #[arg(long)]
    pub(crate) json: bool,

    #[command(flatten)]
    pub(crate) place: AuditPlaceArgs,
}

/// The arguments of `hotcell audit export`.
#[derive(Debug, Args)]
pub(crate) struct AuditExportArgs {
    /// File to create [default: stdout]
    pub(crate) file: Option<PathBuf>,

    #[command(flatten)]
    pub(crate) span: AuditSpanArgs,

    #[command(flatten)]
    pub(crate) place: AuditPlaceArgs,
}

/// The most events that `tail` holds in memory.
const LINES_MAX: usize = 100_000;

fn parse_count(text: &str) -> Result<usize, String> {
    match text.parse() {
        Ok(count @ 0..=LINES_MAX) => Ok(count),
        _ => Err(format!("must be a number from 0 to {LINES_MAX}")),
    }
}

/// A segment is read as a whole at start, so it must not be huge; a tiny one would be mostly
/// header.
const SEGMENT_BYTES: RangeInclusive<u64> = 4 << 10..=1 << 30;

fn parse_segment_bytes(text: &str) -> Result<u64, String> {
    let at = text.find(|c: char| !c.is_ascii_digit());
    let (number, unit) = text.split_at(at.unwrap_or(text.len()));
    let factor = match unit {
        "" => Some(1),
        "k" | "K" => Some(1 << 10),
        "m" | "M" => Some(1 << 20),
        "g" | "G" => Some(1 << 30),
        _ => None,
    };
    let number: Option<u64> = number.parse().ok();
    let bytes = number
        .zip(factor)
        .and_then(|(number, factor)| number.checked_mul(factor));
    let bytes = bytes.filter(|bytes| SEGMENT_BYTES.contains(bytes));
    bytes.ok_or_else(|| "must be a size from 4k to 1g, such as 16m".to_owned())
}

/// Milliseconds since 1970.
fn parse_time(text: &str) -> Result<u64, String> {
    if let Some(unix_ms) = parse_rfc3339(text) {
        return Ok(unix_ms);
    }
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    let now = now.map_or(0, |now| u64::try_from(now.as_millis()).unwrap_or(u64::MAX));
    let ago = parse_ago(text).ok_or("write 30m, 1h, 7d, or a time such as 2026-07-28T12:00:00Z")?;
    Ok(now.saturating_sub(u64::try_from(ago.as_millis()).unwrap_or(u64::MAX)))
}

fn parse_ago(text: &str) -> Option<Duration> {
    let at = text.find(|c: char| !c.is_ascii_digit())?;
    let (number, unit) = text.split_at(at);
    let seconds = match unit {
        "s" => 1,
        "m" => 60,
        "h" => 60 * 60,
        "d" => 24 * 60 * 60,
        "w" => 7 * 24 * 60 * 60,
        _ => return None,
    };
    let number: u64 = number.parse().ok()?;
    Some(Duration::from_secs(number.checked_mul(seconds)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_size_of_a_segment_is_bounded() {
        assert_eq!(parse_segment_bytes("4k"), Ok(4 << 10));
        assert_eq!(parse_segment_bytes("16m"), Ok(16 << 20));
        assert_eq!(parse_segment_bytes("1048576"), Ok(1 << 20));
        for text in [
            "",
            "k",
            "1k",
            "2g",
            "1t",
            "-4k",
            "4 k",
            "99999999999999999999g",
        ] {
            assert!(parse_segment_bytes(text).is_err(), "{text}");
        }
    }

    #[test]
    fn a_time_is_written_as_an_age_or_as_a_time() {
        assert_eq!(parse_ago("90s"), Some(Duration::from_secs(90)));
        assert_eq!(parse_ago("2h"), Some(Duration::from_hours(2)));
        assert_eq!(parse_ago("7d"), Some(Duration::from_hours(7 * 24)));
        for text in ["", "h", "1", "1y", "-1h", "1 h", "99999999999999999999d"] {
            assert_eq!(parse_ago(text), None, "{text}");
            assert!(parse_time(text).is_err(), "{text}");
        }
        assert_eq!(parse_time("1970-01-01T00:00:01Z"), Ok(1000));
    }
}
