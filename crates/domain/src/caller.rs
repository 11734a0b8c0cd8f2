//! Who asks.

use std::fmt;

use crate::Name;

/// Who owns containers, execs and quotas.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Principal(Name);

/// Who asks, as every layer sees it.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Caller {
    /// Whose things it sees.
    pub principal: Principal,
    /// The program it uses, as that calls itself.
    pub client: Option<Name>,
    /// Whether it may use the operator's tools.
    pub is_admin: bool,
}

impl Principal {
    /// The one principal of a server without authentication.
    pub const LOCAL: &str = "local";

    /// A principal with this name.
    pub fn new(name: Name) -> Self {
        Self(name)
    }

    /// The principal of a server without authentication.
    pub fn local() -> Self {
        Self(Name::parse(Self::LOCAL).expect("it is short and printable"))
    }

    /// Its name.
    pub fn as_str(&self) -> &str {
        self.0.as_str()
    }
}

impl Caller {
    /// Whoever is on this machine, where nobody has to say who they are.
    pub fn local() -> Self {
        Self {
            principal: Principal::local(),
            client: None,
            is_admin: true,
        }
    }
}

impl fmt::Display for Principal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}
