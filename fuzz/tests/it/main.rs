//! What is fuzzed bears all that is in `fuzz/seeds`: one of each kind, and what fuzzing found.

use std::path::PathBuf;

use hotcell_fuzz::TARGETS;

fn seeds(target: &str) -> Vec<PathBuf> {
    let directory = PathBuf::from(env!("CARGO_MANIFEST_DIR"))
        .join("seeds")
        .join(target);
    let entries = std::fs::read_dir(&directory);
    let entries = entries.unwrap_or_else(|error| panic!("{}: {error}", directory.display()));
    entries
        .map(|entry| entry.expect("an entry").path())
        .collect()
}

#[test]
fn each_target_bears_its_seeds_whole_and_cut_off() {
    for (name, target) in TARGETS {
        let seeds = seeds(name);
        assert!(!seeds.is_empty(), "{name} has no seeds");
        for seed in seeds {
            let bytes = std::fs::read(&seed).unwrap();
            for end in [0, 1, bytes.len() / 3, bytes.len() / 2, bytes.len()] {
                target(&bytes[..end.min(bytes.len())]);
            }
        }
    }
}

#[test]
fn each_directory_of_seeds_has_a_target() {
    let directory = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("seeds");
    for entry in std::fs::read_dir(directory).unwrap() {
        let name = entry.unwrap().file_name();
        assert!(
            TARGETS.iter().any(|(target, _)| name == *target),
            "{} is no target",
            name.display()
        );
    }
}
