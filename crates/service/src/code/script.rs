//! Running a Python script that talks to a host of its own while it runs.
//!
//! ```text
//! container: python3 run.py ── unix socket ── agent ══ tunnel ══ ScriptHost::serve
//! ```
//!
//! The service knows neither what the two say nor what is in the files: it starts the script,
//! hands on the connections that it opens, and ends it.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use hotcell_domain::{
    Caller, Command, ContainerRef, ExecEnd, ExecId, Language, Name, NotStarted, Principal, Stdin,
};
use hotcell_egress::ProfileName;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::task::JoinSet;

use super::SessionView;
use super::run::PYTHON;
use super::session::{Session, ended_meanwhile};
use crate::container::{EndMode, LiveContainer, Spawn, Spawned};
use crate::environment::Environment;
use crate::exec::{LiveExec, Start};
use crate::file::{FileOperation, WriteOptions};
use crate::tunnels::TunnelListener;
use crate::{Abandonment, Action, EgressChoice, Inner, Progress, Service, ServiceError};

/// Where the files of scripts are, below `/workspace`.
const DIRECTORY: &str = ".hotcell/codemode";

/// How long the last bytes of a script that has ended may take to arrive.
const LAST_BYTES_TIMEOUT: Duration = Duration::from_secs(5);

/// The same for the first connection of a script that failed: it may never have come so far.
const FIRST_CONNECTION_TIMEOUT: Duration = Duration::from_secs(1);

/// Tells the file that is run that it is the only script of its container.
const ONCE: &str = "once";

/// What is told by standard input: it goes with the start, and into the store until the end. More is
/// told by the connection.
const WELCOME_BYTES_MAX: usize = 24 << 10;

/// Connections of one script at a time.
const CONNECTIONS_MAX: usize = 4;

/// Bytes to and from a script.
pub trait ScriptStream: AsyncRead + AsyncWrite + Send + Unpin {}

impl<T: AsyncRead + AsyncWrite + Send + Unpin> ScriptStream for T {}

/// Whom a script talks to.
#[async_trait]
pub trait ScriptHost: Send + Sync {
    /// Serves one connection until its end. Any process of the container may have opened it.
    async fn serve(&self, stream: Box<dyn ScriptStream>);

    /// Returns once the script has to end.
    async fn until_overdue(&self);

    /// Returns once everything is known that the script had to say.
    async fn until_told(&self);
}

/// A script that somebody wants to run.
pub struct ScriptRequest {
    /// Names and texts of the files it consists of. They are the same for every script, but one may
    /// do with the first of them.
    pub files: &'static [(&'static str, &'static str)],
    /// The file that is run. It reads one line, the path of a socket and `secret`, then `welcome`; its
    /// argument is `once` in a container of its own.
    pub main: &'static str,
    /// What its host would tell it first, if that is short.
    pub welcome: String,
    /// What proves a connection to be the script's own.
    pub secret: String,
    /// Where it runs; `None`: in a container of its own, which is removed afterwards.
    pub session: Option<Name>,
    /// Ends it if its host does not.
    pub timeout: Duration,
    /// Whom it talks to.
    pub host: Arc<dyn ScriptHost>,
    /// Sizes and names for the audit log.
    pub note: Vec<(&'static str, String)>,
    /// Receives the progress of the image pull.
    pub progress: Progress,
    /// Whether somebody waits for it. A script that was abandoned is cancelled.
    pub abandonment: Abandonment,
}

/// A script that has run. Its container is removed when this is dropped, if it was its own.
pub struct ScriptRun {
    /// The exec that it was.
    pub exec: ExecId,
    /// How it ended.
    pub end: ExecEnd,
    /// Whose it is.
    pub owner: Principal,
    /// Whether its host had it ended.
    pub was_overdue: bool,
    /// Where it ran, if that was a session.
    pub session: Option<SessionView>,
    place: Place,
}

/// Where a script runs.
enum Place {
    Session(Arc<LiveContainer>),
    Fresh(FreshContainer),
}

/// A container for one script. Nobody waits for its removal.
struct FreshContainer {
    container: Arc<LiveContainer>,
    environment: Arc<Environment>,
}

impl Drop for FreshContainer {
    fn drop(&mut self) {
        if tokio::runtime::Handle::try_current().is_err() {
            return;
        }
        let container = Arc::clone(&self.container);
        self.environment.tasks.spawn(async move {
            if let Err(error) = container.end(EndMode::Forced).await {
                tracing::debug!(%error, "the container of a script is gone already");
            }
        });
    }
}

impl Place {
    fn container(&self) -> &Arc<LiveContainer> {
        match self {
            Self::Session(container) => container,
            Self::Fresh(fresh) => &fresh.container,
        }
    }
}

/// The connections of one script.
struct ScriptConnections<'a> {
    listener: &'a mut TunnelListener,
    host: &'a Arc<dyn ScriptHost>,
    running: JoinSet<()>,
    has_come: bool,
}

impl<'a> ScriptConnections<'a> {
    fn new(listener: &'a mut TunnelListener, host: &'a Arc<dyn ScriptHost>) -> Self {
        Self {
            listener,
            host,
            running: JoinSet::new(),
            has_come: false,
        }
    }

    /// Hands the next connection to the host, or waits for one to end. Never returns once the agent
    /// is gone.
    async fn serve_next(&mut self) {
        let has_room = self.running.len() < CONNECTIONS_MAX;
        tokio::select! {
            Some(incoming) = self.listener.next(), if has_room => {
                self.has_come = true;
                let host = Arc::clone(self.host);
                self.running.spawn(async move {
                    if let Ok(stream) = incoming.accept().await {
                        host.serve(Box::new(stream)).await;
                    }
                });
            }
            Some(_) = self.running.join_next(), if !self.running.is_empty() => {}
            else => std::future::pending().await,
        }
    }

    /// Serves what a script that has ended left behind: it may have connected, told everything and
    /// exited before its connection was heard of.
    async fn serve_the_rest(mut self, end: &ExecEnd) {
        let host = self.host;
        let told = host.until_told();
        tokio::pin!(told);
        let patience = if end.exit_code == Some(0) || self.has_come {
            LAST_BYTES_TIMEOUT
        } else {
            FIRST_CONNECTION_TIMEOUT
        };
        let deadline = tokio::time::sleep(patience);
        tokio::pin!(deadline);
        while !(self.has_come && self.running.is_empty()) {
            tokio::select! {
                () = &mut told => return,
                () = &mut deadline => return,
                () = self.serve_next() => {}
            }
        }
    }
}

impl Service {
    /// Runs a script and waits for its end. What it wrote is read by
    /// [`Service::code_output`](Service::code_output).
    ///
    /// Dropping the future does not stop the script; its [`Abandonment`] does.
    pub async fn run_script(
        &self,
        caller: &Caller,
        request: ScriptRequest,
    ) -> Result<ScriptRun, ServiceError> {
        let target = request
            .session
            .as_ref()
            .map_or("a new container", Name::as_str);
        let (mut operation, inner) = self.begin(caller, Action::RunPython, &target.to_owned());
        operation.note(|arguments| {
            for (name, value) in &request.note {
                arguments.text(name, value);
            }
        });
        let run = async {
            inner.accepting()?;
            inner.environment.has_room()?;
            let session = request.session.clone();
            let run = inner.run_script(caller, request).await;
            run.map_err(|error| match &session {
                Some(name) => ended_meanwhile(error, name),
                None => error,
            })
        };
        let (run, mut operation) = operation.open(run).await?;
        let container = run.place.container().id().clone();
        operation.note(|arguments| arguments.text("container", container.as_str()));
        operation.created(&run.exec);
        operation.end().written().await?;
        Ok(run)
    }
}

impl Inner {
    async fn run_script(
        self: &Arc<Self>,
        caller: &Caller,
        request: ScriptRequest,
    ) -> Result<ScriptRun, ServiceError> {
        let python = Language::by_name(PYTHON).expect("it is in the table");
        let (place, session) = self.script_place(caller, &request).await?;
        let container = place.container();
        self.require(container, python).await?;
        let random = self.environment.random.bytes();
        let number = u64::from_be_bytes(random[2..].try_into().unwrap_or_default());
        let socket = format!("/tmp/.run-{number:016x}");
        let connection = container.connection();
        let tunnels = container.tunnels();
        let listen = tunnels.listen_at(&self.environment, &connection, number, &socket);
        let staged = self.stage_script(caller, container, &request);
        let command = self.script_command(container, &request, &socket).await?;
        let start = Start {
            command,
            key: None,
            abandonment: request.abandonment.clone(),
        };
        let staged = Box::pin(async {
            let (listener, staged) = tokio::join!(listen, staged);
            staged.and(listener)
        });
        let execs = container.execs();
        let (listener, live) = execs.start_when(caller, start, None, staged).await?;
        let (end, was_overdue) = self
            .attend_script(caller, &live, listener, &request)
            .await?;
        container.touch(self.environment.clock.unix_ms());
        if end.not_started == Some(NotStarted::NoProgram) {
            return Err(self.lacks(container, python).await);
        }
        if end.exit_code != Some(0) {
            // Perhaps because it had lost or changed our files.
            container.set_script_files(0);
        }
        Ok(ScriptRun {
            exec: live.id().clone(),
            end,
            owner: caller.principal.clone(),
            was_overdue,
            session,
            place,
        })
    }

    async fn script_place(
        self: &Arc<Self>,
        caller: &Caller,
        request: &ScriptRequest,
    ) -> Result<(Place, Option<SessionView>), ServiceError> {
        if let Some(name) = &request.session {
            let opened = self.open_session(caller, name, request.progress.clone());
            let Session { container, view } = opened.await?;
            return Ok((Place::Session(container), Some(view)));
        }
        let spawn = Spawn {
            image: self.environment.settings().code.image.clone(),
            // A script reaches other servers through its channel, and nothing else.
            egress: EgressChoice::Set(ProfileName::none()),
            progress: request.progress.clone(),
            abandonment: request.abandonment.clone(),
            ..Spawn::default()
        };
        let (inner, caller) = (Arc::clone(self), caller.clone());
        // A task of its own: a container that nobody waits for any more is removed there.
        let work = async move {
            let environment = Arc::clone(&inner.environment);
            match inner.make(&caller, spawn).await? {
                Spawned::Created(container) | Spawned::Existing(container) => Ok(FreshContainer {
                    container,
                    environment,
                }),
                Spawned::Ended(_) => Err(ServiceError::stopping()),
            }
        };
        let made = self.environment.tasks.spawn(work).await;
        let made = made.ok().flatten();
        let fresh = made.unwrap_or_else(|| Err(ServiceError::stopping()))?;
        Ok((Place::Fresh(fresh), None))
    }

    /// Writes the files that the script needs, once per container.
    async fn stage_script(
        &self,
        caller: &Caller,
        container: &LiveContainer,
        request: &ScriptRequest,
    ) -> Result<(), ServiceError> {
        let files = request.files;
        if container.script_files() >= files.len() {
            return Ok(());
        }
        let write = |(name, text): &(&str, &'static str)| FileOperation::Write {
            path: format!("{DIRECTORY}/{name}").into_bytes(),
            data: bytes::Bytes::from_static(text.as_bytes()),
            options: WriteOptions {
                create_parents: true,
                ..WriteOptions::default()
            },
        };
        let operations = files.iter().map(write).collect();
        let target = ContainerRef::Id(container.id().clone());
        // Not as a whole, which takes a directory more: until all are there nothing counts as written.
        let written = self.batch(caller, &target, operations, false).await?;
        written.into_iter().collect::<Result<Vec<_>, _>>()?;
        container.set_script_files(files.len());
        Ok(())
    }

    async fn script_command(
        &self,
        container: &LiveContainer,
        request: &ScriptRequest,
        socket: &str,
    ) -> Result<Command, ServiceError> {
        let connected = container.connection().get().await?;
        let root = &connected.agent.hello().root;
        let main = format!("{root}/{DIRECTORY}/{}", request.main);
        let mut argv = vec!["python3".to_owned(), main];
        if request.session.is_none() {
            argv.push(ONCE.to_owned());
        }
        let mut command = Command::new(argv)?;
        command.set_timeout_s(request.timeout.as_secs_f64())?;
        let welcome = Some(&request.welcome).filter(|text| text.len() <= WELCOME_BYTES_MAX);
        let welcome = welcome.map_or("", String::as_str);
        let input = format!("{socket} {}\n{welcome}", request.secret);
        command.set_stdin(Stdin::Text(input))?;
        command.ends_background = true;
        command.warm_python = true;
        Ok(command)
    }

    /// Hands connections to the host until the script has ended.
    async fn attend_script(
        &self,
        caller: &Caller,
        live: &LiveExec,
        mut listener: TunnelListener,
        request: &ScriptRequest,
    ) -> Result<(ExecEnd, bool), ServiceError> {
        let mut connections = ScriptConnections::new(&mut listener, &request.host);
        let mut was_overdue = false;
        let end = {
            let end = live.end();
            let overdue = request.host.until_overdue();
            tokio::pin!(end, overdue);
            loop {
                tokio::select! {
                    end = &mut end => break end?,
                    () = &mut overdue, if !was_overdue => {
                        was_overdue = true;
                        self.begin_cancel(caller, live.id()).await?;
                    }
                    () = connections.serve_next() => {}
                }
            }
        };
        connections.serve_the_rest(&end).await;
        Ok((end, was_overdue))
    }
}
