//! Hosts of the public package indexes, which the built-in profile `packages` allows.
//!
//! This is data that decides what leaves a machine: review a change of it like code.

use std::fmt;

/// A named list of hosts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct List {
    name: &'static str,
    hosts: &'static [&'static str],
    redirects: &'static [Redirect],
}

/// Where the hosts of a list send their clients for some files: a host of which only these requests
/// belong to the index.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Redirect {
    pub(super) host: &'static str,
    /// In the form of a rule's access.
    pub(super) request: &'static str,
}

/// A list that does not exist.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("unknown list `{0}`; there are python, npm, cargo, go, debian")]
pub struct ListError(String);

const LISTS: [List; 5] = [
    List {
        name: "python",
        hosts: &["pypi.org", "files.pythonhosted.org"],
        redirects: &[],
    },
    List {
        name: "npm",
        hosts: &["registry.npmjs.org"],
        redirects: &[],
    },
    List {
        name: "cargo",
        hosts: &["crates.io", "index.crates.io", "static.crates.io"],
        redirects: &[],
    },
    List {
        name: "go",
        hosts: &["proxy.golang.org", "sum.golang.org"],
        // Archives of modules that are not small. The same host serves everybody's files.
        redirects: &[Redirect {
            host: "storage.googleapis.com:443",
            request: "GET /proxy-golang-org-prod/**",
        }],
    },
    List {
        name: "debian",
        hosts: &["deb.debian.org", "security.debian.org"],
        redirects: &[],
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

    /// Where these send their clients.
    pub(super) fn redirects(self) -> &'static [Redirect] {
        self.redirects
    }
}

impl fmt::Display for List {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name)
    }
}
