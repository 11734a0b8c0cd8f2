//! Which engines this host has, and which one `auto` takes.

use std::fmt;
use std::path::{Path, PathBuf};

use hotcell_engine::docker::{About, Flavor, Host, about};

/// Docker's usual socket, and Podman's for root.
const DOCKER_SOCKET: &str = "/var/run/docker.sock";
const PODMAN_SOCKET: &str = "/run/podman/podman.sock";

/// An engine that answered.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Found {
    pub(crate) host: Host,
    pub(crate) about: About,
}

/// What `auto` takes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Chosen {
    /// The engine in this program.
    Embedded,
    /// Docker or Podman.
    Api(Flavor, Host),
}

/// A choice, and why it is this one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Choice {
    pub(crate) chosen: Chosen,
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
            "no engine works here: embedded ({}); Docker ({}); Podman ({}). \
             Run `hotcell doctor` to see how to mend one of them",
            self.embedded, self.docker, self.podman
        )
    }
}

impl std::error::Error for NoEngine {}

/// Decides for `auto`: the embedded engine if it works, else Docker, else Podman.
pub(crate) fn choose(
    embedded: Result<(), String>,
    docker: Result<Found, String>,
    podman: Result<Found, String>,
) -> Result<Choice, NoEngine> {
    let embedded = match embedded {
        Ok(()) => {
            return Ok(Choice {
                chosen: Chosen::Embedded,
                reason: "the embedded engine works here and is the fastest".to_owned(),
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
        Err(why) => why,
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
            podman,
        }),
    }
}

fn taken(flavor: Flavor, found: Found, reason: String) -> Choice {
    Choice {
        chosen: Chosen::Api(flavor, found.host),
        reason,
    }
}

/// The first engine of that kind that answers, or why none does.
pub(crate) async fn find(flavor: Flavor) -> Result<Found, String> {
    let mut seen = "no socket found".to_owned();
    for host in hosts(flavor, |name| std::env::var(name).ok()) {
        if let Host::Unix(path) = &host
            && !path.exists()
        {
            continue;
        }
        match about(flavor, &host).await {
            Ok(about) => return Ok(Found { host, about }),
            Err(error) => seen = format!("{host} does not answer: {}", cause(&error)),
        }
    }
    Err(seen)
}

/// The innermost reason, which is the one that helps.
fn cause(error: &dyn std::error::Error) -> String {
    let mut cause = error;
    while let Some(source) = cause.source() {
        cause = source;
    }
    cause.to_string()
}

/// Where an engine of that kind may be, the likeliest first.
fn hosts(flavor: Flavor, variable: impl Fn(&str) -> Option<String>) -> Vec<Host> {
    let named = match flavor {
        Flavor::Docker => variable("DOCKER_HOST"),
        Flavor::Podman => variable("CONTAINER_HOST"),
    };
    let certificates = variable("DOCKER_TLS_VERIFY")
        .filter(|verify| !verify.is_empty())
        .and_then(|_| certificates(&variable));
    let named = named.and_then(|host| Host::parse(&host, certificates.as_deref()).ok());
    let user = variable("XDG_RUNTIME_DIR").map(PathBuf::from);
    let (of_user, of_host) = match flavor {
        Flavor::Docker => ("docker.sock", DOCKER_SOCKET),
        Flavor::Podman => ("podman/podman.sock", PODMAN_SOCKET),
    };
    let of_user = user.map(|directory| Host::Unix(directory.join(of_user)));
    let of_host = Host::Unix(Path::new(of_host).to_owned());
    named.into_iter().chain(of_user).chain([of_host]).collect()
}

/// Where Docker's own client keeps its certificates.
fn certificates(variable: &impl Fn(&str) -> Option<String>) -> Option<PathBuf> {
    let named = variable("DOCKER_CERT_PATH").map(PathBuf::from);
    named.or_else(|| Some(Path::new(&variable("HOME")?).join(".docker")))
}

#[cfg(test)]
mod tests {
    use super::*;
    use hotcell_engine::Enforced;

    fn found() -> Found {
        Found {
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

    fn no<T>(why: &str) -> Result<T, String> {
        Err(why.to_owned())
    }

    #[test]
    fn embedded_comes_first_then_docker_then_podman() {
        let chosen = |embedded, docker, podman| choose(embedded, docker, podman).map(|c| c.chosen);
        let api = |flavor| Ok(Chosen::Api(flavor, found().host));
        assert_eq!(
            chosen(Ok(()), Ok(found()), Ok(found())),
            Ok(Chosen::Embedded)
        );
        assert_eq!(
            chosen(no("a"), Ok(found()), Ok(found())),
            api(Flavor::Docker)
        );
        assert_eq!(chosen(no("a"), no("b"), Ok(found())), api(Flavor::Podman));
    }

    #[test]
    fn a_choice_and_a_refusal_say_why() {
        let choice = choose(no("no user namespaces"), Ok(found()), no("x")).expect("Docker");
        assert_eq!(
            choice.reason,
            "the embedded engine does not work here (no user namespaces); Docker does"
        );
        let refusal = choose(no("a"), no("b"), no("c")).expect_err("none");
        assert!(refusal.to_string().starts_with(
            "no engine works here: embedded (a); Docker (b); Podman (c). Run `hotcell doctor`"
        ));
    }

    #[test]
    fn the_environment_says_where_to_look_first() {
        let variable = |name: &str| match name {
            "DOCKER_HOST" => Some("tcp://far:2376".to_owned()),
            "DOCKER_TLS_VERIFY" => Some("1".to_owned()),
            "DOCKER_CERT_PATH" => Some("/certs".to_owned()),
            "XDG_RUNTIME_DIR" => Some("/run/user/1".to_owned()),
            _ => None,
        };
        let hosts: Vec<_> = hosts(Flavor::Docker, variable)
            .iter()
            .map(ToString::to_string)
            .collect();
        assert_eq!(
            hosts,
            [
                "https://far:2376",
                "unix:///run/user/1/docker.sock",
                "unix:///var/run/docker.sock"
            ]
        );
    }
}
