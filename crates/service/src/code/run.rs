//! Runs a snippet in a session.

use std::sync::Arc;

use hotcell_agent_client::bounds::BATCH_BYTES_MAX;
use hotcell_agent_client::{Agent, Cleanup};
use hotcell_domain::{Caller, Command, ContainerRef, Env, ExecStatus, NotStarted, Package, Stdin};
use hotcell_ledger::Arguments;

use super::artifacts::Artifacts;
use super::session::{Session, ended_meanwhile};
use super::snippet::Snippet;
use super::{CodeFile, CodeRequest, CodeRun, SessionView, artifacts, python};
use crate::connection::Connected;
use crate::container::LiveContainer;
use crate::environment::Environment;
use crate::exec::Start;
use crate::file::{FileOperation, FilePath, Precondition, WriteOptions};
use crate::{Action, Inner, Service, ServiceError};

/// Total size of the files of one call; the rest of a batch is reserved for our modules.
const FILES_BYTES_MAX: usize = BATCH_BYTES_MAX - (64 << 10);

/// The language whose pictures are saved as artifacts.
pub(super) const PYTHON: &str = "python";

impl Service {
    /// Runs a snippet in a session of the caller, which is created if needed, and waits for its
    /// end. [`Service::code_output`] reads its output.
    ///
    /// Dropping the future does not stop the snippet; its
    /// [`Abandonment`](crate::Abandonment) does.
    pub async fn run_code(
        &self,
        caller: &Caller,
        request: CodeRequest,
    ) -> Result<CodeRun, ServiceError> {
        let (mut operation, inner) = self.begin(caller, Action::ExecuteCode, &request.session);
        operation.count_bytes(request.source.len());
        operation.note(|arguments| request.note(arguments));
        let run = async {
            inner.accepting()?;
            inner.environment.has_room()?;
            let name = request.session.clone();
            let run = inner.run_code(caller, request).await;
            run.map_err(|error| ended_meanwhile(error, &name))
        };
        let (run, mut operation) = operation.open(run).await?;
        operation.note(|arguments| {
            arguments.text("container", run.session.container.as_str());
            arguments.flag("session_is_new", run.session.is_new);
        });
        operation.created(&run.exec);
        operation.end().written().await?;
        Ok(run)
    }
}

impl CodeRequest {
    /// Writes the request for the audit log: sizes, and no content.
    fn note(&self, arguments: &mut Arguments) {
        arguments.text("language", self.language.name);
        arguments.number("code_bytes", self.source.len() as u64);
        arguments.flag("stateful", self.stateful);
        if !self.packages.is_empty() {
            arguments.names("packages", self.packages.iter().map(Package::as_str));
        }
        arguments.number("files", self.files.len() as u64);
        arguments.argv("args", &self.arguments);
        if let Some(stdin) = &self.stdin {
            arguments.number("stdin_bytes", stdin.len() as u64);
        }
    }
}

impl Inner {
    async fn run_code(
        self: &Arc<Self>,
        caller: &Caller,
        mut request: CodeRequest,
    ) -> Result<CodeRun, ServiceError> {
        check_files(&request.files)?;
        request.check_stateful()?;
        let opened = self.open_session(caller, &request.session, request.progress.clone());
        let session = opened.await?;
        self.require(&session.container, request.language).await?;
        self.install_packages(caller, &session.container, &request)
            .await?;
        if request.stateful {
            return self.run_stateful(caller, session, request).await;
        }
        let Session { container, view } = session;
        let (language, files) = (request.language, std::mem::take(&mut request.files));
        let is_python = language.name == PYTHON;
        let (command, snippet, mut source) = self.prepare_code(&container, &mut request).await?;
        let staged = async {
            let python = is_python.then(|| SessionAge::of(&view));
            let files = self.write_files(caller, &container, files, python);
            files.await?;
            let target = ContainerRef::Id(container.id().clone());
            let written = self.write_source(caller, &target, &source.path, snippet.source);
            written.await?;
            Ok(artifacts::before(&container).await)
        };
        let start = Start {
            command,
            key: None,
            abandonment: request.abandonment,
        };
        let execs = container.execs();
        let started = execs.start_when(caller, start, Some(source.cleanup()), staged);
        let (before, live) = started.await?;
        let end = live.end().await?;
        container.touch(self.environment.clock.unix_ms());
        if end.not_started == Some(NotStarted::NoProgram) {
            return Err(self.lacks(&container, language).await);
        }
        if is_python && end.status != ExecStatus::Succeeded {
            // The session may have lost or changed our modules: write them again next time.
            container.set_python_modules(false);
        }
        if end.status != ExecStatus::Succeeded {
            container.forget_packages();
        }
        let artifacts = match live.changes() {
            Some(changes) => {
                source.is_gone = true;
                Artifacts::from(changes)
            }
            None => artifacts::list(&container).await.since(&before),
        };
        let exec = live.id().clone();
        Ok(CodeRun {
            egress: container.egress().and_then(|egress| egress.report(&exec)),
            exec,
            session: view,
            end,
            owner: caller.principal.clone(),
            artifacts,
            notebook: None,
        })
    }

    /// The source as a file that is not written yet, and the command that runs it.
    async fn prepare_code(
        &self,
        container: &Arc<LiveContainer>,
        request: &mut CodeRequest,
    ) -> Result<(Command, Snippet, SourceFile), ServiceError> {
        let random = self.environment.random.bytes();
        let number = u64::from_be_bytes(random[2..].try_into().unwrap_or_default());
        let name = format!("snippet_{number:016x}.{}", request.language.extension);
        let snippet = Snippet {
            language: request.language,
            path: name,
            source: request.source.clone(),
        };
        let source = SourceFile {
            path: snippet.check()?,
            container: Arc::clone(container),
            environment: Arc::clone(&self.environment),
            is_gone: false,
        };
        self.may_start(container).await?;
        let connected = container.connection().get().await?;
        let mut command = snippet.command(&connected, std::mem::take(&mut request.arguments))?;
        let settings = self.environment.settings();
        let timeout = request.timeout.unwrap_or(settings.code.timeout);
        command.set_timeout_s(timeout.as_secs_f64())?;
        if let Some(text) = request.stdin.take() {
            command.set_stdin(Stdin::Text(text))?;
        }
        command.ends_background = true;
        command.warm_python = request.language.name == PYTHON && !request.is_cold;
        if request.language.name == PYTHON {
            set_python_variables(&mut command.env, &connected, &figures_of(number));
        }
        Ok((command, snippet, source))
    }

    pub(super) async fn write_files(
        &self,
        caller: &Caller,
        container: &LiveContainer,
        files: Vec<CodeFile>,
        python: Option<SessionAge>,
    ) -> Result<(), ServiceError> {
        let needs_modules = python.is_some() && !container.has_python_modules();
        // Over the disk limit a snippet runs without our modules: it may be what deletes files.
        let needs_modules = needs_modules && !(files.is_empty() && container.disk().is_over());
        if files.is_empty() && !needs_modules {
            return Ok(());
        }
        let write = |file: CodeFile| FileOperation::Write {
            path: file.path.as_bytes().to_vec(),
            data: file.data,
            options: WriteOptions {
                create_parents: true,
                ..WriteOptions::default()
            },
        };
        // Our modules alone need not be written as a whole, which takes a directory more.
        let is_atomic = !files.is_empty();
        let mut operations: Vec<_> = files.into_iter().map(write).collect();
        if needs_modules {
            if python == Some(SessionAge::Used) {
                python::remove_foreign(container).await;
            }
            operations.extend(python::modules());
        }
        let target = ContainerRef::Id(container.id().clone());
        let written = self.batch(caller, &target, operations, is_atomic).await?;
        written.into_iter().collect::<Result<Vec<_>, _>>()?;
        if needs_modules {
            container.set_python_modules(true);
        }
        Ok(())
    }
}

/// Whether snippets may have run in a session before.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum SessionAge {
    New,
    Used,
}

impl SessionAge {
    pub(super) fn of(view: &SessionView) -> Self {
        if view.is_new { Self::New } else { Self::Used }
    }
}

/// The source file of a snippet. Dropping it removes the file in the background, unless the agent
/// has: its name is unique, and it disappears with the session at the latest.
struct SourceFile {
    path: FilePath,
    container: Arc<LiveContainer>,
    environment: Arc<Environment>,
    is_gone: bool,
}

impl SourceFile {
    /// What the agent does after the snippet.
    fn cleanup(&self) -> Cleanup {
        Cleanup {
            remove: Some(self.path.as_bytes().to_vec()),
            report: Some(artifacts::DIRECTORY.to_vec()),
        }
    }
}

impl Drop for SourceFile {
    fn drop(&mut self) {
        if self.is_gone || tokio::runtime::Handle::try_current().is_err() {
            return;
        }
        let (path, container) = (self.path.clone(), Arc::clone(&self.container));
        self.environment.tasks.spawn(async move {
            let remove = async |agent: Agent| {
                let removed = agent.delete(path.as_bytes(), false, Precondition::Any);
                removed.await.map(drop)
            };
            if let Err(error) = crate::file::once(&container, &path, remove).await {
                tracing::debug!(%error, "the source of a snippet is left");
            }
        });
    }
}

/// The prefix of the names of a call's pictures.
pub(super) fn figures_of(number: u64) -> String {
    format!("figure-{number:016x}")
}

/// Sets the variables of a Python snippet; `figures` is the prefix of the names of its pictures.
pub(super) fn set_python_variables(env: &mut Env, connected: &Connected, figures: &str) {
    let hello = connected.agent.hello();
    let path = hello.env.iter().find(|(name, _)| *name == *b"PYTHONPATH");
    let path = path.and_then(|(_, value)| std::str::from_utf8(value).ok());
    python::set_variables(env, &hello.root, path, figures);
}

fn check_files(files: &[CodeFile]) -> Result<(), ServiceError> {
    let bytes: usize = files.iter().map(|file| file.data.len()).sum();
    if bytes > FILES_BYTES_MAX {
        return Err(ServiceError::Invalid {
            reason: format!(
                "`files` may have {FILES_BYTES_MAX} bytes together; write larger ones with sandbox_write_file first"
            ),
        });
    }
    Ok(())
}

impl From<hotcell_domain::CommandError> for ServiceError {
    fn from(error: hotcell_domain::CommandError) -> Self {
        Self::Invalid {
            reason: error.to_string(),
        }
    }
}
