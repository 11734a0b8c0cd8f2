//! `hotcell serve`. Each setting is also a variable of the environment.

use std::time::Duration;

use clap::builder::BoolishValueParser;
use clap::{Args, ValueEnum};
use hotcell_domain::{Bytes, ImageRef};
use hotcell_engine::ENGINES;
use hotcell_mcp::Toolsets;

use super::{
    AuditLogArgs, AuthArgs, CeilingArgs, EngineArgs, EngineChoice, LimitArgs, QuotaArgs, StateArgs,
    WarmArgs,
};
use crate::image::PolicyArgs;

pub(super) const EXAMPLES: &str = "\
Examples:
  hotcell serve                                  # http://127.0.0.1:8000/mcp
  hotcell serve --transport stdio                # for a desktop client
  hotcell serve --toolsets workspace --port 9000

Also read: HOTCELL_LOG (error, warn, info, debug, trace, or by part: warn,hotcell_service=debug),
DOCKER_HOST, DOCKER_TLS_VERIFY, DOCKER_CERT_PATH and CONTAINER_HOST (where engines are),
DOCKER_CONFIG (credentials of registries), HTTPS_PROXY, XDG_STATE_HOME";

/// How and what to serve.
#[derive(Debug, Args)]
#[expect(
    clippy::struct_excessive_bools,
    reason = "each is a switch of its own on the command line"
)]
pub(crate) struct ServeArgs {
    /// How clients connect; `streamable-http` and `sse` serve both /mcp and /sse
    #[arg(
        long,
        value_enum,
        default_value = "streamable-http",
        env = "HOTCELL_TRANSPORT"
    )]
    pub(crate) transport: Transport,

    /// Address to listen on
    #[arg(long, default_value = "127.0.0.1", env = "HOTCELL_HOST")]
    pub(crate) host: String,

    /// Port to listen on; 0 takes a free one and logs it
    #[arg(long, default_value_t = 8000, env = "HOTCELL_PORT")]
    pub(crate) port: u16,

    /// Container engine to use
    #[arg(long, value_parser = EngineChoice::parser(ENGINES), default_value = "auto", env = "HOTCELL_ENGINE")]
    pub(crate) engine: EngineChoice,

    #[command(flatten)]
    pub(crate) access: EngineArgs,

    /// OCI runtime for Docker or Podman, such as `runsc` [default: the engine's own]
    #[arg(long, value_name = "NAME", env = "HOTCELL_RUNTIME")]
    pub(crate) runtime: Option<String>,

    /// Groups of tools to serve, separated by commas: workspace, admin [default: all; over HTTP see --admin-over-http]
    #[arg(long, value_parser = Toolsets::parse, env = "HOTCELL_TOOLSETS")]
    pub(crate) toolsets: Option<Toolsets>,

    /// Allow unauthenticated clients on a non-loopback address
    #[arg(long, env = "HOTCELL_ALLOW_ANONYMOUS", value_parser = BoolishValueParser::new())]
    pub(crate) allow_anonymous: bool,

    /// Without authentication, give every HTTP client the admin tools and /metrics; stdio and the unix socket always have them
    #[arg(long, env = "HOTCELL_ADMIN_OVER_HTTP", value_parser = BoolishValueParser::new())]
    pub(crate) admin_over_http: bool,

    /// Refuse to create a container if one of its limits cannot be enforced
    #[arg(long, env = "HOTCELL_REQUIRE_LIMITS", value_parser = BoolishValueParser::new())]
    pub(crate) require_limits: bool,

    /// Allow execs to run as root inside their container
    #[arg(long, env = "HOTCELL_ALLOW_AS_ROOT", value_parser = BoolishValueParser::new())]
    pub(crate) allow_as_root: bool,

    /// Allow containers with unrestricted network access (`network: full`)
    #[arg(long, env = "HOTCELL_ALLOW_NETWORK", value_parser = BoolishValueParser::new())]
    pub(crate) allow_network: bool,

    /// Allow a directory of this host as a container's root file system (`rootfs:/path`)
    #[arg(long, env = "HOTCELL_ALLOW_ROOTFS", value_parser = BoolishValueParser::new())]
    pub(crate) allow_rootfs: bool,

    /// Base URL at which clients reach this server; tools put it into the links they return
    #[arg(long, value_name = "URL", env = "HOTCELL_PUBLIC_URL", value_parser = parse_public_url)]
    pub(crate) public_url: Option<String>,

    /// Accept requests for this Host name too [default: loopback names; any name with a non-loopback --host]
    #[arg(
        long = "allowed-host",
        value_name = "NAME",
        value_delimiter = ',',
        env = "HOTCELL_ALLOWED_HOSTS"
    )]
    pub(crate) allowed_hosts: Vec<String>,

    /// Image for containers that do not name one [default: host; with Docker and Podman python:3.12-slim]
    #[arg(long, value_parser = ImageRef::parse, env = "HOTCELL_DEFAULT_IMAGE")]
    pub(crate) default_image: Option<ImageRef>,

    #[command(flatten)]
    pub(crate) auth: AuthArgs,

    #[command(flatten)]
    pub(crate) limits: LimitArgs,

    #[command(flatten)]
    pub(crate) ceilings: CeilingArgs,

    #[command(flatten)]
    pub(crate) quotas: QuotaArgs,

    #[command(flatten)]
    pub(crate) warm: WarmArgs,

    /// Threads that serve requests [default: one per core]
    #[arg(long, value_name = "N", value_parser = parse_threads, env = "HOTCELL_WORKER_THREADS")]
    pub(crate) worker_threads: Option<usize>,

    /// On shutdown, wait this long for running execs to finish
    #[arg(long, value_name = "SECONDS", default_value = "60", value_parser = parse_whole_seconds, env = "HOTCELL_DRAIN_GRACE_S")]
    pub(crate) drain_grace_s: Duration,

    /// Maximum number of execs running at once in one container
    #[arg(long, value_name = "N", default_value_t = 4, env = "HOTCELL_EXECS_RUNNING_MAX", value_parser = parse_execs)]
    pub(crate) execs_running_max: usize,

    /// Maximum number of queued execs per container
    #[arg(
        long,
        value_name = "N",
        default_value_t = 64,
        env = "HOTCELL_EXECS_QUEUED_MAX"
    )]
    pub(crate) execs_queued_max: usize,

    /// Disk space for the output of one exec; of more, the first and the last half are kept
    #[arg(long, value_name = "SIZE", default_value = "64m", value_parser = Bytes::parse, env = "HOTCELL_OUTPUT_BYTES_MAX")]
    pub(crate) output_bytes_max: Bytes,

    /// Ended execs (with their idempotency keys) kept per principal; the oldest are removed first
    #[arg(
        long,
        value_name = "N",
        default_value_t = 10_000,
        env = "HOTCELL_ENDED_EXECS_MAX"
    )]
    pub(crate) ended_execs_max: u64,

    /// Ended containers (with their idempotency keys) kept per principal; the oldest are removed first
    #[arg(
        long,
        value_name = "N",
        default_value_t = 10_000,
        env = "HOTCELL_ENDED_CONTAINERS_MAX"
    )]
    pub(crate) ended_containers_max: u64,

    /// Refuse new containers, execs and file writes while the state directory's disk has less free space than this; 0 never refuses [default: 512m, or 2 % of a smaller disk]
    #[arg(long, value_name = "SIZE", value_parser = parse_reserve, env = "HOTCELL_RESERVE_BYTES")]
    pub(crate) reserve_bytes: Option<u64>,

    /// End transient containers that have been idle for this many days
    #[arg(
        long,
        value_name = "DAYS",
        default_value_t = 7,
        env = "HOTCELL_TRANSIENT_GC_DAYS"
    )]
    pub(crate) transient_gc_days: u16,

    /// Remove images that Hotcell pulled and nobody used for this many days (0 = never)
    #[arg(
        long,
        value_name = "DAYS",
        default_value_t = 30,
        env = "HOTCELL_IMAGE_GC_DAYS"
    )]
    pub(crate) image_gc_days: u16,

    #[command(flatten)]
    pub(crate) images: PolicyArgs,

    #[command(flatten)]
    pub(crate) audit: AuditLogArgs,

    #[command(flatten)]
    pub(crate) state: StateArgs,
}

/// How clients connect.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Transport {
    /// Streamable HTTP at /mcp
    StreamableHttp,
    /// One client on standard input and output
    Stdio,
    /// HTTP with server-sent events at /sse, for older clients
    Sse,
}

/// The most execs that one agent can run at once.
const EXECS_RUNNING_MAX: usize = 64;

fn parse_execs(text: &str) -> Result<usize, String> {
    match text.parse() {
        Ok(number @ 1..=EXECS_RUNNING_MAX) => Ok(number),
        _ => Err(format!("must be a number from 1 to {EXECS_RUNNING_MAX}")),
    }
}

/// Far more than cores that a server has.
const WORKER_THREADS_MAX: usize = 1024;

fn parse_threads(text: &str) -> Result<usize, String> {
    match text.parse() {
        Ok(number @ 1..=WORKER_THREADS_MAX) => Ok(number),
        _ => Err(format!("must be a number from 1 to {WORKER_THREADS_MAX}")),
    }
}

/// Nobody waits longer than a day for a server to stop.
const DRAIN_GRACE_S_MAX: u64 = 24 * 60 * 60;

fn parse_reserve(text: &str) -> Result<u64, String> {
    match text.trim() {
        "0" => Ok(0),
        text => Bytes::parse(text)
            .map(Bytes::get)
            .map_err(|error| error.to_string()),
    }
}

fn parse_whole_seconds(text: &str) -> Result<Duration, String> {
    match text.parse() {
        Ok(seconds @ 0..=DRAIN_GRACE_S_MAX) => Ok(Duration::from_secs(seconds)),
        _ => Err("must be a whole number of seconds, at most a day".to_owned()),
    }
}

fn parse_public_url(text: &str) -> Result<String, String> {
    let rest = text
        .strip_prefix("https://")
        .or_else(|| text.strip_prefix("http://"));
    let legal = |c: char| c.is_ascii_graphic() && !"\"'<>?#\\".contains(c);
    match rest {
        Some(rest) if !rest.is_empty() && rest.chars().all(legal) => {
            Ok(text.trim_end_matches('/').to_owned())
        }
        _ => Err("must begin with http:// or https:// and have no query".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;
    use crate::cli::{Cli, Command};

    fn parse(arguments: &[&str]) -> Result<ServeArgs, clap::Error> {
        let line = ["hotcell", "serve"].iter().chain(arguments);
        let command = Cli::try_parse_from(line)?.into_command();
        let Command::Serve(arguments) = command else {
            panic!("not serve but {command:?}")
        };
        Ok(*arguments)
    }

    #[test]
    fn without_a_command_it_serves() {
        let command = Cli::try_parse_from(["hotcell"]).map(Cli::into_command);
        assert!(matches!(command, Ok(Command::Serve(_))));
    }

    #[test]
    fn worker_threads_are_bounded_and_one_per_core_unless_set() {
        let threads = |text| parse(&["--worker-threads", text]).map(|it| it.worker_threads);
        assert_eq!(threads("3").ok(), Some(Some(3)));
        assert!(threads("0").is_err() && threads("1025").is_err());
        assert_eq!(parse(&[]).map(|it| it.worker_threads).ok(), Some(None));
    }

    #[test]
    fn a_reserve_is_a_size_or_nothing() {
        let reserve = |text| parse(&["--reserve-bytes", text]).map(|it| it.reserve_bytes);
        assert_eq!(reserve("0").ok(), Some(Some(0)));
        assert_eq!(reserve("1g").ok(), Some(Some(1 << 30)));
        assert_eq!(parse(&[]).map(|it| it.reserve_bytes).ok(), Some(None));
    }

    #[test]
    fn senseless_settings_are_refused() {
        for [flag, value] in [
            ["--port", "65536"],
            ["--transport", "carrier-pigeon"],
            ["--engine", "steam"],
            ["--toolsets", "everything"],
            ["--toolsets", ""],
            ["--toolsets", "workspace,code"],
            ["--toolsets", "codemode"],
            ["--auth", "maybe"],
            ["--bearer-token", "too-short"],
            ["--public-url", "ftp://example.org"],
            ["--public-url", "https://"],
            ["--public-url", "https://example.org/?x"],
            ["--drain-grace-s", "-1"],
            ["--execs-running-max", "0"],
            ["--output-bytes-max", "1"],
            ["--logs-bytes-max", "1"],
            ["--ended-execs-max", "-1"],
            ["--reserve-bytes", "much"],
            ["--default-image", "a b"],
            ["--memory", "1"],
            ["--cpus", "0"],
            ["--pids", "1"],
            ["--memory-max", "1"],
            ["--cpus-max", "0"],
            ["--pids-max", "many"],
            ["--memory-total", "17t"],
            ["--pids-total", "0"],
            ["--tmp", "-1"],
            ["--warm", "65"],
            ["--warm-image", "python"],
            ["--warm-image", "python=65"],
            ["--warm-image", "a b=1"],
            ["--warm-check-s", "0"],
        ] {
            assert!(parse(&[flag, value]).is_err(), "{flag} {value}");
        }
    }
}
