//! Environment variables of programs that Hotcell replaces. Each stands for a setting and ranks
//! below the configuration file: whoever writes one has migrated.

use super::catalogue::{Catalogue, Setting};

/// An old name.
struct OldName {
    name: &'static str,
    /// The flags that it may stand for; the first one that this version has is used.
    flags: &'static [&'static str],
    translate: Translate,
}

/// Translates the old value to the flag's; `None` if the old value is what applies anyway.
type Translate = fn(&str) -> Result<Option<Vec<String>>, String>;

const fn old(name: &'static str, flags: &'static [&'static str], translate: Translate) -> OldName {
    OldName {
        name,
        flags,
        translate,
    }
}

/// If two stand for the same flag, the first one counts.
const OLD_NAMES: &[OldName] = &[
    old("MCP_TRANSPORT_MODE", &["transport"], transport),
    old("MCP_HOST", &["host"], same),
    old("MCP_PORT", &["port"], same),
    old("MCP_PATH", &["path"], same),
    old("MCP_ALLOWED_REGISTRIES", &["allowed-registries"], list),
    old("MCP_LOG_LEVEL", &["log-level"], level),
    old("MCP_LOG_FORMAT", &["log-format"], lower),
    old("MCP_AUTH_MODE", &["auth"], auth),
    old("MCP_BEARER_TOKEN", &["bearer-token"], same),
    old("MCP_OAUTH_CLIENT_ID", &["oidc-client-id"], same),
    old("MCP_OAUTH_CLIENT_SECRET", &["oidc-client-secret"], same),
    old("MCP_OAUTH_CONFIG_URL", &["oidc-config-url"], same),
    old("MCP_OAUTH_AUDIENCE", &["oidc-audience"], same),
    old("MCP_OAUTH_REQUIRED_SCOPES", &["oidc-required-scopes"], list),
    old("MCP_STATE_DB", &["state-dir"], directory_of),
    old("MCP_DRAIN_GRACE_S", &["drain-grace-s"], same),
    old("MCP_TRANSIENT_GC_DAYS", &["transient-gc-days"], same),
    old("MCP_WARM_POOL_ENABLED", &["warm"], none_if_false),
    old("MCP_WARM_HEALTH_CHECK_INTERVAL", &["warm-check-s"], same),
    old("MCP_DEFAULT_IMAGE_ALIAS", &["default-image"], same),
    old("MCP_DOCKER_CONFIG_JSON", &["docker-config"], path),
    old("SANDBOX_IMAGE", &["code-image", "default-image"], same),
    old("POOL_SIZE", &["warm"], same),
    old("EXEC_TIMEOUT", &["code-timeout-s"], same),
    old("MAX_OUTPUT_SIZE", &["max-output-size"], same),
    old("CONTAINER_MEMORY_LIMIT", &["memory"], size),
    old("CONTAINER_CPU_LIMIT", &["cpus"], same),
    old(
        "MCP_BRIDGE_IMAGE",
        &["codemode-image", "default-image"],
        same,
    ),
    old("MCP_BRIDGE_RUNTIME", &["engine"], lower),
    old("MCP_BRIDGE_TIMEOUT", &["codemode-timeout-s"], same),
    old("MCP_BRIDGE_MAX_TIMEOUT", &["codemode-timeout-max-s"], same),
    old("MCP_BRIDGE_MEMORY", &["codemode-memory", "memory"], size),
    old("MCP_BRIDGE_PIDS", &["codemode-pids", "pids"], same),
    old("MCP_BRIDGE_CPUS", &["codemode-cpus", "cpus"], same),
    old("MCP_BRIDGE_CONTAINER_USER", &["codemode-user"], same),
    old(
        "MCP_BRIDGE_RUNTIME_IDLE_TIMEOUT",
        &["codemode-idle-s"],
        same,
    ),
    old("MCP_BRIDGE_STATE_DIR", &["state-dir"], same),
    old("MCP_BRIDGE_OUTPUT_MODE", &["codemode-output"], lower),
    old("MCP_BRIDGE_LOG_LEVEL", &["log-level"], level),
    old(
        "MCP_BRIDGE_ALLOW_SELF_SERVER",
        &["codemode-allow-self"],
        lower,
    ),
    old(STANDARD[0], &["otel-endpoint"], same),
    old(STANDARD[1], &["otel-headers"], same),
    old("MCP_SERVERS_CONFIG", &["upstream-config"], same),
];

/// Not old names, but OpenTelemetry's standard variables.
const STANDARD: [&str; 2] = ["OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_HEADERS"];

/// The translation of an old name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Translated {
    pub(crate) name: &'static str,
    /// A message for the operator.
    pub(crate) notice: String,
    /// The flag and its values; `None` if nothing changes.
    pub(crate) value: Option<(String, Vec<String>)>,
}

/// Translates the old names that are set and not empty. `variable` reads the environment.
pub(crate) fn translate<'a>(
    catalogue: impl Fn() -> &'a Catalogue,
    variable: impl Fn(&str) -> Option<String>,
) -> Result<Vec<Translated>, String> {
    let set = |old: &'static OldName| {
        let value = variable(old.name).filter(|value| !value.is_empty())?;
        Some((old, value))
    };
    OLD_NAMES
        .iter()
        .filter_map(set)
        .map(|(old, value)| translate_one(catalogue(), old, &value))
        .collect()
}

fn translate_one(
    catalogue: &Catalogue,
    old: &'static OldName,
    value: &str,
) -> Result<Translated, String> {
    let name = old.name;
    let Some(setting) = old.flags.iter().find_map(|flag| catalogue.by_flag(flag)) else {
        return Ok(Translated {
            name,
            notice: format!("{name} is not used by this version"),
            value: None,
        });
    };
    let values = checked(setting, old, value).map_err(|reason| {
        let new = &setting.variable;
        format!("{name}, an old name of {new}, is refused: {reason}")
    })?;
    let new = format!(
        "{}, or `{}` in the section [{}] of hotcell.toml",
        setting.variable, setting.key, setting.section
    );
    Ok(Translated {
        name,
        notice: if STANDARD.contains(&name) {
            format!("{name} is used; to override it, use {new}")
        } else {
            format!("{name} is an old name; use {new}")
        },
        value: values.map(|values| (setting.flag.clone(), values)),
    })
}

fn checked(setting: &Setting, old: &OldName, value: &str) -> Result<Option<Vec<String>>, String> {
    let values = (old.translate)(value.trim())?;
    for value in values.iter().flatten() {
        setting.check(value)?;
    }
    Ok(values)
}

type Translation = Result<Option<Vec<String>>, String>;

#[expect(clippy::unnecessary_wraps, reason = "all translations look alike")]
fn one(value: impl Into<String>) -> Translation {
    Ok(Some(vec![value.into()]))
}

fn same(value: &str) -> Translation {
    one(value)
}

fn lower(value: &str) -> Translation {
    one(value.to_lowercase())
}

fn transport(value: &str) -> Translation {
    match value.to_lowercase().as_str() {
        "http" | "streamable_http" | "streamable" => one("streamable-http"),
        other => one(other),
    }
}

/// Python's names of log levels.
fn level(value: &str) -> Translation {
    match value.to_lowercase().as_str() {
        "warning" => one("warn"),
        "critical" | "fatal" => one("error"),
        "notset" => Ok(None),
        other => one(other),
    }
}

fn auth(value: &str) -> Translation {
    match value.to_lowercase().as_str() {
        "oauth" | "oauth2" => one("oidc"),
        other => one(other),
    }
}

/// A list separated by commas or spaces, or a JSON array.
fn list(value: &str) -> Translation {
    if value.starts_with('[') {
        let items: Result<Vec<String>, _> = serde_json::from_str(value);
        return items
            .map(Some)
            .map_err(|_| "write a list with commas, or one of JSON strings".to_owned());
    }
    let items = value.split([',', ' ']).filter(|item| !item.is_empty());
    Ok(Some(items.map(str::to_owned).collect()))
}

/// A size in the notation of Docker or Kubernetes.
fn size(value: &str) -> Translation {
    let value = value.to_lowercase();
    let is_unit = |text: &str| text.ends_with(['k', 'm', 'g', 't']);
    let short = value.strip_suffix("ib").or_else(|| value.strip_suffix('b'));
    let short = short
        .or_else(|| value.strip_suffix('i'))
        .filter(|it| is_unit(it));
    one(short.unwrap_or(&value))
}

/// The directory of a database file, which may be a URL.
fn directory_of(value: &str) -> Translation {
    let path = value.strip_prefix("sqlite:///").unwrap_or(value);
    match std::path::Path::new(path)
        .parent()
        .and_then(|it| it.to_str())
    {
        Some("") => one("."),
        Some(directory) => one(directory),
        None => Err("write the path of a file".to_owned()),
    }
}

/// A path. The content of the file, which some programs accept here, is rejected.
fn path(value: &str) -> Translation {
    if value.starts_with('{') {
        return Err("write the path of a file, not what is in it".to_owned());
    }
    one(value)
}

fn none_if_false(value: &str) -> Translation {
    match value.to_lowercase().as_str() {
        "false" | "0" | "no" | "off" => one("0"),
        "true" | "1" | "yes" | "on" => Ok(None),
        _ => Err("write true or false".to_owned()),
    }
}

#[cfg(test)]
#[path = "old_names_tests.rs"]
mod tests;
