//! The real server as a process, on a state directory of its own.

use std::collections::BTreeMap;
use std::net::{SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

use super::client::Client;
use super::memory::{anonymous_bytes, private_bytes, rss_bytes};

/// How long a server may take until its first answer.
const START_TIMEOUT: Duration = Duration::from_secs(10);

/// How often the connection is tried meanwhile.
const START_RETRY: Duration = Duration::from_micros(500);

/// Allows `system_status`, which shows when the pool is full, over HTTP. Older binaries allow it
/// without this option, which they do not know.
const ADMIN: &str = "--admin-over-http";

/// What a server holds of its machine, without its launcher.
#[derive(Clone, Copy)]
pub(super) struct Held {
    /// Anonymous memory.
    pub(super) bytes: u64,
    pub(super) threads: u64,
    pub(super) descriptors: u64,
}

/// How a server is started.
#[derive(Default)]
pub(super) struct Setup<'a> {
    pub(super) arguments: &'a [&'a str],
    pub(super) variables: &'a [(&'a str, &'a str)],
    /// The content of `tokens.json`.
    pub(super) tokens_file: Option<&'a str>,
    /// The access token of its clients.
    pub(super) token: Option<&'a str>,
}

/// A running `hotcell serve`. It is stopped and its state removed on drop.
pub(super) struct Server {
    process: Child,
    address: SocketAddr,
    directory: PathBuf,
    token: Option<String>,
    /// The time from its start to its first answer.
    pub(super) start_time: Duration,
}

impl Server {
    /// Starts it and waits for its first answer.
    pub(super) fn start(program: &Path) -> Result<Self> {
        Self::start_with(program, &[], &[])
    }

    /// Like [`Server::start`], with more arguments and variables.
    pub(super) fn start_with(
        program: &Path,
        arguments: &[&str],
        variables: &[(&str, &str)],
    ) -> Result<Self> {
        let setup = Setup {
            arguments,
            variables,
            ..Setup::default()
        };
        Self::start_as(program, &setup)
    }

    /// Like [`Server::start_with`], also with authentication.
    pub(super) fn start_as(program: &Path, setup: &Setup<'_>) -> Result<Self> {
        // Detecting the options is not part of the measured start.
        let admin = (setup.token.is_none() && knows(program, ADMIN)?).then_some(ADMIN);
        let address = TcpListener::bind("127.0.0.1:0")?.local_addr()?;
        let directory = std::env::temp_dir().join(format!("hotcell-bench-{}", address.port()));
        std::fs::create_dir_all(&directory)?;
        if let Some(tokens) = setup.tokens_file {
            std::fs::write(directory.join("tokens.json"), tokens)?;
        }
        let start = Instant::now();
        let process = Command::new(program)
            .args(["serve", "--port"])
            .arg(address.port().to_string())
            .args(admin)
            .arg("--state-dir")
            .arg(&directory)
            .args(setup.arguments)
            .envs(setup.variables.iter().copied())
            .stdout(Stdio::null())
            .stderr(std::fs::File::create(directory.join("stderr"))?)
            .spawn()
            .context("start hotcell serve")?;
        let mut this = Self {
            process,
            address,
            directory,
            token: setup.token.map(str::to_owned),
            start_time: Duration::ZERO,
        };
        this.wait_for_answer()?;
        this.start_time = start.elapsed();
        Ok(this)
    }

    fn wait_for_answer(&mut self) -> Result<()> {
        let deadline = Instant::now() + START_TIMEOUT;
        while self.client().is_err() {
            if Instant::now() > deadline || self.process.try_wait()?.is_some() {
                let log = std::fs::read_to_string(self.directory.join("stderr"))?;
                bail!("hotcell serve does not answer: {log}");
            }
            std::thread::sleep(START_RETRY);
        }
        Ok(())
    }

    /// Its state directory.
    pub(super) fn directory(&self) -> &Path {
        &self.directory
    }

    pub(super) fn client(&self) -> Result<Client> {
        Client::connect(self.address, self.token.as_deref())
    }

    /// A client with another token.
    pub(super) fn client_of(&self, token: &str) -> Result<Client> {
        Client::connect(self.address, Some(token))
    }

    /// Resident memory of the server and of the launcher, its only child. Both run the same file:
    /// pages that they share are counted once.
    pub(super) fn rss_bytes(&self) -> Result<u64> {
        let children = self.children()?.into_iter().flat_map(private_bytes);
        Ok(rss_bytes(self.process.id())? + children.sum::<u64>())
    }

    /// Anonymous memory of the server and of the launcher.
    pub(super) fn anonymous_bytes(&self) -> Result<u64> {
        let mut bytes = anonymous_bytes(self.process.id())?;
        for child in self.children()? {
            bytes += anonymous_bytes(child)?;
        }
        Ok(bytes)
    }

    /// What it holds now.
    pub(super) fn held(&self) -> Result<Held> {
        let pid = self.process.id();
        let count = |what: &str| -> Result<u64> {
            let entries = std::fs::read_dir(format!("/proc/{pid}/{what}"))?;
            Ok(u64::try_from(entries.count())?)
        };
        Ok(Held {
            bytes: anonymous_bytes(pid)?,
            threads: count("task")?,
            descriptors: count("fd")?,
        })
    }

    fn children(&self) -> Result<Vec<u32>> {
        let pid = self.process.id();
        let children = std::fs::read_to_string(format!("/proc/{pid}/task/{pid}/children"))?;
        Ok(children.split_whitespace().flat_map(str::parse).collect())
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let terminated = Command::new("kill")
            .arg(self.process.id().to_string())
            .status();
        if terminated.is_err() {
            let _ = self.process.kill();
        }
        let _ = self.process.wait();
        let _ = std::fs::remove_dir_all(&self.directory);
    }
}

/// Whether a program has this option. Each program is asked once.
pub(super) fn knows(program: &Path, option: &str) -> Result<bool> {
    static HELP: Mutex<BTreeMap<PathBuf, String>> = Mutex::new(BTreeMap::new());
    let mut known = HELP.lock().unwrap_or_else(PoisonError::into_inner);
    if !known.contains_key(program) {
        let help = Command::new(program).args(["serve", "--help"]).output();
        let help = help.with_context(|| format!("run {}", program.display()))?;
        let help = String::from_utf8_lossy(&help.stdout).into_owned();
        known.insert(program.to_owned(), help);
    }
    let mut words = known[program].split(|c: char| c.is_whitespace() || c == '=');
    Ok(words.any(|word| word == option))
}
