//! What containers reach through egress, compared with the same program that connects directly from the host.

mod certificate;
mod docker;
mod many;
mod origin;
mod probe;

use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant, SystemTime};

use anyhow::{Context, Result, ensure};
use hotcell_egress::{HostName, Pattern, Policy, ProfileName, ProfileSettings, Settings};
use serde_json::json;

use self::origin::{HOSTS, Origin};
use self::probe::{Direct, Inside};
use super::client::Client;
use super::docker::Docker;
use super::readme::{Readme, p50};
use super::report::Report;
use super::samples::{Samples, millis};
use super::server_process::Server;
use super::{timed, warm};

const DNS: &str = "lookup of a name that is known";
const FIRST: &str = "connect to first byte";
const FIRST_DIRECT: &str = "connect to first byte, direct";
const NEW: &str = "request on a new opened connection";
const NEW_DIRECT: &str = "request on a new TLS connection, direct";
const KEPT: &str = "request on a kept opened connection";
const KEPT_DIRECT: &str = "request on a kept connection, direct";
const DENIED: &str = "lookup of a refused name to its 403";
const RAW: &str = "download, spliced, not paced";
const RAW_DIRECT: &str = "download, direct";
const OPENED: &str = "download, opened, not paced";
const OPENED_DIRECT: &str = "download over TLS, direct";
const CACHED: &str = "download from the cache";
const STAT: &str = "fs_stat, quiet";
const STAT_LOADED: &str = "fs_stat, beside a paced download";
const POLLED: &str = "a written byte to its poll, beside a paced download";
const CLAIM: &str = "warm spawn without a profile";
const CLAIM_PROFILE: &str = "warm spawn with a profile";
const READY: &str = "warm spawn and its first exec, without a profile";
const READY_PROFILE: &str = "warm spawn and its first exec, with a profile";
const RELOAD: &str = "egress reload, small policy";
const RELOAD_LARGE: &str = "egress reload, 10,000 hosts";

/// Blocks of calls, each inside and directly, and how many of each kind are in a block.
const BLOCKS: usize = 20;
const CALLS: &str = "10";

const DOWNLOADS: usize = 7;
const DOWNLOAD_BYTES: u32 = 200_000_000;
/// A cached download is at most as large as what the cache keeps of one.
const CACHED_BYTES: u32 = 100_000_000;

/// A download that takes longer than the calls beside it.
const PACED_BYTES: &str = "2000000000";
const STATS: usize = 400;
const TICKS: u64 = 100;
const CLAIMS: usize = 40;
const RELOADS: usize = 15;
const MATCHES: u32 = 200_000;

/// Containers, and connections of each, that carry nothing.
const IDLE_CONTAINERS: usize = 4;
const IDLE_EACH: usize = 60;
const IDLE_BYTES_MAX: u64 = 40 << 10;

pub(super) fn run(
    program: &Path,
    docker: Option<&Docker>,
    report: &Report,
    readme: &mut Readme,
) -> Result<()> {
    let origin = Origin::start()?;
    let file = origin.configuration().display().to_string();
    let roots = origin.certificate().display().to_string();
    let variables = [("HOTCELL_CONFIG", &*file), ("SSL_CERT_FILE", &*roots)];
    let server = Server::start_with(program, &["--warm", "2"], &variables)?;
    let mut client = server.client()?;
    let direct = Direct::new(&origin)?;
    let mut samples = Samples::default();
    calls(&mut client, &direct, &mut samples)?;
    downloads(&mut client, &direct, &mut samples)?;
    stats(&mut client, &mut samples)?;
    claims(&mut client, &mut samples)?;
    let idle_bytes = idle(&server, &mut client)?;
    many::run(&server, &mut client, report)?;
    reloads(program, &server, &origin, &mut samples)?;
    samples.print();
    bounds(&samples, report);
    report.verdict(
        idle_bytes <= IDLE_BYTES_MAX,
        &format!(
            "an idle tunnel: {} KiB of the server's memory, at most {}",
            idle_bytes >> 10,
            IDLE_BYTES_MAX >> 10
        ),
    );
    matches(report)?;
    certificate::run(report)?;
    table(&samples, idle_bytes, readme);
    origin.configure(0)?;
    self::docker::run(program, &origin, docker, report, readme)
}

/// Single connections and requests.
fn calls(client: &mut Client, direct: &Direct, samples: &mut Samples) -> Result<()> {
    let inside = Inside::spawn(client, "fast")?;
    for _ in 0..BLOCKS {
        for (name, time) in inside.run(client, &["calls", CALLS, "inside"])? {
            samples.add(row(&name)?, time);
        }
        for (name, time) in direct.run(&["calls", CALLS, "direct"])? {
            samples.add(row_direct(&name)?, time);
        }
    }
    inside.kill(client)
}

fn row(name: &str) -> Result<&'static str> {
    let rows = [
        ("dns", DNS),
        ("first", FIRST),
        ("new", NEW),
        ("kept", KEPT),
        ("denied", DENIED),
    ];
    find(&rows, name)
}

fn row_direct(name: &str) -> Result<&'static str> {
    let rows = [
        ("first", FIRST_DIRECT),
        ("new", NEW_DIRECT),
        ("kept", KEPT_DIRECT),
    ];
    find(&rows, name)
}

fn find(rows: &[(&str, &'static str)], name: &str) -> Result<&'static str> {
    let found = rows.iter().find(|(own, _)| *own == name);
    Ok(found.context("a name that is known")?.1)
}

/// One download at a time.
fn downloads(client: &mut Client, direct: &Direct, samples: &mut Samples) -> Result<()> {
    let fast = Inside::spawn(client, "fast")?;
    let kept = Inside::spawn(client, "kept")?;
    let size = DOWNLOAD_BYTES.to_string();
    let (path, kept_path) = (format!("/{size}"), format!("/keep/{CACHED_BYTES}"));
    kept.run(client, &["opened", &kept_path])?;
    for _ in 0..DOWNLOADS {
        for (row, words) in [(RAW, ["raw", &size]), (OPENED, ["opened", &path])] {
            add(samples, row, &fast.run(client, &words)?);
        }
        let words = ["opened", &kept_path];
        add(samples, CACHED, &kept.run(client, &words)?);
        for (row, words) in [
            (RAW_DIRECT, ["raw", &size]),
            (OPENED_DIRECT, ["opened", &path]),
        ] {
            add(samples, row, &direct.run(&words)?);
        }
    }
    fast.kill(client)?;
    kept.kill(client)
}

fn add(samples: &mut Samples, row: &'static str, measured: &probe::Measured) {
    for (_, time) in measured {
        samples.add(row, *time);
    }
}

/// A call over the connection that also carries a download.
fn stats(client: &mut Client, samples: &mut Samples) -> Result<()> {
    let inside = Inside::spawn(client, "paced")?;
    let file = json!({ "container_id": inside.container, "path": "probe.py" });
    for _ in 0..STATS {
        samples.add(STAT, timed(|| client.call("fs_stat", &file))?);
    }
    let exec = inside.start_quiet(client, &["raw", PACED_BYTES])?;
    let until = Instant::now() + Duration::from_secs(2);
    while Instant::now() < until {
        client.call("fs_stat", &file)?;
    }
    for _ in 0..STATS {
        samples.add(STAT_LOADED, timed(|| client.call("fs_stat", &file))?);
        std::thread::sleep(Duration::from_millis(5));
    }
    polls(client, &inside, samples)?;
    let polled = client.call("exec_poll", &json!({ "exec_id": exec }))?;
    ensure!(
        polled["complete"] == json!(false),
        "it ended early: {polled}"
    );
    inside.kill(client)
}

/// Output that somebody waits for, of a program that writes when it wrote.
fn polls(client: &mut Client, inside: &Inside, samples: &mut Samples) -> Result<()> {
    let exec = inside.start_quiet(client, &["ticks", &TICKS.to_string()])?;
    let mut seq = json!(0);
    loop {
        let poll = json!({ "exec_id": exec, "after_seq": seq, "wait_s": 50 });
        let polled = client.call("exec_poll", &poll)?;
        let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH)?;
        for (_, written) in probe::said(&polled)? {
            samples.add(POLLED, now.saturating_sub(written));
        }
        if polled["complete"] == json!(true) {
            return Ok(());
        }
        seq = polled["next_seq"].clone();
    }
}

/// A profile is applied when a container is claimed; its first exec waits until it is.
fn claims(client: &mut Client, samples: &mut Samples) -> Result<()> {
    for _ in 0..CLAIMS {
        for (row, ready, profile) in [
            (CLAIM, READY, "none"),
            (CLAIM_PROFILE, READY_PROFILE, "fast"),
        ] {
            warm::until_ready(client)?;
            let start = Instant::now();
            let spawned = client.call("spawn", &json!({ "egress": profile }))?;
            samples.add(row, start.elapsed());
            ensure!(spawned["warm"] == json!(true), "{spawned}");
            let id = spawned["container_id"].as_str().context("container_id")?;
            super::server::exec_true(client, id)?;
            samples.add(ready, start.elapsed());
            client.call("kill", &json!({ "container_id": id, "force": true }))?;
        }
    }
    Ok(())
}

/// What the server's memory grows by for each connection.
fn idle(server: &Server, client: &mut Client) -> Result<u64> {
    let mut all = Vec::new();
    for _ in 0..IDLE_CONTAINERS {
        let inside = Inside::spawn(client, "fast")?;
        inside.run(client, &["calls", "1", "inside"])?;
        all.push(inside);
    }
    let before = server.anonymous_bytes()?;
    for inside in &all {
        inside.start(client, &["idle", &IDLE_EACH.to_string()])?;
    }
    let more = server.anonymous_bytes()?.saturating_sub(before);
    all.into_iter().try_for_each(|inside| inside.kill(client))?;
    Ok(more / (IDLE_CONTAINERS * IDLE_EACH) as u64)
}

/// The command, which contains the start of a program in both rows.
fn reloads(program: &Path, server: &Server, origin: &Origin, samples: &mut Samples) -> Result<()> {
    for _ in 0..RELOADS {
        for (row, others) in [(RELOAD, 0), (RELOAD_LARGE, HOSTS)] {
            origin.configure(others)?;
            let mut command = Command::new(program);
            command
                .args(["egress", "reload"])
                .env("HOTCELL_STATE_DIR", server.directory());
            let start = Instant::now();
            let ran = command.output()?;
            samples.add(row, start.elapsed());
            ensure!(ran.status.success(), "{ran:?}");
        }
    }
    Ok(())
}

fn bounds(samples: &Samples, report: &Report) {
    samples.within(report, DNS, 0.5);
    samples.nearly_all_within(report, DNS, 1.5);
    samples.adds_at_most(report, FIRST, 0.6, FIRST_DIRECT);
    p95_adds_at_most(samples, report, 1.0, [FIRST, FIRST_DIRECT]);
    samples.adds_at_most(report, NEW, 2.5, NEW_DIRECT);
    samples.adds_at_most(report, KEPT, 0.4, KEPT_DIRECT);
    samples.within(report, DENIED, 5.0);
    for (row, bytes, least) in [
        (RAW, DOWNLOAD_BYTES, 400.0),
        (OPENED, DOWNLOAD_BYTES, 200.0),
        (CACHED, CACHED_BYTES, 300.0),
    ] {
        let rate = rate(samples, row, bytes);
        report.verdict(
            rate >= least,
            &format!("{row}: {rate:.0} MB/s, at least {least}"),
        );
    }
    p95_adds_at_most(samples, report, 1.0, [STAT_LOADED, STAT]);
    samples.nearly_all_within(report, POLLED, 20.0);
    samples.adds_at_most(report, CLAIM_PROFILE, 1.0, CLAIM);
    samples.adds_at_most(report, RELOAD_LARGE, 50.0, RELOAD);
}

fn p95_adds_at_most(
    samples: &Samples,
    report: &Report,
    limit_ms: f64,
    [row, than]: [&'static str; 2],
) {
    let [row_time, than_time] = [row, than].map(|row| samples.percentile(row, 95));
    let Some((row_time, than_time)) = row_time.zip(than_time) else {
        return report.unmeasured(row);
    };
    let more = millis(row_time.saturating_sub(than_time));
    report.verdict(
        more <= limit_ms,
        &format!("{row}: p95 {more:.3} ms more than {than}, at most {limit_ms} ms"),
    );
}

/// Megabytes a second, in the median.
fn rate(samples: &Samples, row: &str, bytes: u32) -> f64 {
    let time = samples.percentile(row, 50);
    time.map_or(0.0, |time| f64::from(bytes) / 1e6 / time.as_secs_f64())
}

/// Decides about one of many hosts.
fn matches(report: &Report) -> Result<()> {
    let hosts = (0..HOSTS).map(|number| format!("host-{number}.example.org"));
    let hosts: Vec<String> = hosts.collect();
    let allow = hosts.iter().map(|host| Pattern::parse(host));
    let profile = ProfileSettings {
        allow: allow.collect::<Result<_, _>>()?,
        ..ProfileSettings::default()
    };
    let name = ProfileName::parse("large")?;
    let settings = Settings {
        profiles: [(name.clone(), profile)].into(),
        ..Settings::default()
    };
    let policy = Policy::compile(&settings)?;
    let profile = policy.profile(&name).context("it was compiled")?;
    let hosts = hosts.iter().map(|host| HostName::parse(host));
    let hosts: Vec<HostName> = hosts.collect::<Result<_, _>>()?;
    let start = Instant::now();
    for host in hosts.iter().cycle().take(MATCHES as usize) {
        let allowed = std::hint::black_box(profile.decide(std::hint::black_box(host), 443));
        ensure!(allowed.is_ok(), "{host}");
    }
    let each = start.elapsed() / MATCHES;
    report.verdict(
        each <= Duration::from_micros(1),
        &format!(
            "a decision among {HOSTS} hosts: {} ns, at most 1000",
            each.as_nanos()
        ),
    );
    Ok(())
}

fn table(samples: &Samples, idle_bytes: u64, readme: &mut Readme) {
    let both = |row, direct| {
        (
            p50(samples, row),
            format!("directly {}", p50(samples, direct)),
        )
    };
    readme.table();
    readme.row("lookup of a known name", &p50(samples, DNS), "");
    for (what, row, direct) in [
        ("connect to first byte", FIRST, FIRST_DIRECT),
        ("request on a new opened TLS connection", NEW, NEW_DIRECT),
        ("request on a kept one", KEPT, KEPT_DIRECT),
    ] {
        let (ours, beside) = both(row, direct);
        readme.row(what, &ours, &beside);
    }
    readme.row("refused name, lookup to `403`", &p50(samples, DENIED), "");
    let speed = |row, bytes| format!("{:.0} MB/s", rate(samples, row, bytes));
    for (what, row, direct) in [
        ("one download, spliced, not paced", RAW, RAW_DIRECT),
        ("one download, opened, not paced", OPENED, OPENED_DIRECT),
    ] {
        let beside = format!("directly {}", speed(direct, DOWNLOAD_BYTES));
        readme.row(what, &speed(row, DOWNLOAD_BYTES), &beside);
    }
    readme.row("one from the cache", &speed(CACHED, CACHED_BYTES), "");
    let more = samples.median_more(CLAIM_PROFILE, CLAIM);
    let more = more.map_or("–".to_owned(), super::readme::shown);
    readme.row("a profile adds to a warm `spawn`", &more, "");
    let idle = format!("{} KiB in the server", idle_bytes >> 10);
    readme.row("an idle tunnel", &idle, "");
}
