//! The requests of a caller and the answers it got, with which the server is compared.

use std::collections::BTreeMap;

use serde_json::Value;

/// Everything that one caller knows.
#[derive(Debug, Default)]
pub(crate) struct Memory {
    pub(crate) containers: Vec<Container>,
    pub(crate) execs: Vec<Exec>,
    /// The answers about containers that could not be created.
    pub(crate) not_made: Vec<Value>,
    /// Calls that were refused, with the container that they were about.
    pub(crate) refused: Vec<(usize, Value)>,
}

/// A requested container.
#[derive(Debug)]
pub(crate) struct Container {
    pub(crate) key: String,
    pub(crate) is_persistent: bool,
    /// The id, if the answer arrived.
    pub(crate) id: Option<String>,
    /// Whether `kill` was called.
    pub(crate) kill_asked: bool,
    /// Whether that was answered.
    pub(crate) kill_answered: bool,
    pub(crate) files: BTreeMap<String, File>,
}

/// A file that was written.
#[derive(Debug, Default)]
pub(crate) struct File {
    /// The content that was last acknowledged.
    pub(crate) acknowledged: Option<String>,
    /// Later contents without an answer: each of them may have been written.
    pub(crate) pending: Vec<String>,
}

/// A requested exec.
#[derive(Debug)]
pub(crate) struct Exec {
    /// The index of its container.
    pub(crate) container: usize,
    pub(crate) key: String,
    pub(crate) script: String,
    pub(crate) expected: String,
    /// The id, if the answer arrived.
    pub(crate) id: Option<String>,
    /// Whether the answer contained the end and the whole output.
    pub(crate) was_complete: bool,
}

impl Memory {
    /// Containers that calls can use.
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
