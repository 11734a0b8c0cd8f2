//! Authentication over HTTP.

use anyhow::{Result, bail};
use clap::{Args, ValueEnum};
use hotcell_auth::{IssuerUrl, Secret, USE_SCOPE};

/// Settings of authentication over HTTP.
#[derive(Debug, Args)]
#[command(next_help_heading = "Authentication")]
pub(crate) struct AuthArgs {
    /// How HTTP clients authenticate [default: none, or bearer if --bearer-token is set]
    #[arg(long, value_enum, env = "HOTCELL_AUTH")]
    pub(crate) auth: Option<AuthMode>,

    /// Issuer of access tokens: the URL of an OIDC provider
    #[arg(long, value_name = "URL", env = "HOTCELL_OIDC_ISSUER", value_parser = IssuerUrl::parse)]
    pub(crate) oidc_issuer: Option<IssuerUrl>,

    /// Where the issuer's configuration is [default: ISSUER/.well-known/openid-configuration]
    #[arg(long, value_name = "URL", env = "HOTCELL_OIDC_CONFIG_URL", value_parser = IssuerUrl::parse)]
    pub(crate) oidc_config_url: Option<IssuerUrl>,

    /// Audience that an access token must have [default: the URL of this server, with or without /mcp]
    #[arg(
        long,
        value_name = "NAME",
        value_delimiter = ',',
        env = "HOTCELL_OIDC_AUDIENCE"
    )]
    pub(crate) oidc_audience: Vec<String>,

    /// Scopes that an access token must have, separated by commas; hotcell:admin also gives the admin tools
    #[arg(
        long,
        value_name = "SCOPE",
        value_delimiter = ',',
        default_value = USE_SCOPE,
        env = "HOTCELL_OIDC_REQUIRED_SCOPES",
        value_parser = parse_scope
    )]
    pub(crate) oidc_required_scopes: Vec<String>,

    /// One static token, accepted beside those of `hotcell token`; without admin rights
    #[arg(long, value_name = "TOKEN", env = "HOTCELL_BEARER_TOKEN", hide_env_values = true, value_parser = Secret::parse)]
    pub(crate) bearer_token: Option<Secret>,
}

/// The authentication modes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum AuthMode {
    /// No authentication: every client is the same user
    None,
    /// Tokens made by `hotcell token add`
    Bearer,
    /// Access tokens of an OIDC issuer (--oidc-issuer), beside those made by `hotcell token add`
    Oidc,
}

impl AuthArgs {
    /// The mode that applies. A token that would not be checked is an error: whoever set it
    /// believes that the server is protected.
    pub(crate) fn mode(&self) -> Result<AuthMode> {
        let (has_token, has_issuer) = (self.bearer_token.is_some(), self.oidc_issuer.is_some());
        let mode = match (self.auth, has_token, has_issuer) {
            (Some(mode), _, _) => mode,
            (None, true, _) => AuthMode::Bearer,
            (None, false, true) => AuthMode::Oidc,
            (None, false, false) => AuthMode::None,
        };
        match mode {
            AuthMode::None | AuthMode::Oidc if has_token => {
                bail!("--bearer-token needs --auth bearer; use that, or remove the token")
            }
            AuthMode::None | AuthMode::Bearer if has_issuer => {
                bail!("--oidc-issuer needs --auth oidc; use that, or remove the issuer")
            }
            AuthMode::Oidc if !has_issuer => bail!("--auth oidc needs --oidc-issuer URL"),
            AuthMode::None | AuthMode::Bearer | AuthMode::Oidc => Ok(mode),
        }
    }
}

fn parse_scope(text: &str) -> Result<String, String> {
    let is_legal = |c: char| c.is_ascii_graphic() && c != '"' && c != '\\';
    if !text.is_empty() && text.len() <= 128 && text.chars().all(is_legal) {
        return Ok(text.to_owned());
    }
    Err("a scope is up to 128 printable characters without blanks and quotes".to_owned())
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
        let issuer = ["--oidc-issuer", "https://id.example"];
        assert_eq!(mode(&issuer), Some(AuthMode::Oidc));
        assert_eq!(mode(&[&issuer[..], &token].concat()), None);
        assert_eq!(mode(&[&issuer[..], &["--auth", "none"]].concat()), None);
        assert_eq!(mode(&["--auth", "oidc"]), None);
        assert_eq!(mode(&["--oidc-issuer", "http://id.example"]), None);
    }

    #[test]
    fn a_static_token_is_not_shown() {
        let line = Line::try_parse_from(["hotcell", "--bearer-token", "0123456789abcdef"]);
        assert!(!format!("{:?}", line.expect("it is legal")).contains("0123456789abcdef"));
    }
}
