//! Chooses and kills a process.

use std::collections::BTreeSet;

use hotcell_domain::ContainerId;

use crate::crash::moment::{Moments, kill, parent_of};
use crate::support::home::Home;
use crate::support::pids;

/// The process to kill.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Victim {
    Server,
    Launcher,
    Agent,
}

impl Victim {
    /// The server in half of the cases: most problems are found then.
    pub(crate) fn of(moments: &mut Moments) -> Self {
        match moments.below(4) {
            0 => Self::Launcher,
            1 => Self::Agent,
            _ => Self::Server,
        }
    }
}

/// Kills the launcher of the server with this process; returns its own, if there was one.
pub(crate) fn launcher(server: u32) -> Option<u32> {
    let is_launcher = |pid: &u32| {
        let command = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        parent_of(*pid) == server && command.starts_with(b"hotcell-launcher")
    };
    let found = pids().into_iter().find(is_launcher);
    found.inspect(|pid| kill(*pid))
}

/// Kills the agent of some container; its id goes into `struck`.
pub(crate) fn agent(home: &Home, moments: &mut Moments, struck: &mut BTreeSet<String>) {
    let mut ids = home.containers();
    ids.sort_unstable();
    if ids.is_empty() {
        return;
    }
    let chosen = usize::try_from(moments.below(ids.len() as u64)).unwrap();
    // Recorded before it dies: a call that fails because of it must find it here.
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
