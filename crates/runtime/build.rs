//! Ends a build for another system with one sentence. This crate depends on none of ours, so
//! cargo comes here before it compiles what could not be compiled there.

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    let system = std::env::var("CARGO_CFG_TARGET_OS").unwrap_or_default();
    if system != "linux" {
        println!(
            "cargo::error=Hotcell runs on Linux, not on {system}: build it there or in WSL 2, or give your MCP client the URL of a Linux host that serves it (README.md)"
        );
    }
}
