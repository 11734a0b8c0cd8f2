//! What the certificate of a name takes that a container connects to for the first time.

use std::time::{Duration, Instant};

use anyhow::Result;
use hotcell_egress::{Broker, HostName, Policy, Settings};

use crate::bench::report::Report;

/// Fewer than are kept.
const NAMES: u32 = 1000;
const NEW_MAX: Duration = Duration::from_micros(200);
const KEPT_MAX: Duration = Duration::from_micros(5);

pub(super) fn run(report: &Report) -> Result<()> {
    let directory =
        std::env::temp_dir().join(format!("hotcell-bench-authority-{}", std::process::id()));
    std::fs::create_dir_all(&directory)?;
    let broker = Broker::open(Policy::compile(&Settings::default())?, &directory)?;
    std::fs::remove_dir_all(&directory)?;
    let names = (0..NAMES).map(|number| HostName::parse(&format!("host-{number}.example.org")));
    let names = names.collect::<Result<Vec<_>, _>>()?;
    for (what, most) in [
        ("a new leaf certificate", NEW_MAX),
        ("a leaf certificate that is kept", KEPT_MAX),
    ] {
        let start = Instant::now();
        for name in &names {
            broker.certify(name)?;
        }
        let each = start.elapsed() / NAMES;
        report.verdict(
            each <= most,
            &format!(
                "{what}: {:.1} µs, at most {}",
                each.as_secs_f64() * 1e6,
                most.as_micros()
            ),
        );
    }
    Ok(())
}
