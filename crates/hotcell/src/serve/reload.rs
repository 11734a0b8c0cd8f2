//! Reading the configuration again while the server runs: on SIGHUP, and for `hotcell reload`.
//!
//! All or nothing: if anything in the file is wrong, every setting stays as it is.

use std::sync::Arc;

use anyhow::{Result, anyhow, bail};
use hotcell_domain::Caller;
use hotcell_mcp::{Reload, ReloadReport};
use hotcell_service::{Service, Settings};
use tokio::sync::{Mutex, Notify};

use super::settings;
use crate::cli::{Command, LogArgs, ServeArgs};
use crate::config::{Config, Difference, LoadError, Loaded};
use crate::engines::OpenedEngine;
use crate::{level, telemetry};

/// What applies, and what to do when something else shall.
#[derive(Clone)]
pub(super) struct Reloader {
    service: Service,
    engine: Arc<OpenedEngine>,
    /// What was read last. Whoever reloads has it for as long as that takes.
    current: Arc<Mutex<Config>>,
}

/// A configuration that was read and found to be right.
struct Reading {
    settings: Settings,
    config: Config,
    log: LogArgs,
    level: tracing_subscriber::filter::LevelFilter,
}

impl Reloader {
    pub(super) fn new(service: Service, engine: OpenedEngine, config: Config) -> Self {
        Self {
            service,
            engine: Arc::new(engine),
            current: Arc::new(Mutex::new(config)),
        }
    }

    /// For clients.
    pub(super) fn on_request(&self) -> Reload {
        let reloader = self.clone();
        Reload::new(move |caller| {
            let reloader = reloader.clone();
            async move { reloader.reload(&caller).await }
        })
    }

    /// Reloads whenever it is notified, for ever.
    pub(super) async fn on_signal(self, asked: Arc<Notify>) {
        loop {
            asked.notified().await;
            self.reload(&Caller::local()).await;
        }
    }

    /// Reads everything again; logs what came of it, and answers the same.
    async fn reload(&self, caller: &Caller) -> ReloadReport {
        let mut current = self.current.lock().await;
        let mut reading = None;
        let read = async {
            let read = self.read(&current).await;
            let read = read.map_err(|error| format!("{error:#}"))?;
            let settings = read.settings.clone();
            reading = Some(read);
            Ok(settings)
        };
        let reloaded = self.service.reload(caller, read).await;
        let report = match (reloaded, reading) {
            (Ok(()), Some(reading)) => {
                let Difference {
                    changed,
                    needs_restart,
                } = current.difference(&reading.config);
                telemetry::change_level(&reading.log, reading.level);
                *current = reading.config.after_reload(&current);
                ReloadReport {
                    error: None,
                    changed,
                    needs_restart,
                }
            }
            (Err(error), _) => ReloadReport {
                error: Some(error.to_string()),
                ..ReloadReport::default()
            },
            (Ok(()), None) => ReloadReport::default(),
        };
        log(&report);
        report
    }

    async fn read(&self, current: &Config) -> Result<Reading> {
        let loaded = current.load_again().map_err(|error| match error {
            LoadError::Config { error, .. } => error,
            LoadError::Usage(error) => anyhow!("{error}"),
        })?;
        let level = level(&loaded.command);
        let Loaded {
            command,
            log,
            config,
        } = loaded;
        let Command::Serve(arguments) = command else {
            bail!("the command line is not that of a server");
        };
        let arguments: &ServeArgs = &arguments;
        let settings = settings::of_service(arguments, &config.tables, &self.engine).await?;
        Ok(Reading {
            settings,
            config,
            log,
            level,
        })
    }
}

fn log(report: &ReloadReport) {
    let ReloadReport {
        error,
        changed,
        needs_restart,
    } = report;
    if let Some(error) = error {
        tracing::error!(
            error,
            "could not reload the configuration; the settings stay"
        );
        return;
    }
    tracing::info!(changed = changed.join(", "), "reloaded the configuration");
    if !needs_restart.is_empty() {
        let settings = needs_restart.join(", ");
        tracing::warn!(settings, "some settings that changed need a restart");
    }
}
