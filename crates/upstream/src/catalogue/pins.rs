//! Definitions that somebody has approved. The file may change under us: `hotcell upstream approve` is
//! another process.

use std::collections::{BTreeMap, HashMap};

use super::difference::difference;
use super::disk::{Directory, Stamp};
use crate::definition::ToolDefinition;
use crate::name::ServerName;

/// The name of its files.
const KIND: &str = "approved";

/// How a tool compares with what was approved.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PinState {
    /// Nobody has approved this tool.
    New,
    /// As it was approved.
    Same,
    /// Other than it was approved.
    Changed {
        /// What is other, for people: quoted text of the server.
        difference: String,
    },
}

type Approved = BTreeMap<String, ToolDefinition>;

/// The hashes of what was approved.
#[derive(Default)]
pub(super) struct Pins(HashMap<ServerName, Read>);

struct Read {
    stamp: Option<Stamp>,
    hashes: HashMap<String, [u8; 32]>,
}

impl Pins {
    pub(super) fn state(
        &mut self,
        directory: &Directory,
        server: &ServerName,
        tool: &ToolDefinition,
    ) -> PinState {
        match self.hashes(directory, server).get(&tool.name) {
            None => PinState::New,
            Some(hash) if *hash == tool.hash => PinState::Same,
            Some(_) => {
                let approved: Approved = directory.load(server, KIND).unwrap_or_default();
                let before = approved.get(&tool.name);
                let difference = before.map_or_else(String::new, |before| difference(before, tool));
                PinState::Changed { difference }
            }
        }
    }

    fn hashes(&mut self, directory: &Directory, server: &ServerName) -> &HashMap<String, [u8; 32]> {
        let stamp = directory.stamp(server, KIND);
        let read = self.0.entry(server.clone()).or_insert_with(|| Read {
            stamp: None,
            hashes: HashMap::new(),
        });
        if read.stamp != stamp {
            let approved: Approved = directory.load(server, KIND).unwrap_or_default();
            read.hashes = approved
                .into_iter()
                .map(|(name, tool)| (name, tool.hash))
                .collect();
            read.stamp = stamp;
        }
        &read.hashes
    }

    pub(super) fn approve(
        &mut self,
        directory: &Directory,
        server: &ServerName,
        tools: &[ToolDefinition],
    ) -> std::io::Result<usize> {
        let _lock = directory.lock()?;
        let mut approved: Approved = directory.load(server, KIND).unwrap_or_default();
        let mut count = 0;
        for tool in tools {
            let before = approved.insert(tool.name.clone(), tool.clone());
            count += usize::from(before.is_none_or(|before| before.hash != tool.hash));
        }
        if count > 0 {
            directory.store(server, KIND, &approved)?;
        }
        // What was read is read again with the next question.
        self.0.remove(server);
        Ok(count)
    }
}
