//! Limits of a container.

use std::fmt;

const MIB: u64 = 1 << 20;

/// An amount of memory or disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Bytes(u64);

/// Processor time, in thousandths of a core.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct CpuMillis(u32);

/// A number of processes and threads.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Pids(u32);

/// The limits of a container. The engine reports which of them the host can enforce.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Memory of all processes together, page cache and tmpfs included.
    pub memory: Bytes,
    /// Processor time of all processes together.
    pub cpus: CpuMillis,
    /// Processes and threads at once, the agent included.
    pub pids: Pids,
    /// Size of `/tmp`.
    pub tmp: Bytes,
    /// Disk space of everything that it can write to, but for `/tmp` and `/dev/shm`, which are memory.
    pub disk: Bytes,
}

/// Why a limit is invalid.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum LimitError {
    /// Not a number with a unit.
    #[error("`{0}` is not a size; write for example 512m or 2g")]
    NotASize(String),
    /// Not a number of cores.
    #[error("`{0}` is not a number of cores; write for example 0.5 or 2")]
    NotCores(String),
    /// Outside the supported range.
    #[error("{what} must be from {min} to {max}")]
    OutOfRange {
        /// The name of the limit.
        what: &'static str,
        /// The smallest value that works.
        min: String,
        /// The largest accepted value.
        max: String,
    },
}

/// One file per this many bytes of the disk limit: about the ratio with which filesystems are
/// created.
const BYTES_PER_FILE: u64 = 16 << 10;

/// The least number of files that a container may have.
const FILES_MIN: u64 = 10_000;

impl Limits {
    /// The number of files, directories and links that a container may have. It is derived from the
    /// disk limit, so that tiny files cannot occupy more of the disk than large ones.
    pub fn files(&self) -> u64 {
        (self.disk.get() / BYTES_PER_FILE).max(FILES_MIN)
    }
}

impl Bytes {
    /// The least memory with which the agent and a shell can run.
    pub const MIN: Self = Self(16 * MIB);
    /// More than any machine has.
    pub const MAX: Self = Self(16 << 40);

    /// Validates a number of bytes.
    pub fn new(bytes: u64) -> Result<Self, LimitError> {
        let this = Self(bytes);
        if (Self::MIN..=Self::MAX).contains(&this) {
            return Ok(this);
        }
        Err(out_of_range("a size", Self::MIN, Self::MAX))
    }

    /// Parses `64m`, `1.5g`, `512MiB` or a plain number of bytes.
    pub fn parse(text: &str) -> Result<Self, LimitError> {
        let wrong = || LimitError::NotASize(text.chars().take(32).collect());
        let split = text
            .find(|c: char| !c.is_ascii_digit() && c != '.')
            .unwrap_or(text.len());
        let (number, unit) = text.split_at(split);
        let shift = match unit.trim().to_ascii_lowercase().as_str() {
            "" | "b" => 0,
            "k" | "kb" | "kib" => 10,
            "m" | "mb" | "mib" => 20,
            "g" | "gb" | "gib" => 30,
            "t" | "tb" | "tib" => 40,
            _ => return Err(wrong()),
        };
        let number: f64 = number.parse().map_err(|_| wrong())?;
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            clippy::cast_precision_loss,
            reason = "a float saturates into the range that `new` then checks"
        )]
        Self::new((number * (1_u64 << shift) as f64) as u64)
    }

    /// The number of bytes.
    pub fn get(self) -> u64 {
        self.0
    }
}

impl fmt::Display for Bytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            b if b >= 1 << 40 && b % (1 << 40) == 0 => write!(f, "{} TiB", b >> 40),
            b if b >= 1 << 30 && b % (1 << 30) == 0 => write!(f, "{} GiB", b >> 30),
            b if b >= MIB && b % MIB == 0 => write!(f, "{} MiB", b / MIB),
            b => write!(f, "{b} bytes"),
        }
    }
}

impl CpuMillis {
    /// The smallest quota that the kernel accepts.
    pub const MIN: Self = Self(10);
    /// More than any machine has.
    pub const MAX: Self = Self(4_096_000);

    /// Validates thousandths of a core.
    pub fn new(millis: u32) -> Result<Self, LimitError> {
        let this = Self(millis);
        if (Self::MIN..=Self::MAX).contains(&this) {
            return Ok(this);
        }
        Err(out_of_range("cpus", Self::MIN, Self::MAX))
    }

    /// Parses a number of cores: `2`, `0.5`.
    pub fn parse(text: &str) -> Result<Self, LimitError> {
        let cores: f64 = text
            .parse()
            .map_err(|_| LimitError::NotCores(text.chars().take(32).collect()))?;
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "a float saturates into the range that `new` then checks"
        )]
        Self::new((cores * 1000.0) as u32)
    }

    /// The thousandths of a core.
    pub fn get(self) -> u32 {
        self.0
    }
}

impl fmt::Display for CpuMillis {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", f64::from(self.0) / 1000.0)
    }
}

impl Pids {
    /// The agent, a keeper, a shell and its children.
    pub const MIN: Self = Self(8);
    /// The kernel's maximum.
    pub const MAX: Self = Self(1 << 22);

    /// Validates a number of processes.
    pub fn new(pids: u32) -> Result<Self, LimitError> {
        let this = Self(pids);
        if (Self::MIN..=Self::MAX).contains(&this) {
            return Ok(this);
        }
        Err(out_of_range("pids", Self::MIN, Self::MAX))
    }

    /// The number of processes.
    pub fn get(self) -> u32 {
        self.0
    }
}

impl fmt::Display for Pids {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)
    }
}

impl Default for Limits {
    /// 512 MiB, one core, 256 processes, 64 MiB of `/tmp`, 10 GiB of disk.
    fn default() -> Self {
        Self {
            memory: Bytes(512 * MIB),
            cpus: CpuMillis(1000),
            pids: Pids(256),
            tmp: Bytes(64 * MIB),
            disk: Bytes(10 << 30),
        }
    }
}

fn out_of_range(what: &'static str, min: impl fmt::Display, max: impl fmt::Display) -> LimitError {
    LimitError::OutOfRange {
        what,
        min: min.to_string(),
        max: max.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn sizes_are_read_as_people_write_them() {
        assert_eq!(Bytes::parse("512m").map(Bytes::get), Ok(512 * MIB));
        assert_eq!(Bytes::parse("1.5g").map(Bytes::get), Ok(1536 * MIB));
        assert_eq!(Bytes::parse("2GiB").map(Bytes::get), Ok(2048 * MIB));
        assert_eq!(Bytes::parse("67108864").map(Bytes::get), Ok(64 * MIB));
    }

    #[test]
    fn what_is_no_size_is_refused_with_an_example() {
        for text in [
            "",
            "m",
            "-1g",
            "1x",
            "1e9g",
            "nan",
            "inf",
            "0",
            "1k",
            "99999999t",
        ] {
            assert!(Bytes::parse(text).is_err(), "{text}");
        }
        assert_eq!(
            Bytes::parse("lots").unwrap_err().to_string(),
            "`lots` is not a size; write for example 512m or 2g"
        );
    }

    #[test]
    fn cores_are_read_as_people_write_them() {
        assert_eq!(CpuMillis::parse("0.5").map(CpuMillis::get), Ok(500));
        assert_eq!(CpuMillis::parse("2").map(CpuMillis::get), Ok(2000));
        for text in ["", "0", "-1", "many", "nan", "1e99"] {
            assert!(CpuMillis::parse(text).is_err(), "{text}");
        }
    }

    #[test]
    fn files_are_limited_in_proportion_to_the_disk_and_a_few_are_always_allowed() {
        let files = |disk: &str| {
            let disk = Bytes::parse(disk).unwrap();
            let limits = Limits {
                disk,
                ..Limits::default()
            };
            limits.files()
        };
        assert_eq!(files("10g"), 655_360);
        assert_eq!(files("16m"), FILES_MIN);
    }

    proptest! {
        #[test]
        fn no_text_makes_a_limit_panic(text in ".*") {
            let _ = Bytes::parse(&text);
            let _ = CpuMillis::parse(&text);
        }
    }
}
