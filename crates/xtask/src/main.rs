//! House jobs: `cargo xtask codegen|tidy|bench`.

mod codegen;

use anyhow::{Result, bail};

fn main() -> Result<()> {
    let job = std::env::args().nth(1);
    match job.as_deref() {
        Some("codegen") => codegen::write(),
        _ => bail!("usage: cargo xtask codegen"),
    }
}
