//! Connections of `hotcell forward`: from the unix socket to a port of a container.

use hotcell_domain::{Caller, ContainerRef};
use hotcell_mcp::ToolError;
use hotcell_mcp::transport::RawStreams;
use hotcell_service::{PortStream, Service, ServiceError};
use tokio::io::AsyncWriteExt as _;
use tokio::net::UnixStream;

/// Serves connections of `hotcell forward`.
#[derive(Clone)]
pub(super) struct PortForwarder {
    service: Service,
}

impl PortForwarder {
    pub(super) fn new(service: Service) -> Self {
        Self { service }
    }

    /// The connection that a client wants, as `CONTAINER PORT`; `None` for port 0, by which it
    /// only asks whether there could be one.
    async fn open(
        &self,
        caller: &Caller,
        wanted: &str,
    ) -> Result<Option<PortStream>, ServiceError> {
        let (container, port) = parse(wanted).ok_or_else(|| ServiceError::Invalid {
            reason: "a connection names a container and a port".to_owned(),
        })?;
        if port == 0 {
            self.service.may_open_ports(caller, &container).await?;
            return Ok(None);
        }
        let opened = self.service.open_port(caller, &container, port).await?;
        Ok(Some(opened))
    }
}

impl RawStreams for PortForwarder {
    async fn serve(&self, caller: Caller, wanted: String, mut stream: UnixStream) {
        match self.open(&caller, &wanted).await {
            Ok(inside) => {
                if stream.write_all(b"OK\n").await.is_err() {
                    return;
                }
                if let Some(mut inside) = inside {
                    // Either side may break off at any time.
                    let _ = tokio::io::copy_bidirectional(&mut stream, &mut inside).await;
                }
            }
            Err(error) => {
                let error = ToolError::from(error).to_json();
                let message = error["message"].as_str().unwrap_or("could not connect");
                let line = message.replace('\n', " ") + "\n";
                let _ = stream.write_all(line.as_bytes()).await;
            }
        }
    }
}

fn parse(wanted: &str) -> Option<(ContainerRef, u16)> {
    let (container, port) = wanted.split_once(' ')?;
    Some((ContainerRef::parse(container)?, port.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_connection_names_a_container_and_a_port() {
        assert!(parse("web 80").is_some());
        for wrong in ["web", "web 65536", "web -1", "web 80 81", ""] {
            assert!(parse(wrong).is_none(), "{wrong}");
        }
    }
}
