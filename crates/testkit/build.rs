//! Lists the Python scripts, so that they are part of every program that runs them: a program may be
//! started where the repository cannot be read.

use std::fmt::Write as _;
use std::path::Path;
use std::{env, fs};

fn main() {
    let root = env::var_os("CARGO_MANIFEST_DIR").expect("Cargo says where we are");
    let directory = Path::new(&root).join("scripts/python");
    println!("cargo::rerun-if-changed={}", directory.display());
    let entries = fs::read_dir(&directory).expect("the scripts are in the repository");
    let mut paths: Vec<_> = entries
        .map(|entry| entry.expect("the directory is readable").path())
        .collect();
    paths.sort();
    let mut list = String::from("&[");
    for path in paths {
        let name = path.file_stem().unwrap_or_default().to_string_lossy();
        let path = path.to_string_lossy();
        writeln!(list, "({name:?}, include_bytes!({path:?})),").expect("a text has room");
    }
    list.push(']');
    let out = env::var_os("OUT_DIR").expect("Cargo says where to write");
    fs::write(Path::new(&out).join("scripts.rs"), list).expect("it can be written");
}
