//! Scripts that call other MCP servers.

use clap::Args;
use hotcell_codemode::{Budget, Decision, OutputMode, Policy, Rule, Settings};

/// Scripts that call other MCP servers.
#[derive(Debug, Args)]
#[command(next_help_heading = "Codemode")]
#[expect(
    clippy::struct_field_names,
    reason = "fields are flags, which are named in full"
)]
pub(crate) struct CodemodeArgs {
    /// How `run_python` renders answers as text: `compact`, `toon` or `json`
    #[arg(long, value_name = "MODE", default_value = "compact", value_parser = OutputMode::parse, env = "HOTCELL_CODEMODE_OUTPUT")]
    codemode_output: OutputMode,

    /// What happens to calls of tools that say nothing of their effects: `allow`, `ask` or `deny`
    #[arg(long, value_name = "DECISION", default_value = "allow", value_parser = Decision::parse, env = "HOTCELL_CODEMODE_DEFAULT")]
    codemode_default: Decision,

    /// Calls of other MCP servers in one run
    #[arg(long, value_name = "N", default_value_t = Budget::default().calls_max, value_parser = clap::value_parser!(u64).range(1..=1_000_000), env = "HOTCELL_CODEMODE_CALLS_MAX")]
    codemode_calls_max: u64,

    /// Calls of other MCP servers by one principal within a minute
    #[arg(long, value_name = "N", default_value_t = Budget::default().per_minute_max, value_parser = clap::value_parser!(u32).range(1..=10_000_000), env = "HOTCELL_CODEMODE_CALLS_PER_MINUTE")]
    codemode_calls_per_minute: u32,
}

impl CodemodeArgs {
    pub(crate) fn settings(&self, rules: &[Rule]) -> Settings {
        Settings {
            policy: Policy {
                rules: rules.to_vec(),
                default: Some(self.codemode_default),
            },
            budget: Budget {
                calls_max: self.codemode_calls_max,
                per_minute_max: self.codemode_calls_per_minute,
                ..Budget::default()
            },
            output: self.codemode_output,
        }
    }
}
