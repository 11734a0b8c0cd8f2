//! The arguments of `hotcell mcp-config`.

use std::path::PathBuf;

use clap::Args;
use clap::builder::{PossibleValue, PossibleValuesParser};

use super::clients::CLIENTS;
use super::server::{Token, Url, Via};

pub(crate) const EXAMPLES: &str = "\
Examples:
  hotcell mcp-config --client claude-code            print the entry and where it belongs
  hotcell mcp-config --client cursor --write         write it, and keep a backup
  hotcell mcp-config --client cursor --undo          put the file back
  hotcell mcp-config --client vscode --project --write -- --toolsets code
                                                     for this directory; flags of `hotcell serve`
  hotcell mcp-config --client zed --remote https://build.example:8000 --token TOKEN
                                                     connect to a server that runs
  hotcell mcp-config --client claude-desktop --via ssh:me@build.example
                                                     for a client on macOS or Windows
  hotcell mcp-config --client claude-desktop --via wsl
                                                     for a client on Windows, and Hotcell in WSL 2";

/// The arguments of `hotcell mcp-config`.
#[derive(Debug, Args)]
#[expect(clippy::struct_excessive_bools, reason = "each is a flag of its own")]
pub(crate) struct McpConfigArgs {
    /// The program that is to use Hotcell
    #[arg(long, value_name = "CLIENT", value_parser = clients())]
    pub(super) client: String,

    /// Write the entry to the client's file; what else is in it stays, and a backup is kept
    #[arg(long, conflicts_with = "undo")]
    pub(super) write: bool,

    /// Undo the last `--write`
    #[arg(long, conflicts_with_all = ["remote", "token", "via", "serve"])]
    pub(super) undo: bool,

    /// The client's file [default: the one of this user]
    #[arg(long, value_name = "FILE", conflicts_with = "project")]
    pub(super) file: Option<PathBuf>,

    /// Use the file of the project in this directory instead of the user's
    #[arg(long)]
    pub(super) project: bool,

    /// What to call Hotcell in the client
    #[arg(long, value_name = "NAME", default_value = "hotcell", value_parser = parse_name)]
    pub(super) name: String,

    /// Connect to the server at this address instead of starting one
    #[arg(long, value_name = "URL", value_parser = Url::parse, conflicts_with_all = ["via", "serve"])]
    pub(super) remote: Option<Url>,

    /// Token for the server; `hotcell token add` makes one
    #[arg(long, value_name = "TOKEN", value_parser = Token::parse, requires = "remote")]
    pub(super) token: Option<Token>,

    /// How a client elsewhere reaches this Hotcell: `ssh:HOST`, or `wsl` from Windows
    #[arg(long, value_name = "WAY", value_parser = Via::parse)]
    pub(super) via: Option<Via>,

    /// Print JSON
    #[arg(long)]
    pub(super) json: bool,

    /// Flags of `hotcell serve`
    #[arg(last = true, value_name = "FLAGS")]
    pub(super) serve: Vec<String>,
}

fn clients() -> PossibleValuesParser {
    let values = CLIENTS.iter().map(|client| {
        PossibleValue::new(client.name)
            .aliases(client.aliases)
            .help(client.title)
    });
    PossibleValuesParser::new(values)
}

/// The longest name that all clients take.
const NAME_BYTES_MAX: usize = 64;

/// A name that needs no quotes in any language and is no other key of a path.
fn parse_name(text: &str) -> Result<String, String> {
    let is_fit = |byte: u8| byte.is_ascii_alphanumeric() || b"-_".contains(&byte);
    if !text.is_empty() && text.len() <= NAME_BYTES_MAX && text.bytes().all(is_fit) {
        return Ok(text.to_owned());
    }
    Err(format!(
        "must be 1 to {NAME_BYTES_MAX} letters, digits, `-` or `_`"
    ))
}
