//! How much a container may use.

use clap::Args;
use hotcell_domain::{Bytes, CpuMillis, Limits, Pids};

/// How much a container may use, where nobody says otherwise.
#[derive(Debug, Clone, Copy, Args)]
pub(crate) struct LimitArgs {
    /// Memory of all processes of a container together
    #[arg(long, value_name = "SIZE", default_value = "512m", value_parser = Bytes::parse, env = "HOTCELL_MEMORY")]
    memory: Bytes,

    /// Processor cores of a container
    #[arg(long, value_name = "N", default_value = "1", value_parser = CpuMillis::parse, env = "HOTCELL_CPUS")]
    cpus: CpuMillis,

    /// Processes and threads of a container at once
    #[arg(long, value_name = "N", default_value = "256", value_parser = parse_pids, env = "HOTCELL_PIDS")]
    pids: Pids,

    /// Size of a container's /tmp
    #[arg(long, value_name = "SIZE", default_value = "64m", value_parser = Bytes::parse, env = "HOTCELL_TMP")]
    tmp: Bytes,
}

impl LimitArgs {
    pub(crate) fn limits(self) -> Limits {
        Limits {
            memory: self.memory,
            cpus: self.cpus,
            pids: self.pids,
            tmp: self.tmp,
        }
    }
}

fn parse_pids(text: &str) -> Result<Pids, String> {
    let number = text.parse().map_err(|_| "not a number".to_owned())?;
    Pids::new(number).map_err(|error| error.to_string())
}
