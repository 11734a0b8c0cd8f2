//! Generates the Rust code of `agent.proto` that `hotcell-agent-api` includes. The result is
//! committed, so that building Hotcell needs no code generator.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

const GENERATED: &str = "src/hotcell.agent.v1.rs";

/// Writes the generated file into the source tree.
pub(crate) fn write() -> Result<()> {
    generate_into(&api_crate().join("src"))
}

/// Whether the committed file matches the `.proto`.
pub(crate) fn is_fresh() -> Result<bool> {
    let scratch = std::env::temp_dir().join(format!("hotcell-codegen-{}", std::process::id()));
    std::fs::create_dir_all(&scratch)?;
    generate_into(&scratch)?;
    let fresh = std::fs::read(scratch.join("hotcell.agent.v1.rs"))?;
    std::fs::remove_dir_all(&scratch)?;
    Ok(fresh == std::fs::read(api_crate().join(GENERATED))?)
}

fn generate_into(directory: &Path) -> Result<()> {
    let protos = api_crate().join("proto");
    let descriptors = protox::compile(["agent.proto"], [&protos]).context("parse agent.proto")?;
    tonic_prost_build::configure()
        .out_dir(directory)
        .bytes(".")
        .build_transport(false)
        .compile_fds(descriptors)
        .context("generate the agent protocol")
}

fn api_crate() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../agent-api")
}
