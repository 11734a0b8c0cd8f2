//! Version and abilities of an engine, for `auto` and `doctor`.

use std::time::Duration;

use bollard::models::SystemInfo;

use super::client::Client;
use super::config::{Flavor, Host};
use super::inspect::DaemonInfo;
use crate::{Enforced, EngineError};

/// Timeout of a request. A busy engine takes seconds, and a server that is started together with it
/// must not give up too early.
const ASK_TIMEOUT: Duration = Duration::from_secs(30);

/// What an engine reports about itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct About {
    /// The engine's own version.
    pub(super) version: String,
    /// The version of its API.
    pub(super) api_version: String,
    /// Whether it runs as an ordinary user.
    pub(super) is_rootless: bool,
    /// The version of cgroups: `1` or `2`.
    pub(super) cgroup_version: String,
    /// The OCI runtimes that it knows, sorted.
    pub(super) runtimes: Vec<String>,
    /// Its default OCI runtime.
    pub(super) default_runtime: String,
    /// Whether it filters system calls.
    pub(super) has_seccomp: bool,
    /// What enforces a container's limits.
    pub(super) enforced: Enforced,
}

/// Asks an engine about itself.
pub(super) async fn about(flavor: Flavor, host: &Host) -> Result<About, EngineError> {
    let client = Client::new(flavor, host.clone());
    let step = "ask the engine what it is";
    let version = client.call_within(ASK_TIMEOUT, step, bollard::Docker::version);
    let version = version.await?;
    let info = client
        .call_within(ASK_TIMEOUT, step, bollard::Docker::info)
        .await?;
    let said = |text: Option<String>| text.unwrap_or_else(|| "unknown".to_owned());
    Ok(describe(
        &info,
        said(version.version),
        said(version.api_version),
    ))
}

fn describe(info: &SystemInfo, version: String, api_version: String) -> About {
    let daemon_info = DaemonInfo::of(info, None);
    let names = info.runtimes.iter().flat_map(|runtimes| runtimes.keys());
    let mut runtimes: Vec<_> = names.cloned().collect();
    runtimes.sort();
    let options = info.security_options.iter().flatten();
    About {
        version,
        api_version,
        is_rootless: daemon_info.is_rootless,
        cgroup_version: info
            .cgroup_version
            .map_or_else(|| "unknown".to_owned(), |version| version.to_string()),
        runtimes,
        default_runtime: info.default_runtime.clone().unwrap_or_default(),
        has_seccomp: options.into_iter().any(|option| option.contains("seccomp")),
        enforced: daemon_info.enforced,
    }
}
