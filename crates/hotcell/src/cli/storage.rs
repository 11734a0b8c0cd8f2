//! Settings of what is kept on disk, and for how long.

use std::path::PathBuf;

use clap::Args;
use hotcell_domain::Bytes;

/// The location of the state directory.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Storage")]
pub(crate) struct StateArgs {
    /// Where Hotcell keeps its state [default: /var/lib/hotcell for root, else ~/.local/state/hotcell]
    #[arg(long, value_name = "DIR", env = "HOTCELL_STATE_DIR")]
    pub(crate) state_dir: Option<PathBuf>,
}

/// What a server keeps on disk, and for how long.
#[derive(Debug, Args)]
#[command(next_help_heading = "Storage")]
pub(crate) struct StorageArgs {
    /// Disk space for the output of one exec; of more, the first and the last half are kept
    #[arg(long, value_name = "SIZE", default_value = "64m", value_parser = Bytes::parse, env = "HOTCELL_OUTPUT_BYTES_MAX")]
    pub(crate) output_bytes_max: Bytes,

    /// Ended execs (with their idempotency keys) kept per principal; the oldest are removed first
    #[arg(
        long,
        value_name = "N",
        default_value_t = 10_000,
        env = "HOTCELL_ENDED_EXECS_MAX"
    )]
    pub(crate) ended_execs_max: u64,

    /// Ended containers (with their idempotency keys) kept per principal; the oldest are removed first
    #[arg(
        long,
        value_name = "N",
        default_value_t = 10_000,
        env = "HOTCELL_ENDED_CONTAINERS_MAX"
    )]
    pub(crate) ended_containers_max: u64,

    /// Refuse new containers, execs and file writes while the state directory's disk has less free space than this; 0 never refuses [default: 512m, or 2 % of a smaller disk]
    #[arg(long, value_name = "SIZE", value_parser = parse_reserve, env = "HOTCELL_RESERVE_BYTES")]
    pub(crate) reserve_bytes: Option<u64>,

    /// End transient containers that have been idle for this many days
    #[arg(
        long,
        value_name = "DAYS",
        default_value_t = 7,
        env = "HOTCELL_TRANSIENT_GC_DAYS"
    )]
    pub(crate) transient_gc_days: u16,

    /// Remove images that Hotcell pulled and nobody used for this many days (0 = never)
    #[arg(
        long,
        value_name = "DAYS",
        default_value_t = 30,
        env = "HOTCELL_IMAGE_GC_DAYS"
    )]
    pub(crate) image_gc_days: u16,
}

fn parse_reserve(text: &str) -> Result<u64, String> {
    match text.trim() {
        "0" => Ok(0),
        text => Bytes::parse(text)
            .map(Bytes::get)
            .map_err(|error| error.to_string()),
    }
}
