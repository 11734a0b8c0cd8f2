//! The caller of a request.

use std::fmt;

use crate::{Name, TraceContext};

/// The owner of containers and execs.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Principal(Name);

/// Who makes a request, known to every layer.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Caller {
    /// The owner whose containers and execs the caller sees.
    pub principal: Principal,
    /// The client program, by the name that it reports.
    pub client: Option<Name>,
    /// That program's version, as it reports it.
    pub client_version: Option<Name>,
    /// Whether the caller may use the admin tools.
    pub is_admin: bool,
    /// The trace that the request belongs to, if the caller says so.
    pub trace: Option<TraceContext>,
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

    /// The name of the principal.
    pub fn as_str(&self) -> &str {
        self.0.as_str()
    }
}

impl Caller {
    /// The caller of a server without authentication, on this machine.
    pub fn local() -> Self {
        Self {
            principal: Principal::local(),
            client: None,
            client_version: None,
            is_admin: true,
            trace: None,
        }
    }
}

impl fmt::Display for Principal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}
