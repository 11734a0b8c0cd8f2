//! Identifies the engine of a container.

use std::fmt;

/// Identifies an engine among all that a server may ever use: by name and address.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct EngineId {
    /// The name that users write: `embedded`, `docker`.
    pub name: String,
    /// The address, without credentials. `None` if the engine is always local, or if the address
    /// was not recorded.
    pub host: Option<String>,
}

impl EngineId {
    /// An engine without an address.
    pub fn named(name: &str) -> Self {
        Self {
            name: name.to_owned(),
            host: None,
        }
    }

    /// An engine at an address.
    pub fn at(name: &str, host: String) -> Self {
        Self {
            host: Some(host),
            ..Self::named(name)
        }
    }

    /// Whether both can be the same engine: an unknown address matches any.
    pub fn may_be(&self, other: &Self) -> bool {
        let is_there = match (&self.host, &other.host) {
            (Some(one), Some(two)) => one == two,
            (None, _) | (_, None) => true,
        };
        self.name == other.name && is_there
    }
}

impl fmt::Display for EngineId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.host {
            None => f.write_str(&self.name),
            Some(host) => write!(f, "{} at {host}", self.name),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_engine_is_named_with_its_place_if_it_has_one() {
        assert_eq!(EngineId::named("embedded").to_string(), "embedded");
        let far = EngineId::at("docker", "tcp://10.0.0.5:2376".to_owned());
        assert_eq!(far.to_string(), "docker at tcp://10.0.0.5:2376");
    }

    #[test]
    fn two_places_are_two_engines_and_an_unknown_place_is_any() {
        let at = |name, host: &str| EngineId::at(name, host.to_owned());
        let docker = at("docker", "tcp://a:1");
        assert!(docker.may_be(&docker));
        assert!(!docker.may_be(&at("docker", "tcp://b:1")));
        assert!(!docker.may_be(&at("podman", "tcp://a:1")));
        let unknown = EngineId::named("docker");
        assert!(unknown.may_be(&docker) && docker.may_be(&unknown));
        assert!(!EngineId::named("podman").may_be(&docker));
    }
}
