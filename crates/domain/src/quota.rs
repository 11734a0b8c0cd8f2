//! Quotas: limits per principal, over all its containers.

use std::collections::BTreeMap;
use std::fmt;

use crate::{Bytes, Principal};

/// The limits of one principal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Quota {
    /// Live containers.
    pub containers: usize,
    /// Running and queued execs, in all containers together.
    pub execs: usize,
    /// Containers created within a minute. Failed attempts count.
    pub spawns_per_minute: u32,
    /// The sum of these containers' disk limits. It counts what they may use, whether or not they
    /// do, so that nothing has to be measured.
    pub disk_bytes: u64,
    /// Disk space for output logs. Logs of ended execs are removed to make room for new ones.
    pub output_bytes: u64,
}

/// The default quota, and overrides for some principals.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Quotas {
    /// The quota of all other principals.
    pub default: Quota,
    /// Overrides by principal.
    pub overrides: BTreeMap<Principal, QuotaOverride>,
}

/// An override for one principal. `None` means the default.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[expect(missing_docs, reason = "each is described at `Quota`")]
pub struct QuotaOverride {
    pub containers: Option<usize>,
    pub execs: Option<usize>,
    pub spawns_per_minute: Option<u32>,
    pub disk_bytes: Option<u64>,
    pub output_bytes: Option<u64>,
}

/// The kinds of quotas.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[expect(missing_docs, reason = "each is described at `Quota`")]
pub enum QuotaKind {
    Containers,
    Execs,
    SpawnsPerMinute,
    DiskBytes,
    OutputBytes,
}

/// A quota is used up.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub struct OverQuota {
    /// The quota that is used up.
    pub quota: QuotaKind,
    /// The limit.
    pub limit: u64,
    /// The current usage.
    pub used: u64,
    /// When a retry can succeed, if only time is needed.
    pub retry_after_s: Option<u64>,
}

/// Why a quota setting is invalid.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum QuotaError {
    /// Not `NAME=NUMBER`.
    #[error("write NAME=NUMBER, separated by commas, for example execs=8,containers=20")]
    Form,
    /// Not the name of a quota.
    #[error("there is no quota `{0}`; quotas are {names}", names = QuotaKind::names())]
    Unknown(String),
    /// Not a valid number for this quota.
    #[error("quota {quota}: `{value}` is not {expected}")]
    Value {
        /// The quota that was named.
        quota: QuotaKind,
        /// The value as it was written.
        value: String,
        /// Describes valid values.
        expected: &'static str,
    },
    /// The same quota is set twice.
    #[error("quota {0} is set twice")]
    Twice(QuotaKind),
}

impl Default for Quota {
    fn default() -> Self {
        Self {
            containers: 256,
            execs: 1024,
            spawns_per_minute: 6000,
            disk_bytes: 2560 << 30,
            output_bytes: 4 << 30,
        }
    }
}

impl From<Quota> for Quotas {
    /// The same quota for all principals.
    fn from(default: Quota) -> Self {
        Self {
            default,
            overrides: BTreeMap::new(),
        }
    }
}

impl Quotas {
    /// The quota of a principal.
    pub fn of(&self, principal: &Principal) -> Quota {
        let chosen = self.overrides.get(principal).copied().unwrap_or_default();
        let default = self.default;
        Quota {
            containers: chosen.containers.unwrap_or(default.containers),
            execs: chosen.execs.unwrap_or(default.execs),
            spawns_per_minute: chosen
                .spawns_per_minute
                .unwrap_or(default.spawns_per_minute),
            disk_bytes: chosen.disk_bytes.unwrap_or(default.disk_bytes),
            output_bytes: chosen.output_bytes.unwrap_or(default.output_bytes),
        }
    }
}

impl Quota {
    /// Checks that one more of something counted is allowed.
    pub fn check_count(quota: QuotaKind, used: usize, limit: usize) -> Result<(), OverQuota> {
        Self::check(quota, used as u64, limit as u64)
    }

    /// Checks that a container with this disk limit is allowed beside others that have `used`.
    pub fn check_disk(&self, used: u64, wanted: u64) -> Result<(), OverQuota> {
        if used.saturating_add(wanted) <= self.disk_bytes {
            return Ok(());
        }
        Err(OverQuota {
            quota: QuotaKind::DiskBytes,
            limit: self.disk_bytes,
            used,
            retry_after_s: None,
        })
    }

    /// Checks that the usage is below the limit.
    pub fn check(quota: QuotaKind, used: u64, limit: u64) -> Result<(), OverQuota> {
        if used < limit {
            return Ok(());
        }
        Err(OverQuota {
            quota,
            limit,
            used,
            retry_after_s: None,
        })
    }
}

impl QuotaOverride {
    /// Parses `execs=8,containers=20`.
    pub fn parse(text: &str) -> Result<Self, QuotaError> {
        let mut this = Self::default();
        for part in text.split(',') {
            let (name, value) = part.split_once('=').ok_or(QuotaError::Form)?;
            let quota = QuotaKind::parse(name.trim())?;
            let was_set = this.set(quota, value.trim())?;
            if was_set {
                return Err(QuotaError::Twice(quota));
            }
        }
        Ok(this)
    }

    /// The overridden quotas and their values.
    pub fn chosen(&self) -> impl Iterator<Item = (QuotaKind, u64)> {
        let count = |count: Option<usize>| count.map(|count| count as u64);
        let of = move |quota, this: &Self| match quota {
            QuotaKind::Containers => count(this.containers),
            QuotaKind::Execs => count(this.execs),
            QuotaKind::SpawnsPerMinute => this.spawns_per_minute.map(u64::from),
            QuotaKind::DiskBytes => this.disk_bytes,
            QuotaKind::OutputBytes => this.output_bytes,
        };
        let this = *self;
        let all = QuotaKind::ALL.into_iter();
        all.filter_map(move |quota| Some((quota, of(quota, &this)?)))
    }

    /// Sets one quota; returns whether it was set before.
    pub fn set(&mut self, quota: QuotaKind, value: &str) -> Result<bool, QuotaError> {
        let wrong = |expected| QuotaError::Value {
            quota,
            value: value.chars().take(32).collect(),
            expected,
        };
        let number = || {
            let number: Option<u32> = value.parse().ok().filter(|number| *number > 0);
            number.ok_or_else(|| wrong("a whole number above 0"))
        };
        let count = || number().map(|number| number as usize);
        let bytes = || {
            let bytes = Bytes::parse(value).map(Bytes::get);
            bytes.map_err(|_| wrong("a size such as 512m"))
        };
        Ok(match quota {
            QuotaKind::Containers => self.containers.replace(count()?).is_some(),
            QuotaKind::Execs => self.execs.replace(count()?).is_some(),
            QuotaKind::SpawnsPerMinute => self.spawns_per_minute.replace(number()?).is_some(),
            QuotaKind::DiskBytes => self.disk_bytes.replace(bytes()?).is_some(),
            QuotaKind::OutputBytes => self.output_bytes.replace(bytes()?).is_some(),
        })
    }
}

impl QuotaKind {
    /// All of them.
    pub const ALL: [Self; 5] = [
        Self::Containers,
        Self::Execs,
        Self::SpawnsPerMinute,
        Self::DiskBytes,
        Self::OutputBytes,
    ];

    /// The name in settings, answers and metrics.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Containers => "containers",
            Self::Execs => "execs",
            Self::SpawnsPerMinute => "spawns_per_minute",
            Self::DiskBytes => "disk_bytes",
            Self::OutputBytes => "output_bytes",
        }
    }

    /// Parses the name of a quota.
    pub fn parse(name: &str) -> Result<Self, QuotaError> {
        let mut all = Self::ALL.into_iter();
        all.find(|quota| quota.as_str() == name)
            .ok_or_else(|| QuotaError::Unknown(name.chars().take(32).collect()))
    }

    fn names() -> String {
        Self::ALL.map(Self::as_str).join(", ")
    }
}

impl fmt::Display for QuotaKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl fmt::Display for OverQuota {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { limit, used, .. } = self;
        match self.quota {
            QuotaKind::Containers => {
                write!(f, "you have {used} containers, and your quota is {limit}")
            }
            QuotaKind::Execs => write!(
                f,
                "{used} of your execs run or wait, and your quota is {limit}"
            ),
            QuotaKind::SpawnsPerMinute => write!(
                f,
                "you have created {used} containers within a minute, and your quota is {limit}"
            ),
            QuotaKind::DiskBytes => write!(
                f,
                "the disk limits of your containers are {used} bytes together, and your quota is {limit}"
            ),
            QuotaKind::OutputBytes => write!(
                f,
                "the output of your running execs takes {used} bytes, and your quota is {limit}"
            ),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Name;

    fn principal(name: &str) -> Principal {
        Principal::new(Name::parse(name).unwrap())
    }

    #[test]
    fn what_is_not_overridden_is_as_for_everybody() {
        let quotas = Quotas {
            default: Quota::default(),
            overrides: [(
                principal("ann"),
                QuotaOverride::parse("execs=8, output_bytes=1g").unwrap(),
            )]
            .into(),
        };
        let ann = quotas.of(&principal("ann"));
        assert_eq!((ann.execs, ann.output_bytes), (8, 1 << 30));
        assert_eq!(ann.containers, Quota::default().containers);
        assert_eq!(quotas.of(&principal("bob")), Quota::default());
    }

    #[test]
    fn an_override_that_makes_no_sense_is_refused_with_what_would() {
        let said = |text| QuotaOverride::parse(text).unwrap_err().to_string();
        assert!(said("").starts_with("write NAME=NUMBER"));
        assert!(said("execs").starts_with("write NAME=NUMBER"));
        assert_eq!(
            said("exec=1"),
            "there is no quota `exec`; quotas are containers, execs, spawns_per_minute, disk_bytes, output_bytes"
        );
        assert_eq!(
            said("execs=0"),
            "quota execs: `0` is not a whole number above 0"
        );
        assert_eq!(
            said("execs=-1,containers=2"),
            "quota execs: `-1` is not a whole number above 0"
        );
        assert_eq!(
            said("output_bytes=much"),
            "quota output_bytes: `much` is not a size such as 512m"
        );
        assert_eq!(said("execs=1,execs=2"), "quota execs is set twice");
    }

    #[test]
    fn disk_limits_may_fill_the_quota_and_not_exceed_it() {
        let quota = Quota {
            disk_bytes: 100,
            ..Quota::default()
        };
        assert_eq!(quota.check_disk(60, 40), Ok(()));
        let over = quota.check_disk(60, 41).unwrap_err();
        assert_eq!((over.quota, over.used), (QuotaKind::DiskBytes, 60));
        assert!(quota.check_disk(u64::MAX, 1).is_err());
    }
}
