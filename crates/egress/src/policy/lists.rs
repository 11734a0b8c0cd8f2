//! Hosts of the public package indexes, which the built-in profile `packages` allows.
//!
//! This is data that decides what leaves a machine: review a change of it like code.

use std::fmt;

/// A named list of hosts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct List {
    name: &'static str,
    hosts: &'static [&'static str],
}

/// A list that does not exist.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("unknown list `{0}`; there are python, npm, cargo, go, debian")]
pub struct ListError(String);

const LISTS: [List; 5] = [
    List {
        name: "python",
        hosts: &["pypi.org", "files.pythonhosted.org"],
    },
    List {
        name: "npm",
        hosts: &["registry.npmjs.org"],
    },
    List {
        name: "cargo",
        hosts: &["crates.io", "index.crates.io", "static.crates.io"],
    },
    List {
        name: "go",
        hosts: &["proxy.golang.org", "sum.golang.org"],
    },
    List {
        name: "debian",
        hosts: &["deb.debian.org", "security.debian.org"],
    },
];

impl List {
    /// Every list.
    pub fn all() -> Vec<Self> {
        LISTS.to_vec()
    }

    /// The list of this name.
    pub fn parse(name: &str) -> Result<Self, ListError> {
        let found = LISTS.into_iter().find(|list| list.name == name);
        found.ok_or_else(|| ListError(name.to_owned()))
    }

    /// Its hosts.
    pub fn hosts(self) -> &'static [&'static str] {
        self.hosts
    }
}

impl fmt::Display for List {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name)
    }
}
