//! Bars on a terminal: one line for each layer, drawn again in place.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::io::{IsTerminal, Write as _};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use hotcell_domain::Digest;
use hotcell_image::{Progress, Report};

/// Between two drawings.
const PAUSE: Duration = Duration::from_millis(80);

/// Characters of a bar.
const WIDTH: u64 = 30;

/// Lines drawn at most: a screen is not higher.
const LINES_MAX: usize = 16;

/// Progress on stderr, if that is a terminal.
#[derive(Clone)]
pub(super) struct Bars {
    /// `None` where nobody looks.
    state: Option<Arc<Mutex<State>>>,
}

#[derive(Default)]
struct State {
    order: Vec<Digest>,
    layers: BTreeMap<Digest, Layer>,
    lines: usize,
    drawn: Option<Instant>,
}

#[derive(Default)]
struct Layer {
    done: u64,
    total: u64,
    word: &'static str,
}

impl Bars {
    pub(super) fn on_terminal() -> Self {
        let is_terminal = std::io::stderr().is_terminal();
        Self {
            state: is_terminal.then(Arc::default),
        }
    }

    /// What the pull tells its progress to.
    pub(super) fn report(&self) -> Report {
        let Some(state) = self.state.clone() else {
            return hotcell_image::silent();
        };
        Arc::new(move |progress| {
            let mut state = state.lock().unwrap_or_else(PoisonError::into_inner);
            state.take(progress);
            let is_time = state.drawn.is_none_or(|drawn| drawn.elapsed() >= PAUSE);
            if is_time {
                state.draw();
            }
        })
    }

    /// Draws the end.
    pub(super) fn finish(&self) {
        if let Some(state) = &self.state {
            state.lock().unwrap_or_else(PoisonError::into_inner).draw();
        }
    }
}

impl State {
    fn take(&mut self, progress: Progress) {
        match progress {
            Progress::Resolved { layers, .. } => {
                for (digest, total) in layers {
                    let word = "waiting";
                    let layer = Layer {
                        done: 0,
                        total,
                        word,
                    };
                    if !self.layers.contains_key(&digest) {
                        self.order.push(digest.clone());
                    }
                    self.layers.insert(digest, layer);
                }
            }
            Progress::Shared { layer } => self.set(&layer, "here", None),
            Progress::Downloading { layer, bytes, .. } => {
                self.set(&layer, "downloading", Some(bytes));
            }
            Progress::Unpacking { layer, .. } => self.set(&layer, "unpacking", None),
            Progress::Unpacked { layer } => self.set(&layer, "done", None),
        }
    }

    fn set(&mut self, digest: &Digest, word: &'static str, done: Option<u64>) {
        if !self.layers.contains_key(digest) {
            self.order.push(digest.clone());
        }
        let layer = self.layers.entry(digest.clone()).or_default();
        layer.word = word;
        layer.done = done.unwrap_or(layer.total);
    }

    fn draw(&mut self) {
        let mut text = String::new();
        if self.lines > 0 {
            let _ = write!(text, "\x1b[{}A", self.lines);
        }
        self.lines = self.order.len().min(LINES_MAX);
        for digest in self.order.iter().take(LINES_MAX) {
            let Some(layer) = self.layers.get(digest) else {
                continue;
            };
            let filled = layer.done.saturating_mul(WIDTH).checked_div(layer.total);
            let filled = usize::try_from(filled.unwrap_or(WIDTH).min(WIDTH)).unwrap_or(0);
            let bar =
                "█".repeat(filled) + &" ".repeat(usize::try_from(WIDTH).unwrap_or(0) - filled);
            let (name, size) = (&digest.hex()[..12], layer.total.div_ceil(1_000_000));
            let _ = writeln!(text, "\x1b[2K{name} {bar} {size:>5} MB  {}", layer.word);
        }
        // A terminal that is gone is no reason to stop.
        let _ = std::io::stderr().write_all(text.as_bytes());
        self.drawn = Some(Instant::now());
    }
}
