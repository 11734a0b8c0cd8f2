//! A container's spec and labels as JSON. Its variables are stored separately, because they may be
//! secret.

use std::collections::BTreeMap;

use hotcell_domain::{
    Bytes, ContainerSpec, CpuMillis, Env, ImageRef, Labels, Lifetime, Limits, Network, Pids,
};
use serde::{Deserialize, Serialize};

#[derive(Serialize, Deserialize)]
struct StoredSpec {
    image: String,
    memory_bytes: u64,
    cpu_millis: u32,
    pids: u32,
    tmp_bytes: u64,
    /// Absent in what was stored before there was a limit.
    #[serde(default = "default_disk_bytes")]
    disk_bytes: u64,
    network: StoredNetwork,
    lifetime: StoredLifetime,
    allow_root: bool,
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum StoredNetwork {
    None,
    Full,
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum StoredLifetime {
    UntilDestroyed,
    WithOwner,
}

fn default_disk_bytes() -> u64 {
    Limits::default().disk.get()
}

/// Serializes a spec without its variables.
pub(super) fn write(spec: &ContainerSpec) -> Result<String, &'static str> {
    let image = spec.image.to_string();
    // A path that is not UTF-8 would be read back as another path.
    if ImageRef::parse(&image).as_ref() != Ok(&spec.image) {
        return Err("the image's name cannot be stored");
    }
    Ok(json(&StoredSpec {
        image,
        memory_bytes: spec.limits.memory.get(),
        cpu_millis: spec.limits.cpus.get(),
        pids: spec.limits.pids.get(),
        tmp_bytes: spec.limits.tmp.get(),
        disk_bytes: spec.limits.disk.get(),
        network: match spec.network {
            Network::None => StoredNetwork::None,
            Network::Full => StoredNetwork::Full,
        },
        lifetime: match spec.lifetime {
            Lifetime::UntilDestroyed => StoredLifetime::UntilDestroyed,
            Lifetime::WithOwner => StoredLifetime::WithOwner,
        },
        allow_root: spec.allow_root,
    }))
}

pub(super) fn write_env(env: &Env) -> String {
    json(&env_map(env))
}

/// Parses a spec; without `variables` it has none.
pub(super) fn read(text: &str, variables: Option<&str>) -> Result<ContainerSpec, String> {
    let stored: StoredSpec = serde_json::from_str(text).map_err(said)?;
    let variables = match variables {
        Some(variables) => serde_json::from_str(variables).map_err(said)?,
        None => BTreeMap::new(),
    };
    Ok(ContainerSpec {
        image: ImageRef::parse(&stored.image).map_err(said)?,
        limits: Limits {
            memory: Bytes::new(stored.memory_bytes).map_err(said)?,
            cpus: CpuMillis::new(stored.cpu_millis).map_err(said)?,
            pids: Pids::new(stored.pids).map_err(said)?,
            tmp: Bytes::new(stored.tmp_bytes).map_err(said)?,
            disk: Bytes::new(stored.disk_bytes).map_err(said)?,
        },
        network: match stored.network {
            StoredNetwork::None => Network::None,
            StoredNetwork::Full => Network::Full,
        },
        lifetime: match stored.lifetime {
            StoredLifetime::UntilDestroyed => Lifetime::UntilDestroyed,
            StoredLifetime::WithOwner => Lifetime::WithOwner,
        },
        env: env(&variables)?,
        allow_root: stored.allow_root,
    })
}

pub(super) fn write_labels(labels: &Labels) -> String {
    json(&labels.iter().collect::<BTreeMap<_, _>>())
}

pub(super) fn read_labels(text: &str) -> Result<Labels, String> {
    let stored: BTreeMap<String, String> = serde_json::from_str(text).map_err(said)?;
    let mut labels = Labels::default();
    for (name, value) in &stored {
        labels.set(name, value).map_err(said)?;
    }
    Ok(labels)
}

pub(crate) fn env_map(env: &Env) -> BTreeMap<String, String> {
    env.iter()
        .map(|(name, value)| (name.to_owned(), value.to_owned()))
        .collect()
}

pub(crate) fn env(stored: &BTreeMap<String, String>) -> Result<Env, String> {
    let mut env = Env::default();
    for (name, value) in stored {
        env.set(name, value).map_err(said)?;
    }
    Ok(env)
}

/// Serializes a value whose maps have string keys, which cannot fail.
pub(crate) fn json(value: &impl Serialize) -> String {
    serde_json::to_string(value).expect("plain data has a JSON form")
}

/// Converts an error to its message.
pub(crate) fn said(error: impl std::fmt::Display) -> String {
    error.to_string()
}

#[cfg(test)]
mod tests {
    use std::ffi::OsStr;
    use std::os::unix::ffi::OsStrExt;

    use super::*;

    fn read_back(spec: &ContainerSpec) -> Result<ContainerSpec, String> {
        read(&write(spec).unwrap(), Some(&write_env(&spec.env)))
    }

    #[test]
    fn every_part_of_a_spec_is_read_back() {
        let mut spec = ContainerSpec::new(ImageRef::parse("python:3.12").unwrap());
        assert_eq!(read_back(&spec), Ok(spec.clone()));
        spec.image = ImageRef::Rootfs("/srv/ä b".into());
        spec.limits.memory = Bytes::new(123_456_789).unwrap();
        spec.limits.cpus = CpuMillis::new(2500).unwrap();
        spec.limits.pids = Pids::new(77).unwrap();
        spec.limits.tmp = Bytes::new(99_999_999).unwrap();
        spec.limits.disk = Bytes::new(88_888_888).unwrap();
        spec.network = Network::Full;
        spec.lifetime = Lifetime::WithOwner;
        spec.env.set("A", "\"quoted\"\n\u{1F980}").unwrap();
        spec.allow_root = true;
        assert_eq!(read_back(&spec), Ok(spec.clone()));
        let stored = write(&spec).unwrap();
        assert!(!stored.contains("quoted"), "{stored}");
        spec.env = Env::default();
        assert_eq!(read(&stored, None), Ok(spec));
    }

    #[test]
    fn a_spec_that_would_come_back_as_another_is_not_stored() {
        let path = OsStr::from_bytes(b"/srv/\xff");
        let spec = ContainerSpec::new(ImageRef::Rootfs(path.into()));
        assert!(write(&spec).is_err());
    }

    #[test]
    fn a_spec_that_no_caller_could_have_asked_for_is_not_read() {
        let spec = ContainerSpec::new(ImageRef::Host);
        let good = write(&spec).unwrap();
        for (from, to) in [
            (r#""pids":256"#, r#""pids":0"#),
            (r#""host""#, r#""rootfs:../x""#),
            (r#""none""#, r#""some""#),
        ] {
            let bad = good.replace(from, to);
            assert_ne!(bad, good);
            assert!(read(&bad, None).is_err(), "{bad}");
        }
        for bad in ["", "[]", r#"{"A=B":""}"#] {
            assert!(read(&good, Some(bad)).is_err(), "{bad}");
        }
    }
}
