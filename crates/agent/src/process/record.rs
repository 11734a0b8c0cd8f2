//! The records that a keeper sends to the agent, of fixed size, through a pipe.
//!
//! Each is smaller than `PIPE_BUF`, so the kernel writes and reads it atomically. Both ends are our
//! code, but a keeper may be killed at any time: then the pipe ends without `Ended`.

pub const RECORD_BYTES: usize = 40;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Record {
    /// The leader runs its program.
    Started {
        /// The PID of the leader.
        pid: u32,
    },
    /// A keeper that a zygote forked, and below it an interpreter that waits for its script.
    Spare { leader: u32, keeper: u32 },
    /// The leader could not be started.
    NotStarted { step: LaunchStep, errno: u32 },
    /// The leader has exited; other processes of the exec may still run.
    Ended {
        status: WaitStatus,
        user_us: u64,
        system_us: u64,
        max_rss_bytes: u64,
    },
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WaitStatus {
    /// Exited with this code.
    Code(u32),
    /// Killed by this signal.
    Signal(u32),
}

impl WaitStatus {
    /// Parses a status of `wait4`; `None` if the process has not ended. A child that made us its
    /// tracer also reports its stops.
    pub fn from_raw(status: i32) -> Option<Self> {
        let bits = status.cast_unsigned();
        match bits & 0x7f {
            0 => Some(Self::Code((bits >> 8) & 0xff)),
            0x7f => None,
            signal => Some(Self::Signal(signal)),
        }
    }
}

/// The steps of starting a leader, named in errors.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u32)]
pub enum LaunchStep {
    Clone = 1,
    Setsid,
    /// Making it the controlling terminal.
    Terminal,
    /// Redirecting stdin, stdout and stderr.
    Dup2,
    Chdir,
    /// Dropping the agent's supplementary groups.
    Setgroups,
    Setgid,
    Setuid,
    Capset,
    Setrlimit,
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

    /// The name used in the protocol.
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
const SPARE: u64 = 5;

impl Record {
    /// Serializes without allocating.
    pub fn encode(&self) -> [u8; RECORD_BYTES] {
        let words = match *self {
            Self::Started { pid } => [STARTED, u64::from(pid), 0, 0, 0],
            Self::Spare { leader, keeper } => [SPARE, u64::from(leader), u64::from(keeper), 0, 0],
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

    /// `None` if the bytes are not a valid record.
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
            SPARE => Some(Self::Spare {
                leader: small,
                keeper: u32::try_from(third).ok()?,
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
            Record::Spare {
                leader: 7,
                keeper: 6,
            },
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
