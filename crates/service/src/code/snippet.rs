//! Source code as a file in a container, and the command that runs it.

use bytes::Bytes;
use hotcell_domain::{Caller, Command, ContainerRef, Language};
use sha2::{Digest as _, Sha256};

use super::python;
use super::run::{PYTHON, set_python_variables};
use crate::connection::Connected;
use crate::file::FilePath;
use crate::{Action, Inner, Service, ServiceError};

/// The largest source. It is not passed as an argument, so this bounds only what a person or a
/// model may reasonably write.
pub const SNIPPET_BYTES_MAX: usize = 10 << 20;

/// The prefix of the names of pictures where no other snippet saves any.
const FIGURES: &str = "figure";

/// A source file to run.
#[derive(Debug, Clone)]
pub struct Snippet {
    /// The language of the source.
    pub language: &'static Language,
    /// The path of the file, relative to `/workspace`. An existing file is replaced.
    pub path: String,
    /// The source code.
    pub source: Bytes,
}

impl Service {
    /// Writes a snippet into a container and returns the command that runs it there with these
    /// arguments. Concurrent compilations do not interfere. Figures that Python shows are saved
    /// to `/workspace/artifacts`.
    pub async fn stage_snippet(
        &self,
        caller: &Caller,
        target: &ContainerRef,
        snippet: Snippet,
        arguments: Vec<String>,
    ) -> Result<Command, ServiceError> {
        let (mut operation, inner) = self.begin(caller, Action::FsWrite, target);
        operation.count_bytes(snippet.source.len());
        operation.note(|arguments| arguments.text("path", &snippet.path));
        let stage = async {
            let staged = inner.stage(caller, target, &snippet, arguments);
            if snippet.language.name != PYTHON {
                return Ok(staged.await?.0);
            }
            let modules = inner.batch(caller, target, python::modules(), true);
            let (staged, modules) = tokio::join!(staged, modules);
            modules?.into_iter().collect::<Result<Vec<_>, _>>()?;
            let (mut command, connected) = staged?;
            set_python_variables(&mut command.env, &connected, FIGURES);
            Ok(command)
        };
        operation.run(stage).await
    }
}

impl Inner {
    /// Writes the source file; returns the command that runs it, and the connection to the
    /// container.
    pub(super) async fn stage(
        &self,
        caller: &Caller,
        target: &ContainerRef,
        snippet: &Snippet,
        arguments: Vec<String>,
    ) -> Result<(Command, Connected), ServiceError> {
        let path = snippet.check()?;
        let source = snippet.source.clone();
        let write = self.write_source(caller, target, &path, source);
        let connected = write.await?;
        let command = snippet.command(&connected, arguments)?;
        Ok((command, connected))
    }
}

impl Snippet {
    /// The command that runs it where it is connected to.
    pub(super) fn command(
        &self,
        connected: &Connected,
        arguments: Vec<String>,
    ) -> Result<Command, ServiceError> {
        let source = format!("{}/{}", connected.agent.hello().root, self.path);
        let mut argv = self.language.argv(&source, &self.digest());
        argv.extend(arguments);
        Ok(Command::new(argv)?)
    }

    /// The path to write it to.
    pub(super) fn check(&self) -> Result<FilePath, ServiceError> {
        let invalid = |reason| Err(ServiceError::Invalid { reason });
        if self.source.len() > SNIPPET_BYTES_MAX {
            return invalid(format!("code may have at most {SNIPPET_BYTES_MAX} bytes"));
        }
        if self.path.starts_with('/') {
            return invalid("the path of code must be relative to /workspace".to_owned());
        }
        FilePath::parse(self.path.as_bytes())
    }

    /// The name under which the compiled program is kept. Only languages that need a shell are
    /// compiled.
    fn digest(&self) -> String {
        if !self.language.needs_shell() {
            return String::new();
        }
        let mut hash = Sha256::new();
        hash.update(self.language.name);
        hash.update([0]);
        hash.update(&self.source);
        let hash: [u8; 32] = hash.finalize().into();
        let (high, low) = hash.split_at(16);
        let number = |half: &[u8]| u128::from_be_bytes(half.try_into().unwrap_or_default());
        format!("{:032x}{:032x}", number(high), number(low))
    }
}
