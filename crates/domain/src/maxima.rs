//! The operator's upper limits: per container, and for all containers together.

use std::fmt;

use crate::{Bytes, CpuMillis, Limits, Pids, PolicyError};

/// The highest limits that one container may request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Maxima {
    /// Rule `memory_max`.
    pub memory: Bytes,
    /// Rule `cpus_max`.
    pub cpus: CpuMillis,
    /// Rule `pids_max`.
    pub pids: Pids,
    /// Rule `disk_max`.
    pub disk: Bytes,
}

/// Limits on the sum over all containers of a server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Totals {
    /// Rule `memory_total`.
    pub memory: Bytes,
    /// Rule `pids_total`.
    pub pids: Pids,
}

/// A part of the [`Totals`]: limits that containers reserve, whether or not they use them.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Share {
    /// Reserved memory.
    pub memory_bytes: u64,
    /// Reserved processes and threads.
    pub pids: u64,
}

impl Maxima {
    /// Refuses limits above the maxima. `/tmp` is not checked: callers cannot choose its size, and
    /// its content counts as memory.
    pub(crate) fn check(&self, limits: &Limits) -> Result<(), PolicyError> {
        within("memory", "memory_max", limits.memory, self.memory)?;
        within("cpus", "cpus_max", limits.cpus, self.cpus)?;
        within("pids", "pids_max", limits.pids, self.pids)?;
        within("disk", "disk_max", limits.disk, self.disk)
    }
}

fn within<T: Copy + Ord + fmt::Display>(
    limit: &'static str,
    rule: &'static str,
    asked: T,
    max: T,
) -> Result<(), PolicyError> {
    if asked <= max {
        return Ok(());
    }
    Err(PolicyError::AboveMaximum {
        limit,
        rule,
        asked: asked.to_string(),
        max: max.to_string(),
    })
}

impl Totals {
    /// Decides whether a container with these limits may be created while others reserve `held`.
    pub fn admit(&self, limits: &Limits, held: Share) -> Result<(), PolicyError> {
        let next = held.plus(limits.share());
        if next.memory_bytes > self.memory.get() {
            return Err(PolicyError::AboveTotal {
                limit: "memory",
                rule: "memory_total",
                asked: limits.memory.to_string(),
                total: self.memory.to_string(),
            });
        }
        if next.pids > u64::from(self.pids.get()) {
            return Err(PolicyError::AboveTotal {
                limit: "pids",
                rule: "pids_total",
                asked: limits.pids.to_string(),
                total: self.pids.to_string(),
            });
        }
        Ok(())
    }
}

impl Limits {
    /// The share of the totals that a container with these limits reserves.
    pub fn share(&self) -> Share {
        Share {
            memory_bytes: self.memory.get(),
            pids: u64::from(self.pids.get()),
        }
    }
}

impl Share {
    /// The sum of both.
    #[must_use]
    pub fn plus(self, other: Self) -> Self {
        Self {
            memory_bytes: self.memory_bytes.saturating_add(other.memory_bytes),
            pids: self.pids.saturating_add(other.pids),
        }
    }

    /// The difference; never below zero.
    #[must_use]
    pub fn minus(self, other: Self) -> Self {
        Self {
            memory_bytes: self.memory_bytes.saturating_sub(other.memory_bytes),
            pids: self.pids.saturating_sub(other.pids),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn limits(memory: &str, cpus: &str, pids: u32) -> Limits {
        Limits {
            memory: Bytes::parse(memory).unwrap(),
            cpus: CpuMillis::parse(cpus).unwrap(),
            pids: Pids::new(pids).unwrap(),
            ..Limits::default()
        }
    }

    fn maxima() -> Maxima {
        let limits = limits("64m", "1", 100);
        Maxima {
            memory: limits.memory,
            cpus: limits.cpus,
            pids: limits.pids,
            disk: limits.disk,
        }
    }

    #[test]
    fn a_container_may_have_its_maximum_and_not_a_byte_more() {
        assert_eq!(maxima().check(&limits("64m", "1", 100)), Ok(()));
        for (asked, rule) in [
            (limits("67108865", "1", 100), "memory_max"),
            (limits("64m", "1.01", 100), "cpus_max"),
            (limits("64m", "1", 101), "pids_max"),
            (
                Limits {
                    disk: Bytes::parse("11g").unwrap(),
                    ..limits("64m", "1", 100)
                },
                "disk_max",
            ),
        ] {
            assert_eq!(maxima().check(&asked).unwrap_err().rule(), rule);
        }
    }

    #[test]
    fn a_refusal_names_the_value_the_ceiling_and_the_rule() {
        let refusal = maxima().check(&limits("16t", "1", 100)).unwrap_err();
        assert_eq!(
            refusal.to_string(),
            "memory 16 TiB is more than the 64 MiB that a container may have here (rule `memory_max`)"
        );
        let totals = Totals {
            memory: Bytes::parse("1g").unwrap(),
            pids: Pids::new(512).unwrap(),
        };
        let held = limits("768m", "1", 256).share();
        let refusal = totals.admit(&limits("512m", "1", 8), held).unwrap_err();
        assert_eq!(
            refusal.to_string(),
            "memory 512 MiB is more than is free of the 1 GiB that all containers may have together (rule `memory_total`)"
        );
    }

    #[test]
    fn all_containers_may_have_the_total_and_not_a_process_more() {
        let totals = Totals {
            memory: Bytes::parse("1g").unwrap(),
            pids: Pids::new(512).unwrap(),
        };
        let held = limits("512m", "1", 256).share();
        assert_eq!(totals.admit(&limits("512m", "1", 256), held), Ok(()));
        let refusal = totals.admit(&limits("512m", "1", 257), held).unwrap_err();
        assert_eq!(refusal.rule(), "pids_total");
        let full = Share {
            memory_bytes: u64::MAX,
            pids: u64::MAX,
        };
        assert!(totals.admit(&limits("512m", "1", 8), full).is_err());
    }
}
