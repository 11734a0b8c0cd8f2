//! Connections that processes in a container open, delivered to whoever listens for their purpose.
//!
//! An agent announces them to one reader only, so each container has one task that reads them.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use hotcell_agent_client::{AgentError, AgentRefusal, IncomingTunnel, TunnelAddress, Tunnels};
use tokio::sync::{Mutex, mpsc, oneshot};

use crate::ServiceError;
use crate::connection::{Connected, Connection};
use crate::environment::Environment;
use crate::tasks::Tasks;

/// Requests to the task that reads.
const ASKS_MAX: usize = 64;

/// Connections of one purpose that nobody has accepted yet; further ones are refused.
const WAITING_MAX: usize = 8;

/// Connections of a group of purposes that nobody has accepted yet.
const GROUP_WAITING_MAX: usize = 64;

/// The listeners of a container's agent.
#[derive(Default)]
pub(crate) struct TunnelTable(Mutex<Option<mpsc::Sender<Ask>>>);

/// A purpose that somebody listens for. Dropping it closes the listener.
pub(crate) struct TunnelListener {
    purpose: String,
    incoming: mpsc::Receiver<IncomingTunnel>,
    asks: mpsc::Sender<Ask>,
}

/// The connections of all purposes with one prefix.
pub(crate) struct TunnelGroup {
    /// Ends with the connection to the agent.
    pub(crate) incoming: mpsc::Receiver<IncomingTunnel>,
    /// Listeners that the agent has already, of an earlier connection or server.
    pub(crate) listeners: BTreeMap<String, TunnelAddress>,
}

enum Ask {
    Group {
        prefix: &'static str,
        incoming: mpsc::Sender<IncomingTunnel>,
        answer: oneshot::Sender<BTreeMap<String, TunnelAddress>>,
    },
    ListenInGroup {
        purpose: String,
        address: TunnelAddress,
        answer: oneshot::Sender<Result<(), AgentError>>,
    },
    Listen {
        purpose: String,
        address: TunnelAddress,
        incoming: mpsc::Sender<IncomingTunnel>,
        answer: oneshot::Sender<Result<(), AgentError>>,
    },
    Unlisten(String),
}

impl TunnelTable {
    /// Has the agent listen on a socket with a purpose that nobody else has.
    pub(crate) async fn listen_at(
        &self,
        environment: &Environment,
        connection: &Arc<Connection>,
        number: u64,
        socket: &str,
    ) -> Result<TunnelListener, ServiceError> {
        let purpose = format!("run-{number:016x}");
        let address = TunnelAddress::Unix(socket.as_bytes().to_vec());
        self.listen(&environment.tasks, connection, &purpose, address)
            .await
    }

    /// Has the agent listen at an address for a purpose of this caller's own.
    async fn listen(
        &self,
        tasks: &Tasks,
        connection: &Arc<Connection>,
        purpose: &str,
        address: TunnelAddress,
    ) -> Result<TunnelListener, ServiceError> {
        let connected = connection.get().await?;
        let failed = |error: AgentError| failed(connection, &connected, error);
        let asks = self.reader(tasks, connection, &connected);
        let asks = asks.await.map_err(failed)?;
        let (sender, incoming) = mpsc::channel(WAITING_MAX);
        let (answer, answered) = oneshot::channel();
        let ask = Ask::Listen {
            purpose: purpose.to_owned(),
            address,
            incoming: sender,
            answer,
        };
        let listener = TunnelListener {
            purpose: purpose.to_owned(),
            incoming,
            asks: asks.clone(),
        };
        asks.send(ask).await.map_err(|_| failed(AgentError::Lost))?;
        let answer = answered.await.unwrap_or(Err(AgentError::Lost));
        answer.map_err(failed)?;
        Ok(listener)
    }

    /// Takes the connections of all purposes that begin with `prefix`. A later call takes its place.
    pub(crate) async fn group(
        &self,
        tasks: &Tasks,
        connection: &Arc<Connection>,
        prefix: &'static str,
    ) -> Result<TunnelGroup, ServiceError> {
        let connected = connection.get().await?;
        let failed = |error| failed(connection, &connected, error);
        let asks = self.reader(tasks, connection, &connected);
        let asks = asks.await.map_err(failed)?;
        let (sender, incoming) = mpsc::channel(GROUP_WAITING_MAX);
        let (answer, answered) = oneshot::channel();
        let ask = Ask::Group {
            prefix,
            incoming: sender,
            answer,
        };
        asks.send(ask).await.map_err(|_| failed(AgentError::Lost))?;
        let listeners = answered.await.map_err(|_| failed(AgentError::Lost))?;
        Ok(TunnelGroup {
            incoming,
            listeners,
        })
    }

    /// Has the agent listen at an address for a purpose of a [group](Self::group). Idempotent; the
    /// agent listens for as long as it lives.
    pub(crate) async fn listen_in_group(
        &self,
        tasks: &Tasks,
        connection: &Arc<Connection>,
        purpose: &str,
        address: TunnelAddress,
    ) -> Result<(), ServiceError> {
        let connected = connection.get().await?;
        let failed = |error| failed(connection, &connected, error);
        let asks = self.reader(tasks, connection, &connected);
        let asks = asks.await.map_err(failed)?;
        let (answer, answered) = oneshot::channel();
        let ask = Ask::ListenInGroup {
            purpose: purpose.to_owned(),
            address,
            answer,
        };
        asks.send(ask).await.map_err(|_| failed(AgentError::Lost))?;
        let answer = answered.await.unwrap_or(Err(AgentError::Lost));
        answer.map_err(failed)
    }

    /// The task that reads, which is started if there is none.
    async fn reader(
        &self,
        tasks: &Tasks,
        connection: &Arc<Connection>,
        connected: &Connected,
    ) -> Result<mpsc::Sender<Ask>, AgentError> {
        let mut current = self.0.lock().await;
        if let Some(asks) = current.as_ref().filter(|asks| !asks.is_closed()) {
            return Ok(asks.clone());
        }
        let tunnels = connected.agent.tunnels().await?;
        let (asks, asked) = mpsc::channel(ASKS_MAX);
        let reader = Reader {
            tunnels,
            connected: connected.clone(),
            listeners: HashMap::new(),
            group: None,
        };
        let connection = Arc::clone(connection);
        tasks.spawn(async move {
            let connected = reader.connected.clone();
            if let Err(error) = reader.run(asked).await {
                connection.report(&connected, &error);
            }
        });
        *current = Some(asks.clone());
        Ok(asks)
    }
}

fn failed(connection: &Connection, connected: &Connected, error: AgentError) -> ServiceError {
    connection.report(connected, &error);
    match error {
        AgentError::TooOld { .. } | AgentError::Version { .. } => {
            ServiceError::agent_too_old(&error)
        }
        AgentError::Refused { .. } | AgentError::Lost | AgentError::Protocol(_) => {
            ServiceError::Unavailable {
                reason: "the container could not open a channel; ask again".to_owned(),
                source: Some(Box::new(error)),
            }
        }
    }
}

struct Reader {
    tunnels: Tunnels,
    connected: Connected,
    listeners: HashMap<String, mpsc::Sender<IncomingTunnel>>,
    /// The prefix of a group of purposes, and who takes their connections.
    group: Option<(&'static str, mpsc::Sender<IncomingTunnel>)>,
}

impl Reader {
    async fn run(mut self, mut asks: mpsc::Receiver<Ask>) -> Result<(), AgentError> {
        loop {
            tokio::select! {
                ask = asks.recv() => match ask {
                    None => return Ok(()),
                    Some(ask) => self.answer(ask).await?,
                },
                incoming = self.tunnels.accept() => self.deliver(incoming?),
            }
        }
    }

    async fn answer(&mut self, ask: Ask) -> Result<(), AgentError> {
        match ask {
            Ask::Group {
                prefix,
                incoming,
                answer,
            } => {
                let all = self.tunnels.listeners().iter();
                let all = all.filter(|(purpose, _)| purpose.starts_with(prefix));
                let known = all.map(|(purpose, address)| (purpose.clone(), address.clone()));
                let _ = answer.send(known.collect());
                self.group = Some((prefix, incoming));
                Ok(())
            }
            Ask::ListenInGroup {
                purpose,
                address,
                answer,
            } => {
                let listened = self.listen(&purpose, &address).await;
                let lost = listened.clone().err().filter(|it| *it == AgentError::Lost);
                let _ = answer.send(listened);
                lost.map_or(Ok(()), Err)
            }
            Ask::Listen {
                purpose,
                address,
                incoming,
                answer,
            } => {
                self.listeners.insert(purpose.clone(), incoming);
                let listened = self.listen(&purpose, &address).await;
                if listened.is_err() {
                    self.listeners.remove(&purpose);
                }
                let lost = listened.clone().err().filter(|it| *it == AgentError::Lost);
                let _ = answer.send(listened);
                lost.map_or(Ok(()), Err)
            }
            Ask::Unlisten(purpose) => {
                self.listeners.remove(&purpose);
                match self.tunnels.unlisten(&purpose).await {
                    Err(error @ (AgentError::Lost | AgentError::Protocol(_))) => Err(error),
                    Ok(()) | Err(_) => Ok(()),
                }
            }
        }
    }

    /// One stream of announcements takes only so many purposes; then a new one takes its place.
    async fn listen(&mut self, purpose: &str, address: &TunnelAddress) -> Result<(), AgentError> {
        match self.tunnels.listen(purpose, address).await {
            Err(AgentError::Refused {
                refusal: AgentRefusal::Exhausted,
                ..
            }) => {
                self.tunnels = self.connected.agent.tunnels().await?;
                self.tunnels.listen(purpose, address).await.map(drop)
            }
            listened => listened.map(drop),
        }
    }

    fn deliver(&mut self, incoming: IncomingTunnel) {
        let group = self.group.as_ref();
        let group = group.filter(|(prefix, _)| incoming.purpose().starts_with(prefix));
        let listener = self.listeners.get(incoming.purpose());
        let refused = match listener.or(group.map(|(_, taker)| taker)) {
            None => Some(incoming),
            Some(listener) => listener.try_send(incoming).err().map(|it| match it {
                mpsc::error::TrySendError::Full(incoming)
                | mpsc::error::TrySendError::Closed(incoming) => incoming,
            }),
        };
        if let Some(incoming) = refused {
            tokio::spawn(async move { incoming.refuse().await });
        }
    }
}

impl TunnelListener {
    /// The next connection; `None` if there will be none, because the agent is gone.
    pub(crate) async fn next(&mut self) -> Option<IncomingTunnel> {
        self.incoming.recv().await
    }
}

impl Drop for TunnelListener {
    fn drop(&mut self) {
        // A reader that has ended has no listeners; one that is that busy closes it with its
        // container at the latest.
        let _ = self
            .asks
            .try_send(Ask::Unlisten(std::mem::take(&mut self.purpose)));
    }
}
