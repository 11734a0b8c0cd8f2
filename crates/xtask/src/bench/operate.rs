//! The cost of authentication and audit log: the same server with and without them, measured in
//! every round.

use std::fmt::Write as _;
use std::path::Path;

use anyhow::Result;
use serde_json::json;
use sha2::{Digest as _, Sha256};

use super::client::Client;
use super::compare::{in_turns, no_slower};
use super::issuer::{AUDIENCE, Issuer};
use super::report::Report;
use super::samples::Samples;
use super::server::{exec_true, spawn};
use super::server_process::{Server, Setup, knows};
use super::{throughput, timed, warm};

const OPEN: &str = "exec_start true, no auth, no audit log";
const KNOWN: &str = "exec_start true, bearer, audit log";
const CROWD: &str = "the same, 10,000 tokens, 1,000 principals";
const ISSUED: &str = "exec_start true, OIDC, audit log";
const CALLS_OPEN: &str = "16 callers, no auth, no audit log";
const CALLS_KNOWN: &str = "16 callers, bearer, audit log";

/// Rounds of single calls, and of one second of concurrent callers.
const ROUNDS: usize = 600;
const CALLS_ROUNDS: usize = 15;

/// Tokens of the crowded server, and how many of them have used a container.
const TOKENS: usize = 10_000;
const PRINCIPALS: usize = 1_000;

/// How many milliseconds authentication and audit log may add to a call.
const BEARER_MS_MAX: f64 = 0.15;
const OIDC_MS_MAX: f64 = 0.3;

/// The share of the throughput of many callers that they may cost.
const THROUGHPUT_COST_MAX: f64 = 0.10;

/// Anonymous memory of an idle server and its launcher, with authentication and audit log.
const IDLE_ANONYMOUS_BYTES_MAX: u64 = 6 << 20;

/// Turns the audit log off, for comparison. Older binaries do not know the option.
const AUDIT: &str = "--audit";

/// The destination of traces. Nobody listens there, so that the server has to buffer and drop them.
const OTEL: &str = "--otel-endpoint";
const NOBODY: &str = "http://127.0.0.1:9";

/// A server, a client of it and a container.
struct Side {
    row: &'static str,
    server: Server,
    client: Client,
    container: String,
    idle_bytes: u64,
}

impl Side {
    fn start(row: &'static str, program: &Path, setup: &Setup<'_>) -> Result<Self> {
        let server = Server::start_as(program, setup)?;
        let mut client = server.client()?;
        warm::until_ready(&mut client)?;
        let idle_bytes = server.anonymous_bytes()?;
        let container = spawn(&mut client)?;
        Ok(Self {
            row,
            server,
            client,
            container,
            idle_bytes,
        })
    }
}

pub(super) fn run(program: &Path, report: &Report) -> Result<()> {
    let issuer = Issuer::start()?;
    let mut sides = start(program, &issuer)?;
    idle(&sides, report);
    let mut samples = Samples::default();
    for round in 0..ROUNDS {
        in_turns(round, &mut sides, |side| {
            let time = timed(|| exec_true(&mut side.client, &side.container))?;
            samples.add(side.row, time);
            anyhow::Ok(())
        })?;
    }
    for round in 0..CALLS_ROUNDS {
        in_turns(round, &mut sides, |side| {
            let row = match side.row {
                OPEN => CALLS_OPEN,
                KNOWN => CALLS_KNOWN,
                _ => return Ok(()),
            };
            samples.add(row, throughput::callers(&side.server)?);
            anyhow::Ok(())
        })?;
    }
    samples.print();
    bounds(&samples, report);
    Ok(())
}

fn start(program: &Path, issuer: &Issuer) -> Result<Vec<Side>> {
    let bearer = ["--auth", "bearer"];
    let mut everything = bearer.to_vec();
    if knows(program, OTEL)? {
        everything.extend([OTEL, NOBODY]);
    }
    let oidc = [
        "--auth",
        "oidc",
        "--oidc-issuer",
        &issuer.url,
        "--oidc-audience",
        AUDIENCE,
    ];
    let (one, crowd) = (tokens_file(1), tokens_file(TOKENS));
    let known = |arguments, tokens_file| Setup {
        arguments,
        tokens_file: Some(tokens_file),
        token: Some(FIRST),
        ..Setup::default()
    };
    let mut sides = vec![
        Side::start(KNOWN, program, &known(&everything, &one))?,
        Side::start(CROWD, program, &known(&bearer, &crowd))?,
        Side::start(
            ISSUED,
            program,
            &Setup {
                arguments: &oidc,
                token: Some(&issuer.token),
                ..Setup::default()
            },
        )?,
    ];
    if knows(program, AUDIT)? {
        let off = Setup {
            arguments: &[AUDIT, "false"],
            ..Setup::default()
        };
        sides.insert(0, Side::start(OPEN, program, &off)?);
    }
    populate(&sides)?;
    Ok(sides)
}

/// The token of the measured caller.
const FIRST: &str = "token-of-caller-number-0";

fn token(number: usize) -> String {
    format!("token-of-caller-number-{number}")
}

/// A `tokens.json` with this many tokens, all of them admins, because only admins may ask whether
/// the pool is ready.
fn tokens_file(count: usize) -> String {
    let tokens = (0..count).map(|number| {
        let hash = Sha256::digest(token(number));
        let mut hex = String::new();
        for byte in hash {
            let _ = write!(hex, "{byte:02x}");
        }
        json!({
            "name": format!("caller-{number}"),
            "sha256": hex,
            "admin": true,
            "created_unix_s": 1_785_000_000,
            "expires_unix_s": null,
        })
    });
    json!({"version": 1, "tokens": tokens.collect::<Vec<_>>()}).to_string()
}

/// Lets many callers create a container each, and end it.
fn populate(sides: &[Side]) -> Result<()> {
    for side in sides.iter().filter(|side| side.row == CROWD) {
        for number in 1..PRINCIPALS {
            let mut client = side.server.client_of(&token(number))?;
            let container = spawn(&mut client)?;
            client.call("kill", &json!({"container_id": container, "force": true}))?;
        }
    }
    Ok(())
}

fn idle(sides: &[Side], report: &Report) {
    let setups = [
        (KNOWN, "authentication, audit log and traces"),
        (CROWD, "authentication, audit log and 10,000 tokens"),
    ];
    for (row, setup) in setups {
        let Some(side) = sides.iter().find(|side| side.row == row) else {
            continue;
        };
        report.verdict(
            side.idle_bytes <= IDLE_ANONYMOUS_BYTES_MAX,
            &format!(
                "idle server with {setup}: {} KiB of anonymous memory with its launcher, at most {}",
                side.idle_bytes >> 10,
                IDLE_ANONYMOUS_BYTES_MAX >> 10,
            ),
        );
    }
    for side in sides {
        eprintln!("idle: {} KiB, {}", side.idle_bytes >> 10, side.row);
    }
}

fn bounds(samples: &Samples, report: &Report) {
    samples.adds_at_most(report, KNOWN, BEARER_MS_MAX, OPEN);
    samples.adds_at_most(report, ISSUED, OIDC_MS_MAX, OPEN);
    let pair = (samples.times(CROWD), samples.times(KNOWN));
    no_slower(CROWD, "one token", pair, report);
    match samples.ratio(CALLS_OPEN, CALLS_KNOWN) {
        Some(ratio) => report.verdict(
            ratio >= 1.0 - THROUGHPUT_COST_MAX,
            &format!(
                "{CALLS_KNOWN}: {:.1} % fewer calls than without, at most {:.0} %",
                (1.0 - ratio) * 100.0,
                THROUGHPUT_COST_MAX * 100.0,
            ),
        ),
        None => report.unmeasured(CALLS_KNOWN),
    }
}
