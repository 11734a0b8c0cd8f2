//! Docker's credentials: in its configuration file, or in a credential helper that the file names.

use std::collections::BTreeMap;
use std::fmt;
use std::path::{Path, PathBuf};
use std::process::Stdio;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde::Deserialize;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::process::Command;

use crate::ImageError;
use crate::bounds::{CREDENTIALS_BYTES_MAX, HELPER_TIMEOUT};

/// The key of Docker Hub's credentials.
const HUB_KEY: &str = "https://index.docker.io/v1/";

/// The user name that marks an identity token.
const TOKEN_USER: &str = "<token>";

/// A source of registry credentials.
#[derive(Debug, Clone, Default)]
pub struct Credentials {
    file: Option<PathBuf>,
}

/// Credentials for one registry.
#[derive(Clone)]
pub enum Login {
    /// User name and password.
    Password {
        /// The user name.
        user: String,
        /// The secret.
        password: String,
    },
    /// An identity token, to be exchanged.
    Token(String),
}

/// Hides secrets from logs.
impl fmt::Debug for Login {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Login")
    }
}

#[derive(Default, Deserialize)]
struct DockerConfig {
    #[serde(default)]
    auths: BTreeMap<String, Auth>,
    #[serde(default, rename = "credHelpers")]
    helpers: BTreeMap<String, String>,
    #[serde(rename = "credsStore")]
    store: Option<String>,
}

#[derive(Default, Deserialize)]
struct Auth {
    #[serde(rename = "auth")]
    encoded: Option<String>,
    username: Option<String>,
    password: Option<String>,
    #[serde(alias = "identitytoken")]
    identity_token: Option<String>,
}

/// The output of a credential helper.
#[derive(Deserialize)]
struct HelperAnswer {
    #[serde(rename = "Username")]
    user: String,
    #[serde(rename = "Secret")]
    secret: String,
}

impl Credentials {
    /// No credentials.
    pub fn none() -> Self {
        Self::default()
    }

    /// The credentials in a Docker configuration file; none if it is missing.
    pub fn file(path: impl Into<PathBuf>) -> Self {
        Self {
            file: Some(path.into()),
        }
    }

    /// This user's credentials: `$DOCKER_CONFIG/config.json`, else `~/.docker/config.json`.
    pub fn of_user() -> Self {
        let variable = |name| std::env::var_os(name).map(PathBuf::from);
        let directory =
            variable("DOCKER_CONFIG").or_else(|| Some(variable("HOME")?.join(".docker")));
        Self {
            file: directory.map(|directory| directory.join("config.json")),
        }
    }

    /// The credentials for a registry, if there are any.
    pub async fn login(&self, registry: &str) -> Result<Option<Login>, ImageError> {
        let unreadable = |reason: String| ImageError::Credentials {
            registry: registry.to_owned(),
            reason,
        };
        let Some(file) = &self.file else {
            return Ok(None);
        };
        let found = async {
            let config = read(file)?.unwrap_or_default();
            config.login(registry).await
        };
        found.await.map_err(unreadable)
    }
}

fn read(path: &Path) -> Result<Option<DockerConfig>, String> {
    use std::io::Read;
    let file = match std::fs::File::open(path) {
        Ok(file) => file,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error.to_string()),
    };
    let mut text = Vec::new();
    let read = file.take(CREDENTIALS_BYTES_MAX).read_to_end(&mut text);
    read.map_err(|error| error.to_string())?;
    serde_json::from_slice(&text)
        .map(Some)
        .map_err(|_| "the file is no Docker configuration".to_owned())
}

impl DockerConfig {
    async fn login(&self, registry: &str) -> Result<Option<Login>, String> {
        let is_it = |(key, _): &(&String, _)| host_of(key) == registry;
        let key = if registry == super::HUB {
            HUB_KEY
        } else {
            registry
        };
        if let Some((_, helper)) = self
            .helpers
            .iter()
            .find(|(key, _)| host_of(key) == registry)
        {
            return ask(helper, key).await;
        }
        let own = self
            .auths
            .iter()
            .find(is_it)
            .and_then(|(_, auth)| auth.login());
        match (&self.store, own) {
            (_, Some(own)) => Ok(Some(own)),
            (Some(helper), None) => ask(helper, key).await,
            (None, None) => Ok(None),
        }
    }
}

/// Keys are host names, or URLs of old endpoints.
fn host_of(key: &str) -> &str {
    let rest = key.split_once("://").map_or(key, |(_, rest)| rest);
    match rest.split('/').next().unwrap_or_default() {
        "index.docker.io" | super::HUB_HOST => super::HUB,
        host => host,
    }
}

impl Auth {
    fn login(&self) -> Option<Login> {
        if let Some(token) = self
            .identity_token
            .as_ref()
            .filter(|token| !token.is_empty())
        {
            return Some(Login::Token(token.clone()));
        }
        if let (Some(user), Some(password)) = (&self.username, &self.password) {
            return Some(Login::of(user, password));
        }
        let decoded = STANDARD.decode(self.encoded.as_ref()?.trim()).ok()?;
        let decoded = String::from_utf8(decoded).ok()?;
        let (user, password) = decoded.split_once(':')?;
        // Docker's own files may end with NUL bytes.
        Some(Login::of(user, password.trim_end_matches('\0')))
    }
}

impl Login {
    fn of(user: &str, password: &str) -> Self {
        if user == TOKEN_USER {
            return Self::Token(password.to_owned());
        }
        Self::Password {
            user: user.to_owned(),
            password: password.to_owned(),
        }
    }
}

/// Asks a credential helper. An error answer means that it has none for this registry.
async fn ask(helper: &str, key: &str) -> Result<Option<Login>, String> {
    let plain = |c: char| c.is_ascii_alphanumeric() || "._-".contains(c);
    if helper.is_empty() || !helper.chars().all(plain) {
        return Err("a credential helper has no plain name".to_owned());
    }
    let program = format!("docker-credential-{helper}");
    let mut child = Command::new(&program)
        .arg("get")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .kill_on_drop(true)
        .spawn()
        .map_err(|error| format!("{program}: {error}"))?;
    let talk = async {
        let (stdin, stdout) = (child.stdin.take(), child.stdout.take());
        if let Some(mut stdin) = stdin {
            stdin.write_all(key.as_bytes()).await?;
        }
        let mut said = Vec::new();
        if let Some(stdout) = stdout {
            stdout
                .take(CREDENTIALS_BYTES_MAX)
                .read_to_end(&mut said)
                .await?;
        }
        Ok::<_, std::io::Error>((child.wait().await?, said))
    };
    let (status, said) = match tokio::time::timeout(HELPER_TIMEOUT, talk).await {
        Ok(talked) => talked.map_err(|error| format!("{program}: {error}"))?,
        Err(_) => return Err(format!("{program} does not answer")),
    };
    if said.len() as u64 >= CREDENTIALS_BYTES_MAX {
        return Err(format!("{program} says too much"));
    }
    if !status.success() {
        tracing::debug!(program, %status, "a credential helper has nothing to say");
        return Ok(None);
    }
    let answer: HelperAnswer =
        serde_json::from_slice(&said).map_err(|_| format!("{program} says nothing sensible"))?;
    Ok(Some(Login::of(&answer.user, &answer.secret)))
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn shown(config: &str, registry: &str) -> Option<String> {
        let config: DockerConfig = serde_json::from_str(config).unwrap();
        config
            .login(registry)
            .await
            .unwrap()
            .map(|login| match login {
                Login::Password { user, password } => format!("{user}:{password}"),
                Login::Token(token) => format!("token {token}"),
            })
    }

    #[tokio::test]
    async fn a_registry_is_found_however_its_key_is_written() {
        let config = r#"{"auths": {
            "https://index.docker.io/v1/": {"auth": "YW5uOnB3"},
            "ghcr.io": {"username": "bob", "password": "x:y"},
            "http://a.lan:5000/v2/": {"identitytoken": "t"}
        }, "HttpHeaders": {}}"#;
        assert_eq!(shown(config, "docker.io").await.as_deref(), Some("ann:pw"));
        assert_eq!(shown(config, "ghcr.io").await.as_deref(), Some("bob:x:y"));
        assert_eq!(
            shown(config, "a.lan:5000").await.as_deref(),
            Some("token t")
        );
        assert_eq!(shown(config, "quay.io").await, None);
    }

    #[tokio::test]
    async fn a_helper_with_a_path_for_a_name_is_not_run() {
        let config = r#"{"credHelpers": {"a.lan": "../../bin/sh"}}"#;
        let config: DockerConfig = serde_json::from_str(config).unwrap();
        assert!(config.login("a.lan").await.is_err());
    }
}
