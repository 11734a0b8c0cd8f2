//! Settings of transports, addresses and threads.

use std::time::Duration;

use clap::builder::BoolishValueParser;
use clap::{Args, ValueEnum};
use hotcell_http::{MCP_PATH, RESERVED_PATHS};
use hotcell_mcp::Toolsets;

/// Settings of transports, addresses and threads.
#[derive(Debug, Args)]
#[command(next_help_heading = "Server")]
pub(crate) struct ServerArgs {
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

    /// Path of Streamable HTTP
    #[arg(long, value_name = "PATH", default_value = MCP_PATH, value_parser = parse_path, env = "HOTCELL_PATH")]
    pub(crate) path: String,

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

    /// Groups of tools to serve, separated by commas: workspace, admin [default: all; over HTTP see --admin-over-http]
    #[arg(long, value_parser = Toolsets::parse, env = "HOTCELL_TOOLSETS")]
    pub(crate) toolsets: Option<Toolsets>,

    /// Allow unauthenticated clients on a non-loopback address
    #[arg(long, env = "HOTCELL_ALLOW_ANONYMOUS", value_parser = BoolishValueParser::new())]
    pub(crate) allow_anonymous: bool,

    /// Without authentication, give every HTTP client the admin tools and /metrics; stdio and the unix socket always have them
    #[arg(long, env = "HOTCELL_ADMIN_OVER_HTTP", value_parser = BoolishValueParser::new())]
    pub(crate) admin_over_http: bool,

    /// Threads that serve requests [default: one per core]
    #[arg(long, value_name = "N", value_parser = parse_threads, env = "HOTCELL_WORKER_THREADS")]
    pub(crate) worker_threads: Option<usize>,

    /// On shutdown, wait this long for running execs to finish
    #[arg(long, value_name = "SECONDS", default_value = "60", value_parser = parse_whole_seconds, env = "HOTCELL_DRAIN_GRACE_S")]
    pub(crate) drain_grace_s: Duration,
}

/// The transports.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Transport {
    /// Streamable HTTP at /mcp
    StreamableHttp,
    /// One client on standard input and output
    Stdio,
    /// HTTP with server-sent events at /sse, for older clients
    Sse,
}

/// Far more than any server has cores.
const WORKER_THREADS_MAX: usize = 1024;

fn parse_threads(text: &str) -> Result<usize, String> {
    match text.parse() {
        Ok(number @ 1..=WORKER_THREADS_MAX) => Ok(number),
        _ => Err(format!("must be a number from 1 to {WORKER_THREADS_MAX}")),
    }
}

/// The longest grace period: one day.
const DRAIN_GRACE_S_MAX: u64 = 24 * 60 * 60;

fn parse_whole_seconds(text: &str) -> Result<Duration, String> {
    match text.parse() {
        Ok(seconds @ 0..=DRAIN_GRACE_S_MAX) => Ok(Duration::from_secs(seconds)),
        _ => Err("must be a whole number of seconds, at most a day".to_owned()),
    }
}

/// The longest path.
const PATH_BYTES_MAX: usize = 256;

/// Accepts plain segments, and no path that is already served.
fn parse_path(text: &str) -> Result<String, String> {
    let legal = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.~".contains(&byte);
    let is_segment = |segment: &str| {
        let is_dots = segment.bytes().all(|byte| byte == b'.');
        !is_dots && segment.bytes().all(legal)
    };
    let rest = text.strip_prefix('/').unwrap_or_default();
    if text.len() > PATH_BYTES_MAX || !rest.split('/').all(is_segment) {
        return Err("must be a path such as /mcp, without a slash at its end".to_owned());
    }
    let is_taken = |path: &&str| text == *path || text.starts_with(&format!("{path}/"));
    match RESERVED_PATHS.into_iter().find(is_taken) {
        Some(path) => Err(format!("{path} is served already")),
        None => Ok(text.to_owned()),
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
