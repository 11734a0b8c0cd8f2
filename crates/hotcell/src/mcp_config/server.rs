//! How a client reaches Hotcell: by starting a program, or by an address.

use std::path::Path;

use anyhow::{Context, Result, bail, ensure};

/// The variable that carries the `Authorization` header to `mcp-remote`, so that the token does not stand in its arguments.
pub(super) const AUTHORIZATION_VARIABLE: &str = "HOTCELL_AUTHORIZATION";

/// Longer values are refused.
const TEXT_BYTES_MAX: usize = 4096;

/// Where Streamable HTTP is served by default.
const USUAL_PATH: &str = "/mcp";

/// How a client reaches Hotcell.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Server {
    /// The client starts this program and speaks over its stdio.
    Program {
        command: String,
        arguments: Vec<String>,
    },
    /// The client connects to a server that runs.
    Remote { url: Url, token: Option<Token> },
}

/// The address of a running server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Url(String);

/// A bearer token. It is written to the client's file and nowhere else, so `Debug` hides it.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct Token(String);

/// Another machine, or another system on the same one, on which the client runs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Via {
    /// Hotcell runs on this host, and the client reaches it over SSH.
    Ssh(String),
    /// Hotcell runs in WSL 2, and the client on Windows.
    Wsl,
}

impl Server {
    /// The program at `path`, started where the client is, with these flags of `hotcell serve`.
    pub(super) fn program(path: &Path, via: Option<&Via>, flags: &[String]) -> Result<Self> {
        let path = path
            .to_str()
            .context("the path of this program is not UTF-8")?;
        let words = |before: &[&str], program: &str| -> Vec<String> {
            let serve = [program, "serve", "--transport", "stdio"];
            let words = before.iter().chain(&serve);
            words
                .map(|word| (*word).to_owned())
                .chain(flags.iter().cloned())
                .collect()
        };
        let words = match via {
            None => words(&[], path),
            // Without a terminal, and without asking: nobody would see the question.
            Some(Via::Ssh(host)) => {
                // The shell of the other side splits what it is given.
                for flag in flags {
                    ensure!(
                        is_plain(flag),
                        "over SSH, flags must need no quoting: `{flag}` does"
                    );
                }
                words(&["ssh", "-T", "-o", "BatchMode=yes", host], "hotcell")
            }
            Some(Via::Wsl) => words(&["wsl.exe", "--exec"], path),
        };
        let Some((command, arguments)) = words.split_first() else {
            bail!("there is no program");
        };
        Ok(Self::Program {
            command: command.clone(),
            arguments: arguments.to_vec(),
        })
    }
}

impl Url {
    /// An `http` or `https` address; without a path, that of the server's default.
    pub(crate) fn parse(text: &str) -> Result<Self, String> {
        let rest = text
            .strip_prefix("https://")
            .or_else(|| text.strip_prefix("http://"));
        let Some(rest) = rest else {
            return Err("must begin with http:// or https://".to_owned());
        };
        let is_fit = |byte: u8| byte.is_ascii_graphic() && !b"\"'<>\\^`{|}".contains(&byte);
        if rest.is_empty()
            || rest.starts_with('/')
            || text.len() > TEXT_BYTES_MAX
            || !text.bytes().all(is_fit)
        {
            return Err("must be an address such as https://host:8000/mcp".to_owned());
        }
        let has_path = rest.trim_end_matches('/').contains('/');
        if has_path {
            return Ok(Self(text.to_owned()));
        }
        Ok(Self(format!("{}{USUAL_PATH}", text.trim_end_matches('/'))))
    }

    pub(super) fn as_str(&self) -> &str {
        &self.0
    }

    pub(super) fn is_encrypted(&self) -> bool {
        self.0.starts_with("https://")
    }
}

impl Token {
    /// What may stand in an `Authorization` header.
    pub(crate) fn parse(text: &str) -> Result<Self, String> {
        let is_fit = !text.is_empty()
            && text.len() <= TEXT_BYTES_MAX
            && text.bytes().all(|byte| byte.is_ascii_graphic());
        if is_fit {
            return Ok(Self(text.to_owned()));
        }
        // The value is not repeated: it may be a token with a newline.
        Err("must be one word of printable ASCII, as `hotcell token add` prints it".to_owned())
    }

    pub(super) fn authorization(&self) -> String {
        format!("Bearer {}", self.0)
    }
}

impl std::fmt::Debug for Token {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str("Token(***)")
    }
}

impl Via {
    /// `wsl`, or `ssh:HOST` with an optional user.
    pub(crate) fn parse(text: &str) -> Result<Self, String> {
        if text == "wsl" {
            return Ok(Self::Wsl);
        }
        // A host that begins with a dash would be an option of ssh.
        let is_fit = |host: &&str| !host.is_empty() && !host.starts_with('-') && is_plain(host);
        match text.strip_prefix("ssh:").filter(is_fit) {
            Some(host) => Ok(Self::Ssh(host.to_owned())),
            None => Err("known are `wsl` and `ssh:HOST`, as in ssh:me@build.example".to_owned()),
        }
    }
}

/// Whether every shell reads this as one word, and as itself.
fn is_plain(text: &str) -> bool {
    text.bytes()
        .all(|byte| byte.is_ascii_alphanumeric() || b"-_.,:/@=+%[]".contains(&byte))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(via: &str, flags: &[&str]) -> Result<String> {
        let via = Via::parse(via).map_err(anyhow::Error::msg)?;
        let flags: Vec<String> = flags.iter().map(|flag| (*flag).to_owned()).collect();
        match Server::program(Path::new("/opt/my tools/hotcell"), Some(&via), &flags)? {
            Server::Program { command, arguments } => {
                Ok(format!("{command}|{}", arguments.join("|")))
            }
            Server::Remote { .. } => bail!("not a program"),
        }
    }

    #[test]
    fn other_machines_are_reached_by_ssh_and_windows_by_wsl() {
        assert_eq!(
            words("ssh:me@build", &["--toolsets", "code"]).expect("words"),
            "ssh|-T|-o|BatchMode=yes|me@build|hotcell|serve|--transport|stdio|--toolsets|code"
        );
        assert_eq!(
            words("wsl", &[]).expect("words"),
            "wsl.exe|--exec|/opt/my tools/hotcell|serve|--transport|stdio"
        );
    }

    #[test]
    fn what_a_shell_or_ssh_would_read_otherwise_is_refused() {
        for via in [
            "ssh:",
            "ssh:-oProxyCommand=x",
            "ssh:a b",
            "ssh:a;b",
            "telnet:a",
            "",
        ] {
            assert!(Via::parse(via).is_err(), "{via}");
        }
        assert!(words("ssh:host", &["--state-dir", "/a b"]).is_err());
        assert!(words("wsl", &["--state-dir", "/a b"]).is_ok());
    }

    #[test]
    fn an_address_without_a_path_is_given_the_usual_one() {
        for (text, url) in [
            ("https://h", "https://h/mcp"),
            ("http://127.0.0.1:8000/", "http://127.0.0.1:8000/mcp"),
            ("https://h/a/mcp", "https://h/a/mcp"),
        ] {
            assert_eq!(Url::parse(text).expect("an address").as_str(), url);
        }
        for text in [
            "h",
            "ftp://h",
            "http://",
            "https:///x",
            "https://h/ x",
            "https://h/\"",
            "https://h/\n",
        ] {
            assert!(Url::parse(text).is_err(), "{text}");
        }
    }

    #[test]
    fn a_token_is_one_word_and_is_not_shown() {
        let token = Token::parse("hc_secret").expect("a token");
        assert_eq!(format!("{token:?}"), "Token(***)");
        for text in ["", "a b", "a\n", "ü", &"x".repeat(TEXT_BYTES_MAX + 1)] {
            let error = Token::parse(text).expect_err("refused");
            assert!(
                text.is_empty() || !error.contains(text) || text.len() < 4,
                "{error}"
            );
        }
    }
}
