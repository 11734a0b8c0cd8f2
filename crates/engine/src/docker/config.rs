//! Which engine to use, its address, and the scope of our containers in it.

use std::fmt;
use std::net::IpAddr;
use std::path::{Path, PathBuf};

/// Settings of the engine.
#[derive(Debug, Clone)]
pub struct DockerConfig {
    /// Docker or Podman.
    pub flavor: Flavor,
    /// The address of its API.
    pub host: Host,
    /// The OCI runtime to use, `runsc` say; `None` is the engine's default.
    pub runtime: Option<String>,
    /// Marks our containers. Two servers on one engine have different scopes.
    pub scope: String,
    /// The agent's static binary.
    pub agent: &'static [u8],
    /// Refuse to create a container if one of its limits cannot be enforced.
    pub require_limits: bool,
}

/// Which of the engines that speak this API.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Flavor {
    /// Docker.
    Docker,
    /// Podman, through its Docker-compatible API.
    Podman,
}

/// The address of an engine's API.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Host {
    /// A unix socket of this host.
    Unix(PathBuf),
    /// Plain HTTP, as `host:port`. Whoever can connect is root on that host.
    Tcp(String),
    /// Mutual TLS, as `host:port`.
    Tls {
        /// The address, as `host:port`.
        address: String,
        /// Our certificate and the trusted authority.
        tls: Tls,
    },
}

/// The files of a TLS client.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Tls {
    /// The trusted certificate authority, as PEM.
    pub ca: PathBuf,
    /// Our certificate, as PEM.
    pub cert: PathBuf,
    /// Our private key, as PEM.
    pub key: PathBuf,
}

/// A text that is not an engine's address.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "not an engine's address; write unix:///path or tcp://host:port (for Docker with TLS, set DOCKER_TLS_VERIFY=1 and DOCKER_CERT_PATH too)"
)]
pub struct HostError;

impl Flavor {
    /// The name on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Self::Docker => "docker",
            Self::Podman => "podman",
        }
    }

    /// Advice for when it does not answer.
    pub fn hint(self) -> &'static str {
        match self {
            Self::Docker => {
                "start Docker (`systemctl start docker`), or say where it is with DOCKER_HOST"
            }
            Self::Podman => {
                "start Podman's socket (`systemctl --user start podman.socket`, or without --user as root), or say where it is with CONTAINER_HOST"
            }
        }
    }
}

impl Host {
    /// Parses an address in the format of `DOCKER_HOST`; `tcp` becomes TLS if there is a directory
    /// with `ca.pem`, `cert.pem` and `key.pem`.
    pub fn parse(text: &str, certificates: Option<&Path>) -> Result<Self, HostError> {
        if let Some(path) = text.strip_prefix("unix://") {
            let path = PathBuf::from(path);
            return path
                .is_absolute()
                .then_some(Self::Unix(path))
                .ok_or(HostError);
        }
        let (scheme, address) = text.split_once("://").ok_or(HostError)?;
        let address = address.trim_end_matches('/');
        let legal = |c: char| c.is_ascii_alphanumeric() || ".-_:[]".contains(c);
        if address.is_empty() || !address.chars().all(legal) {
            return Err(HostError);
        }
        let address = address.to_owned();
        match (scheme, certificates) {
            ("tcp" | "http", None) => Ok(Self::Tcp(address)),
            ("tcp" | "https", Some(directory)) => Ok(Self::Tls {
                address,
                tls: Tls {
                    ca: directory.join("ca.pem"),
                    cert: directory.join("cert.pem"),
                    key: directory.join("key.pem"),
                },
            }),
            _ => Err(HostError),
        }
    }

    /// Whether the connection stays on this host.
    pub fn is_loopback(&self) -> bool {
        let address = match self {
            Self::Unix(_) => return true,
            Self::Tcp(address) | Self::Tls { address, .. } => address,
        };
        let is_loopback = |name: &str| {
            let ip = name.parse::<IpAddr>();
            name == "localhost" || ip.is_ok_and(|ip| ip.is_loopback())
        };
        // An IPv6 address contains colons, and is in brackets before a port.
        let without_port = address
            .rsplit_once(':')
            .map_or(&**address, |(name, _)| name);
        let bare = without_port.trim_start_matches('[').trim_end_matches(']');
        is_loopback(address) || is_loopback(bare)
    }

    /// Whether the engine's processes may run on this host.
    pub(super) fn may_be_local(&self) -> bool {
        matches!(self, Self::Unix(_))
    }
}

/// The form for logs, the store and users: without credentials that an address may contain.
impl fmt::Display for Host {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let bare = |address: &str| {
            let (_, bare) = address.rsplit_once('@').unwrap_or(("", address));
            bare.to_owned()
        };
        match self {
            Self::Unix(path) => write!(f, "unix://{}", path.display()),
            Self::Tcp(address) => write!(f, "tcp://{}", bare(address)),
            Self::Tls { address, .. } => write!(f, "https://{}", bare(address)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_told_apart() {
        let socket = Host::Unix("/run/docker.sock".into());
        assert_eq!(Host::parse("unix:///run/docker.sock", None), Ok(socket));
        let plain = Host::Tcp("10.0.0.1:2375".into());
        assert_eq!(Host::parse("tcp://10.0.0.1:2375", None), Ok(plain));
        let directory = Path::new("/certs");
        for text in ["tcp://a:2376", "https://a:2376/"] {
            let host = Host::parse(text, Some(directory)).expect("it is one");
            assert_eq!(host.to_string(), "https://a:2376");
        }
    }

    #[test]
    fn no_credentials_are_told() {
        let text = "tcp://ann:secret@far:2375";
        assert_eq!(Host::parse(text, None), Err(HostError));
        let host = Host::Tcp("ann:secret@far:2375".to_owned());
        assert_eq!(host.to_string(), "tcp://far:2375");
    }

    #[test]
    fn only_this_host_is_the_loopback() {
        let is_loopback = |address: &str| Host::Tcp(address.to_owned()).is_loopback();
        for near in [
            "127.0.0.1:2375",
            "localhost:1",
            "[::1]:2375",
            "127.1.2.3",
            "::1",
        ] {
            assert!(is_loopback(near), "{near}");
        }
        for far in [
            "10.0.0.1:2375",
            "docker:2375",
            "localhost.evil:1",
            "127.0.0.1.evil:1",
            "0.0.0.0:1",
        ] {
            assert!(!is_loopback(far), "{far}");
        }
    }

    #[test]
    fn what_is_no_address_is_refused() {
        for text in [
            "",
            "docker",
            "unix://relative",
            "ssh://a",
            "tcp://",
            "tcp://a/b",
            "https://a:1",
        ] {
            assert_eq!(Host::parse(text, None), Err(HostError), "{text}");
        }
    }
}
