use std::collections::BTreeSet;

use clap::CommandFactory;

use super::*;
use crate::cli::Cli;

/// The variables of an environment with this one alone, as `--flag=value` or as what is said.
fn said(name: &str, value: &str) -> String {
    let catalogue = Catalogue::of(&Cli::command());
    let only = |asked: &str| (asked == name).then(|| value.to_owned());
    match translate(|| &catalogue, only) {
        Err(refused) => refused,
        Ok(translated) => {
            let [one] = translated.try_into().expect("one variable is set");
            let Translated { notice, value, .. } = one;
            match value {
                Some((flag, values)) => {
                    let setting = catalogue.by_flag(&flag).expect("a flag of `serve`");
                    assert!(notice.contains(&setting.variable), "{notice}");
                    format!("--{flag}={}", values.join(","))
                }
                None => notice,
            }
        }
    }
}

/// Every old name, with an old value and what that comes to. Where this version has none of the settings that a
/// name may stand for, the operator is told so.
const EXPECTED: &[(&str, &str, &str)] = &[
    (
        "MCP_TRANSPORT_MODE",
        "streamable_http",
        "--transport=streamable-http",
    ),
    ("MCP_TRANSPORT_MODE", "stdio", "--transport=stdio"),
    ("MCP_HOST", "::1", "--host=::1"),
    ("MCP_PORT", "9000", "--port=9000"),
    ("MCP_PATH", "/tools", "--path=/tools"),
    (
        "MCP_ALLOWED_REGISTRIES",
        "docker.io, ghcr.io",
        "--allowed-registries=docker.io,ghcr.io",
    ),
    (
        "MCP_ALLOWED_REGISTRIES",
        r#"["quay.io"]"#,
        "--allowed-registries=quay.io",
    ),
    ("MCP_LOG_LEVEL", "WARNING", "--log-level=warn"),
    ("MCP_LOG_FORMAT", "JSON", "--log-format=json"),
    ("MCP_AUTH_MODE", "oauth", "--auth=oidc"),
    ("MCP_AUTH_MODE", "Bearer", "--auth=bearer"),
    (
        "MCP_BEARER_TOKEN",
        "0123456789abcdef0123456789abcdef",
        "--bearer-token=0123456789abcdef0123456789abcdef",
    ),
    ("MCP_OAUTH_CLIENT_ID", "hotcell", "--oidc-client-id=hotcell"),
    (
        "MCP_OAUTH_CLIENT_SECRET",
        "s3cret",
        "--oidc-client-secret=s3cret",
    ),
    (
        "MCP_OAUTH_CONFIG_URL",
        "https://id.example/.well-known/openid-configuration",
        "--oidc-config-url=https://id.example/.well-known/openid-configuration",
    ),
    (
        "MCP_OAUTH_AUDIENCE",
        "https://cells.example/mcp",
        "--oidc-audience=https://cells.example/mcp",
    ),
    (
        "MCP_OAUTH_REQUIRED_SCOPES",
        "a b",
        "--oidc-required-scopes=a,b",
    ),
    (
        "MCP_STATE_DB",
        "/var/lib/devbench/state.db",
        "--state-dir=/var/lib/devbench",
    ),
    ("MCP_STATE_DB", "sqlite:////srv/x.db", "--state-dir=/srv"),
    ("MCP_STATE_DB", "state.db", "--state-dir=."),
    ("MCP_DRAIN_GRACE_S", "5", "--drain-grace-s=5"),
    ("MCP_TRANSIENT_GC_DAYS", "3", "--transient-gc-days=3"),
    ("MCP_WARM_POOL_ENABLED", "False", "--warm=0"),
    ("MCP_WARM_HEALTH_CHECK_INTERVAL", "15", "--warm-check-s=15"),
    (
        "MCP_DEFAULT_IMAGE_ALIAS",
        "python",
        "--default-image=python",
    ),
    (
        "MCP_DOCKER_CONFIG_JSON",
        "/run/secrets/config.json",
        "--docker-config=/run/secrets/config.json",
    ),
    ("SANDBOX_IMAGE", "python:3.12", "=python:3.12"),
    ("POOL_SIZE", "4", "--warm=4"),
    ("EXEC_TIMEOUT", "30", "=30"),
    ("MAX_OUTPUT_SIZE", "100000", "=100000"),
    ("CONTAINER_MEMORY_LIMIT", "512m", "--memory=512m"),
    ("CONTAINER_MEMORY_LIMIT", "512MB", "--memory=512m"),
    ("CONTAINER_MEMORY_LIMIT", "1Gi", "--memory=1g"),
    ("CONTAINER_MEMORY_LIMIT", "536870912", "--memory=536870912"),
    ("CONTAINER_CPU_LIMIT", "0.5", "--cpus=0.5"),
    ("MCP_BRIDGE_IMAGE", "python:3.14-slim", "=python:3.14-slim"),
    ("MCP_BRIDGE_RUNTIME", "Podman", "--engine=podman"),
    ("MCP_BRIDGE_TIMEOUT", "30", "=30"),
    ("MCP_BRIDGE_MAX_TIMEOUT", "900", "=900"),
    ("MCP_BRIDGE_MEMORY", "256m", "=256m"),
    ("MCP_BRIDGE_PIDS", "128", "=128"),
    ("MCP_BRIDGE_CPUS", "2", "=2"),
    ("MCP_BRIDGE_CONTAINER_USER", "65534:65534", "=65534:65534"),
    ("MCP_BRIDGE_RUNTIME_IDLE_TIMEOUT", "300", "=300"),
    (
        "MCP_BRIDGE_STATE_DIR",
        "/srv/bridge",
        "--state-dir=/srv/bridge",
    ),
    ("MCP_BRIDGE_OUTPUT_MODE", "compact", "=compact"),
    ("MCP_BRIDGE_LOG_LEVEL", "DEBUG", "--log-level=debug"),
    (
        "MCP_BRIDGE_ALLOW_SELF_SERVER",
        "true",
        "--codemode-allow-self=true",
    ),
    (
        "MCP_SERVERS_CONFIG",
        "servers.json",
        "--upstream-config=servers.json",
    ),
    (
        "OTEL_EXPORTER_OTLP_ENDPOINT",
        "http://127.0.0.1:4318",
        "--otel-endpoint=http://127.0.0.1:4318",
    ),
    (
        "OTEL_EXPORTER_OTLP_HEADERS",
        "api-key=k%20k,x=y",
        "--otel-headers=api-key=k%20k,x=y",
    ),
];

/// The flags that a name may stand for and that this version has.
fn known_flags(catalogue: &Catalogue, name: &str) -> Vec<&'static str> {
    let old = OLD_NAMES.iter().find(|old| old.name == name);
    let flags = old.expect("an old name").flags.iter().copied();
    flags
        .filter(|flag| catalogue.by_flag(flag).is_some())
        .collect()
}

#[test]
fn each_old_name_stands_for_its_setting() {
    let catalogue = Catalogue::of(&Cli::command());
    for (name, value, expected) in EXPECTED {
        let expected = match known_flags(&catalogue, name).first() {
            // The setting of a part that may not be there: another one stands in for it.
            Some(flag) if expected.starts_with('=') => format!("--{flag}{expected}"),
            Some(_) => (*expected).to_owned(),
            None => format!("{name} is not used by this version"),
        };
        assert_eq!(said(name, value), expected, "{name}={value}");
    }
}

/// The names that are promised: after `MCP_`, as they are, and after `MCP_BRIDGE_`.
const PROMISED: [(&str, &str); 5] = [
    (
        "MCP_",
        "TRANSPORT_MODE HOST PORT PATH ALLOWED_REGISTRIES LOG_LEVEL LOG_FORMAT AUTH_MODE BEARER_TOKEN OAUTH_CLIENT_ID \
         OAUTH_CLIENT_SECRET OAUTH_CONFIG_URL OAUTH_AUDIENCE OAUTH_REQUIRED_SCOPES STATE_DB DRAIN_GRACE_S \
         TRANSIENT_GC_DAYS WARM_POOL_ENABLED WARM_HEALTH_CHECK_INTERVAL DEFAULT_IMAGE_ALIAS DOCKER_CONFIG_JSON",
    ),
    (
        "",
        "SANDBOX_IMAGE POOL_SIZE EXEC_TIMEOUT MAX_OUTPUT_SIZE CONTAINER_MEMORY_LIMIT CONTAINER_CPU_LIMIT",
    ),
    (
        "MCP_BRIDGE_",
        "IMAGE RUNTIME TIMEOUT MAX_TIMEOUT MEMORY PIDS CPUS CONTAINER_USER RUNTIME_IDLE_TIMEOUT STATE_DIR OUTPUT_MODE \
         LOG_LEVEL ALLOW_SELF_SERVER",
    ),
    ("OTEL_", "EXPORTER_OTLP_ENDPOINT EXPORTER_OTLP_HEADERS"),
    ("MCP_", "SERVERS_CONFIG"),
];

#[test]
fn every_promised_name_is_known_and_tested() {
    let promised = PROMISED.iter().flat_map(|(prefix, names)| {
        names
            .split_whitespace()
            .map(move |name| format!("{prefix}{name}"))
    });
    let promised: BTreeSet<String> = promised.collect();
    let known = OLD_NAMES.iter().map(|old| old.name.to_owned());
    assert_eq!(promised, known.collect());
    let tested = EXPECTED.iter().map(|(name, ..)| (*name).to_owned());
    assert_eq!(promised, tested.collect());
}

#[test]
fn the_content_of_a_file_is_no_path_and_is_not_repeated() {
    let refused = said(
        "MCP_DOCKER_CONFIG_JSON",
        r#"{"auths": {"ghcr.io": {"auth": "c2VjcmV0"}}}"#,
    );
    assert_eq!(
        refused,
        "MCP_DOCKER_CONFIG_JSON, an old name of HOTCELL_DOCKER_CONFIG, is refused: write the path of a file, not what is in it"
    );
}

#[test]
fn a_bad_old_value_is_refused_by_both_names() {
    assert_eq!(
        said("MCP_PORT", "http"),
        "MCP_PORT, an old name of HOTCELL_PORT, is refused: invalid digit found in string"
    );
    for (name, value) in [
        ("MCP_TRANSPORT_MODE", "pigeon"),
        ("MCP_ALLOWED_REGISTRIES", "[1]"),
        ("MCP_WARM_POOL_ENABLED", "perhaps"),
        ("MCP_STATE_DB", "/"),
        ("CONTAINER_MEMORY_LIMIT", "lots"),
        ("POOL_SIZE", "-1"),
    ] {
        let refused = said(name, value);
        assert!(refused.contains("is refused"), "{name}={value}: {refused}");
    }
}

#[test]
fn a_value_that_applies_anyway_changes_nothing() {
    let said = said("MCP_WARM_POOL_ENABLED", "true");
    assert!(said.contains("is an old name; use HOTCELL_WARM"), "{said}");
}

#[test]
fn an_empty_variable_is_not_set() {
    let catalogue = Catalogue::of(&Cli::command());
    assert_eq!(
        translate(|| &catalogue, |_| Some(String::new())),
        Ok(Vec::new())
    );
}

#[test]
fn the_migration_pages_name_every_old_name() {
    let pages = concat!(
        include_str!("../../../../docs/migrate/workspace-server.md"),
        include_str!("../../../../docs/migrate/code-server.md"),
        include_str!("../../../../docs/migrate/bridge.md"),
    );
    let names = OLD_NAMES.iter().map(|old| old.name);
    for name in names.filter(|name| !STANDARD.contains(name)) {
        assert!(pages.contains(&format!("`{name}`")), "{name}");
    }
    // Whatever a page promises as a new name is one.
    let catalogue = Catalogue::of(&Cli::command());
    let known: BTreeSet<&str> = catalogue
        .settings
        .iter()
        .map(|setting| setting.variable.as_str())
        .collect();
    let told = pages.split('`').filter(|word| word.starts_with("HOTCELL_"));
    for name in told.filter(|name| !name.contains('*')) {
        assert!(known.contains(name), "{name}");
    }
}
