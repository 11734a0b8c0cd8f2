//! What is known about servers that do not run: definitions on disk, an index over them, and which
//! definitions somebody has approved.

mod difference;
mod disk;
mod pins;
mod search;

use std::collections::{HashMap, HashSet};
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

use self::disk::Directory;
pub use self::pins::PinState;
use self::pins::Pins;
pub use self::search::Hit;
use self::search::Index;
use crate::definition::{Definitions, ToolDefinition};
use crate::error::OpenError;
use crate::name::ServerName;

/// The catalogue. Definitions are read from disk when they are first asked for.
pub(crate) struct Catalogue {
    directory: Directory,
    state: Mutex<State>,
    pins: Mutex<Pins>,
}

#[derive(Default)]
struct State {
    known: HashMap<ServerName, Arc<Definitions>>,
    /// Those that were looked for on disk.
    looked_for: HashSet<ServerName>,
    /// Gone when definitions have changed since.
    index: Option<Arc<Index>>,
}

impl Catalogue {
    /// One that keeps its files in this directory.
    pub(crate) fn open(directory: &Path) -> Result<Self, OpenError> {
        let directory = Directory::open(directory).map_err(OpenError::Directory)?;
        let (state, pins) = (Mutex::default(), Mutex::default());
        Ok(Self {
            directory,
            state,
            pins,
        })
    }

    /// What is known of a server.
    pub(crate) fn known(&self, server: &ServerName) -> Option<Arc<Definitions>> {
        let mut state = self.lock();
        if state.looked_for.insert(server.clone())
            && !state.known.contains_key(server)
            && let Some(definitions) = self.directory.read(server)
        {
            state.known.insert(server.clone(), Arc::new(definitions));
            state.index = None;
        }
        state.known.get(server).map(Arc::clone)
    }

    /// Keeps a new listing. Returns it, and whether it says anything new.
    pub(crate) async fn replace(
        self: &Arc<Self>,
        server: &ServerName,
        definitions: Definitions,
    ) -> (Arc<Definitions>, bool) {
        let before = self.known(server);
        let definitions = Arc::new(definitions);
        let has_changed = before.is_none_or(|before| !is_same(&before, &definitions));
        {
            let mut state = self.lock();
            state.known.insert(server.clone(), Arc::clone(&definitions));
            state.index = state.index.take().filter(|_| !has_changed);
        }
        let (catalogue, name, stored) =
            (Arc::clone(self), server.clone(), Arc::clone(&definitions));
        let write = move || catalogue.directory.write(&name, &stored);
        if let Ok(Err(error)) = tokio::task::spawn_blocking(write).await {
            tracing::warn!(upstream = %server, %error, "could not store the tools of an MCP server");
        }
        (definitions, has_changed)
    }

    /// The best matches among these servers.
    pub(crate) fn search(&self, query: &str, servers: &[ServerName], limit: usize) -> Vec<Hit> {
        self.index(servers).search(query, servers, limit)
    }

    /// An index over at least these servers.
    fn index(&self, servers: &[ServerName]) -> Arc<Index> {
        for server in servers {
            self.known(server);
        }
        let known: Vec<_> = {
            let state = self.lock();
            if let Some(index) = &state.index {
                return Arc::clone(index);
            }
            state
                .known
                .iter()
                .map(|(name, definitions)| (name.clone(), Arc::clone(definitions)))
                .collect()
        };
        let index = Arc::new(Index::new(known));
        self.lock().index = Some(Arc::clone(&index));
        index
    }

    /// Whether a tool is as it was when it was approved.
    pub(crate) fn pin(&self, server: &ServerName, tool: &ToolDefinition) -> PinState {
        self.pins
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .state(&self.directory, server, tool)
    }

    /// Approves tools as they are now. Returns how many were new or changed.
    pub(crate) fn approve(
        &self,
        server: &ServerName,
        tools: &[ToolDefinition],
    ) -> std::io::Result<usize> {
        self.pins
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .approve(&self.directory, server, tools)
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Apart from when they were seen.
fn is_same(one: &Definitions, other: &Definitions) -> bool {
    one.instructions == other.instructions && one.title == other.title && one.tools == other.tools
}
