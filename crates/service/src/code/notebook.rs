//! Runs a snippet in the interpreter that its session keeps.

use std::sync::Arc;

use hotcell_domain::{Caller, Env, ExecStatus, NotStarted};

use super::run::{PYTHON, SessionAge, figures_of, set_python_variables};
use super::session::Session;
use super::{CodeRequest, CodeRun, SNIPPET_BYTES_MAX, artifacts};
use crate::container::LiveContainer;
use crate::exec::{Cell, NoKernel};
use crate::{Inner, ServiceError};

impl Inner {
    /// Like [`Inner::run_code`], in an interpreter that keeps its variables.
    pub(super) async fn run_stateful(
        self: &Arc<Self>,
        caller: &Caller,
        session: Session,
        mut request: CodeRequest,
    ) -> Result<CodeRun, ServiceError> {
        let Session { container, view } = session;
        // First of all, so that cells run in the order of their calls and each is given the
        // artifacts of its own.
        let turn = container.execs().cell_turn(&request.abandonment).await?;
        self.may_start(&container).await?;
        let (language, files) = (request.language, std::mem::take(&mut request.files));
        let wrote = self.write_files(caller, &container, files, Some(SessionAge::of(&view)));
        let (before, wrote) = tokio::join!(artifacts::list(&container), wrote);
        wrote?;
        let cell = self.cell(&container, request).await?;
        let (run, turn) = match container.execs().run_cell(caller, turn, cell).await {
            Ok(ran) => ran,
            Err(NoKernel::NotStarted(NotStarted::NoProgram)) => {
                return Err(self.lacks(&container, language).await);
            }
            Err(NoKernel::NotStarted(_)) => {
                container.set_python_modules(false);
                return Err(ServiceError::Unavailable {
                    reason: "the interpreter of this session could not be started".to_owned(),
                    source: None,
                });
            }
            Err(NoKernel::Service(error)) => {
                // It may not start because of what an earlier one left beside our modules.
                container.set_python_modules(false);
                return Err(error);
            }
        };
        container.touch(self.environment.clock.unix_ms());
        if run.end.status != ExecStatus::Succeeded {
            // The session may have lost or changed our modules: write them again next time.
            container.set_python_modules(false);
            container.forget_packages();
        }
        let artifacts = artifacts::list(&container).await.since(&before);
        drop(turn);
        let egress = container.egress();
        Ok(CodeRun {
            owner: caller.principal.clone(),
            egress: egress.and_then(|egress| egress.report(&run.exec)),
            exec: run.exec,
            session: view,
            end: run.end,
            artifacts,
            notebook: Some(run.values),
        })
    }

    async fn cell(
        &self,
        container: &LiveContainer,
        request: CodeRequest,
    ) -> Result<Cell, ServiceError> {
        let random = self.environment.random.bytes();
        let number = u64::from_be_bytes(random[2..].try_into().unwrap_or_default());
        let mut env = Env::default();
        let connected = container.connection().get().await?;
        let figures = figures_of(number);
        set_python_variables(&mut env, &connected, &figures);
        let timeout = self.environment.settings().code.timeout;
        Ok(Cell {
            code: String::from_utf8(request.source.into()).map_err(|_| not_text())?,
            arguments: request.arguments,
            stdin: request.stdin,
            timeout: request.timeout.unwrap_or(timeout),
            restart: request.restart,
            env,
            figures,
            abandonment: request.abandonment,
        })
    }
}

impl CodeRequest {
    /// Rejects requests that a notebook cannot run.
    pub(super) fn check_stateful(&self) -> Result<(), ServiceError> {
        let invalid = |reason: &str| {
            Err(ServiceError::Invalid {
                reason: reason.to_owned(),
            })
        };
        if self.restart && !self.stateful {
            return invalid("`restart` is for the interpreter of `stateful` calls: set both");
        }
        if !self.stateful {
            return Ok(());
        }
        if self.language.name != PYTHON {
            return invalid("`stateful` works with python only");
        }
        if self.is_cold {
            return invalid(
                "`stateful` keeps an interpreter and `cold` wants a new one: choose one",
            );
        }
        if self.source.len() > SNIPPET_BYTES_MAX {
            return Err(ServiceError::Invalid {
                reason: format!("code may have at most {SNIPPET_BYTES_MAX} bytes"),
            });
        }
        Ok(())
    }
}

fn not_text() -> ServiceError {
    ServiceError::Invalid {
        reason: "code must be UTF-8".to_owned(),
    }
}
