//! The seeds of a test.

use std::fmt::Debug;
use std::ops::Range;

/// Every seed below `count`, or only the one in `HOTCELL_SEED`.
pub fn seeds(count: u64) -> Range<u64> {
    match std::env::var("HOTCELL_SEED") {
        Ok(seed) => {
            let seed = seed.parse().expect("HOTCELL_SEED is a number");
            seed..seed + 1
        }
        Err(_) => 0..count,
    }
}

/// Runs the test `simulation` of a package with each of [`seeds`]; returns whether those were all.
/// Panics at the first failure with the command to repeat it.
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
