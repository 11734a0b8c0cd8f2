//! Sessions: found by name, or created once however many ask at the same time.

use std::sync::Arc;
use std::time::Duration;

use hotcell_domain::{Caller, Name, Phase};

use super::SessionView;
use crate::container::{LiveContainer, Spawn, Spawned};
use crate::{Action, EgressChoice, Inner, Progress, Service, ServiceError};

/// How often a session may turn out to be ending when it is about to be used.
const ROUNDS_MAX: usize = 8;

/// How long a call waits for an ending session of the same name.
const END_TIMEOUT: Duration = Duration::from_secs(10);

/// A running session.
pub(super) struct Session {
    pub(super) container: Arc<LiveContainer>,
    pub(super) view: SessionView,
}

impl Service {
    /// An existing session of the caller.
    pub async fn session(&self, caller: &Caller, name: &Name) -> Result<SessionView, ServiceError> {
        let (operation, inner) = self.begin(caller, Action::ShowContainer, name);
        let find = async {
            let container = inner.registry.session(&caller.principal, name);
            let container = container.filter(|container| container.phase() == Phase::Running);
            let container = container.ok_or_else(|| ServiceError::NotFound {
                what: "session",
                name: name.to_string(),
            })?;
            Ok(SessionView {
                name: name.clone(),
                container: container.id().clone(),
                is_new: false,
                had_ended: false,
            })
        };
        operation.run(find).await
    }

    /// Like [`Service::session`], but creates the session if there is none.
    pub async fn open_session(
        &self,
        caller: &Caller,
        name: &Name,
        progress: Progress,
    ) -> Result<SessionView, ServiceError> {
        match self.session(caller, name).await {
            Err(ServiceError::NotFound { .. }) => {}
            found => return found,
        }
        let image = self.default_image();
        let (mut operation, inner) = self.begin(caller, Action::Spawn, &image);
        operation.note(|arguments| arguments.text("session", name.as_str()));
        let open = async {
            inner.accepting()?;
            inner.environment.has_room()?;
            let opened = inner.open_session(caller, name, progress);
            Ok(opened.await?.view)
        };
        let (view, mut operation) = operation.open(open).await?;
        operation.created(&view.container);
        operation.end().written().await?;
        Ok(view)
    }
}

impl Inner {
    /// Returns the session of this name, or creates it. Waits for one that is ending.
    pub(super) async fn open_session(
        self: &Arc<Self>,
        caller: &Caller,
        name: &Name,
        progress: Progress,
    ) -> Result<Session, ServiceError> {
        for _ in 0..ROUNDS_MAX {
            let found = self.registry.session(&caller.principal, name);
            let (container, is_new) = match found {
                Some(container) => (container, false),
                None => self.create_session(caller, name, &progress).await?,
            };
            container.until_created().await?;
            match container.phase() {
                Phase::Running => return self.use_session(container, name, is_new).await,
                Phase::Halted => return Err(container.halted()),
                Phase::Creating | Phase::Stopping | Phase::Stopped | Phase::Failed => {
                    let removed = tokio::time::timeout(END_TIMEOUT, container.until_removed());
                    removed.await.map_err(|_| still_ending(name))?;
                }
            }
        }
        Err(still_ending(name))
    }

    async fn use_session(
        &self,
        container: Arc<LiveContainer>,
        name: &Name,
        is_new: bool,
    ) -> Result<Session, ServiceError> {
        container.touch(self.environment.clock.unix_ms());
        let store = &self.environment.store;
        let principal = container.row.principal.clone();
        let had_ended = is_new && store.had_session(principal, name.clone()).await?;
        let view = SessionView {
            name: name.clone(),
            container: container.id().clone(),
            is_new,
            had_ended,
        };
        Ok(Session { container, view })
    }

    /// Creates it in a task of its own: if the caller goes away, the session is there for the next
    /// call.
    async fn create_session(
        self: &Arc<Self>,
        caller: &Caller,
        name: &Name,
        progress: &Progress,
    ) -> Result<(Arc<LiveContainer>, bool), ServiceError> {
        let code = self.environment.settings().code.clone();
        let egress = code.egress.map(EgressChoice::Set).unwrap_or_default();
        let request = Spawn {
            image: code.image,
            egress,
            session: Some(name.clone()),
            progress: progress.clone(),
            ..Spawn::default()
        };
        let (inner, caller) = (Arc::clone(self), caller.clone());
        let work = async move { inner.make(&caller, request).await };
        let made = self.environment.tasks.spawn(work).await;
        let made = made.ok().flatten();
        match made.unwrap_or_else(|| Err(ServiceError::stopping()))? {
            Spawned::Created(container) => Ok((container, true)),
            Spawned::Existing(container) => Ok((container, false)),
            Spawned::Ended(_) => Err(still_ending(name)),
        }
    }
}

/// The error for a session whose container has been ended meanwhile: the next call creates another.
pub(super) fn ended_meanwhile(error: ServiceError, name: &Name) -> ServiceError {
    if let ServiceError::NotFound {
        what: "container", ..
    } = error
    {
        return still_ending(name);
    }
    error
}

fn still_ending(name: &Name) -> ServiceError {
    ServiceError::Unavailable {
        reason: format!("session {name} is being ended; ask again in a moment"),
        source: None,
    }
}
