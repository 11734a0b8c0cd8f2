//! The progress of a pull on a terminal: a bar for each layer.

use std::collections::BTreeMap;
use std::io::IsTerminal;
use std::sync::{Arc, Mutex, PoisonError};

use hotcell_domain::Digest;
use hotcell_image::{Progress, Report};
use indicatif::{MultiProgress, ProgressBar, ProgressStyle};

/// Most layers that get a bar; others are pulled without one.
const BARS_MAX: usize = 64;

/// The layer's name, its progress, its size, and the current step.
const TEMPLATE: &str = "{prefix} {bar:30} {decimal_total_bytes:>10}  {msg}";

/// Progress on stderr, if that is a terminal.
#[derive(Clone)]
pub(super) struct Bars {
    /// `None` if stderr is not a terminal.
    layers: Option<Arc<Mutex<Layers>>>,
}

/// The bars of all layers, in the order of the image.
#[derive(Default)]
struct Layers {
    screen: MultiProgress,
    bars: BTreeMap<Digest, ProgressBar>,
}

impl Bars {
    pub(super) fn on_terminal() -> Self {
        let is_terminal = std::io::stderr().is_terminal();
        Self {
            layers: is_terminal.then(Arc::default),
        }
    }

    /// The callback that the pull reports its progress to.
    pub(super) fn report(&self) -> Report {
        let Some(layers) = self.layers.clone() else {
            return hotcell_image::silent();
        };
        Arc::new(move |progress| {
            let mut layers = layers.lock().unwrap_or_else(PoisonError::into_inner);
            layers.show(progress);
        })
    }

    /// Leaves the bars on the screen.
    pub(super) fn finish(&self) {
        if let Some(layers) = &self.layers {
            let layers = layers.lock().unwrap_or_else(PoisonError::into_inner);
            layers.bars.values().for_each(ProgressBar::abandon);
        }
    }
}

impl Layers {
    fn show(&mut self, progress: Progress) {
        match progress {
            Progress::Resolved { layers, .. } => {
                for (digest, total) in layers {
                    self.set(&digest, "waiting", Some((0, total)));
                }
            }
            Progress::Shared { layer } => self.set(&layer, "here", None),
            Progress::Downloading {
                layer,
                bytes,
                total,
            } => self.set(&layer, "downloading", Some((bytes, total))),
            Progress::Unpacking { layer, .. } => self.set(&layer, "unpacking", None),
            Progress::Unpacked { layer } => self.set(&layer, "done", None),
        }
    }

    /// Shows how many bytes of a layer are here, and its size; `None` means complete.
    fn set(&mut self, digest: &Digest, word: &'static str, bytes: Option<(u64, u64)>) {
        if !self.bars.contains_key(digest) && self.bars.len() >= BARS_MAX {
            return;
        }
        let new = || self.screen.add(bar(digest));
        let bar = self.bars.entry(digest.clone()).or_insert_with(new);
        let whole = bar.length().unwrap_or_default();
        let (done, total) = bytes.unwrap_or((whole, whole));
        bar.set_length(total);
        bar.set_position(done);
        bar.set_message(word);
    }
}

fn bar(digest: &Digest) -> ProgressBar {
    let style = ProgressStyle::with_template(TEMPLATE).expect("the template is a valid one");
    ProgressBar::new(0)
        .with_style(style.progress_chars("█▉▊▋▌▍▎▏ "))
        .with_prefix(digest.hex()[..12].to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn digest(number: usize) -> Digest {
        Digest::parse(&format!("sha256:{number:064x}")).expect("a digest")
    }

    #[test]
    fn a_layer_is_shown_from_waiting_to_done_and_too_many_are_not() {
        let mut layers = Layers::default();
        let all = (0..2 * BARS_MAX).map(|number| (digest(number), 100));
        layers.show(Progress::Resolved {
            digest: digest(0),
            layers: all.collect(),
        });
        assert_eq!(layers.bars.len(), BARS_MAX);
        let shown = |layers: &Layers| {
            let bar = &layers.bars[&digest(1)];
            (bar.position(), bar.length(), bar.message())
        };
        assert_eq!(shown(&layers), (0, Some(100), "waiting".to_owned()));
        let (layer, bytes, total) = (digest(1), 40, 100);
        layers.show(Progress::Downloading {
            layer,
            bytes,
            total,
        });
        assert_eq!(shown(&layers), (40, Some(100), "downloading".to_owned()));
        layers.show(Progress::Unpacked { layer: digest(1) });
        assert_eq!(shown(&layers), (100, Some(100), "done".to_owned()));
    }
}
