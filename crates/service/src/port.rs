//! Connections into a container: to a server that listens on a port inside.

use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use hotcell_agent_client::{AgentError, TunnelAddress, TunnelStream};
use hotcell_domain::{Caller, ContainerRef};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::sync::OwnedSemaphorePermit;

use crate::container::LiveContainer;
use crate::{Action, Inner, Service, ServiceError};

/// Connections into containers that are open at the same time. Each costs a few buffers on both
/// sides.
pub(crate) const PORT_STREAMS_MAX: usize = 256;

/// A connection to a port inside. Dropping it resets it.
pub struct PortStream {
    stream: TunnelStream,
    _permit: OwnedSemaphorePermit,
}

impl Service {
    /// Connects to a port of a container. Only its owner and an admin can, where the operator has
    /// allowed it; to anyone else the container does not exist.
    pub async fn open_port(
        &self,
        caller: &Caller,
        target: &ContainerRef,
        port: u16,
    ) -> Result<PortStream, ServiceError> {
        let (mut operation, inner) = self.begin(caller, Action::Attach, target);
        operation.note(|arguments| arguments.number("port", port.into()));
        operation.run(inner.open_port(caller, target, port)).await
    }

    /// Whether [`Service::open_port`] would find the container.
    pub async fn may_open_ports(
        &self,
        caller: &Caller,
        target: &ContainerRef,
    ) -> Result<(), ServiceError> {
        let (operation, inner) = self.begin(caller, Action::ShowContainer, target);
        let found = async { inner.container_with_ports(caller, target).await.map(drop) };
        operation.run(found).await
    }
}

impl Inner {
    async fn open_port(
        &self,
        caller: &Caller,
        target: &ContainerRef,
        port: u16,
    ) -> Result<PortStream, ServiceError> {
        let container = self.container_with_ports(caller, target).await?;
        let permits = &self.environment.port_streams;
        let permit = Arc::clone(permits).try_acquire_owned();
        let permit = permit.map_err(|_| ServiceError::Exhausted {
            reason: format!(
                "{PORT_STREAMS_MAX} connections into containers are open, which is the bound"
            ),
        })?;
        // A server may listen on one of them only.
        for ip in [Ipv4Addr::LOCALHOST.into(), Ipv6Addr::LOCALHOST.into()] {
            let address = TunnelAddress::Tcp(SocketAddr::new(ip, port));
            let connected = container.connection().get().await?;
            match connected.agent.open_tunnel(&address).await {
                Ok(stream) => {
                    return Ok(PortStream {
                        stream,
                        _permit: permit,
                    });
                }
                Err(error) if error.is_not_found() => {}
                Err(error) => {
                    container.connection().report(&connected, &error);
                    return Err(failed(error, port));
                }
            }
        }
        Err(ServiceError::Unavailable {
            reason: format!("nothing listens on port {port} in this container"),
            source: None,
        })
    }

    /// A running container whose ports this caller may connect to.
    async fn container_with_ports(
        &self,
        caller: &Caller,
        target: &ContainerRef,
    ) -> Result<Arc<LiveContainer>, ServiceError> {
        // Found first: what a stranger is told does not depend on the setting.
        let container = self.own_or_any(caller, target).await?;
        if self.environment.settings().allow_ports {
            return Ok(container);
        }
        Err(ServiceError::Denied {
            reason: "ports of containers cannot be reached: the operator has not set `allow_ports` of [policy] (--allow-ports)".to_owned(),
        })
    }

    /// A running container of this caller; for an admin, of anyone.
    async fn own_or_any(
        &self,
        caller: &Caller,
        target: &ContainerRef,
    ) -> Result<Arc<LiveContainer>, ServiceError> {
        let found = self.running_container(caller, target).await;
        let (Err(ServiceError::NotFound { .. }), ContainerRef::Id(id)) = (&found, target) else {
            return found;
        };
        let foreign = self.registry.get(id).filter(|_| caller.is_admin);
        let Some(foreign) = foreign else {
            return found;
        };
        let owner = Caller {
            principal: foreign.row.principal.clone(),
            ..caller.clone()
        };
        self.running_container(&owner, target).await
    }
}

fn failed(error: AgentError, port: u16) -> ServiceError {
    match error {
        AgentError::TooOld { .. } | AgentError::Version { .. } => {
            ServiceError::agent_too_old(&error)
        }
        AgentError::Refused { .. } | AgentError::Lost | AgentError::Protocol(_) => {
            ServiceError::Unavailable {
                reason: format!("could not connect to port {port} in this container"),
                source: Some(Box::new(error)),
            }
        }
    }
}

impl AsyncRead for PortStream {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<std::io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(cx, buf)
    }
}

impl AsyncWrite for PortStream {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        data: &[u8],
    ) -> Poll<std::io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(cx, data)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<std::io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<std::io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}
