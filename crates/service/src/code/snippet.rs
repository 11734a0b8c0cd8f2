//! Code as a file in a container, and the command that runs it.

use bytes::Bytes;
use hotcell_domain::{Caller, Command, ContainerRef, Language};
use sha2::{Digest as _, Sha256};

use crate::connection::Connected;
use crate::file::{FilePath, WriteOptions};
use crate::{Action, Inner, Service, ServiceError};

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
    /// arguments. Snippets that are compiled at once never meet.
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
            Ok(staged.await?.0)
        };
        operation.run(stage).await
    }
}

impl Inner {
    /// Writes the source file; returns the command that runs it, and where it will.
    pub(super) async fn stage(
        &self,
        caller: &Caller,
        target: &ContainerRef,
        snippet: &Snippet,
        arguments: Vec<String>,
    ) -> Result<(Command, Connected), ServiceError> {
        let path = snippet.check()?;
        let source = snippet.source.clone();
        let write = self.write_file(caller, target, &path, source, WriteOptions::default());
        let (_, connected) = write.await?;
        let source = format!("{}/{}", connected.agent.hello().root, snippet.path);
        let mut argv = snippet.language.argv(&source, &snippet.digest());
        argv.extend(arguments);
        Ok((Command::new(argv)?, connected))
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

    /// The name under which it is kept once it is compiled. Only what needs a shell is compiled.
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
