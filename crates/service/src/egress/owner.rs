//! The task that owns one container's egress: it has the agent listen, answers lookups and serves
//! connections. When the connection to the agent is lost, it attaches again; names keep their
//! addresses, because the agent keeps its listeners.

use std::collections::HashSet;
use std::net::SocketAddrV4;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use hotcell_agent_client::{AgentError, Datagrams, IncomingTunnel, TunnelAddress};
use hotcell_domain::{ContainerId, Env};
use hotcell_egress::{Guest, HostName, Listeners, REFUSAL_PORTS};
use hotcell_store::ContainerRow;
use tokio::sync::mpsc;
use tokio::task::JoinSet;

use super::container::ContainerEgress;
use super::lookup;
use super::purpose::{self, Purpose};
use super::record::Recorder;
use super::stream::ClosingStream;
use super::trust;
use crate::ServiceError;
use crate::backoff::Backoff;
use crate::connection::{Connected, Connection};
use crate::environment::Environment;
use crate::tunnels::{TunnelGroup, TunnelTable};

/// Queries of one container that are answered at the same time; further ones are lost, as
/// datagrams are, and asked again.
const QUERIES_MAX: usize = 64;

/// Delays between two attempts to attach.
const PAUSE_FIRST: Duration = Duration::from_millis(20);
const PAUSE_LONGEST: Duration = Duration::from_secs(5);

/// The task of one container.
pub(super) struct Owner {
    egress: Arc<ContainerEgress>,
    environment: Arc<Environment>,
    container: ContainerId,
    connection: Arc<Connection>,
    tunnels: Arc<TunnelTable>,
    recorder: Arc<Recorder>,
}

/// Why an attachment ended.
enum Detached {
    /// It is made again.
    Lost(ServiceError),
    /// This agent will never do it.
    Never(ServiceError),
}

impl Owner {
    pub(super) fn new(
        egress: &Arc<ContainerEgress>,
        environment: &Arc<Environment>,
        row: &ContainerRow,
        connection: Arc<Connection>,
        tunnels: Arc<TunnelTable>,
    ) -> Self {
        let recorder = Recorder::new(environment, row, egress.profile());
        Self {
            egress: Arc::clone(egress),
            environment: Arc::clone(environment),
            container: row.id.clone(),
            connection,
            tunnels,
            recorder: Arc::new(recorder),
        }
    }

    /// Serves until it is aborted.
    pub(super) async fn run(self) {
        let mut backoff = Backoff::between(PAUSE_FIRST, PAUSE_LONGEST);
        let mut guest = None;
        loop {
            let Err(detached) = self.attach(&mut guest, &mut backoff).await;
            let (error, is_final) = match detached {
                Detached::Lost(error) => (error, false),
                Detached::Never(error) => (error, true),
            };
            if !self.egress.is_ready() || is_final {
                tracing::warn!(container.id = %self.container, %error, "a container cannot reach what its profile allows");
                self.egress.set_ready(Env::default());
            }
            if is_final {
                return;
            }
            backoff.wait().await;
        }
    }

    /// Attaches to the agent and serves until that is lost.
    async fn attach(
        &self,
        guest: &mut Option<Arc<Guest>>,
        backoff: &mut Backoff,
    ) -> Result<std::convert::Infallible, Detached> {
        let connected = self.connection.get().await?;
        let guest = match guest {
            Some(guest) => guest,
            None => guest.insert(self.make_guest().await?),
        };
        let asked = self
            .tunnels
            .group(&self.environment.tasks, &self.connection, purpose::PREFIX);
        let TunnelGroup {
            incoming,
            listeners,
        } = asked.await?;
        for (purpose, address) in &listeners {
            if let Some((name, address)) = purpose::restored(purpose, address) {
                guest.restore(name, *address.ip());
            }
        }
        // The first exec waits for both.
        let (datagrams, env) =
            tokio::try_join!(self.listen(&connected), self.install_trust(&connected))?;
        self.egress.set_ready(env);
        backoff.reset();
        self.serve(guest, &connected, datagrams, incoming).await
    }

    async fn make_guest(&self) -> Result<Arc<Guest>, ServiceError> {
        let broker = self.environment.egress.broker().await?;
        let listeners = AgentListeners {
            environment: Arc::clone(&self.environment),
            connection: Arc::clone(&self.connection),
            tunnels: Arc::clone(&self.tunnels),
            known: Mutex::default(),
        };
        let profile = self.egress.profile().clone();
        let recorder = Arc::clone(&self.recorder);
        let guest = Arc::new(Guest::new(broker, profile, Arc::new(listeners), recorder));
        self.egress.set_guest(&guest);
        Ok(guest)
    }

    /// Has programs trust the authority. A container that cannot (its disk is full, its agent is older)
    /// reaches what is not opened, and complains about certificates elsewhere.
    async fn install_trust(&self, connected: &Connected) -> Result<Env, Detached> {
        let broker = self.environment.egress.broker().await?;
        match trust::install(&connected.agent, broker.authority_pem()).await {
            Ok(env) => Ok(env),
            Err(error @ (AgentError::Lost | AgentError::Protocol(_))) => {
                Err(self.failed(connected, error))
            }
            Err(error) => {
                tracing::warn!(container.id = %self.container, %error, "a container's programs do not trust the server's certificates");
                Ok(Env::default())
            }
        }
    }

    /// Listens for queries, and for connections to refused names and to the proxy. A port that a process inside has
    /// taken harms only that container.
    async fn listen(&self, connected: &Connected) -> Result<Datagrams, Detached> {
        let dns = purpose::DNS_ADDRESS;
        self.listen_at(purpose::DNS, TunnelAddress::Udp(dns))
            .await?;
        let tcp = TunnelAddress::Tcp(dns.into());
        let refusals = REFUSAL_PORTS.map(purpose::of_refusal);
        let others = [(purpose::DNS_TCP.to_owned(), tcp)]
            .into_iter()
            .chain(refusals)
            .chain([purpose::of_proxy()]);
        for (purpose, address) in others {
            if let Err(error) = self.listen_at(&purpose, address).await {
                tracing::warn!(container.id = %self.container, purpose, %error, "a container's port is taken");
            }
        }
        let datagrams = connected.agent.datagrams(purpose::DNS).await;
        datagrams.map_err(|error| self.failed(connected, error))
    }

    async fn listen_at(&self, purpose: &str, address: TunnelAddress) -> Result<(), ServiceError> {
        let tasks = &self.environment.tasks;
        let listened = self
            .tunnels
            .listen_in_group(tasks, &self.connection, purpose, address);
        listened.await
    }

    async fn serve(
        &self,
        guest: &Arc<Guest>,
        connected: &Connected,
        mut datagrams: Datagrams,
        mut incoming: mpsc::Receiver<IncomingTunnel>,
    ) -> Result<std::convert::Infallible, Detached> {
        // Both end with this future, and with them every connection.
        let (mut connections, mut queries) = (JoinSet::new(), JoinSet::new());
        loop {
            tokio::select! {
                tunnel = incoming.recv() => match tunnel {
                    None => return Err(Detached::Lost(lost())),
                    Some(tunnel) => drop(connections.spawn(serve_tunnel(Arc::clone(guest), tunnel))),
                },
                received = datagrams.receive() => {
                    let (from, query) = received.map_err(|error| self.failed(connected, error))?;
                    if queries.len() < QUERIES_MAX {
                        let (guest, sender) = (Arc::clone(guest), datagrams.sender());
                        queries.spawn(async move {
                            if let Some(answer) = guest.answer(&query).await {
                                sender.send(from, &answer).await;
                            }
                        });
                    }
                }
                Some(_) = connections.join_next() => {}
                Some(_) = queries.join_next() => {}
            }
        }
    }

    fn failed(&self, connected: &Connected, error: AgentError) -> Detached {
        self.connection.report(connected, &error);
        match error {
            AgentError::TooOld { .. } | AgentError::Version { .. } => {
                Detached::Never(ServiceError::agent_too_old(&error))
            }
            AgentError::Refused { .. } | AgentError::Lost | AgentError::Protocol(_) => {
                Detached::Lost(ServiceError::Unavailable {
                    reason: "the container does not answer".to_owned(),
                    source: Some(Box::new(error)),
                })
            }
        }
    }
}

impl From<ServiceError> for Detached {
    fn from(error: ServiceError) -> Self {
        Self::Lost(error)
    }
}

/// Serves a connection of a process inside until it ends.
async fn serve_tunnel(guest: Arc<Guest>, tunnel: IncomingTunnel) {
    let Some(purpose) = Purpose::parse(tunnel.purpose()) else {
        let _ = tunnel.refuse().await;
        return;
    };
    // The process may have given up; a lost connection is noticed by the owner.
    let Ok(stream) = tunnel.accept().await else {
        return;
    };
    let stream = ClosingStream::new(stream);
    match purpose {
        Purpose::Dns => lookup::answer_stream(&guest, stream).await,
        Purpose::Proxy => Box::pin(guest.serve_proxy(stream)).await,
        Purpose::Target(target) => Box::pin(guest.serve(target, stream)).await,
    }
}

fn lost() -> ServiceError {
    ServiceError::Unavailable {
        reason: "the connection to the container was lost".to_owned(),
        source: None,
    }
}

/// Has a container's agent listen at the addresses of names.
struct AgentListeners {
    environment: Arc<Environment>,
    connection: Arc<Connection>,
    tunnels: Arc<TunnelTable>,
    /// Where the agent listens. It keeps doing so for as long as it lives.
    known: Mutex<HashSet<SocketAddrV4>>,
}

#[async_trait]
impl Listeners for AgentListeners {
    async fn listen(&self, name: &HostName, address: SocketAddrV4) -> bool {
        let known = || self.known.lock().unwrap_or_else(PoisonError::into_inner);
        if known().contains(&address) {
            return true;
        }
        let purpose = purpose::of_name(name, address.port());
        let at = TunnelAddress::Tcp(address.into());
        let (tasks, tunnels) = (&self.environment.tasks, &self.tunnels);
        let listened = tunnels.listen_in_group(tasks, &self.connection, &purpose, at);
        match listened.await {
            Ok(()) => known().insert(address),
            Err(error) => {
                tracing::warn!(%name, %address, %error, "a container's port is taken");
                return false;
            }
        };
        true
    }
}
