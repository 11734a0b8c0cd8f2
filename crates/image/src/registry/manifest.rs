//! Parses manifests and configurations, as far as we need them.

use hotcell_domain::{Digest, IMAGE_ENV_BYTES_MAX, IMAGE_VARIABLES_MAX, Reference};
use serde::Deserialize;

use crate::ImageError;
use crate::bounds::Bounds;
use crate::store::Config;

const PLATFORMS_MAX: usize = 1024;

/// How many platforms an error message lists.
const PLATFORMS_SHOWN: usize = 16;

/// Digest and size of some content.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Descriptor {
    pub(crate) digest: Digest,
    pub(crate) size: u64,
}

/// A parsed manifest.
#[derive(Debug)]
pub(crate) enum Manifest {
    /// One image.
    Image {
        config: Descriptor,
        layers: Vec<Descriptor>,
    },
    /// An index that refers to the manifest for this host's platform.
    Elsewhere(Descriptor),
}

#[derive(Deserialize)]
struct RawManifest {
    #[serde(rename = "schemaVersion")]
    schema: u32,
    manifests: Option<Vec<RawDescriptor>>,
    config: Option<RawDescriptor>,
    layers: Option<Vec<RawDescriptor>>,
}

#[derive(Deserialize)]
struct RawDescriptor {
    digest: String,
    size: u64,
    platform: Option<Platform>,
}

#[derive(Deserialize)]
struct Platform {
    architecture: String,
    os: String,
}

#[derive(Deserialize)]
struct RawConfig {
    architecture: Option<String>,
    os: Option<String>,
    config: Option<RawProcess>,
    rootfs: RawRootfs,
}

#[derive(Default, Deserialize)]
struct RawProcess {
    #[serde(rename = "Env")]
    env: Option<Vec<String>>,
    #[serde(rename = "WorkingDir")]
    workdir: Option<String>,
    #[serde(rename = "User")]
    user: Option<String>,
}

#[derive(Deserialize)]
struct RawRootfs {
    diff_ids: Vec<String>,
}

/// This host's platform, as images name it.
pub(crate) fn host_platform() -> (&'static str, &'static str) {
    let architecture = match std::env::consts::ARCH {
        "x86_64" => "amd64",
        "aarch64" => "arm64",
        other => other,
    };
    ("linux", architecture)
}

/// Parses a manifest or an index.
pub(crate) fn parse_manifest(
    bytes: &[u8],
    reference: &Reference,
    bounds: &Bounds,
) -> Result<Manifest, ImageError> {
    let invalid = |reason: &str| ImageError::invalid("a manifest", reason);
    let raw: RawManifest =
        serde_json::from_slice(bytes).map_err(|_| invalid("it is not what manifests look like"))?;
    if raw.schema != 2 {
        return Err(invalid("it is of a version that is no longer used"));
    }
    if let Some(manifests) = raw.manifests {
        // Ambiguous: the digest would mean a different image to each reader.
        if raw.config.is_some() || raw.layers.is_some() {
            return Err(invalid("it is an index and an image at once"));
        }
        return choose(&manifests, reference).map(Manifest::Elsewhere);
    }
    let (Some(config), Some(layers)) = (raw.config, raw.layers) else {
        return Err(invalid("it has no configuration or no layers"));
    };
    if layers.is_empty() {
        return Err(invalid("it has no layers"));
    }
    if layers.len() > bounds.layers_max {
        return Err(ImageError::TooLarge {
            what: "the number of an image's layers",
            max: bounds.layers_max as u64,
        });
    }
    let layers: Vec<_> = layers
        .iter()
        .map(RawDescriptor::parse)
        .collect::<Result<_, _>>()?;
    if layers
        .iter()
        .any(|layer| layer.size > bounds.blob_bytes_max)
    {
        return Err(ImageError::TooLarge {
            what: "a layer",
            max: bounds.blob_bytes_max,
        });
    }
    Ok(Manifest::Image {
        config: config.parse()?,
        layers,
    })
}

/// The first entry for this host.
fn choose(manifests: &[RawDescriptor], reference: &Reference) -> Result<Descriptor, ImageError> {
    let (os, architecture) = host_platform();
    let manifests = &manifests[..manifests.len().min(PLATFORMS_MAX)];
    let is_ours = |entry: &&RawDescriptor| {
        entry
            .platform
            .as_ref()
            .is_none_or(|it| it.os == os && it.architecture == architecture)
    };
    if let Some(entry) = manifests.iter().find(is_ours) {
        return entry.parse();
    }
    let names = manifests.iter().filter_map(|entry| entry.platform.as_ref());
    let names = names.filter(|it| it.os != "unknown").take(PLATFORMS_SHOWN);
    let names: Vec<_> = names.map(|it| shown(&it.os, &it.architecture)).collect();
    Err(ImageError::Platform {
        reference: reference.to_string(),
        wanted: shown(os, architecture),
        found: names.join(", "),
    })
}

/// Platform names chosen by a registry, shortened for a message.
fn shown(os: &str, architecture: &str) -> String {
    let plain = |text: &str| -> String {
        let plain = |c: &char| c.is_ascii_alphanumeric() || "._-".contains(*c);
        text.chars().filter(plain).take(24).collect()
    };
    format!("{}/{}", plain(os), plain(architecture))
}

impl RawDescriptor {
    fn parse(&self) -> Result<Descriptor, ImageError> {
        let digest = Digest::parse(&self.digest)
            .map_err(|error| ImageError::invalid("a manifest", error.to_string()))?;
        Ok(Descriptor {
            digest,
            size: self.size,
        })
    }
}

/// Parses an image's configuration: its environment, working directory, user and layers.
pub(crate) fn parse_config(
    bytes: &[u8],
    reference: &Reference,
) -> Result<(Config, Vec<Digest>), ImageError> {
    let what = "an image's configuration";
    let raw: RawConfig = serde_json::from_slice(bytes)
        .map_err(|_| ImageError::invalid(what, "it is not what configurations look like"))?;
    let (os, architecture) = host_platform();
    let (own_os, own) = (raw.os.as_deref(), raw.architecture.as_deref());
    if own_os.is_some_and(|it| it != os) || own.is_some_and(|it| it != architecture) {
        return Err(ImageError::Platform {
            reference: reference.to_string(),
            wanted: shown(os, architecture),
            found: shown(own_os.unwrap_or(os), own.unwrap_or(architecture)),
        });
    }
    let layers = raw
        .rootfs
        .diff_ids
        .iter()
        .map(|digest| Digest::parse(digest));
    let layers = layers
        .collect::<Result<_, _>>()
        .map_err(|error| ImageError::invalid(what, error.to_string()))?;
    let process = raw.config.unwrap_or_default();
    let text = |value: Option<String>| value.filter(|text| !text.is_empty());
    let config = Config {
        env: environment(&process.env.unwrap_or_default())?,
        workdir: text(process.workdir),
        user: text(process.user),
    };
    Ok((config, layers))
}

/// The valid variables; invalid ones are dropped. Too many are an error, because a program that
/// misses some of them fails in obscure ways.
fn environment(env: &[String]) -> Result<Vec<(String, String)>, ImageError> {
    let bytes: usize = env.iter().map(|variable| variable.len() + 1).sum();
    if env.len() > IMAGE_VARIABLES_MAX || bytes > IMAGE_ENV_BYTES_MAX {
        return Err(ImageError::TooLarge {
            what: "an image's environment",
            max: IMAGE_ENV_BYTES_MAX as u64,
        });
    }
    let is_text = |c: char| !c.is_control() || matches!(c, '\n' | '\t');
    Ok(env
        .iter()
        .filter(|variable| variable.chars().all(is_text))
        .filter_map(|variable| variable.split_once('='))
        .filter(|(name, _)| !name.is_empty())
        .map(|(name, value)| (name.to_owned(), value.to_owned()))
        .collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_document_that_is_an_index_and_an_image_at_once_is_refused() {
        let reference = Reference::parse("app").unwrap();
        let bounds = Bounds::default();
        let digest = crate::hash::digest_of(b"x");
        let one = format!(r#"{{"digest": "{digest}", "size": 1}}"#);
        let parse = |fields: &str| {
            let text = format!(r#"{{"schemaVersion": 2, {fields}}}"#);
            parse_manifest(text.as_bytes(), &reference, &bounds)
        };
        let index = format!(r#""manifests": [{one}]"#);
        let (config, layers) = (
            format!(r#""config": {one}"#),
            format!(r#""layers": [{one}]"#),
        );
        assert!(matches!(parse(&index), Ok(Manifest::Elsewhere(_))));
        let image = parse(&format!("{config}, {layers}"));
        assert!(matches!(image, Ok(Manifest::Image { .. })));
        for own in [&config, &layers, r#""layers": []"#] {
            let refused = parse(&format!("{index}, {own}"));
            assert!(refused.is_err(), "{own}: {refused:?}");
        }
    }

    #[test]
    fn what_is_no_variable_is_left_out_and_too_many_are_refused() {
        let texts = |all: &[&str]| {
            all.iter()
                .map(|text| (*text).to_owned())
                .collect::<Vec<_>>()
        };
        let odd = texts(&["A=1", "no value", "=x", "B=\0", "C=\u{1}", "D=a=b\n"]);
        let kept = environment(&odd).unwrap();
        let kept: Vec<_> = kept.iter().map(|(name, _)| name.as_str()).collect();
        assert_eq!(kept, ["A", "D"]);
        let long = [format!("A={}", "x".repeat(IMAGE_ENV_BYTES_MAX))];
        let many = vec!["A=1".to_owned(); IMAGE_VARIABLES_MAX + 1];
        for env in [&long[..], &many[..]] {
            let refused = environment(env);
            assert!(
                matches!(refused, Err(ImageError::TooLarge { .. })),
                "{refused:?}"
            );
        }
    }
}
