//! The session in which inputs run: calls of the tools that everybody uses.

use anyhow::{Context, Result};
use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use hotcell_domain::Name;
use hotcell_mcp::{INTERRUPT_METHOD, REPL_KEY};
use rmcp::model::JsonObject;
use serde::Deserialize;
use serde_json::{Value, json};

use crate::artifacts::{ArtifactDirectory, FILE_BYTES_MAX, NewArtifact};
use crate::cli::ReplArgs;
use crate::client::Server;

/// Bytes of a file that are read at once.
const PIECE_BYTES: u64 = 1 << 20;

/// The longest time limit that `execute_code` takes.
const TIMEOUT_S_MAX: f64 = 3600.0;

/// The one language that keeps its variables.
const STATEFUL: &str = "python";

/// A session of a server.
#[derive(Clone)]
pub(super) struct Session {
    server: Server,
    name: String,
    /// Whether it ends with us.
    is_own: bool,
    language: &'static str,
    timeout_s: f64,
}

/// What came of an input, as `execute_code` answers it.
#[derive(Debug, Deserialize)]
pub(super) struct Ran {
    pub(super) stdout: String,
    pub(super) stderr: String,
    pub(super) status: String,
    pub(super) exit_code: Option<u8>,
    pub(super) signal: Option<u8>,
    pub(super) reason: Option<String>,
    pub(super) result: Option<Shown>,
    #[serde(default)]
    pub(super) displayed: Vec<Shown>,
    pub(super) artifacts: Vec<Artifact>,
    pub(super) note: Option<String>,
}

/// A value.
#[derive(Debug, Deserialize)]
pub(super) struct Shown {
    pub(super) text: String,
    /// Markdown or JSON.
    pub(super) data: Option<String>,
}

/// A file that an input made.
#[derive(Debug, Deserialize)]
pub(super) struct Artifact {
    pub(super) path: String,
    pub(super) mime_type: String,
    pub(super) size: u64,
    uri: String,
}

/// A part of a file, as `fs_read` answers it.
#[derive(Deserialize)]
struct Piece {
    content: String,
    encoding: String,
    next_offset: Option<u64>,
}

#[derive(Deserialize)]
struct Containers {
    containers: Vec<Container>,
    next_cursor: Option<String>,
}

#[derive(Deserialize)]
struct Container {
    container_id: String,
    session: Option<String>,
}

impl Session {
    pub(super) fn new(server: Server, arguments: &ReplArgs) -> Self {
        let joined = arguments.session.as_ref().map(Name::to_string);
        Self {
            server,
            is_own: joined.is_none(),
            // One for each process.
            name: joined.unwrap_or_else(|| format!("repl-{}", std::process::id())),
            language: arguments.lang.name,
            timeout_s: arguments.timeout.as_secs_f64().min(TIMEOUT_S_MAX),
        }
    }

    pub(super) fn keeps_variables(&self) -> bool {
        self.language == STATEFUL
    }

    /// Runs an input. `handle` names it for [`Session::interrupt`].
    pub(super) async fn run(&self, code: &str, restart: bool, handle: &str) -> Result<Ran> {
        let arguments = json!({
            "code": code,
            "language": self.language,
            "session": self.name,
            "stateful": self.keeps_variables(),
            "restart": restart,
            "timeout_s": self.timeout_s,
        });
        let mut meta = JsonObject::new();
        meta.insert(REPL_KEY.to_owned(), handle.into());
        self.server.call_with("execute_code", arguments, meta).await
    }

    pub(super) async fn interrupt(&self, handle: &str) {
        let params = Some(json!({ "handle": handle }));
        if let Err(error) = self.server.request::<Value>(INTERRUPT_METHOD, params).await {
            tracing::warn!(%error, "the code could not be interrupted");
        }
    }

    /// Copies a file to a directory of ours.
    pub(super) async fn save(
        &self,
        from: &Artifact,
        to: &ArtifactDirectory,
    ) -> Result<NewArtifact> {
        let mut file = to.create(&from.path)?;
        let container = from.uri.strip_prefix("workspace://");
        let container = container.and_then(|rest| rest.split('/').next());
        let container = container.context("the server names no container")?;
        let mut offset = Some(0);
        while let Some(from_byte) = offset.filter(|offset| *offset <= FILE_BYTES_MAX) {
            let arguments = json!({
                "container_id": container,
                "path": from.path,
                "offset": from_byte,
                "limit": PIECE_BYTES,
            });
            let piece: Piece = self.server.call("fs_read", arguments).await?;
            offset = piece.next_offset.filter(|next| *next > from_byte);
            file.write(&piece.bytes()?)?;
        }
        Ok(file)
    }

    /// Ends the session, if it is our own.
    pub(super) async fn end(&self) -> Result<()> {
        if !self.is_own {
            return Ok(());
        }
        let mut cursor = None;
        loop {
            let arguments = json!({ "cursor": cursor });
            let page: Containers = self.server.call("list_containers", arguments).await?;
            let mut found = page.containers.into_iter();
            if let Some(ours) = found.find(|one| one.session.as_deref() == Some(&self.name)) {
                let kill = json!({ "container_id": ours.container_id, "force": true });
                return self.server.call::<Value>("kill", kill).await.map(drop);
            }
            match page.next_cursor {
                Some(next) => cursor = Some(next),
                None => return Ok(()),
            }
        }
    }
}

impl Piece {
    fn bytes(self) -> Result<Vec<u8>> {
        match self.encoding.as_str() {
            "base64" => BASE64_STANDARD
                .decode(self.content)
                .context("read base64 from the server"),
            _ => Ok(self.content.into_bytes()),
        }
    }
}
