//! Our own terminal: raw mode for a container's terminal, and safe display of its output.

mod filter;
mod output_sink;
mod screen;

pub(crate) use filter::plain;
pub(crate) use output_sink::{Captured, OutputSink};
pub(crate) use screen::{Screen, write};

use std::io::IsTerminal;
use std::os::fd::AsFd;

use hotcell_agent_client::Winsize;
use rustix::stdio::stdin;
use rustix::termios::{OptionalActions, Termios, tcgetattr, tcgetwinsize, tcsetattr};

/// Used if our terminal's size is unknown.
const USUAL_SIZE: Winsize = Winsize { rows: 24, cols: 80 };

/// Our terminal in raw mode: keys, including Ctrl-C, go to the container. Dropping it restores the
/// terminal.
pub(crate) struct RawTerminal {
    before: Termios,
}

impl RawTerminal {
    /// Enters raw mode, if stdin is a terminal.
    pub(crate) fn enter() -> Option<Self> {
        let before = tcgetattr(stdin()).ok()?;
        let mut raw = before.clone();
        raw.make_raw();
        tcsetattr(stdin(), OptionalActions::Flush, &raw).ok()?;
        Some(Self { before })
    }
}

impl Drop for RawTerminal {
    fn drop(&mut self) {
        let _ = tcsetattr(stdin(), OptionalActions::Flush, &self.before);
    }
}

/// The width of the terminal that `out` is; `None` if it is none.
pub(crate) fn columns(out: &impl AsFd) -> Option<usize> {
    let size = tcgetwinsize(out).ok()?;
    Some(match size.ws_col {
        0 => USUAL_SIZE.cols.into(),
        columns => columns.into(),
    })
}

/// Whether colours are wanted: on a terminal, unless `NO_COLOR` is set.
pub(crate) fn has_colours(out: &impl IsTerminal) -> bool {
    out.is_terminal() && std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty())
}

/// The size of our terminal.
pub(crate) fn size() -> Winsize {
    match tcgetwinsize(stdin()) {
        Ok(size) if size.ws_row > 0 && size.ws_col > 0 => Winsize {
            rows: size.ws_row,
            cols: size.ws_col,
        },
        _ => USUAL_SIZE,
    }
}
