//! How long a launch takes. Not a promise yet: prints, and fails only when something is badly wrong.

mod support;

use std::time::{Duration, Instant};

use support::{Cell, launcher};

const LAUNCHES: usize = 200;

#[test]
#[ignore = "a measurement; run it alone on a quiet machine"]
fn a_launch_takes_milliseconds() {
    let launcher = launcher();
    let cell = Cell::new("exit 0");
    let mut times: Vec<Duration> = (0..LAUNCHES)
        .map(|_| {
            let begin = Instant::now();
            let running = cell.start(&launcher).unwrap();
            let time = begin.elapsed();
            running.finish();
            time
        })
        .collect();
    times.sort();
    let percentile = |percent: usize| times[LAUNCHES * percent / 100];
    println!(
        "p5 {:?} p50 {:?} p95 {:?} max {:?}",
        percentile(5),
        percentile(50),
        percentile(95),
        times[LAUNCHES - 1]
    );
    assert!(percentile(50) < Duration::from_millis(100));
}
