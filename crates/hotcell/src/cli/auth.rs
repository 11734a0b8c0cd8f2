//! Who may use the server over HTTP.

use anyhow::{Result, bail};
use clap::{Args, ValueEnum};
use hotcell_auth::Secret;

/// How clients over HTTP say who they are.
#[derive(Debug, Args)]
#[command(next_help_heading = "Authentication")]
pub(crate) struct AuthArgs {
    /// How HTTP clients authenticate [default: none, or bearer if --bearer-token is set]
    #[arg(long, value_enum, env = "HOTCELL_AUTH")]
    pub(crate) auth: Option<AuthMode>,

    /// One static token, accepted beside those of `hotcell token`; without admin rights
    #[arg(long, value_name = "TOKEN", env = "HOTCELL_BEARER_TOKEN", hide_env_values = true, value_parser = Secret::parse)]
    pub(crate) bearer_token: Option<Secret>,
}

/// How clients over HTTP say who they are.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum AuthMode {
    /// No authentication: every client is the same user
    None,
    /// Tokens made by `hotcell token add`
    Bearer,
}

impl AuthArgs {
    /// The mode that was asked for. A token that nobody would check is refused: whoever set it
    /// believes that the server is protected.
    pub(crate) fn mode(&self) -> Result<AuthMode> {
        match (self.auth, &self.bearer_token) {
            (Some(AuthMode::None), Some(_)) => {
                bail!(
                    "--bearer-token has no effect with --auth none; use --auth bearer, or remove the token"
                )
            }
            (Some(mode), _) => Ok(mode),
            (None, Some(_)) => Ok(AuthMode::Bearer),
            (None, None) => Ok(AuthMode::None),
        }
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Debug, Parser)]
    struct Line {
        #[command(flatten)]
        auth: AuthArgs,
    }

    fn mode(arguments: &[&str]) -> Option<AuthMode> {
        let line = ["hotcell"].iter().chain(arguments);
        Line::try_parse_from(line).ok()?.auth.mode().ok()
    }

    #[test]
    fn a_static_token_turns_authentication_on_and_is_never_ignored() {
        let token = ["--bearer-token", "0123456789abcdef"];
        assert_eq!(mode(&[]), Some(AuthMode::None));
        assert_eq!(mode(&token), Some(AuthMode::Bearer));
        assert_eq!(mode(&["--auth", "bearer"]), Some(AuthMode::Bearer));
        assert_eq!(mode(&[&token[..], &["--auth", "none"]].concat()), None);
        assert_eq!(mode(&["--bearer-token", "short"]), None);
    }

    #[test]
    fn a_static_token_is_not_shown() {
        let line = Line::try_parse_from(["hotcell", "--bearer-token", "0123456789abcdef"]);
        assert!(!format!("{:?}", line.expect("it is legal")).contains("0123456789abcdef"));
    }
}
