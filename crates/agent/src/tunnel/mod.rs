//! Tunnels: byte streams between a process of the container and the server.
//!
//! ```text
//!  process ─ connect ─▶ listener of a purpose ─▶ waits ─ TunnelEvents: incoming ─▶ server
//!                                                  │ ◀─ Tunnel: accept, refuse ──────┘
//!                                                  └──▶ pump ◀═ Tunnel: data, end ═▶ server
//!  process ◀─ connect ─ pump ◀═ Tunnel: open, data, end ═▶ server
//!  process ◀─ datagram ─▶ socket of a purpose ◀═ Tunnel: datagrams, data ═▶ server
//! ```
//!
//! Listeners and waiting connections belong to the agent and outlive a connection of the server.
//! An open tunnel belongs to its call and ends with it.

mod address;
mod datagrams;
mod events;
mod pump;
mod socket;

use std::collections::BTreeMap;
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::Waker;
use std::time::Duration;

use hotcell_agent_api::bounds::{TUNNEL_LISTENERS_MAX, TUNNEL_WAIT_MS_MAX, TUNNELS_MAX};
use hotcell_agent_api::v1::tunnel_request::Request;
use hotcell_agent_api::v1::{
    TunnelAddress, TunnelListenReply, TunnelListenRequest, TunnelListener, TunnelRequest,
};
use rustix::io::Errno;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::task::AbortHandle;
use tonic::{Status, Streaming};

use self::address::{LocalAddress, parse_purpose};
use self::datagrams::DatagramSocket;
use self::socket::{LocalListener, LocalSocket};
use crate::log;

pub(crate) use self::events::Events;
pub(crate) use self::pump::Replies;

/// How long connecting to an address inside may take: a listener may never accept.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);

/// The pause after a failed accept, for example when out of descriptors.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

#[derive(Debug, thiserror::Error)]
pub(crate) enum TunnelError {
    #[error("{0}")]
    Request(&'static str),
    #[error("no connection with this id waits")]
    NotWaiting,
    #[error("nothing listens for this purpose")]
    NotListening,
    #[error("the purpose is bound to another address")]
    Exists,
    #[error("the agent has as many {0} as it can")]
    Full(&'static str),
    #[error("could not {step}: {source}")]
    Os {
        step: &'static str,
        source: io::Error,
    },
    #[error("the address does not accept connections")]
    TimedOut,
}

/// The listeners, and the connections that wait for the server.
#[derive(Clone, Debug)]
pub(crate) struct Tunnels {
    state: Arc<Mutex<State>>,
    /// One per waiting or open connection.
    permits: Arc<Semaphore>,
}

#[derive(Debug, Default)]
struct State {
    listeners: BTreeMap<String, Listener>,
    waiting: BTreeMap<u64, Waiting>,
    /// The id of the newest connection.
    last_id: u64,
    /// The number of the current `TunnelEvents` call; 0 before the first.
    watcher: u64,
    waker: Option<Waker>,
}

#[derive(Debug)]
struct Listener {
    address: LocalAddress,
    receiver: Receiver,
}

/// What receives for a listener.
#[derive(Debug)]
enum Receiver {
    /// The task that accepts connections.
    Connections(AbortHandle),
    Datagrams(DatagramSocket),
}

impl Drop for Listener {
    fn drop(&mut self) {
        if let Receiver::Connections(task) = &self.receiver {
            task.abort();
        }
    }
}

/// A connection that the server has not accepted yet.
#[derive(Debug)]
struct Waiting {
    purpose: String,
    socket: LocalSocket,
    permit: OwnedSemaphorePermit,
    _timer: Timer,
}

/// Resets a connection that has waited too long. Dropping it cancels that.
#[derive(Debug)]
struct Timer(AbortHandle);

impl Drop for Timer {
    fn drop(&mut self) {
        self.0.abort();
    }
}

impl Tunnels {
    pub(crate) fn new() -> Self {
        Self {
            state: Arc::default(),
            permits: Arc::new(Semaphore::new(TUNNELS_MAX)),
        }
    }

    /// Listens on an address for a purpose, until [`Tunnels::unlisten`].
    pub(crate) fn listen(
        &self,
        request: TunnelListenRequest,
    ) -> Result<TunnelListenReply, TunnelError> {
        let purpose = parse_purpose(request.purpose)?;
        let asked = LocalAddress::parse(request.address)?;
        let mut state = self.lock();
        let address = match state.listeners.get(&purpose) {
            Some(listener) if asked.is_served_by(&listener.address) => listener.address.clone(),
            Some(_) => return Err(TunnelError::Exists),
            None if state.listeners.len() >= TUNNEL_LISTENERS_MAX => {
                return Err(TunnelError::Full("listeners"));
            }
            None => self.bind(&mut state, purpose, &asked)?,
        };
        Ok(TunnelListenReply {
            address: Some(TunnelAddress::from(&address)),
        })
    }

    fn bind(
        &self,
        state: &mut State,
        purpose: String,
        asked: &LocalAddress,
    ) -> Result<LocalAddress, TunnelError> {
        let os = |source| TunnelError::Os {
            step: "listen",
            source,
        };
        let (address, receiver) = if let LocalAddress::Udp(udp) = asked {
            let socket = DatagramSocket::bind(*udp).map_err(os)?;
            let address = LocalAddress::Udp(socket.address().map_err(os)?);
            (address, Receiver::Datagrams(socket))
        } else {
            let listener = LocalListener::bind(asked).map_err(os)?;
            let address = listener.address().map_err(os)?;
            let accepting = accept_for_ever(self.clone(), listener, purpose.clone());
            let task = tokio::spawn(accepting).abort_handle();
            (address, Receiver::Connections(task))
        };
        let listener = Listener {
            address: address.clone(),
            receiver,
        };
        state.listeners.insert(purpose, listener);
        Ok(address)
    }

    /// Closes the listener of a purpose and resets its waiting connections.
    pub(crate) fn unlisten(&self, purpose: &str) -> Result<(), TunnelError> {
        let mut state = self.lock();
        let listener = state.listeners.remove(purpose);
        state
            .waiting
            .retain(|_, waiting| waiting.purpose != purpose);
        listener.map(drop).ok_or(TunnelError::NotListening)
    }

    /// Incoming connections; the newest call replaces the previous one.
    pub(crate) fn events(&self) -> Events {
        Events::new(self)
    }

    /// Serves one `Tunnel` call; its first request decides what it does.
    pub(crate) async fn serve(
        &self,
        mut requests: Streaming<TunnelRequest>,
    ) -> Result<Replies, Status> {
        let first = requests.message().await?.and_then(|first| first.request);
        let (socket, permit) = match first {
            Some(Request::Accept(id)) => self.take(id)?,
            Some(Request::Refuse(id)) => {
                drop(self.take(id)?);
                return Ok(pump::nothing());
            }
            Some(Request::Open(address)) => self.connect(Some(address)).await?,
            Some(Request::Datagrams(purpose)) => {
                let socket = self.datagrams(&purpose)?;
                return Ok(socket.serve(requests, self.permit()?));
            }
            Some(Request::Data(_) | Request::End(_)) | None => {
                let reason = "the first request must be accept, refuse, open or datagrams";
                return Err(TunnelError::Request(reason).into());
            }
        };
        Ok(pump::start(socket, requests, permit))
    }

    /// Removes a waiting connection, to serve or drop it.
    fn take(&self, id: u64) -> Result<(LocalSocket, OwnedSemaphorePermit), TunnelError> {
        let waiting = self.lock().waiting.remove(&id);
        let Waiting { socket, permit, .. } = waiting.ok_or(TunnelError::NotWaiting)?;
        Ok((socket, permit))
    }

    async fn connect(
        &self,
        address: Option<TunnelAddress>,
    ) -> Result<(LocalSocket, OwnedSemaphorePermit), TunnelError> {
        let address = LocalAddress::parse(address)?;
        let permit = self.permit()?;
        let connecting = tokio::time::timeout(CONNECT_TIMEOUT, LocalSocket::connect(&address));
        let socket = connecting.await.map_err(|_| TunnelError::TimedOut)?;
        let socket = socket.map_err(|source| TunnelError::Os {
            step: "connect",
            source,
        })?;
        Ok((socket, permit))
    }

    fn permit(&self) -> Result<OwnedSemaphorePermit, TunnelError> {
        let permit = Arc::clone(&self.permits).try_acquire_owned();
        permit.map_err(|_| TunnelError::Full("tunnels"))
    }

    fn datagrams(&self, purpose: &str) -> Result<DatagramSocket, TunnelError> {
        let state = self.lock();
        match state.listeners.get(purpose).map(|it| &it.receiver) {
            Some(Receiver::Datagrams(socket)) => Ok(socket.clone()),
            Some(Receiver::Connections(_)) => {
                Err(TunnelError::Request("the purpose has connections"))
            }
            None => Err(TunnelError::NotListening),
        }
    }

    /// Adds a connection that waits for the server.
    fn add(&self, purpose: &str, socket: LocalSocket, permit: OwnedSemaphorePermit) {
        let mut state = self.lock();
        // The listener was closed meanwhile; its accepted connections are reset too.
        if !state.listeners.contains_key(purpose) {
            return;
        }
        state.last_id += 1;
        let id = state.last_id;
        let tunnels = self.clone();
        let timer = tokio::spawn(async move {
            tokio::time::sleep(Duration::from_millis(TUNNEL_WAIT_MS_MAX)).await;
            drop(tunnels.lock().waiting.remove(&id));
        });
        let waiting = Waiting {
            purpose: purpose.to_owned(),
            socket,
            permit,
            _timer: Timer(timer.abort_handle()),
        };
        state.waiting.insert(id, waiting);
        assert!(
            state.waiting.len() <= TUNNELS_MAX,
            "each connection that waits has a permit"
        );
        state.wake();
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn table(&self) -> Vec<TunnelListener> {
        let entry = |(purpose, listener): (&String, &Listener)| TunnelListener {
            purpose: purpose.clone(),
            address: Some(TunnelAddress::from(&listener.address)),
        };
        self.listeners.iter().map(entry).collect()
    }

    fn wake(&mut self) {
        if let Some(waker) = self.waker.take() {
            waker.wake();
        }
    }
}

/// Accepts connections while there is room. When there is none, one more is accepted and the others
/// stay in the backlog.
async fn accept_for_ever(tunnels: Tunnels, listener: LocalListener, purpose: String) {
    loop {
        match listener.accept().await {
            Ok(socket) => {
                let permit = Arc::clone(&tunnels.permits).acquire_owned().await;
                let Ok(permit) = permit else { return };
                tunnels.add(&purpose, socket, permit);
            }
            Err(error) => {
                log::line(format_args!("could not accept for a tunnel: {error}"));
                tokio::time::sleep(ACCEPT_PAUSE).await;
            }
        }
    }
}

impl From<TunnelError> for Status {
    fn from(error: TunnelError) -> Self {
        let message = error.to_string();
        match error {
            TunnelError::Request(_) => Self::invalid_argument(message),
            TunnelError::NotWaiting | TunnelError::NotListening => Self::not_found(message),
            TunnelError::Exists => Self::already_exists(message),
            TunnelError::Full(_) => Self::resource_exhausted(message),
            TunnelError::TimedOut => Self::failed_precondition(message),
            TunnelError::Os { source, .. } => match Errno::from_io_error(&source) {
                Some(Errno::ADDRINUSE) => Self::already_exists(message),
                Some(Errno::CONNREFUSED | Errno::NOENT) => Self::not_found(message),
                Some(Errno::ACCESS | Errno::PERM) => Self::permission_denied(message),
                Some(Errno::MFILE | Errno::NFILE | Errno::NOBUFS | Errno::NOMEM) => {
                    Self::resource_exhausted(message)
                }
                _ => Self::internal(message),
            },
        }
    }
}
