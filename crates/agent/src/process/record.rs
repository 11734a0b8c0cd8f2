//! What a keeper tells the agent: records of one size over a pipe.
//!
//! Each is smaller than `PIPE_BUF`, so the kernel writes and reads it whole. The other
//! end is our own code, but a keeper may be killed at any point: a pipe that ends without
//! `Ended` is the sign of it.

/// Bytes of a record.
pub const RECORD_BYTES: usize = 40;

/// One thing a keeper has to say.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Record {
    /// The leader runs its program.
    Started {
        /// Of the leader.
        pid: u32,
    },
    /// There is no leader.
    NotStarted {
        /// What could not be done.
        step: LaunchStep,
        /// Why.
        errno: u32,
    },
    /// The leader is gone; others of the exec may live on.
    Ended {
        /// How.
        status: WaitStatus,
        /// User time.
        user_us: u64,
        /// System time.
        system_us: u64,
        /// Largest resident size.
        max_rss_bytes: u64,
    },
}

/// How a process ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WaitStatus {
    /// By itself, with this code.
    Code(u32),
    /// By this signal.
    Signal(u32),
}

impl WaitStatus {
    /// Reads a status of `wait4`; `None` if the process has not ended. We are told of the
    /// stops of a child that made us its tracer.
    pub fn from_raw(status: i32) -> Option<Self> {
        let bits = status.cast_unsigned();
        match bits & 0x7f {
            0 => Some(Self::Code((bits >> 8) & 0xff)),
            0x7f => None,
            signal => Some(Self::Signal(signal)),
        }
    }
}

/// A step on the way to a running leader, as its failure names it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u32)]
pub enum LaunchStep {
    /// Making the process.
    Clone = 1,
    /// Leaving the keeper's session.
    Setsid,
    /// Taking the terminal.
    Terminal,
    /// Stdin, stdout, stderr.
    Dup2,
    /// The working directory.
    Chdir,
    /// Losing the groups of the agent.
    Setgroups,
    /// The group.
    Setgid,
    /// The user.
    Setuid,
    /// Losing capabilities.
    Capset,
    /// The limit on memory.
    Setrlimit,
    /// The program itself.
    Execve,
}

impl LaunchStep {
    const ALL: [Self; 11] = [
        Self::Clone,
        Self::Setsid,
        Self::Terminal,
        Self::Dup2,
        Self::Chdir,
        Self::Setgroups,
        Self::Setgid,
        Self::Setuid,
        Self::Capset,
        Self::Setrlimit,
        Self::Execve,
    ];

    /// The name that the protocol carries.
    pub fn name(self) -> &'static str {
        match self {
            Self::Clone => "clone",
            Self::Setsid => "setsid",
            Self::Terminal => "terminal",
            Self::Dup2 => "dup2",
            Self::Chdir => "chdir",
            Self::Setgroups => "setgroups",
            Self::Setgid => "setgid",
            Self::Setuid => "setuid",
            Self::Capset => "capset",
            Self::Setrlimit => "setrlimit",
            Self::Execve => "execve",
        }
    }

    fn from_number(number: u64) -> Option<Self> {
        Self::ALL
            .into_iter()
            .find(|step| u64::from(*step as u32) == number)
    }
}

const STARTED: u64 = 1;
const NOT_STARTED: u64 = 2;
const CODE: u64 = 3;
const SIGNAL: u64 = 4;

impl Record {
    /// As it goes through the pipe. Allocates nothing.
    pub fn encode(&self) -> [u8; RECORD_BYTES] {
        let words = match *self {
            Self::Started { pid } => [STARTED, u64::from(pid), 0, 0, 0],
            Self::NotStarted { step, errno } => {
                [NOT_STARTED, u64::from(step as u32), u64::from(errno), 0, 0]
            }
            Self::Ended {
                status,
                user_us,
                system_us,
                max_rss_bytes,
            } => {
                let (kind, value) = match status {
                    WaitStatus::Code(code) => (CODE, code),
                    WaitStatus::Signal(signal) => (SIGNAL, signal),
                };
                [kind, u64::from(value), user_us, system_us, max_rss_bytes]
            }
        };
        let mut bytes = [0; RECORD_BYTES];
        for (place, word) in bytes.chunks_exact_mut(8).zip(words) {
            place.copy_from_slice(&word.to_le_bytes());
        }
        bytes
    }

    /// Reads one; `None` if it is none.
    pub fn parse(bytes: &[u8; RECORD_BYTES]) -> Option<Self> {
        let mut words = [0; RECORD_BYTES / 8];
        for (word, place) in words.iter_mut().zip(bytes.chunks_exact(8)) {
            *word = u64::from_le_bytes(place.try_into().ok()?);
        }
        let [kind, value, third, fourth, fifth] = words;
        let small = u32::try_from(value).ok()?;
        let ended = |status| {
            Some(Self::Ended {
                status,
                user_us: third,
                system_us: fourth,
                max_rss_bytes: fifth,
            })
        };
        match kind {
            STARTED => Some(Self::Started { pid: small }),
            NOT_STARTED => Some(Self::NotStarted {
                step: LaunchStep::from_number(value)?,
                errno: u32::try_from(third).ok()?,
            }),
            CODE => ended(WaitStatus::Code(small)),
            SIGNAL => ended(WaitStatus::Signal(small)),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_record_is_read_as_it_was_written() {
        let ended = |status| Record::Ended {
            status,
            user_us: 1,
            system_us: 2,
            max_rss_bytes: 3,
        };
        let mut records = vec![
            Record::Started { pid: 7 },
            ended(WaitStatus::Code(255)),
            ended(WaitStatus::Signal(9)),
        ];
        records.extend(LaunchStep::ALL.map(|step| Record::NotStarted { step, errno: 2 }));
        for record in records {
            assert_eq!(Record::parse(&record.encode()), Some(record));
        }
    }

    #[test]
    fn a_wait_status_is_a_code_or_a_signal() {
        assert_eq!(WaitStatus::from_raw(0x0300), Some(WaitStatus::Code(3)));
        assert_eq!(WaitStatus::from_raw(9), Some(WaitStatus::Signal(9)));
        assert_eq!(WaitStatus::from_raw(0x8b), Some(WaitStatus::Signal(11)));
        assert_eq!(WaitStatus::from_raw(0x057f), None);
    }

    proptest::proptest! {
        #[test]
        fn any_bytes_are_a_record_or_none(bytes in proptest::array::uniform32(0_u8..)) {
            let mut record = [0; RECORD_BYTES];
            record[..32].copy_from_slice(&bytes);
            let _ = Record::parse(&record);
        }
    }
}
