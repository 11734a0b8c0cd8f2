//! A server for this process alone, for whoever has none running.

use std::fs::{DirBuilder, File};
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use hotcell_domain::Caller;
use hotcell_mcp::transport::{NoRawStreams, Socket};
use hotcell_mcp::{Options, Server as McpServer};
use rustix::fs::{FlockOperation, flock};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use crate::cli::ContainerArgs;
use crate::client::Server;
use crate::config::Tables;
use crate::state;
use crate::temporary::{StartingEngine, TemporaryService};

/// Nobody else looks into it.
const MODE: u32 = 0o700;

/// A server in this process.
pub(super) struct OwnServer {
    temporary: TemporaryService,
    serving: JoinHandle<()>,
    stop: CancellationToken,
    directory: OwnDirectory,
}

impl OwnServer {
    /// Starts it, and connects to it as to any other.
    pub(super) async fn start(
        arguments: &ContainerArgs,
        tables: &Tables,
    ) -> Result<(Self, Server)> {
        let engine = StartingEngine::start(arguments)?;
        let state = state::directory(arguments.state.state_dir.clone())?;
        let directory = OwnDirectory::create(&state.join("repl"))?;
        let logs = &directory.path;
        let temporary = TemporaryService::start(arguments, tables, engine, logs).await?;
        let path = state::socket(&directory.path);
        let socket = Socket::bind(&path).context("listen on a socket of our own")?;
        let handler = McpServer::new(temporary.service().clone(), Options::default());
        let stop = CancellationToken::new();
        let serving = socket.serve(handler, NoRawStreams, |_| Caller::local(), stop.clone());
        let own = Self {
            temporary,
            serving: tokio::spawn(serving),
            stop,
            directory,
        };
        let stream = Socket::connect(&path).await;
        let server = Server::over(stream.context("connect to our own socket")?).await?;
        Ok((own, server))
    }

    /// Removes every trace of it, once its session has ended.
    pub(super) async fn end(self) {
        self.temporary.sweep().await;
        self.stop.cancel();
        // It ends by itself once it is told to.
        let _ = self.serving.await;
        // What is left are threads and the launcher, which end with this process.
        std::mem::forget(self.temporary);
        drop(self.directory);
    }
}

/// A directory of this process, with its socket and its logs. It is locked, so that the next
/// process can tell it from one that was left behind.
struct OwnDirectory {
    path: PathBuf,
    _lock: File,
}

impl OwnDirectory {
    /// Removes what others left and creates one.
    fn create(parent: &Path) -> Result<Self> {
        let shown = parent.display();
        let mut create = DirBuilder::new();
        create.mode(MODE).recursive(true);
        create
            .create(parent)
            .with_context(|| format!("create {shown}"))?;
        // One at a time: between its creation and its lock, a directory looks left behind.
        let all = File::open(parent).with_context(|| format!("open {shown}"))?;
        flock(&all, FlockOperation::LockExclusive).with_context(|| format!("lock {shown}"))?;
        for entry in std::fs::read_dir(parent).into_iter().flatten().flatten() {
            remove_if_left(&entry.path());
        }
        let path = parent.join(std::process::id().to_string());
        create
            .create(&path)
            .context("create a directory of our own")?;
        let lock = File::open(&path).context("open our own directory")?;
        flock(&lock, FlockOperation::NonBlockingLockExclusive).context("lock our own directory")?;
        Ok(Self { path, _lock: lock })
    }
}

impl Drop for OwnDirectory {
    fn drop(&mut self) {
        if let Err(error) = std::fs::remove_dir_all(&self.path) {
            tracing::debug!(%error, "our own directory is left to the next one");
        }
    }
}

fn remove_if_left(path: &Path) {
    let Ok(directory) = File::open(path) else {
        return;
    };
    if flock(&directory, FlockOperation::NonBlockingLockExclusive).is_ok() {
        let _ = std::fs::remove_dir_all(path);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_directory_that_was_left_is_removed_and_one_in_use_stays() {
        let home = tempfile::tempdir().expect("a directory");
        let parent = home.path().join("repl");
        let left = parent.join("left");
        std::fs::create_dir_all(left.join("logs")).expect("a directory");
        let used = parent.join("used");
        std::fs::create_dir_all(&used).expect("a directory");
        let lock = File::open(&used).expect("it opens");
        flock(&lock, FlockOperation::LockExclusive).expect("a lock");
        let own = OwnDirectory::create(&parent).expect("one of our own");
        assert!(!left.exists() && used.exists() && own.path.exists());
        let path = own.path.clone();
        drop(own);
        assert!(!path.exists());
    }
}
