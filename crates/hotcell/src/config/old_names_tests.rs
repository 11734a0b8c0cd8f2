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

#[test]
fn each_old_name_stands_for_its_setting() {
    for (name, value, expected) in [
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
            "SANDBOX_IMAGE",
            "python:3.12",
            "--default-image=python:3.12",
        ),
        ("POOL_SIZE", "4", "--warm=4"),
        ("CONTAINER_MEMORY_LIMIT", "512m", "--memory=512m"),
        ("CONTAINER_MEMORY_LIMIT", "512MB", "--memory=512m"),
        ("CONTAINER_MEMORY_LIMIT", "1Gi", "--memory=1g"),
        ("CONTAINER_MEMORY_LIMIT", "536870912", "--memory=536870912"),
        ("CONTAINER_CPU_LIMIT", "0.5", "--cpus=0.5"),
        (
            "MCP_BRIDGE_IMAGE",
            "python:3.14-slim",
            "--default-image=python:3.14-slim",
        ),
        ("MCP_BRIDGE_RUNTIME", "Podman", "--engine=podman"),
        ("MCP_BRIDGE_MEMORY", "256m", "--memory=256m"),
        ("MCP_BRIDGE_PIDS", "128", "--pids=128"),
        ("MCP_BRIDGE_CPUS", "2", "--cpus=2"),
        (
            "MCP_BRIDGE_STATE_DIR",
            "/srv/bridge",
            "--state-dir=/srv/bridge",
        ),
        ("MCP_BRIDGE_LOG_LEVEL", "DEBUG", "--log-level=debug"),
    ] {
        assert_eq!(said(name, value), expected, "{name}={value}");
    }
}

/// Settings of parts that may not be there yet.
const LATER: [&str; 15] = [
    "MCP_DOCKER_CONFIG_JSON",
    "MCP_AUTH_MODE",
    "MCP_BEARER_TOKEN",
    "MCP_OAUTH_CLIENT_ID",
    "MCP_OAUTH_CLIENT_SECRET",
    "MCP_OAUTH_CONFIG_URL",
    "MCP_OAUTH_AUDIENCE",
    "MCP_OAUTH_REQUIRED_SCOPES",
    "EXEC_TIMEOUT",
    "MAX_OUTPUT_SIZE",
    "MCP_BRIDGE_TIMEOUT",
    "MCP_BRIDGE_MAX_TIMEOUT",
    "MCP_BRIDGE_CONTAINER_USER",
    "MCP_BRIDGE_RUNTIME_IDLE_TIMEOUT",
    "MCP_BRIDGE_OUTPUT_MODE",
];

#[test]
fn what_this_version_has_no_setting_for_is_said() {
    let catalogue = Catalogue::of(&Cli::command());
    for name in LATER {
        let old = OLD_NAMES.iter().find(|old| old.name == name);
        let flags = old.expect("an old name").flags;
        if flags.iter().all(|flag| catalogue.by_flag(flag).is_none()) {
            assert_eq!(
                said(name, "1"),
                format!("{name} is not used by this version")
            );
        }
    }
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
