//! Our own terminal: while the container has one, and when what it wrote is shown there.

mod filter;
mod output_sink;
mod screen;

pub(crate) use filter::plain;
pub(crate) use output_sink::{Captured, OutputSink};
pub(crate) use screen::{Screen, write};

use hotcell_agent_client::Winsize;
use rustix::stdio::stdin;
use rustix::termios::{OptionalActions, Termios, tcgetattr, tcgetwinsize, tcsetattr};

/// A terminal of the size everybody expects, if ours cannot be asked.
const USUAL_SIZE: Winsize = Winsize { rows: 24, cols: 80 };

/// Our terminal in raw mode: keys go to the container, Ctrl-C too. Dropping it puts
/// the terminal back as it was.
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
