//! Calls of an earlier run that this one continues.
//!
//! The n-th call of some kind (server, tool, arguments) gets what the n-th of the earlier run got.

use std::collections::{HashMap, VecDeque};
use std::sync::{Mutex, PoisonError};

use crate::ports::{EarlierCall, EarlierOutcome};

#[derive(Default)]
pub(crate) struct Replay(Mutex<HashMap<String, VecDeque<EarlierOutcome>>>);

impl Replay {
    pub(crate) fn new(earlier: Vec<EarlierCall>) -> Self {
        let mut calls: HashMap<String, VecDeque<_>> = HashMap::new();
        for call in earlier {
            calls
                .entry(call.digest)
                .or_default()
                .push_back(call.outcome);
        }
        Self(Mutex::new(calls))
    }

    /// What an equal call got, once for each.
    pub(crate) fn take(&self, digest: &str) -> Option<EarlierOutcome> {
        let mut calls = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        calls.get_mut(digest)?.pop_front()
    }
}
