//! Progress of an image pull, for callers that wait for a container.

use std::collections::BTreeMap;
use std::fmt;

use hotcell_domain::Reference;
use tokio::sync::watch;

/// Most layers whose progress is counted. Real images have fewer; an engine may report anything.
const LAYERS_MAX: usize = 256;

/// The progress of a pull.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PullProgress {
    /// The image that is pulled.
    pub image: Reference,
    /// Bytes downloaded.
    pub done_bytes: u64,
    /// Bytes to download, as far as known.
    pub total_bytes: u64,
}

impl fmt::Display for PullProgress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (done, all) = (
            self.done_bytes / 1_000_000,
            self.total_bytes.div_ceil(1_000_000),
        );
        write!(f, "pulling {}", self.image)?;
        match self.total_bytes {
            0 => Ok(()),
            total if self.done_bytes >= total => write!(f, ": unpacking {all} MB"),
            _ => write!(f, ": {done} of {all} MB"),
        }
    }
}

/// Reports how far a pull is: the receiver sees the last update, not each. Clones report to the same receiver; the
/// default reports to nobody.
#[derive(Debug, Clone, Default)]
pub struct Progress(Option<watch::Sender<Option<PullProgress>>>);

/// Receives the progress of a pull.
pub type ProgressReceiver = watch::Receiver<Option<PullProgress>>;

impl Progress {
    /// A sender with its receiver.
    pub fn channel() -> (Self, ProgressReceiver) {
        let (sender, updates) = watch::channel(None);
        (Self(Some(sender)), updates)
    }

    /// Reports progress. Does not block.
    pub fn send(&self, pulling: PullProgress) {
        if let Some(sender) = &self.0 {
            sender.send_replace(Some(pulling));
        }
    }
}

/// Sums up the progress of single layers.
#[derive(Debug)]
pub(crate) struct LayerTotals {
    image: Reference,
    /// Bytes so far and in total, by the reporter's name of the layer.
    layers: BTreeMap<String, (u64, u64)>,
}

impl LayerTotals {
    pub(crate) fn new(image: Reference) -> Self {
        let layers = BTreeMap::new();
        Self { image, layers }
    }

    /// Sets the progress of a layer; `None` means complete.
    pub(crate) fn set(&mut self, layer: &str, done: Option<u64>, total: Option<u64>) {
        if !self.layers.contains_key(layer) && self.layers.len() >= LAYERS_MAX {
            return;
        }
        let (known_done, known_total) = self.layers.entry(layer.to_owned()).or_default();
        *known_total = total.unwrap_or(*known_total);
        *known_done = done.unwrap_or(*known_total).min(*known_total);
    }

    /// The progress of all layers together.
    pub(crate) fn sum(&self) -> PullProgress {
        let add = |all: u64, one: u64| all.saturating_add(one);
        let layers = || self.layers.values();
        PullProgress {
            image: self.image.clone(),
            done_bytes: layers().map(|(done, _)| *done).fold(0, add),
            total_bytes: layers().map(|(_, total)| *total).fold(0, add),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn layers_are_added_up_into_a_sentence() {
        let image = Reference::parse("python:3.12-slim").expect("a reference");
        let mut totals = LayerTotals::new(image);
        let said = |totals: &LayerTotals| totals.sum().to_string();
        assert_eq!(said(&totals), "pulling docker.io/library/python:3.12-slim");
        totals.set("a", Some(0), Some(100_000_000));
        totals.set("b", Some(4_000_000), Some(20_000_000));
        totals.set("a", Some(30_000_000), None);
        let wanted = "pulling docker.io/library/python:3.12-slim: 34 of 120 MB";
        assert_eq!(said(&totals), wanted);
        totals.set("a", None, None);
        totals.set("b", None, None);
        let wanted = "pulling docker.io/library/python:3.12-slim: unpacking 120 MB";
        assert_eq!(said(&totals), wanted);
    }

    #[test]
    fn what_is_told_has_no_effect_beyond_its_bounds() {
        let mut totals = LayerTotals::new(Reference::parse("x").expect("a reference"));
        for number in 0..2 * LAYERS_MAX {
            totals.set(&number.to_string(), Some(u64::MAX), Some(u64::MAX));
        }
        let sum = totals.sum();
        assert_eq!(totals.layers.len(), LAYERS_MAX);
        assert_eq!((sum.done_bytes, sum.total_bytes), (u64::MAX, u64::MAX));
    }
}
