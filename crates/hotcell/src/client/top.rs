//! `hotcell top`: resource usage of containers and execs, live or once.

mod snapshot;

use std::io::{IsTerminal, Write as _};
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context, Result};
use serde_json::{Value, json};
use tokio::io::AsyncReadExt as _;

use super::connection::Server;
use super::print_json;
use super::table::{Column, table};
use crate::cli::TopArgs;
use crate::signals::{SignalRequest, Signals};
use crate::terminal::{self, RawTerminal};
use snapshot::{Snapshot, Usage, for_people};

/// The interval between two snapshots, over which rates are computed.
const INTERVAL: Duration = Duration::from_secs(1);

/// The byte that a terminal in raw mode sends for Ctrl-C.
const CTRL_C: u8 = 3;

const CONTAINERS: [Column; 8] = [
    ("CONTAINER", "container_id"),
    ("ALIAS", "alias"),
    ("PRINCIPAL", "principal"),
    ("STATUS", "status"),
    ("CPU", "cpu"),
    ("MEMORY", "memory"),
    ("LIMIT", "memory_limit"),
    ("IMAGE", "image"),
];

const EXECS: [Column; 7] = [
    ("EXEC", "exec_id"),
    ("CONTAINER", "container_id"),
    ("STATUS", "status"),
    ("STARTED", "created_at"),
    ("OUTPUT", "output"),
    ("RATE", "rate"),
    ("COMMAND", "command"),
];

pub(super) async fn top(arguments: &TopArgs) -> Result<ExitCode> {
    let server = Server::connect(&arguments.state).await?;
    let is_live = std::io::stdout().is_terminal() && std::io::stdin().is_terminal();
    if arguments.once || arguments.json || !is_live {
        once(&server, arguments.json).await?;
    } else {
        live(&server).await?;
    }
    Ok(ExitCode::SUCCESS)
}

/// Prints usage once. Rates need two snapshots.
async fn once(server: &Server, is_json: bool) -> Result<()> {
    let before = Snapshot::take(server).await?;
    tokio::time::sleep(INTERVAL).await;
    let usage = Snapshot::take(server).await?.since(&before);
    if is_json {
        let Usage { containers, execs } = usage;
        return print_json(&json!({ "containers": containers, "execs": execs })).await;
    }
    let written = terminal::write(tokio::io::stdout(), page(&usage).as_bytes()).await;
    written.context("write to stdout")
}

async fn live(server: &Server) -> Result<()> {
    let mut signals = Signals::listen()?;
    let mut before = Snapshot::take(server).await?;
    let _screen = AlternateScreen::enter();
    let mut usage = before.since(&before);
    let mut ticks = tokio::time::interval(INTERVAL);
    let mut stdin = tokio::io::stdin();
    loop {
        draw(&page(&usage)).await?;
        let mut key = [0];
        tokio::select! {
            _ = ticks.tick() => {
                let now = Snapshot::take(server).await?;
                usage = now.since(&before);
                before = now;
            }
            read = stdin.read(&mut key) => {
                let is_over = read.context("read the keyboard")? == 0;
                if is_over || matches!(key[0], b'q' | b'Q' | CTRL_C) {
                    return Ok(());
                }
            }
            asked = signals.next() => match asked {
                SignalRequest::Stop(_) => return Ok(()),
                SignalRequest::Resize => {}
            },
        }
    }
}

fn page(usage: &Usage) -> String {
    let shown = |used: &[Value]| used.iter().map(for_people).collect::<Vec<_>>();
    format!(
        "{} containers, {} execs\n\n{}\n{}",
        usage.containers.len(),
        usage.execs.len(),
        table(&CONTAINERS, &shown(&usage.containers)),
        table(&EXECS, &shown(&usage.execs))
    )
}

/// Draws as much of a page as fits on the terminal.
async fn draw(page: &str) -> Result<()> {
    let size = terminal::size();
    let frame = frame(page, usize::from(size.rows), usize::from(size.cols));
    let written = terminal::write(tokio::io::stdout(), frame.as_bytes()).await;
    written.context("write to the terminal")
}

/// Draws from the upper left corner, clearing the rest of each line and of the screen.
fn frame(page: &str, rows: usize, columns: usize) -> String {
    let lines = page.lines().take(rows.saturating_sub(1));
    let lines = lines.map(|line| line.chars().take(columns).collect::<String>());
    let lines: Vec<String> = lines.map(|line| format!("{line}\x1b[K\r\n")).collect();
    format!("\x1b[H{}q: quit\x1b[J", lines.concat())
}

/// The terminal's alternate screen, in raw mode. Dropping it restores the terminal.
struct AlternateScreen {
    _raw: Option<RawTerminal>,
}

impl AlternateScreen {
    fn enter() -> Self {
        let raw = RawTerminal::enter();
        say("\x1b[?1049h\x1b[?25l");
        Self { _raw: raw }
    }
}

impl Drop for AlternateScreen {
    fn drop(&mut self) {
        say("\x1b[?25h\x1b[?1049l");
    }
}

fn say(sequence: &str) {
    let mut stdout = std::io::stdout();
    // If the terminal is gone, there is nothing to restore.
    let _ = stdout.write_all(sequence.as_bytes());
    let _ = stdout.flush();
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_frame_fits_the_terminal() {
        let frame = frame("a long line\nsecond\nthird\n", 3, 6);
        assert_eq!(frame, "\x1b[Ha long\x1b[K\r\nsecond\x1b[K\r\nq: quit\x1b[J");
    }
}
