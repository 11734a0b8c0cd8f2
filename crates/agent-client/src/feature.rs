//! Features that agents have beyond the first version of the protocol.
//!
//! An agent lives as long as its container, so a server meets older ones. It asks for a feature
//! rather than a version: an agent that lacks one still serves everything else.

use std::fmt;

use hotcell_agent_api::v1;

/// Something that only newer agents can do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Feature {
    /// [`Agent::tunnels`](crate::Agent::tunnels) and
    /// [`Agent::open_tunnel`](crate::Agent::open_tunnel).
    Tunnel,
    /// [`Agent::warm_up`](crate::Agent::warm_up) and
    /// [`Command::warm_interpreter`](crate::Command::warm_interpreter).
    WarmPython,
    /// [`Agent::disk_use`](crate::Agent::disk_use) and
    /// [`Agent::end_execs`](crate::Agent::end_execs).
    Disk,
    /// [`Agent::datagrams`](crate::Agent::datagrams), and as many listeners as egress needs.
    Datagrams,
    /// [`Agent::trust`](crate::Agent::trust).
    Trust,
    /// [`Command::cleanup`](crate::Command::cleanup).
    Cleanup,
    /// [`Command::input`](crate::Command::input).
    Input,
}

impl Feature {
    fn bit(self) -> u64 {
        let number = match self {
            Self::Tunnel => v1::Feature::Tunnel,
            Self::WarmPython => v1::Feature::WarmPython,
            Self::Disk => v1::Feature::Disk,
            Self::Datagrams => v1::Feature::Datagrams,
            Self::Trust => v1::Feature::Trust,
            Self::Cleanup => v1::Feature::Cleanup,
            Self::Input => v1::Feature::Input,
        };
        1 << number as u32
    }
}

impl fmt::Display for Feature {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            Self::Tunnel => "tunnels",
            Self::WarmPython => "warmed interpreters",
            Self::Disk => "disk limits",
            Self::Datagrams => "egress",
            Self::Trust => "certificates of egress",
            Self::Cleanup => "the cleanup after an exec",
            Self::Input => "input with the start",
        })
    }
}

/// A set of features. Features that this server does not know are never in it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Features(u64);

impl Features {
    const KNOWN: [Feature; 7] = [
        Feature::Tunnel,
        Feature::WarmPython,
        Feature::Disk,
        Feature::Datagrams,
        Feature::Trust,
        Feature::Cleanup,
        Feature::Input,
    ];

    /// The known features among those that an agent claims.
    pub(crate) fn parse(claimed: u64) -> Self {
        let known = Self::KNOWN.iter().map(|feature| feature.bit());
        Self(claimed & known.fold(0, |bits, bit| bits | bit))
    }

    /// Whether the set has this feature.
    pub fn contains(self, feature: Feature) -> bool {
        self.0 & feature.bit() != 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_this_server_does_not_know_is_no_feature() {
        assert_eq!(Features::parse(0), Features::default());
        assert_eq!(Features::parse(u64::MAX), Features::parse(0b111_1111));
        assert!(Features::parse(1).contains(Feature::Tunnel));
        assert!(!Features::parse(!1).contains(Feature::Tunnel));
    }
}
