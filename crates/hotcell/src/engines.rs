//! Which engines this host has, and which one `auto` takes.

use std::fmt;
use std::path::{Path, PathBuf};

use hotcell_engine::docker::{About, Flavor, Host, HostError, about};

use crate::cli::EngineArgs;

/// Docker's usual socket, and Podman's for root.
const DOCKER_SOCKET: &str = "/var/run/docker.sock";
const PODMAN_SOCKET: &str = "/run/podman/podman.sock";

/// Why the embedded engine is taken wherever it can be.
pub(crate) const EMBEDDED_WORKS: &str = "the embedded engine works here and is the fastest";

/// An engine that answered.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ReachableEngine {
    pub(crate) host: Host,
    pub(crate) about: About,
}

/// What `auto` takes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum ChosenEngine {
    /// The engine in this program.
    Embedded,
    /// Docker or Podman.
    Api(Flavor, Box<ReachableEngine>),
}

impl ChosenEngine {
    /// The engine's name as users write it.
    pub(crate) fn name(&self) -> &'static str {
        match self {
            Self::Embedded => "embedded",
            Self::Api(flavor, _) => flavor.name(),
        }
    }
}

/// A choice, and why it is this one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Choice {
    pub(crate) chosen: ChosenEngine,
    pub(crate) reason: String,
}

/// There is no engine to take; each with its reason.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct NoEngine {
    embedded: String,
    docker: String,
    podman: String,
}

impl fmt::Display for NoEngine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "no engine works here: embedded ({}); Docker ({}); Podman ({})",
            self.embedded, self.docker, self.podman
        )
    }
}

impl std::error::Error for NoEngine {}

/// Decides for `auto`: the embedded engine if it works, else Docker, else Podman.
pub(crate) fn choose(
    embedded: Result<(), String>,
    docker: Result<ReachableEngine, UnreachableEngine>,
    podman: Result<ReachableEngine, UnreachableEngine>,
) -> Result<Choice, NoEngine> {
    let embedded = match embedded {
        Ok(()) => {
            return Ok(Choice {
                chosen: ChosenEngine::Embedded,
                reason: EMBEDDED_WORKS.to_owned(),
            });
        }
        Err(why) => why,
    };
    let docker = match docker {
        Ok(found) => {
            let reason =
                format!("the embedded engine does not work here ({embedded}); Docker does");
            return Ok(taken(Flavor::Docker, found, reason));
        }
        Err(why) => why.to_string(),
    };
    match podman {
        Ok(found) => {
            let reason = format!(
                "the embedded engine does not work here ({embedded}), nor Docker ({docker}); Podman does"
            );
            Ok(taken(Flavor::Podman, found, reason))
        }
        Err(podman) => Err(NoEngine {
            embedded,
            docker,
            podman: podman.to_string(),
        }),
    }
}

fn taken(flavor: Flavor, found: ReachableEngine, reason: String) -> Choice {
    Choice {
        chosen: ChosenEngine::Api(flavor, Box::new(found)),
        reason,
    }
}

/// Why an engine of some kind cannot be had.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum UnreachableEngine {
    /// Nothing is where it usually is.
    #[error("no socket found")]
    NoSocket,
    /// It is there, and not for us.
    #[error("we may not use {host}")]
    Denied {
        /// Where.
        host: Host,
    },
    /// It does not answer as it should.
    #[error("{host} does not answer: {cause}")]
    Silent {
        /// Where.
        host: Host,
        /// The innermost reason, which is the one that helps.
        cause: String,
    },
    /// The environment says where it is, but not so that it can be understood.
    #[error("{variable}={value}: {error}")]
    Address {
        /// Which variable.
        variable: &'static str,
        /// What it says.
        value: String,
        /// What is wrong with it.
        error: HostError,
    },
    /// Whoever is on the way there could do what the engine can, which is everything.
    #[error("{host} is another host, and the way there is not encrypted")]
    Plain {
        /// Where.
        host: Host,
    },
}

impl UnreachableEngine {
    /// What the operator can do about it.
    pub(crate) fn fix(&self, flavor: Flavor) -> &'static str {
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

/// The first engine of that kind that answers, or why none does.
pub(crate) async fn find(
    flavor: Flavor,
    access: &EngineArgs,
) -> Result<ReachableEngine, UnreachableEngine> {
    let mut seen = UnreachableEngine::NoSocket;
    for host in hosts(flavor, |name| std::env::var(name).ok())? {
        match &host {
            Host::Unix(path) if !path.exists() && !is_named(flavor) => continue,
            Host::Tcp(_) if !host.is_loopback() && !access.allow_plain_tcp => {
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

/// The variable that says where an engine of that kind is.
fn variable_of(flavor: Flavor) -> &'static str {
    match flavor {
        Flavor::Docker => "DOCKER_HOST",
        Flavor::Podman => "CONTAINER_HOST",
    }
}

fn is_named(flavor: Flavor) -> bool {
    std::env::var_os(variable_of(flavor)).is_some_and(|host| !host.is_empty())
}

/// Where an engine of that kind may be: where the environment says, and nowhere else; if it
/// says nothing, at its usual sockets, the user's own first.
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

/// Where Docker's own client keeps its certificates, if it is told to use them.
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
    use hotcell_engine::Enforced;

    fn found() -> ReachableEngine {
        ReachableEngine {
            host: Host::Unix("/s".into()),
            about: About {
                version: "1".into(),
                api_version: "1.41".into(),
                is_rootless: false,
                cgroup_version: "2".into(),
                runtimes: Vec::new(),
                default_runtime: "runc".into(),
                has_seccomp: true,
                enforced: Enforced::NOTHING,
            },
        }
    }

    fn broken() -> Result<(), String> {
        Err("no user namespaces".to_owned())
    }

    fn none() -> Result<ReachableEngine, UnreachableEngine> {
        Err(UnreachableEngine::NoSocket)
    }

    #[test]
    fn embedded_comes_first_then_docker_then_podman() {
        let chosen = |embedded, docker, podman| choose(embedded, docker, podman).map(|c| c.chosen);
        let api = |flavor| Ok(ChosenEngine::Api(flavor, Box::new(found())));
        assert_eq!(
            chosen(Ok(()), Ok(found()), Ok(found())),
            Ok(ChosenEngine::Embedded)
        );
        assert_eq!(
            chosen(broken(), Ok(found()), Ok(found())),
            api(Flavor::Docker)
        );
        assert_eq!(chosen(broken(), none(), Ok(found())), api(Flavor::Podman));
    }

    #[test]
    fn a_choice_and_a_refusal_say_why() {
        let choice = choose(broken(), Ok(found()), none()).expect("Docker");
        assert_eq!(
            choice.reason,
            "the embedded engine does not work here (no user namespaces); Docker does"
        );
        let refusal = choose(broken(), none(), none()).expect_err("none");
        assert!(refusal.to_string().starts_with(
            "no engine works here: embedded (no user namespaces); Docker (no socket found); Podman (no socket found)"
        ));
    }

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
