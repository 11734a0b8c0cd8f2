//! `hotcell forward`.

use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;

use anyhow::{Context, Result, bail};
use hotcell_mcp::transport::{RAW_MARK, Socket};
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::{TcpListener, TcpStream, UnixStream};
use tokio::sync::Semaphore;

use super::connection::explain;
use crate::cli::ForwardArgs;
use crate::state;
use crate::terminal::plain;

/// Connections at the same time; others of this user need the server's socket too.
const CONNECTIONS_MAX: usize = 32;

/// The longest answer of the server to our first line.
const ANSWER_BYTES_MAX: u64 = 4096;

/// Asks whether a container can be reached, without connecting to one of its ports.
const NO_PORT: u16 = 0;

/// Listens until it is killed.
pub(super) async fn forward(arguments: &ForwardArgs) -> Result<ExitCode> {
    let directory = state::directory(arguments.state.state_dir.clone())?;
    let target = Target {
        socket: state::socket(&directory),
        container: parse_container(&arguments.container)?,
    };
    let asked = Socket::connect(&target.socket).await;
    let asked = asked.map_err(|error| explain(&error, &directory))?;
    target.ask(asked, NO_PORT).await?;
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, arguments.ports.local)).await;
    let listener = listener.context("listen on the local port")?;
    let inside = arguments.ports.inside;
    eprintln!(
        "hotcell: http://{} leads to port {inside} of {}",
        listener.local_addr()?,
        plain(&target.container)
    );
    let (target, permits) = (Arc::new(target), Arc::new(Semaphore::new(CONNECTIONS_MAX)));
    loop {
        let permit = Arc::clone(&permits).acquire_owned().await?;
        let (stream, _) = listener.accept().await.context("accept a connection")?;
        let target = Arc::clone(&target);
        tokio::spawn(async move {
            if let Err(error) = target.carry(stream, inside).await {
                eprintln!("hotcell: {}", plain(&format!("{error:#}")));
            }
            drop(permit);
        });
    }
}

/// A name that fits into the first line.
fn parse_container(name: &str) -> Result<String> {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '.');
    if name.is_empty() || name.len() > 128 || !name.chars().all(is_plain) {
        bail!("`{}` is no id or alias of a container", plain(name));
    }
    Ok(name.to_owned())
}

struct Target {
    socket: PathBuf,
    container: String,
}

impl Target {
    async fn carry(&self, mut here: TcpStream, port: u16) -> Result<()> {
        here.set_nodelay(true)?;
        let socket: &Path = &self.socket;
        let asked = Socket::connect(socket).await.context("reach the server")?;
        let mut inside = self.ask(asked, port).await?;
        // Either side may break off at any time.
        let _ = tokio::io::copy_bidirectional(&mut here, &mut inside).await;
        Ok(())
    }

    /// Asks the server to connect; from then on the stream carries what the container sends.
    async fn ask(&self, stream: UnixStream, port: u16) -> Result<BufReader<UnixStream>> {
        let mut stream = BufReader::new(stream);
        let line = format!("{RAW_MARK}{} {port}\n", self.container);
        stream.write_all(line.as_bytes()).await?;
        let mut answer = String::new();
        let mut bounded = (&mut stream).take(ANSWER_BYTES_MAX);
        let read = bounded.read_line(&mut answer).await;
        read.context("read the server's answer")?;
        match answer.trim_end() {
            "OK" => Ok(stream),
            "" => bail!("the server did not answer; is it of an older version?"),
            refusal if refusal.starts_with("there is no container") => {
                bail!("{refusal}; `hotcell ps` lists the containers")
            }
            refusal => bail!("{refusal}"),
        }
    }
}
