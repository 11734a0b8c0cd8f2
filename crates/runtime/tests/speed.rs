//! How long a launch takes. Not a promise yet: prints, and fails only when something is badly wrong.

mod support;

use std::time::{Duration, Instant};

use support::{Cell, launcher};

const LAUNCHES: usize = 200;

#[test]
#[ignore = "a measurement; run it alone on a quiet machine"]
fn a_launch_takes_milliseconds() {
    let launcher = launcher();
    for cgroup in [false, true] {
        let mut cell = Cell::new("exit 0");
        cell.spec.cgroup = cgroup;
        let times = sorted(|| {
            let begin = Instant::now();
            let running = cell.start(&launcher).unwrap();
            let time = begin.elapsed();
            running.finish();
            time
        });
        let percentile = |percent: usize| times[LAUNCHES * percent / 100];
        let [p5, p50, p95] = [5, 50, 95].map(percentile);
        println!("cgroup {cgroup}: p5 {p5:?} p50 {p50:?} p95 {p95:?}");
        assert!(p50 < Duration::from_millis(100));
    }
}

fn sorted(measure: impl FnMut() -> Duration) -> Vec<Duration> {
    let mut times: Vec<_> = std::iter::repeat_with(measure).take(LAUNCHES).collect();
    times.sort();
    times
}
