//! Resource limits of containers.

use anyhow::{Result, bail};
use clap::Args;
use hotcell_domain::{Bytes, CpuMillis, Limits, Maxima, Pids, Totals};
use hotcell_engine::HostSize;

/// Default maximum of processes and threads that a caller may request.
const PIDS_MAX: u32 = 4096;

/// Default maximum of disk space that a caller may request.
const DISK_BYTES_MAX: u64 = 100 << 30;

/// The default limits of containers.
#[derive(Debug, Clone, Copy, Args)]
#[command(next_help_heading = "Limits")]
pub(crate) struct LimitArgs {
    /// Memory of all processes of a container together [default: 512m]
    #[arg(long, value_name = "SIZE", value_parser = Bytes::parse, env = "HOTCELL_MEMORY")]
    memory: Option<Bytes>,

    /// CPU cores of a container [default: 1]
    #[arg(long, value_name = "N", value_parser = CpuMillis::parse, env = "HOTCELL_CPUS")]
    cpus: Option<CpuMillis>,

    /// Processes and threads of a container at once [default: 256]
    #[arg(long, value_name = "N", value_parser = parse_pids, env = "HOTCELL_PIDS")]
    pids: Option<Pids>,

    /// Size of a container's /tmp
    #[arg(long, value_name = "SIZE", default_value = "64m", value_parser = Bytes::parse, env = "HOTCELL_TMP")]
    tmp: Bytes,

    /// Disk space of a container, /tmp and /dev/shm not included; it may have one file per 16 KiB of it, and 10000 in any case [default: 10g]
    #[arg(long, value_name = "SIZE", value_parser = Bytes::parse, env = "HOTCELL_DISK")]
    disk: Option<Bytes>,
}

/// The highest limits that callers may request.
#[derive(Debug, Clone, Copy, Default, Args)]
#[command(next_help_heading = "Limits")]
pub(crate) struct CeilingArgs {
    /// Most memory that a caller may ask for [default: --memory if set, else half the host's]
    #[arg(long, value_name = "SIZE", value_parser = Bytes::parse, env = "HOTCELL_MEMORY_MAX")]
    memory_max: Option<Bytes>,

    /// Most CPU cores that a caller may ask for [default: --cpus if set, else all of the host's]
    #[arg(long, value_name = "N", value_parser = CpuMillis::parse, env = "HOTCELL_CPUS_MAX")]
    cpus_max: Option<CpuMillis>,

    /// Most processes and threads that a caller may ask for [default: --pids if set, else 4096]
    #[arg(long, value_name = "N", value_parser = parse_pids, env = "HOTCELL_PIDS_MAX")]
    pids_max: Option<Pids>,

    /// Most disk space that a caller may ask for [default: --disk if set, else 100g]
    #[arg(long, value_name = "SIZE", value_parser = Bytes::parse, env = "HOTCELL_DISK_MAX")]
    disk_max: Option<Bytes>,

    /// Memory limits of all containers together [default: three quarters of the host's memory]
    #[arg(long, value_name = "SIZE", value_parser = Bytes::parse, env = "HOTCELL_MEMORY_TOTAL")]
    memory_total: Option<Bytes>,

    /// Process limits of all containers together [default: three quarters of what the host can have]
    #[arg(long, value_name = "N", value_parser = parse_pids, env = "HOTCELL_PIDS_TOTAL")]
    pids_total: Option<Pids>,
}

/// The default limits, the maximum per container, and the totals over all containers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Ceilings {
    pub(crate) default: Limits,
    pub(crate) maxima: Maxima,
    pub(crate) totals: Totals,
}

impl LimitArgs {
    pub(crate) fn limits(self) -> Limits {
        let built_in = Limits::default();
        Limits {
            memory: self.memory.unwrap_or(built_in.memory),
            cpus: self.cpus.unwrap_or(built_in.cpus),
            pids: self.pids.unwrap_or(built_in.pids),
            tmp: self.tmp,
            disk: self.disk.unwrap_or(built_in.disk),
        }
    }

    /// Resolves defaults, maxima and totals. Configured values apply unchanged, or are rejected if
    /// they contradict each other; built-in values are adjusted to them.
    pub(crate) fn below(self, ceilings: CeilingArgs, host: HostSize) -> Result<Ceilings> {
        let built_in = Limits::default();
        let memory = Ceiling {
            name: "memory",
            default: self.memory,
            max: ceilings.memory_max,
            total: ceilings.memory_total,
        };
        let of_host = (half(host.memory_bytes), three_quarters(host.memory_bytes));
        let memory = memory.resolve(built_in.memory, of_host)?;
        let cpus = Ceiling {
            name: "cpus",
            default: self.cpus,
            max: ceilings.cpus_max,
            total: None,
        };
        let cores = cores(host.cores);
        let cpus = cpus.resolve(built_in.cpus, (cores, CpuMillis::MAX))?;
        let pids = Ceiling {
            name: "pids",
            default: self.pids,
            max: ceilings.pids_max,
            total: ceilings.pids_total,
        };
        let of_host = (
            pids_within(u64::from(PIDS_MAX)),
            pids_within(host.pids / 4 * 3),
        );
        let pids = pids.resolve(built_in.pids, of_host)?;
        let disk = Ceiling {
            name: "disk",
            default: self.disk,
            max: ceilings.disk_max,
            total: None,
        };
        let disk = disk.resolve(built_in.disk, (whole_mib(DISK_BYTES_MAX), Bytes::MAX))?;
        Ok(Ceilings {
            default: Limits {
                memory: memory.default,
                cpus: cpus.default,
                pids: pids.default,
                tmp: self.tmp,
                disk: disk.default,
            },
            maxima: Maxima {
                memory: memory.max,
                cpus: cpus.max,
                pids: pids.max,
                disk: disk.max,
            },
            totals: Totals {
                memory: memory.total,
                pids: pids.total,
            },
        })
    }
}

/// The configured values of one limit.
struct Ceiling<T> {
    name: &'static str,
    default: Option<T>,
    max: Option<T>,
    total: Option<T>,
}

/// The values that apply.
struct ResolvedCeiling<T> {
    default: T,
    max: T,
    total: T,
}

impl<T: Copy + Ord + std::fmt::Display> Ceiling<T> {
    /// `of_host` has the maximum and the total that apply if they are not configured. At least one
    /// container with the default limits fits into both, however small the host is.
    fn resolve(self, built_in: T, of_host: (T, T)) -> Result<ResolvedCeiling<T>> {
        let name = self.name;
        if let Some(default) = self.default {
            for (flag, ceiling) in [("max", self.max), ("total", self.total)] {
                let Some(ceiling) = ceiling.filter(|ceiling| default > *ceiling) else {
                    continue;
                };
                bail!(
                    "--{name} {default} is above --{name}-{flag} {ceiling}: \
                     no container could be made; lower the first or raise the second"
                );
            }
        }
        let said = [self.max, self.total].into_iter().flatten().min();
        let default = self
            .default
            .unwrap_or_else(|| said.map_or(built_in, |said| said.min(built_in)));
        let max = self.max.or(self.default).unwrap_or_else(|| {
            let max = of_host.0.max(default);
            self.total.map_or(max, |total| total.min(max))
        });
        let total = self.total.unwrap_or_else(|| of_host.1.max(default));
        Ok(ResolvedCeiling {
            default,
            max,
            total,
        })
    }
}

fn half(bytes: u64) -> Bytes {
    whole_mib(bytes / 2)
}

fn three_quarters(bytes: u64) -> Bytes {
    whole_mib(bytes / 4 * 3)
}

/// Rounds down to whole MiB, within the range of a valid size.
fn whole_mib(bytes: u64) -> Bytes {
    let bytes = bytes >> 20 << 20;
    let bytes = bytes.clamp(Bytes::MIN.get(), Bytes::MAX.get());
    Bytes::new(bytes).unwrap_or(Bytes::MIN)
}

fn cores(cores: u32) -> CpuMillis {
    let millis = cores.saturating_mul(1000);
    let millis = millis.clamp(CpuMillis::MIN.get(), CpuMillis::MAX.get());
    CpuMillis::new(millis).unwrap_or(CpuMillis::MIN)
}

fn pids_within(pids: u64) -> Pids {
    let pids = u32::try_from(pids).unwrap_or(u32::MAX);
    let pids = pids.clamp(Pids::MIN.get(), Pids::MAX.get());
    Pids::new(pids).unwrap_or(Pids::MIN)
}

pub(super) fn parse_pids(text: &str) -> std::result::Result<Pids, String> {
    let number = text.parse().map_err(|_| "not a number".to_owned())?;
    Pids::new(number).map_err(|error| error.to_string())
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;
    use crate::cli::{Cli, Command};

    const GIB: u64 = 1 << 30;
    const HOST: HostSize = HostSize {
        memory_bytes: 8 * GIB,
        cores: 4,
        pids: 32_768,
    };

    fn on(host: HostSize, arguments: &[&str]) -> Result<Ceilings> {
        let line = ["hotcell", "serve"].iter().chain(arguments);
        let Command::Serve(arguments) = Cli::try_parse_from(line)?.into_command() else {
            panic!("not serve")
        };
        arguments.limits.below(arguments.ceilings, host)
    }

    /// Default, maximum and total of memory in MiB, and of pids.
    fn said(ceilings: Ceilings) -> [[u64; 3]; 2] {
        let Ceilings {
            default,
            maxima,
            totals,
        } = ceilings;
        let memory = [default.memory, maxima.memory, totals.memory];
        let pids = [default.pids, maxima.pids, totals.pids];
        [
            memory.map(|bytes| bytes.get() >> 20),
            pids.map(|pids| u64::from(pids.get())),
        ]
    }

    #[test]
    fn where_nothing_is_said_the_host_is_the_measure() {
        let ceilings = on(HOST, &[]).unwrap();
        assert_eq!(said(ceilings), [[512, 4096, 6144], [256, 4096, 24_576]]);
        assert_eq!(ceilings.maxima.cpus.get(), 4000);
        assert_eq!(ceilings.default.cpus.get(), 1000);
        assert_eq!(ceilings.default.disk.get(), 10 * GIB);
        assert_eq!(ceilings.maxima.disk.get(), 100 * GIB);
    }

    #[test]
    fn a_default_that_was_set_is_its_own_ceiling() {
        let set = ["--memory", "64m", "--pids", "64", "--cpus", "0.5"];
        let ceilings = on(HOST, &set).unwrap();
        assert_eq!(said(ceilings), [[64, 64, 6144], [64, 64, 24_576]]);
        assert_eq!(ceilings.maxima.cpus.get(), 500);
        let above = ["--memory", "64m", "--memory-max", "1g"];
        assert_eq!(said(on(HOST, &above).unwrap())[0], [64, 1024, 6144]);
    }

    #[test]
    fn what_nobody_set_gives_way_to_a_ceiling() {
        let low = ["--memory-max", "256m", "--pids-total", "100"];
        let ceilings = on(HOST, &low).unwrap();
        assert_eq!(said(ceilings), [[256, 256, 6144], [100, 100, 100]]);
    }

    #[test]
    fn a_default_above_its_ceiling_is_refused_with_both() {
        for (ceiling, words) in [
            (
                "--memory-max",
                "--memory 1 GiB is above --memory-max 512 MiB",
            ),
            (
                "--memory-total",
                "--memory 1 GiB is above --memory-total 512 MiB",
            ),
        ] {
            let refused = on(HOST, &["--memory", "1g", ceiling, "512m"]).unwrap_err();
            assert!(refused.to_string().starts_with(words), "{refused}");
        }
        assert!(on(HOST, &["--pids", "9", "--pids-max", "8"]).is_err());
        assert!(on(HOST, &["--cpus", "2", "--cpus-max", "1"]).is_err());
        assert!(on(HOST, &["--disk", "2g", "--disk-max", "1g"]).is_err());
    }

    #[test]
    fn one_container_fits_on_the_smallest_host() {
        let small = HostSize {
            memory_bytes: 128 << 20,
            cores: 1,
            pids: 64,
        };
        let ceilings = on(small, &[]).unwrap();
        assert_eq!(said(ceilings), [[512, 512, 512], [256, 4096, 256]]);
    }
}
