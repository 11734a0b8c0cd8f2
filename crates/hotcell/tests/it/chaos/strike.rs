//! What is killed, and when.

use std::collections::BTreeSet;

use hotcell_domain::ContainerId;

use crate::crash::moment::{Moments, kill, parent_of};
use crate::support::home::Home;
use crate::support::pids;
use crate::support::server::Server;

/// What dies.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Victim {
    Server,
    Launcher,
    Agent,
}

impl Victim {
    /// The server half of the time: most of what can go wrong goes wrong then.
    pub(crate) fn of(moments: &mut Moments) -> Self {
        match moments.below(4) {
            0 => Self::Launcher,
            1 => Self::Agent,
            _ => Self::Server,
        }
    }
}

/// Kills the launcher of a server.
pub(crate) fn launcher(server: &Server) {
    let is_launcher = |pid: &u32| {
        let command = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        parent_of(*pid) == server.pid() && command.starts_with(b"hotcell-launcher")
    };
    if let Some(pid) = pids().into_iter().find(is_launcher) {
        kill(pid);
    }
}

/// Kills the agent of some container; its id goes into `struck`.
pub(crate) fn agent(home: &Home, moments: &mut Moments, struck: &mut BTreeSet<String>) {
    let mut ids = home.containers();
    ids.sort_unstable();
    if ids.is_empty() {
        return;
    }
    let chosen = usize::try_from(moments.below(ids.len() as u64)).unwrap();
    // Before it dies: whoever is refused because of it must find it here.
    struck.insert(ids[chosen].to_string());
    if let Some(pid) = agent_of(&ids[chosen]) {
        kill(pid);
    }
}

fn agent_of(id: &ContainerId) -> Option<u32> {
    let wanted = format!("hotcell-agent\0init\0--container\0{id}\0");
    let is_agent = |pid: &u32| {
        let command = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        command.starts_with(wanted.as_bytes())
    };
    pids().into_iter().find(is_agent)
}
