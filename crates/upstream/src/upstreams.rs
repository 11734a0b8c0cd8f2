//! All servers.

use std::collections::HashMap;
use std::path::Path;
use std::sync::{Arc, PoisonError, RwLock};

use futures_util::future::join_all;

use crate::bounds::SERVERS_MAX;
use crate::catalogue::Catalogue;
use crate::error::OpenError;
use crate::health::{Event, Observer};
use crate::name::{ServerName, aliases};
use crate::server::Server;
use crate::settings::{Finding, Settings};
use crate::visible::Visible;

/// All servers that are configured. A cheap clone of one thing.
#[derive(Clone)]
pub struct Upstreams(Arc<Inner>);

struct Inner {
    catalogue: Arc<Catalogue>,
    observer: Arc<dyn Observer>,
    now: RwLock<Now>,
}

/// What applies now.
#[derive(Default)]
struct Now {
    servers: Vec<Arc<Server>>,
    findings: Vec<Finding>,
}

impl Upstreams {
    /// Opens the catalogue in `directory`. Starts no server.
    pub fn open(
        settings: Settings,
        directory: &Path,
        observer: Arc<dyn Observer>,
    ) -> Result<Self, OpenError> {
        let catalogue = Arc::new(Catalogue::open(directory)?);
        let inner = Inner {
            catalogue,
            observer,
            now: RwLock::default(),
        };
        let now = inner.applied(settings, &[]);
        *inner.now.write().unwrap_or_else(PoisonError::into_inner) = now;
        Ok(Self(Arc::new(inner)))
    }

    /// Applies other settings. A server whose entry did not change keeps running; others are stopped, and
    /// their calls fail.
    pub fn reload(&self, settings: Settings) {
        let removed = {
            let mut now = self.0.now.write().unwrap_or_else(PoisonError::into_inner);
            let before = std::mem::take(&mut now.servers);
            *now = self.0.applied(settings, &before);
            let is_kept =
                |server: &Arc<Server>| now.servers.iter().any(|kept| Arc::ptr_eq(kept, server));
            before
                .into_iter()
                .filter(|server| !is_kept(server))
                .collect::<Vec<_>>()
        };
        for server in removed {
            tokio::spawn(async move { server.stop().await });
        }
        self.0.observer.happened(None, &Event::Reloaded);
    }

    /// The servers that a principal may use.
    pub fn visible_to(&self, principal: &str) -> Visible {
        let now = self.0.now.read().unwrap_or_else(PoisonError::into_inner);
        let may_use = |server: &&Arc<Server>| server.entry.principals.contain(principal);
        let seen: Vec<_> = now.servers.iter().filter(may_use).collect();
        let order = seen.iter().map(|server| server.name().clone()).collect();
        let servers = seen
            .into_iter()
            .map(|server| (server.name().clone(), Arc::clone(server)))
            .collect();
        let catalogue = Arc::clone(&self.0.catalogue);
        Visible {
            servers: Arc::new(servers),
            order: Arc::new(order),
            catalogue,
        }
    }

    /// What was wrong with the sources of entries; for people.
    pub fn findings(&self) -> Vec<Finding> {
        self.0
            .now
            .read()
            .unwrap_or_else(PoisonError::into_inner)
            .findings
            .clone()
    }

    /// Ends all servers and starts no more.
    pub async fn stop(&self) {
        let servers = self
            .0
            .now
            .read()
            .unwrap_or_else(PoisonError::into_inner)
            .servers
            .clone();
        join_all(servers.iter().map(|server| server.stop())).await;
    }
}

impl Inner {
    /// Of two entries with one name the first is used.
    fn applied(&self, settings: Settings, before: &[Arc<Server>]) -> Now {
        let Settings {
            servers,
            mut findings,
        } = settings;
        let mut entries = Vec::new();
        let mut sources: HashMap<ServerName, &'static str> = HashMap::new();
        for entry in servers {
            let ignored = match sources.get(&entry.name) {
                Some(first) => Some(format!(
                    "ignored, because {first} has a server of this name"
                )),
                None if entries.len() >= SERVERS_MAX => Some(format!(
                    "ignored, because there are more than {SERVERS_MAX} servers"
                )),
                None => None,
            };
            if let Some(message) = ignored {
                tracing::info!(upstream = %entry.name, source = entry.source.program, message, "ignored an entry");
                findings.push(Finding {
                    source: entry.source,
                    entry: Some(entry.name.to_string()),
                    message,
                });
                continue;
            }
            sources.insert(entry.name.clone(), entry.source.program);
            entries.push(entry);
        }
        let aliases = aliases(entries.iter().map(|entry| &entry.name));
        let servers = entries.into_iter().zip(aliases).map(|(entry, alias)| {
            let same = before
                .iter()
                .find(|server| server.entry == entry && server.alias == alias);
            let new = || {
                Server::new(
                    entry,
                    alias,
                    Arc::clone(&self.catalogue),
                    Arc::clone(&self.observer),
                )
            };
            same.map_or_else(new, Arc::clone)
        });
        Now {
            servers: servers.collect(),
            findings,
        }
    }
}
