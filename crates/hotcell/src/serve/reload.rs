//! Reloads the configuration while the server runs: on SIGHUP, and for `hotcell reload`.
//!
//! All or nothing: if anything in the file is wrong, every setting stays as it is.

use std::path::PathBuf;
use std::sync::Arc;

use anyhow::{Result, anyhow, bail};
use hotcell_codemode::CodeMode;
use hotcell_domain::Caller;
use hotcell_mcp::{Reload, ReloadReport};
use hotcell_service::{Service, Settings};
use hotcell_upstream::Upstreams;
use tokio::sync::{Mutex, Notify};

use super::settings;
use crate::cli::{Command, LogArgs, ServeArgs};
use crate::config::{Config, Difference, LoadError, Loaded};
use crate::engines::OpenedEngine;
use crate::{level, telemetry, upstream};

/// The current configuration, and the parts that a new one is applied to.
#[derive(Clone)]
pub(super) struct Reloader {
    parts: ReloadedParts,
    /// The configuration that was read last. A reload holds the lock until it is applied.
    current: Arc<Mutex<Config>>,
}

/// The parts of a server that a new configuration is applied to.
#[derive(Clone)]
pub(super) struct ReloadedParts {
    pub(super) service: Service,
    pub(super) engine: Arc<OpenedEngine>,
    /// The state directory.
    pub(super) directory: PathBuf,
    pub(super) upstreams: Upstreams,
    pub(super) codemode: CodeMode,
}

/// A valid configuration that was read.
struct Reading {
    settings: Settings,
    upstreams: hotcell_upstream::Settings,
    codemode: hotcell_codemode::Settings,
    config: Config,
    log: LogArgs,
    level: tracing_subscriber::filter::LevelFilter,
}

impl Reloader {
    pub(super) fn new(parts: ReloadedParts, config: Config) -> Self {
        Self {
            parts,
            current: Arc::new(Mutex::new(config)),
        }
    }

    /// The function that clients can call.
    pub(super) fn on_request(&self) -> Reload {
        let reloader = self.clone();
        Reload::new(move |caller| {
            let reloader = reloader.clone();
            // In a task of its own, because a client that hangs up must not leave new settings
            // with the record of the old ones.
            let reload = tokio::spawn(async move { reloader.reload(&caller).await });
            async move {
                reload.await.unwrap_or_else(|_| ReloadReport {
                    error: Some("the reload was cut off; try again".to_owned()),
                    ..ReloadReport::default()
                })
            }
        })
    }

    /// Reloads on each notification, for ever.
    pub(super) async fn on_signal(self, asked: Arc<Notify>) {
        loop {
            asked.notified().await;
            self.reload(&Caller::local()).await;
        }
    }

    /// Reads and applies the configuration; logs and returns the result.
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
        let reloaded = self.parts.service.reload(caller, read).await;
        let report = match (reloaded, reading) {
            (Ok(()), Some(reading)) => {
                let Difference {
                    changed,
                    needs_restart,
                } = current.difference(&reading.config);
                telemetry::change_level(&reading.log, reading.level);
                self.parts.upstreams.reload(reading.upstreams);
                self.parts.codemode.reload(reading.codemode);
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
        let (arguments, parts): (&ServeArgs, _) = (&arguments, &self.parts);
        let settings =
            settings::of_service(arguments, &config.tables, &parts.directory, &parts.engine)
                .await?;
        let upstreams = upstream::settings(&arguments.discovery, &config.tables);
        let codemode = arguments.codemode.settings(&config.tables.rules);
        Ok(Reading {
            settings,
            upstreams,
            codemode,
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
