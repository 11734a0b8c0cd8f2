//! The spec of a container, as its engine stores it, so that a server without its row knows its
//! image and limits.

use hotcell_domain::{
    Bytes, ContainerSpec, CpuMillis, Env, ImageRef, Lifetime, Limits, Network, Pids,
};
use serde::{Deserialize, Serialize};

/// A spec without its variables, which may be secret, and without its lifetime, which engines store
/// separately.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct StoredSpec {
    image: String,
    memory_bytes: u64,
    cpu_millis: u32,
    pids: u32,
    tmp_bytes: u64,
    /// Missing in specs that were stored before there was a disk limit.
    #[serde(default = "default_disk_bytes")]
    disk_bytes: u64,
    has_network: bool,
    allow_root: bool,
}

fn default_disk_bytes() -> u64 {
    Limits::default().disk.get()
}

impl StoredSpec {
    /// The part of a spec that an engine stores.
    pub fn of(spec: &ContainerSpec) -> Self {
        Self {
            image: spec.image.to_string(),
            memory_bytes: spec.limits.memory.get(),
            cpu_millis: spec.limits.cpus.get(),
            pids: spec.limits.pids.get(),
            tmp_bytes: spec.limits.tmp.get(),
            disk_bytes: spec.limits.disk.get(),
            has_network: spec.network == Network::Full,
            allow_root: spec.allow_root,
        }
    }

    /// The spec; `None` if it is invalid, which ours never is.
    pub fn spec(&self, lifetime: Lifetime) -> Option<ContainerSpec> {
        Some(ContainerSpec {
            image: ImageRef::parse(&self.image).ok()?,
            limits: Limits {
                memory: Bytes::new(self.memory_bytes).ok()?,
                cpus: CpuMillis::new(self.cpu_millis).ok()?,
                pids: Pids::new(self.pids).ok()?,
                tmp: Bytes::new(self.tmp_bytes).ok()?,
                disk: Bytes::new(self.disk_bytes).ok()?,
            },
            network: if self.has_network {
                Network::Full
            } else {
                Network::None
            },
            lifetime,
            env: Env::default(),
            allow_root: self.allow_root,
        })
    }

    /// The limits, or the defaults if they are invalid.
    pub(crate) fn limits(&self) -> Limits {
        let spec = self.spec(Lifetime::UntilDestroyed);
        spec.map_or_else(Limits::default, |spec| spec.limits)
    }

    /// The form for a label or a file.
    pub fn to_text(&self) -> String {
        serde_json::to_string(self).unwrap_or_default()
    }

    /// Parses a stored spec; `None` if it is invalid.
    pub fn parse(text: &str) -> Option<Self> {
        serde_json::from_str(text).ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_asked_for_comes_back_but_for_the_variables() {
        let mut spec = ContainerSpec::new(ImageRef::parse("python:3.12").unwrap());
        spec.limits.memory = Bytes::parse("96m").unwrap();
        spec.limits.disk = Bytes::parse("3g").unwrap();
        spec.network = Network::Full;
        spec.allow_root = true;
        let mut asked = spec.clone();
        asked.env.set("TOKEN", "secret").unwrap();
        let text = StoredSpec::of(&asked).to_text();
        assert!(!text.contains("secret"));
        let found = StoredSpec::parse(&text).and_then(|it| it.spec(Lifetime::UntilDestroyed));
        assert_eq!(found, Some(spec));
    }

    #[test]
    fn what_was_stored_before_there_was_a_disk_limit_has_the_default() {
        let spec = ContainerSpec::new(ImageRef::Host);
        let mut stored: serde_json::Value =
            serde_json::from_str(&StoredSpec::of(&spec).to_text()).unwrap();
        stored
            .as_object_mut()
            .unwrap()
            .remove("disk_bytes")
            .unwrap();
        let found = StoredSpec::parse(&stored.to_string()).unwrap();
        assert_eq!(found.spec(Lifetime::UntilDestroyed), Some(spec));
    }

    #[test]
    fn nonsense_is_nothing() {
        assert_eq!(StoredSpec::parse("{}"), None);
        let text = StoredSpec::of(&ContainerSpec::new(ImageRef::Host)).to_text();
        let tiny = text.replace(&(512_u64 << 20).to_string(), "1");
        let found = StoredSpec::parse(&tiny).unwrap();
        assert_eq!(found.spec(Lifetime::UntilDestroyed), None);
    }
}
