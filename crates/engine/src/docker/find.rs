//! Finds the sockets of Docker and Podman, or the reason why they cannot be reached.

use std::path::{Path, PathBuf};

use super::config::{Flavor, Host, HostError};
use super::probe::{About, about};
use crate::EngineSetup;

/// Docker's usual socket, and Podman's for root.
const DOCKER_SOCKET: &str = "/var/run/docker.sock";
const PODMAN_SOCKET: &str = "/run/podman/podman.sock";

/// An engine that answered.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct ReachableEngine {
    pub(super) host: Host,
    pub(super) about: About,
}

/// Why an engine of this kind cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(super) enum UnreachableEngine {
    /// There is no socket at the usual paths.
    #[error("no socket found")]
    NoSocket,
    /// We have no permission to use its socket.
    #[error("we may not use {host}")]
    Denied { host: Host },
    /// It does not answer, or the answer is not an engine's.
    #[error("{host} does not answer: {cause}")]
    Silent {
        host: Host,
        /// The innermost cause, which helps most.
        cause: String,
    },
    /// The variable that names its address cannot be parsed.
    #[error("{variable}={value}: {error}")]
    Address {
        variable: &'static str,
        value: String,
        error: HostError,
    },
    /// The connection is not encrypted: whoever can intercept it becomes root on that host.
    #[error("{host} is another host, and the way there is not encrypted")]
    Plain { host: Host },
}

impl UnreachableEngine {
    /// How the operator can fix it.
    pub(super) fn fix(&self, flavor: Flavor) -> &'static str {
        match (self, flavor) {
            (Self::Denied { .. }, Flavor::Docker) => {
                "become a member of the socket's group (`usermod -aG docker $USER`, then log in again); that makes you root in all but name"
            }
            (Self::Denied { .. }, Flavor::Podman) => {
                "use a socket of your own: `systemctl --user start podman.socket`"
            }
            (Self::Address { .. }, _) => "correct the variable, or unset it",
            (Self::Plain { .. }, Flavor::Podman) => {
                "use a tunnel (`ssh -L`) and tcp://127.0.0.1:PORT, or say --allow-plain-tcp if the network is yours alone"
            }
            (Self::Plain { .. }, Flavor::Docker) => {
                "use TLS (DOCKER_TLS_VERIFY=1 and DOCKER_CERT_PATH) or a tunnel (`ssh -L`), or say --allow-plain-tcp if the network is yours alone"
            }
            (
                Self::Silent {
                    host: Host::Tls { .. },
                    ..
                },
                _,
            ) => {
                "see that it runs, and that ca.pem, cert.pem and key.pem in DOCKER_CERT_PATH are those that it knows"
            }
            (Self::NoSocket | Self::Silent { .. }, flavor) => flavor.hint(),
        }
    }
}

/// The first engine of this kind that answers, or why none does.
pub(super) async fn find(
    flavor: Flavor,
    setup: &EngineSetup,
) -> Result<ReachableEngine, UnreachableEngine> {
    let mut seen = UnreachableEngine::NoSocket;
    for host in hosts(flavor, |name| std::env::var(name).ok())? {
        match &host {
            Host::Unix(path) if !path.exists() && !is_named(flavor) => continue,
            Host::Tcp(_) if !host.is_loopback() && !setup.allow_plain_tcp => {
                return Err(UnreachableEngine::Plain { host });
            }
            Host::Unix(_) | Host::Tcp(_) | Host::Tls { .. } => {}
        }
        match about(flavor, &host).await {
            Ok(about) => return Ok(ReachableEngine { host, about }),
            Err(error) => seen = absent(host, &error),
        }
    }
    Err(seen)
}

fn absent(host: Host, error: &(dyn std::error::Error + 'static)) -> UnreachableEngine {
    let (mut cause, mut is_denied) = (error, false);
    while let Some(source) = cause.source() {
        cause = source;
        let kind = cause.downcast_ref().map(std::io::Error::kind);
        is_denied |= kind == Some(std::io::ErrorKind::PermissionDenied);
    }
    if is_denied {
        return UnreachableEngine::Denied { host };
    }
    let cause = cause.to_string();
    UnreachableEngine::Silent { host, cause }
}

/// The variable that names the address of an engine of this kind.
fn variable_of(flavor: Flavor) -> &'static str {
    match flavor {
        Flavor::Docker => "DOCKER_HOST",
        Flavor::Podman => "CONTAINER_HOST",
    }
}

fn is_named(flavor: Flavor) -> bool {
    std::env::var_os(variable_of(flavor)).is_some_and(|host| !host.is_empty())
}

/// The addresses to try: only that in the environment if there is one, else the usual sockets,
/// the user's own first.
fn hosts(
    flavor: Flavor,
    variable: impl Fn(&str) -> Option<String>,
) -> Result<Vec<Host>, UnreachableEngine> {
    let name = variable_of(flavor);
    if let Some(value) = variable(name).filter(|value| !value.is_empty()) {
        let certificates = certificates(flavor, &variable);
        return match Host::parse(&value, certificates.as_deref()) {
            Ok(host) => Ok(vec![host]),
            Err(error) => Err(UnreachableEngine::Address {
                variable: name,
                value,
                error,
            }),
        };
    }
    let user = variable("XDG_RUNTIME_DIR").map(PathBuf::from);
    let (of_user, of_host) = match flavor {
        Flavor::Docker => ("docker.sock", DOCKER_SOCKET),
        Flavor::Podman => ("podman/podman.sock", PODMAN_SOCKET),
    };
    let of_user = user.map(|directory| Host::Unix(directory.join(of_user)));
    let of_host = Host::Unix(Path::new(of_host).to_owned());
    Ok(of_user.into_iter().chain([of_host]).collect())
}

/// The directory of Docker's client certificates, if `DOCKER_TLS_VERIFY` asks for them.
fn certificates(flavor: Flavor, variable: &impl Fn(&str) -> Option<String>) -> Option<PathBuf> {
    let told = |name: &str| variable(name).filter(|value| !value.is_empty());
    if flavor != Flavor::Docker || told("DOCKER_TLS_VERIFY").is_none() {
        return None;
    }
    let named = told("DOCKER_CERT_PATH").map(PathBuf::from);
    named.or_else(|| Some(Path::new(&told("HOME")?).join(".docker")))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn listed(
        flavor: Flavor,
        variables: &[(&str, &str)],
    ) -> Result<Vec<String>, UnreachableEngine> {
        let variable = |name: &str| {
            let found = variables.iter().find(|(known, _)| *known == name);
            found.map(|(_, value)| (*value).to_owned())
        };
        let hosts = hosts(flavor, variable)?;
        Ok(hosts.iter().map(ToString::to_string).collect())
    }

    #[test]
    fn the_environment_says_where_to_look_and_nowhere_else() {
        let tls = [
            ("DOCKER_HOST", "tcp://far:2376"),
            ("DOCKER_TLS_VERIFY", "1"),
            ("DOCKER_CERT_PATH", "/certs"),
            ("XDG_RUNTIME_DIR", "/run/user/1"),
        ];
        let hosts = listed(Flavor::Docker, &tls);
        assert_eq!(hosts, Ok(vec!["https://far:2376".to_owned()]));
        let usual = [
            "unix:///run/user/1/podman/podman.sock",
            "unix:///run/podman/podman.sock",
        ];
        assert_eq!(
            listed(Flavor::Podman, &tls),
            Ok(usual.map(str::to_owned).into())
        );
    }

    #[test]
    fn an_address_that_is_none_is_no_reason_to_look_elsewhere() {
        let refused = listed(Flavor::Docker, &[("DOCKER_HOST", "ssh://far")]);
        let refused = refused.expect_err("it is none").to_string();
        assert!(
            refused.starts_with("DOCKER_HOST=ssh://far: not an engine's address"),
            "{refused}"
        );
        let empty = listed(Flavor::Docker, &[("DOCKER_HOST", "")]);
        assert_eq!(empty, Ok(vec!["unix:///var/run/docker.sock".to_owned()]));
    }
}
