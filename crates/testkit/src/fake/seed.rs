//! Which seeds a test runs.

use std::fmt::Debug;
use std::ops::Range;

/// Every seed below `count`, or the one in `HOTCELL_SEED` alone.
pub fn seeds(count: u64) -> Range<u64> {
    match std::env::var("HOTCELL_SEED") {
        Ok(seed) => {
            let seed = seed.parse().expect("HOTCELL_SEED is a number");
            seed..seed + 1
        }
        Err(_) => 0..count,
    }
}

/// Runs the test `simulation` of a package with one of [`seeds`] after the other, and answers
/// whether those were all. Panics at the first that fails, and says how to see it again.
pub fn each_seed<E: Debug>(
    count: u64,
    package: &str,
    mut run: impl FnMut(u64) -> Result<(), E>,
) -> bool {
    let seeds = seeds(count);
    for seed in seeds.clone() {
        if let Err(error) = run(seed) {
            panic!(
                "{error:?}\nrun it again: HOTCELL_SEED={seed} cargo test -p {package} --test simulation"
            );
        }
    }
    seeds == (0..count)
}
