//! `hotcell token`: manages the tokens of HTTP clients. It edits the file of tokens; a running
//! server notices the change.

mod args;

use std::io::Write;
use std::process::ExitCode;
use std::time::SystemTime;

use anyhow::Result;
use hotcell_auth::{NewToken, TokenFile, TokenRecord, token_uses};
use hotcell_domain::rfc3339;
use serde_json::{Value, json};

pub(crate) use self::args::TokenArgs;
use self::args::{AddArgs, ListArgs, RevokeArgs, TokenCommand};
use crate::state;

/// Runs the subcommand.
pub(crate) fn manage(arguments: &TokenArgs) -> Result<ExitCode> {
    match &arguments.command {
        TokenCommand::Add(arguments) => add(arguments)?,
        TokenCommand::List(arguments) => list(arguments)?,
        TokenCommand::Revoke(arguments) => revoke(arguments)?,
    }
    Ok(ExitCode::SUCCESS)
}

/// Prints only the token to stdout, so that `TOKEN=$(hotcell token add ci)` works.
fn add(arguments: &AddArgs) -> Result<()> {
    let directory = state::directory(arguments.state.state_dir.clone())?;
    state::prepare(&directory)?;
    let now_unix_s = now_unix_s();
    let expires_unix_s = arguments.expires.map(|time| now_unix_s + time.as_secs());
    let secret = TokenFile::in_directory(&directory).add(NewToken {
        name: arguments.name.clone(),
        admin: arguments.admin,
        now_unix_s,
        expires_unix_s,
    })?;
    let mut out = std::io::stdout().lock();
    if arguments.json {
        let shown = json!({
            "name": arguments.name.as_str(),
            "token": secret.expose(),
            "admin": arguments.admin,
            "expires_at": expires_unix_s.map(date),
        });
        writeln!(out, "{shown}")?;
        return Ok(());
    }
    writeln!(out, "{}", secret.expose())?;
    eprintln!("This token is shown once. Clients send it as `Authorization: Bearer TOKEN`.");
    Ok(())
}

fn list(arguments: &ListArgs) -> Result<()> {
    let directory = state::directory(arguments.state.state_dir.clone())?;
    let tokens = TokenFile::in_directory(&directory).read()?;
    let last_use = token_uses(&directory);
    let tokens: Vec<Value> = tokens
        .iter()
        .map(|token| shown(token, last_use.get(&token.id()).copied()))
        .collect();
    let mut out = std::io::stdout().lock();
    if arguments.json {
        writeln!(out, "{}", json!({ "tokens": tokens }))?;
        return Ok(());
    }
    writeln!(out, "{}", row(["NAME", "ADMIN", "EXPIRES", "LAST USED"]))?;
    for token in &tokens {
        writeln!(out, "{}", row(cells(token)))?;
    }
    Ok(())
}

fn cells(token: &Value) -> [&str; 4] {
    let text = |field: &str, none| token[field].as_str().unwrap_or(none);
    let expires = if token["expired"] == true {
        "expired"
    } else {
        text("expires_at", "never")
    };
    let admin = if token["admin"] == true { "yes" } else { "no" };
    [text("name", "-"), admin, expires, text("last_used_at", "-")]
}

fn row([name, admin, expires, last_use]: [&str; 4]) -> String {
    format!("{name:<24}  {admin:<5}  {expires:<20}  {last_use}")
}

fn revoke(arguments: &RevokeArgs) -> Result<()> {
    let directory = state::directory(arguments.state.state_dir.clone())?;
    TokenFile::in_directory(&directory).revoke(&arguments.name)?;
    eprintln!("Revoked {}.", arguments.name);
    Ok(())
}

fn shown(token: &TokenRecord, used_unix_s: Option<u64>) -> Value {
    json!({
        "name": token.name.as_str(),
        "admin": token.admin,
        "created_at": date(token.created_unix_s),
        "expires_at": token.expires_unix_s.map(date),
        "expired": token.is_expired(now_unix_s()),
        "last_used_at": used_unix_s.map(date),
    })
}

fn date(unix_s: u64) -> String {
    rfc3339(unix_s.saturating_mul(1000)).replace(".000Z", "Z")
}

fn now_unix_s() -> u64 {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    since.map_or(0, |since| since.as_secs())
}
