//! Code in a language that has a command of its own to run it.

use bytes::Bytes;
use hotcell_domain::{Caller, Command, CommandError, ContainerRef, Language};

use crate::file::{FilePath, WriteOptions};
use crate::{Action, Service, ServiceError};

/// The largest source. It never goes through arguments, so this is only what a person or a
/// model may reasonably write.
pub const SNIPPET_BYTES_MAX: usize = 10 << 20;

/// A source file that somebody wants to run.
#[derive(Debug, Clone)]
pub struct Snippet {
    /// What it is written in.
    pub language: &'static Language,
    /// Where it is written, relative to `/workspace`. A file that is there is replaced.
    pub path: String,
    /// What it says.
    pub source: Bytes,
}

impl Service {
    /// Writes a snippet into a container and returns the command that runs it there with these
    /// arguments. What has to be compiled is compiled in a directory of its own, so snippets
    /// that run at once never meet.
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
            let path = snippet.check()?;
            let write = inner.write_file(
                caller,
                target,
                &path,
                snippet.source.clone(),
                WriteOptions::default(),
            );
            let (_, connected) = write.await?;
            let source = format!("{}/{}", connected.agent.hello().root, snippet.path);
            let directory = directory_name(inner.environment.random.bytes());
            let mut argv = snippet.language.argv(&source, &directory);
            argv.extend(arguments);
            Ok(Command::new(argv)?)
        };
        operation.run(stage).await
    }
}

impl Snippet {
    fn check(&self) -> Result<FilePath, ServiceError> {
        let invalid = |reason| Err(ServiceError::Invalid { reason });
        if self.source.len() > SNIPPET_BYTES_MAX {
            return invalid(format!("code may have at most {SNIPPET_BYTES_MAX} bytes"));
        }
        if self.path.starts_with('/') {
            return invalid("the path of code must be relative to /workspace".to_owned());
        }
        FilePath::parse(self.path.as_bytes())
    }
}

/// A name that no other directory in the container has.
fn directory_name(random: [u8; 10]) -> String {
    let mut number = [0; 16];
    number[6..].copy_from_slice(&random);
    format!("hotcell-{:020x}", u128::from_be_bytes(number))
}

impl From<CommandError> for ServiceError {
    fn from(error: CommandError) -> Self {
        Self::Invalid {
            reason: error.to_string(),
        }
    }
}
