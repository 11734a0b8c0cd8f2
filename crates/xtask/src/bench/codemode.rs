//! Scripts of `run_python` over Streamable HTTP on loopback, and the calls that they make.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};

use super::client::Client;
use super::echo_server::{Bare, WORD};
use super::readme::{Readme, p50};
use super::report::Report;
use super::samples::{Samples, millis, percentile};
use super::server_process::Server;
use super::{ROUNDS, timed, warm};

const FRESH: &str = "run_python print(1), fresh container";
const SESSION: &str = "run_python print(1), session";
const BARE: &str = "tools/call of the server, bare";
const NESTED: &str = "tools/call of the server, in a script";
const BIG: &str = "run_python, a 20 MiB result";
const SEARCH: &str = "search_tool_docs over 1,000 tools";
const GATHERED: &str = "200 gathered calls";
const START: &str = "start, no other servers";
const START_MANY: &str = "start, 50 other servers";

/// Calls per round, one after the other.
const CALLS: usize = 20;

/// Slow subjects are measured once in this many rounds.
const SLOW_EVERY: usize = 10;

/// Starts of a server with and without other servers, in turns.
const STARTS: usize = 20;

const SERVERS: usize = 50;

const GATHERED_COUNT: f64 = 200.0;
const GATHERED_PER_SECOND_MIN: f64 = 3000.0;

/// What 50 servers that nobody used may take of the memory of an idle server.
const IDLE_BYTES_MAX: u64 = 512 << 10;

/// Times are taken inside: a request over HTTP is none of the call.
const NESTED_CODE: &str = "
import time
times = []
for _ in range(20):
    began = time.perf_counter()
    await mcp_echo.echo(text='hi')
    times.append(time.perf_counter() - began)
times
";

const GATHERED_CODE: &str = "
import asyncio, time
await asyncio.gather(*(mcp_echo.echo(text='hi') for _ in range(200)))
began = time.perf_counter()
said = await asyncio.gather(*(mcp_echo.echo(text='hi') for _ in range(200)))
took = time.perf_counter() - began
assert said == ['hi'] * 200
[took]
";

const BIG_CODE: &str = "
text = await mcp_echo.big(bytes=20 << 20)
assert text == 'x' * (20 << 20)
[len(text)]
";

const SEARCH_CODE: &str = "
import time
times = []
for query in ('close an invoice', 'assign a customer to a project', 'export calendar', 'pipeline 512', 'merge branch by identifier'):
    began = time.perf_counter()
    found = mcp.runtime.search_tool_docs(query)
    times.append(time.perf_counter() - began)
    assert found, query
times
";

pub(super) fn run(program: &Path, report: &Report, readme: &mut Readme) -> Result<()> {
    let directory = std::env::temp_dir().join(format!("hotcell-codemode-{}", std::process::id()));
    std::fs::create_dir_all(&directory)?;
    let measured = measure(program, &directory, report, readme);
    std::fs::remove_dir_all(&directory)?;
    measured
}

fn measure(program: &Path, directory: &Path, report: &Report, readme: &mut Readme) -> Result<()> {
    let mut samples = Samples::default();
    let many = starts(program, directory, &mut samples)?;
    let config = written(directory, "one", &[("echo", 0), ("wide", 1000)])?;
    let arguments = [
        "--config",
        config.to_str().context("a path of ours")?,
        "--warm",
        "2",
        "--containers-max",
        "64",
        "--spawns-per-minute",
        "10000",
        "--codemode-calls-per-minute",
        "10000000",
    ];
    let server = Server::start_with(program, &arguments, &[])?;
    let mut client = server.client()?;
    warm::until_ready(&mut client)?;
    // The first calls start the servers, fill the catalogue and make the session.
    script(&mut client, NESTED_CODE)?;
    script(&mut client, "mcp.runtime.list_tools('wide')\n[]")?;
    let mut bare = Bare::start()?;
    for round in 0..ROUNDS {
        quick(&mut client, &mut bare, &mut samples)?;
        if round % SLOW_EVERY == 0 {
            slow(&mut client, &mut samples)?;
        }
    }
    samples.print();
    bounds(&samples, report);
    report.verdict(
        many <= IDLE_BYTES_MAX,
        &format!(
            "{SERVERS} other servers: {} KiB of an idle server's memory, at most {}",
            many >> 10,
            IDLE_BYTES_MAX >> 10
        ),
    );
    table(&samples, readme);
    Ok(())
}

/// A configuration with these servers; each has so many tools more.
fn written(directory: &Path, name: &str, servers: &[(&str, usize)]) -> Result<PathBuf> {
    let program = std::env::current_exe()?;
    let program = program.display();
    let mut text = String::new();
    for (server, tools) in servers {
        writeln!(
            text,
            "[upstream.{server}]\ncommand = '{program}'\nargs = ['bench', '{WORD}', '{tools}']"
        )?;
    }
    let path = directory.join(format!("{name}.toml"));
    std::fs::write(&path, text)?;
    Ok(path)
}

/// How much 50 servers add to the start, in turns with none; returns what they add to the memory.
fn starts(program: &Path, directory: &Path, samples: &mut Samples) -> Result<u64> {
    let names: Vec<String> = (0..SERVERS).map(|number| format!("s{number}")).collect();
    let servers: Vec<(&str, usize)> = names.iter().map(|name| (name.as_str(), 20)).collect();
    let many = written(directory, "many", &servers)?;
    let none = written(directory, "none", &[])?;
    let mut bytes = [Vec::new(), Vec::new()];
    for _ in 0..STARTS {
        for (index, (row, config)) in [(START, &none), (START_MANY, &many)]
            .into_iter()
            .enumerate()
        {
            let config = config.to_str().context("a path of ours")?;
            let server = Server::start_with(program, &["--config", config], &[])?;
            samples.add(row, server.start_time);
            bytes[index].push(server.anonymous_bytes()?);
        }
    }
    let [mut none, mut many] = bytes;
    none.sort_unstable();
    many.sort_unstable();
    Ok(many[STARTS / 2].saturating_sub(none[STARTS / 2]))
}

fn quick(client: &mut Client, bare: &mut Bare, samples: &mut Samples) -> Result<()> {
    let in_session = json!({"code": "print(1)", "session": "bench"});
    samples.add(SESSION, timed(|| python(client, &in_session))?);
    let began = Instant::now();
    for _ in 0..CALLS {
        bare.call()?;
    }
    samples.add(BARE, began.elapsed() / u32::try_from(CALLS)?);
    samples.add(NESTED, median(&script(client, NESTED_CODE)?)?);
    Ok(())
}

fn slow(client: &mut Client, samples: &mut Samples) -> Result<()> {
    warm::until_ready(client)?;
    let fresh = json!({"code": "print(1)"});
    samples.add(FRESH, timed(|| python(client, &fresh))?);
    samples.add(GATHERED, median(&script(client, GATHERED_CODE)?)?);
    samples.add(BIG, timed(|| script(client, BIG_CODE))?);
    samples.add(SEARCH, median(&script(client, SEARCH_CODE)?)?);
    warm::until_ready(client)
}

/// Runs a script that returns a list.
fn script(client: &mut Client, code: &str) -> Result<Vec<Value>> {
    let request = json!({"code": code, "session": "bench", "timeout": 120});
    let mut ran = python(client, &request)?;
    serde_json::from_value(ran["result"].take()).with_context(|| format!("no list: {ran}"))
}

fn python(client: &mut Client, request: &Value) -> Result<Value> {
    let ran = client.call("run_python", request)?;
    ensure!(ran["status"] == json!("success"), "{ran}");
    Ok(ran)
}

fn median(seconds: &[Value]) -> Result<Duration> {
    let times: Vec<Duration> = seconds
        .iter()
        .filter_map(|one| one.as_f64().map(Duration::from_secs_f64))
        .collect();
    percentile(&times, 50).context("the script measured nothing")
}

fn bounds(samples: &Samples, report: &Report) {
    samples.within(report, FRESH, 8.0);
    samples.within(report, SESSION, 5.0);
    samples.adds_at_most(report, NESTED, 0.6, BARE);
    samples.within(report, BIG, 1000.0);
    samples.within(report, SEARCH, 2.0);
    samples.adds_at_most(report, START_MANY, 5.0, START);
    match per_second(samples) {
        Some(rate) => report.verdict(
            rate >= GATHERED_PER_SECOND_MIN,
            &format!("{GATHERED}: {rate:.0} a second, at least {GATHERED_PER_SECOND_MIN}"),
        ),
        None => report.unmeasured(GATHERED),
    }
}

fn per_second(samples: &Samples) -> Option<f64> {
    let time = samples.percentile(GATHERED, 50)?;
    Some(GATHERED_COUNT * 1000.0 / millis(time))
}

fn table(samples: &Samples, readme: &mut Readme) {
    let of = |row| p50(samples, row);
    readme.table();
    readme.row(
        "`run_python`, `print(1)`, fresh container; session",
        &format!("{}; {}", of(FRESH), of(SESSION)),
        "",
    );
    let beside = format!("{} without Hotcell", of(BARE));
    readme.row(
        "a call of another MCP server in a script",
        &of(NESTED),
        &beside,
    );
    let rate = per_second(samples).map_or("–".to_owned(), |rate| format!("{rate:.0} a second"));
    readme.row("200 such calls at once", &rate, "");
    readme.row(
        "a result of 20 MiB; search in 1,000 tools",
        &format!("{}; {}", of(BIG), of(SEARCH)),
        "",
    );
}
