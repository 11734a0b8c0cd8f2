//! The arguments of `hotcell token`.

use std::time::Duration;

use clap::{Args, Subcommand};
use hotcell_auth::TokenName;

use crate::cli::StateArgs;

/// The arguments of `hotcell token`.
#[derive(Debug, Args)]
pub(crate) struct TokenArgs {
    #[command(subcommand)]
    pub(super) command: TokenCommand,
}

#[derive(Debug, Subcommand)]
pub(super) enum TokenCommand {
    /// Make a token and print it, once
    ///
    /// Only its hash is kept. A running server accepts it within a second.
    Add(AddArgs),
    /// List tokens: names, rights, expiry and last use
    #[command(alias = "ls")]
    List(ListArgs),
    /// Revoke a token; a running server refuses it within a second
    #[command(alias = "rm")]
    Revoke(RevokeArgs),
}

/// The arguments of `hotcell token add`.
#[derive(Debug, Args)]
pub(super) struct AddArgs {
    /// Name of the token: it owns what is made with it, as principal `token:NAME`
    #[arg(value_parser = TokenName::parse)]
    pub(super) name: TokenName,

    /// Give it the admin tools and /metrics
    #[arg(long)]
    pub(super) admin: bool,

    /// Refuse it after this time, such as 12h, 90d or 52w [default: never]
    #[arg(long, value_name = "TIME", value_parser = parse_time)]
    pub(super) expires: Option<Duration>,

    /// Print an object as JSON
    #[arg(long)]
    pub(super) json: bool,

    #[command(flatten)]
    pub(super) state: StateArgs,
}

/// The arguments of `hotcell token list`.
#[derive(Debug, Args)]
pub(super) struct ListArgs {
    /// Print an object as JSON
    #[arg(long)]
    pub(super) json: bool,

    #[command(flatten)]
    pub(super) state: StateArgs,
}

/// The arguments of `hotcell token revoke`.
#[derive(Debug, Args)]
pub(super) struct RevokeArgs {
    /// Name of the token
    #[arg(value_parser = TokenName::parse)]
    pub(super) name: TokenName,

    #[command(flatten)]
    pub(super) state: StateArgs,
}

/// The longest life of a token: a hundred years.
const EXPIRES_S_MAX: u64 = 100 * 365 * 86_400;

fn parse_time(text: &str) -> Result<Duration, String> {
    let error = || "must be a number and s, m, h, d or w, such as 90d".to_owned();
    let unit = text.chars().last().ok_or_else(error)?;
    let unit_s = match unit {
        's' => 1,
        'm' => 60,
        'h' => 3_600,
        'd' => 86_400,
        'w' => 7 * 86_400,
        _ => return Err(error()),
    };
    let number: u64 = text[..text.len() - 1].parse().map_err(|_| error())?;
    match number.checked_mul(unit_s) {
        Some(seconds @ 1..=EXPIRES_S_MAX) => Ok(Duration::from_secs(seconds)),
        _ => Err("must be more than 0 and at most a hundred years".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_read_as_people_write_them() {
        let seconds = |text| parse_time(text).map(|time| time.as_secs()).ok();
        assert_eq!(seconds("90d"), Some(90 * 86_400));
        assert_eq!(seconds("12h"), Some(43_200));
        assert_eq!(seconds("2w"), Some(14 * 86_400));
        for bad in [
            "",
            "d",
            "90",
            "0d",
            "-1d",
            "1.5d",
            "1y",
            "1ä",
            "99999999999w",
            "5300w",
        ] {
            assert_eq!(seconds(bad), None, "{bad}");
        }
    }
}
