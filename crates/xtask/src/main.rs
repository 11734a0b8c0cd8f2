//! House jobs: `cargo xtask codegen|dist|promises|session|tidy|programs|vm`, and
//! `cargo run --release -p xtask -- bench`.

mod bench;
mod codegen;
mod dist;
mod programs;
mod promises;
mod session;
mod tidy;
mod vm;
mod workspace;

use std::process::ExitCode;

use anyhow::{Result, bail};

const USAGE: &str = "usage: cargo xtask bench [--check] [--against OLDER_HOTCELL] [AREA] | codegen | dist [--binary PATH] [--out DIRECTORY] [--push HOST:PORT/NAME] | promises [--list] [--tests | --benches] [WORD…] | session [--binary PATH] [--out FILE] | tidy | programs | vm [--profile P]… [--deadline-s N] [-- FILES]";

fn main() -> ExitCode {
    // The benchmark is its own launcher.
    if hotcell_runtime::is_launcher() {
        return hotcell_runtime::run_launcher();
    }
    match job() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error:#}");
            ExitCode::FAILURE
        }
    }
}

fn job() -> Result<()> {
    let mut arguments = std::env::args().skip(1);
    let name = arguments.next();
    let rest: Vec<String> = arguments.collect();
    match name.as_deref() {
        Some("bench") => bench::run(&rest),
        Some("codegen") => codegen::write(),
        Some("dist") => dist::run(&rest),
        Some("promises") => promises::run(&rest),
        Some("session") => session::run(&rest),
        Some("tidy") => tidy::check(),
        Some("programs") => programs::print(),
        Some("vm") => vm::run(&rest),
        _ => bail!(USAGE),
    }
}
