//! What a caller asked for and what it was told: the server's answers are compared with it.

use std::collections::BTreeMap;

/// All that one caller knows.
#[derive(Debug, Default)]
pub(crate) struct Memory {
    pub(crate) containers: Vec<Container>,
    pub(crate) execs: Vec<Exec>,
    /// Containers that could not be made, by the message.
    pub(crate) not_made: Vec<String>,
    /// Calls that were refused, with the container that they were about.
    pub(crate) refused: Vec<(usize, String)>,
}

/// A container that was asked for.
#[derive(Debug)]
pub(crate) struct Container {
    pub(crate) key: String,
    pub(crate) is_persistent: bool,
    /// Its id, if the answer came.
    pub(crate) id: Option<String>,
    /// Whether its end was asked for.
    pub(crate) kill_asked: bool,
    /// Whether that was answered.
    pub(crate) kill_answered: bool,
    pub(crate) files: BTreeMap<String, File>,
}

/// A file that was written.
#[derive(Debug, Default)]
pub(crate) struct File {
    /// What was acknowledged last.
    pub(crate) acknowledged: Option<String>,
    /// What was asked for since, without an answer: each of it may have been written.
    pub(crate) pending: Vec<String>,
}

/// An exec that was asked for.
#[derive(Debug)]
pub(crate) struct Exec {
    /// The index of its container.
    pub(crate) container: usize,
    pub(crate) key: String,
    pub(crate) script: String,
    pub(crate) expected: String,
    /// Its id, if the answer came.
    pub(crate) id: Option<String>,
    /// Whether its end and all of its output were in the answer.
    pub(crate) was_complete: bool,
}

impl Memory {
    /// Containers that calls can be about.
    pub(crate) fn usable(&self) -> Vec<usize> {
        let is_usable = |one: &Container| one.id.is_some() && !one.kill_asked;
        let indexes = 0..self.containers.len();
        indexes
            .filter(|&index| is_usable(&self.containers[index]))
            .collect()
    }
}

impl Container {
    pub(crate) fn id(&self) -> &str {
        self.id.as_deref().expect("it was answered")
    }
}
