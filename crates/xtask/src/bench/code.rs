//! Snippets over Streamable HTTP on loopback, compared with the bare interpreter.

use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};

use super::client::Client;
use super::readme::{Readme, p50};
use super::report::Report;
use super::samples::Samples;
use super::server_process::Server;
use super::{ROUNDS, timed, warm};

const BARE: &str = "python3 -c 'print(1)'";
const PRINT: &str = "execute_code print(1)";
const FRESH: &str = "execute_code print(1), fresh session";
const TRUE: &str = "execute_code true, sh";
const BARE_NUMPY: &str = "python3 -c 'import numpy'";
const NUMPY: &str = "execute_code import numpy";
const BARE_PLOT: &str = "python3, a Matplotlib plot";
const PLOT: &str = "execute_code, a Matplotlib plot";
const LONG: &str = "execute_code, 10 MB of output";
const CALLS: &str = "execute_code print(1), per call of 16 callers";

const NUMPY_CODE: &str = "import numpy; print(numpy.zeros(3))";
const PLOT_CODE: &str =
    "import matplotlib.pyplot as plt; plt.plot([1, 2, 3]); plt.savefig('/tmp/plot.png')";
const PLOT_SNIPPET: &str = "import matplotlib.pyplot as plt; plt.plot([1, 2, 3])";
const LONG_CODE: &str =
    "import sys\nline = 'x' * 99 + '\\n'\nfor _ in range(100000): sys.stdout.write(line)";

/// The interpreter in containers of the host image.
const PYTHON: &str = "/usr/bin/python3";

/// Slow subjects are measured once in this many rounds.
const SLOW_EVERY: usize = 10;

/// Concurrent callers, each in a session of its own, and for how long.
const CALLERS: usize = 16;
const CALLERS_WARM_UP: Duration = Duration::from_secs(5);
const CALLERS_TIME: Duration = Duration::from_secs(3);
const CALLS_PER_SECOND_MIN: f64 = 450.0;

pub(super) fn run(program: &Path, report: &Report, readme: &mut Readme) -> Result<()> {
    let arguments = [
        "--warm",
        "2",
        "--containers-max",
        "64",
        "--spawns-per-minute",
        "10000",
    ];
    let server = Server::start_with(program, &arguments, &[])?;
    let mut client = server.client()?;
    warm::until_ready(&mut client)?;
    let mut samples = Samples::default();
    let modules = [has_module("numpy"), has_module("matplotlib")];
    // The first call creates the session and probes the image's languages.
    execute(&mut client, &json!({"code": "print(1)"}))?;
    for round in 0..ROUNDS {
        quick(&mut client, &mut samples)?;
        if round % SLOW_EVERY == 0 {
            slow(&mut client, &mut samples, modules)?;
        }
    }
    let per_second = callers(&server, &mut samples)?;
    samples.print();
    bounds(&samples, report);
    report.verdict(
        per_second >= CALLS_PER_SECOND_MIN,
        &format!("{CALLERS} callers in {CALLERS} sessions: {per_second:.0} snippets/s, at least {CALLS_PER_SECOND_MIN}/s"),
    );
    table(&samples, per_second, readme);
    Ok(())
}

fn quick(client: &mut Client, samples: &mut Samples) -> Result<()> {
    samples.add(BARE, timed(|| bare("print(1)"))?);
    let print = json!({"code": "print(1)"});
    samples.add(PRINT, timed(|| execute(client, &print))?);
    let nothing = json!({"code": "true", "language": "sh"});
    samples.add(TRUE, timed(|| execute(client, &nothing))?);
    Ok(())
}

fn slow(client: &mut Client, samples: &mut Samples, [numpy, plot]: [bool; 2]) -> Result<()> {
    fresh(client, samples)?;
    if numpy {
        samples.add(BARE_NUMPY, timed(|| bare(NUMPY_CODE))?);
        let request = json!({"code": NUMPY_CODE});
        samples.add(NUMPY, timed(|| execute(client, &request))?);
    }
    if plot {
        samples.add(BARE_PLOT, timed(|| bare(PLOT_CODE))?);
        let parameters = json!({"name": "execute_code", "arguments": {"code": PLOT_SNIPPET}});
        let start = Instant::now();
        let result = client.request("tools/call", &parameters)?;
        samples.add(PLOT, start.elapsed());
        ensure!(
            result["content"][1]["type"] == json!("image"),
            "no picture: {result}"
        );
    }
    let request = json!({"code": LONG_CODE});
    samples.add(LONG, timed(|| execute(client, &request))?);
    Ok(())
}

/// A new session from a warm container.
fn fresh(client: &mut Client, samples: &mut Samples) -> Result<()> {
    warm::until_ready(client)?;
    let request = json!({"code": "print(1)", "session": "fresh"});
    let start = Instant::now();
    let ran = execute(client, &request)?;
    samples.add(FRESH, start.elapsed());
    ensure!(ran["session_is_new"] == json!(true), "{ran}");
    let listed = client.call("list_containers", &json!({}))?;
    let listed = listed["containers"].as_array().context("containers")?;
    let container = listed.iter().find(|one| one["session"] == json!("fresh"));
    let container = &container.context("the session is listed")?["container_id"];
    client.call("kill", &json!({"container_id": container, "force": true}))?;
    warm::until_ready(client)
}

/// Many concurrent callers; returns snippets per second. What is measured is how sessions serve that are
/// in use: their interpreters have been warmed up.
fn callers(server: &Server, samples: &mut Samples) -> Result<f64> {
    let mut callers = Vec::new();
    for number in 0..CALLERS {
        let request = json!({"code": "print(1)", "session": number.to_string()});
        callers.push((server.client()?, request));
    }
    drive(&mut callers, CALLERS_WARM_UP)?;
    let start = Instant::now();
    let count = drive(&mut callers, CALLERS_TIME)?;
    let time = start.elapsed();
    samples.add(CALLS, time / count.max(1));
    Ok(f64::from(count) / time.as_secs_f64())
}

/// Has all of them call for some time; returns how often they did.
fn drive(callers: &mut [(Client, Value)], time: Duration) -> Result<u32> {
    let end = Instant::now() + time;
    std::thread::scope(|scope| -> Result<u32> {
        let call = |(client, request): &mut (Client, Value)| -> Result<u32> {
            let mut count = 0;
            while Instant::now() < end {
                execute(client, request)?;
                count += 1;
            }
            Ok(count)
        };
        let calling: Vec<_> = callers
            .iter_mut()
            .map(|caller| scope.spawn(move || call(caller)))
            .collect();
        let mut count = 0;
        for caller in calling {
            count += caller.join().ok().context("a caller panicked")??;
        }
        Ok(count)
    })
}

fn execute(client: &mut Client, request: &Value) -> Result<Value> {
    let ran = client.call("execute_code", request)?;
    ensure!(ran["status"] == json!("succeeded"), "{ran}");
    Ok(ran)
}

fn bare(code: &str) -> Result<()> {
    let python = Command::new(PYTHON)
        .args(["-c", code])
        .env("MPLBACKEND", "agg")
        .stdout(Stdio::null())
        .status()?;
    ensure!(python.success(), "python3 -c {code}: {python}");
    Ok(())
}

fn has_module(name: &str) -> bool {
    bare(&format!("import {name}")).is_ok()
}

fn bounds(samples: &Samples, report: &Report) {
    samples.within(report, PRINT, 4.0);
    samples.at_most_times(report, PRINT, 0.4, BARE);
    samples.within(report, FRESH, 8.0);
    samples.within(report, TRUE, 3.0);
    samples.at_most_times(report, NUMPY, 0.3, BARE_NUMPY);
    samples.at_most_times(report, PLOT, 0.6, BARE_PLOT);
    samples.within(report, LONG, 500.0);
}

fn table(samples: &Samples, per_second: f64, readme: &mut Readme) {
    let bare = |row| format!("`python3` {}", p50(samples, row));
    readme.row(
        "`execute_code`, `print(1)`",
        &p50(samples, PRINT),
        &bare(BARE),
    );
    readme.row(
        "the same in a fresh session; `sh`",
        &format!("{}; {}", p50(samples, FRESH), p50(samples, TRUE)),
        "",
    );
    readme.row(
        "`execute_code`, a Matplotlib plot",
        &p50(samples, PLOT),
        &bare(BARE_PLOT),
    );
    readme.row(
        &format!("`execute_code`, {CALLERS} callers"),
        &format!("{per_second:.0} a second"),
        "",
    );
}
