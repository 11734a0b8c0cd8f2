//! Quotas of principals.

use std::collections::BTreeMap;

use anyhow::{Result, bail};
use clap::Args;
use hotcell_domain::{Bytes, Name, Principal, Quota, QuotaOverride, Quotas};

/// The highest value of any count.
const COUNT_MAX: usize = 1_000_000;

/// The quotas of each principal, over all its containers.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Quotas")]
pub(crate) struct QuotaArgs {
    /// Maximum number of containers per principal
    #[arg(long, value_name = "N", default_value_t = Quota::default().containers, value_parser = parse_count, env = "HOTCELL_CONTAINERS_MAX")]
    containers_max: usize,

    /// Maximum number of running and queued execs per principal, in all its containers together
    #[arg(long, value_name = "N", default_value_t = Quota::default().execs, value_parser = parse_count, env = "HOTCELL_EXECS_MAX")]
    execs_max: usize,

    /// Maximum number of containers that a principal may create per minute; failed attempts count
    #[arg(long, value_name = "N", default_value_t = Quota::default().spawns_per_minute, value_parser = clap::value_parser!(u32).range(1..=1_000_000), env = "HOTCELL_SPAWNS_PER_MINUTE")]
    spawns_per_minute: u32,

    /// Sum of the disk limits of a principal's containers, whether or not they use them
    #[arg(long, value_name = "SIZE", default_value = "2560g", value_parser = Bytes::parse, env = "HOTCELL_DISK_BYTES_MAX")]
    disk_bytes_max: Bytes,

    /// Disk space for exec output per principal; the logs of the oldest ended execs are removed first, and if running execs alone use it up, new ones are refused
    #[arg(long, value_name = "SIZE", default_value = "4g", value_parser = Bytes::parse, env = "HOTCELL_LOGS_BYTES_MAX")]
    logs_bytes_max: Bytes,

    /// Other quotas for one principal, such as alice:execs=8,containers=20; repeat the flag or separate with semicolons (names: `containers`, `execs`, `spawns_per_minute`, `disk_bytes`, `output_bytes`)
    #[arg(
        long = "quota",
        value_name = "PRINCIPAL:NAME=N,…",
        value_delimiter = ';',
        value_parser = parse_override,
        env = "HOTCELL_QUOTAS"
    )]
    overrides: Vec<(Principal, QuotaOverride)>,
}

impl QuotaArgs {
    /// All quotas. Those of `file` apply to principals that `--quota` does not name.
    pub(crate) fn quotas(&self, file: &BTreeMap<Principal, QuotaOverride>) -> Result<Quotas> {
        let mut named = BTreeMap::new();
        for (principal, chosen) in &self.overrides {
            if named.insert(principal.clone(), *chosen).is_some() {
                bail!("--quota names {principal} twice; write all quotas of a principal at once");
            }
        }
        let mut overrides = file.clone();
        overrides.extend(named);
        Ok(Quotas {
            default: Quota {
                containers: self.containers_max,
                execs: self.execs_max,
                spawns_per_minute: self.spawns_per_minute,
                disk_bytes: self.disk_bytes_max.get(),
                output_bytes: self.logs_bytes_max.get(),
            },
            overrides,
        })
    }
}

fn parse_count(text: &str) -> Result<usize, String> {
    match text.parse() {
        Ok(count @ 1..=COUNT_MAX) => Ok(count),
        _ => Err(format!("must be a number from 1 to {COUNT_MAX}")),
    }
}

/// Splits at the last colon: a principal's name may contain one, a quota does not.
fn parse_override(text: &str) -> Result<(Principal, QuotaOverride), String> {
    let (principal, chosen) = text
        .rsplit_once(':')
        .ok_or("write PRINCIPAL:NAME=N, for example alice:execs=8,containers=20")?;
    let name = Name::parse(principal).map_err(|error| format!("the principal {error}"))?;
    let chosen = QuotaOverride::parse(chosen).map_err(|error| error.to_string())?;
    Ok((Principal::new(name), chosen))
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;
    use crate::cli::{Cli, Command};

    fn of(name: &str) -> Principal {
        Principal::new(Name::parse(name).unwrap())
    }

    fn quotas(arguments: &[&str]) -> Result<Quotas> {
        let line = ["hotcell", "serve"].iter().chain(arguments);
        let Command::Serve(arguments) = Cli::try_parse_from(line)?.into_command() else {
            panic!("not serve")
        };
        let file = [(of("bob"), QuotaOverride::parse("execs=3,containers=4")?)];
        arguments.quotas.quotas(&file.into())
    }

    #[test]
    fn a_principal_has_its_own_quota_where_the_operator_says_so() {
        let line = [
            "--execs-max",
            "9",
            "--quota",
            "https://id.example:443#ann:execs=8,containers=20;bob:output_bytes=1g",
        ];
        let quotas = quotas(&line).unwrap();
        let ann = quotas.of(&of("https://id.example:443#ann"));
        assert_eq!((ann.execs, ann.containers), (8, 20));
        let bob = quotas.of(&of("bob"));
        assert_eq!((bob.execs, bob.output_bytes), (9, 1 << 30));
    }

    #[test]
    fn the_file_says_how_much_those_have_that_no_flag_names() {
        let bob = quotas(&["--execs-max", "9"]).unwrap().of(&of("bob"));
        assert_eq!((bob.execs, bob.containers), (3, 4));
    }

    #[test]
    fn senseless_quotas_are_refused() {
        for line in [
            ["--execs-max", "0"],
            ["--containers-max", "-1"],
            ["--spawns-per-minute", "0"],
            ["--quota", "execs=8"],
            ["--quota", "ann:exec=8"],
            ["--quota", ":execs=8"],
            ["--quota", "ann:execs=8;ann:containers=9"],
        ] {
            assert!(quotas(&line).is_err(), "{line:?}");
        }
    }
}
