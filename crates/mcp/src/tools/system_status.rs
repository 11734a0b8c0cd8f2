//! `system_status`: the state of the server, its engine and its quotas.

use std::collections::BTreeMap;

use hotcell_service::{LimitView, PoolView, PrincipalUse, Reconciled, Service, Status};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::reconcile::Counts;
use super::{Answer, Hints, Tool, ToolError};
use crate::call::Call;
use crate::{Server, Toolset};
use hotcell_domain::rfc3339;

pub(super) struct SystemStatus;

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Params {}

#[derive(Serialize, JsonSchema)]
pub(super) struct Output {
    version: String,
    engine: String,
    engine_up: bool,
    ready: bool,
    started_at: String,
    containers: u64,
    execs_running: u64,
    execs_queued: u64,
    /// What principals have of their quotas; at most 100 of them
    principals: Vec<PrincipalItem>,
    limits: Vec<Limit>,
    profile: Profile,
    #[serde(skip_serializing_if = "Option::is_none")]
    maxima: Option<Maxima>,
    totals: Totals,
    /// Workspaces by the user ids of their files on disk: plain, shifted, owner
    workspaces: BTreeMap<&'static str, u64>,
    warm: Vec<Warm>,
    /// What snippets can be written in, by image, as far as known
    languages: BTreeMap<String, Vec<&'static str>>,
    /// What the operator's names of images stand for
    image_aliases: BTreeMap<String, String>,
    /// MCP servers that scripts of yours may call; at most 100 of them
    #[serde(skip_serializing_if = "Vec::is_empty")]
    upstreams: Vec<Upstream>,
    #[serde(skip_serializing_if = "Option::is_none")]
    reconciled: Option<Counts>,
    #[serde(skip_serializing_if = "Option::is_none")]
    reconciled_at: Option<String>,
}

/// What a container is that names nothing of its own.
#[derive(Serialize, JsonSchema)]
struct Profile {
    image: String,
    memory_bytes: u64,
    cpus: f64,
    pids: u32,
    tmp_bytes: u64,
    disk_bytes: u64,
    /// Files, directories and links
    files: u64,
    network: &'static str,
    user: String,
}

/// The most that one container may have.
#[derive(Serialize, JsonSchema)]
struct Maxima {
    memory_bytes: u64,
    cpus: f64,
    pids: u32,
    disk_bytes: u64,
}

/// What all containers together may have, where that is bounded, and have: the sum of their
/// limits, warm ones too.
#[derive(Serialize, JsonSchema)]
struct Totals {
    #[serde(skip_serializing_if = "Option::is_none")]
    memory_bytes: Option<u64>,
    memory_bytes_held: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    pids: Option<u32>,
    pids_held: u64,
}

/// Most principals in one answer.
const PRINCIPALS_MAX: usize = 100;

/// What a principal has of its quota.
#[derive(Serialize, JsonSchema)]
struct PrincipalItem {
    principal: String,
    containers: usize,
    containers_max: usize,
    execs: usize,
    execs_max: usize,
    /// The disk limits of its containers together
    disk_bytes: u64,
    disk_bytes_max: u64,
    output_bytes: u64,
    output_bytes_max: u64,
}

/// Most other servers in one answer.
const UPSTREAMS_MAX: usize = 100;

/// An MCP server that scripts call.
#[derive(Serialize, JsonSchema)]
struct Upstream {
    name: String,
    /// `idle`: nobody has used it lately
    health: String,
    /// Missing until it was started once
    #[serde(skip_serializing_if = "Option::is_none")]
    tools: Option<usize>,
}

/// Containers that are kept ready.
#[derive(Serialize, JsonSchema)]
struct Warm {
    image: String,
    memory_bytes: u64,
    cpus: f64,
    pids: u32,
    wanted: u64,
    ready: u64,
    hits: u64,
    misses: u64,
}

#[derive(Serialize, JsonSchema)]
struct Limit {
    name: &'static str,
    enforced: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    by: Option<&'static str>,
}

impl Tool for SystemStatus {
    const NAME: &'static str = "system_status";
    const DESCRIPTION: &'static str =
        "Tell how the server and its engine are, and which limits this host enforces.";
    const HINTS: Hints = Hints::READS;
    const SET: Toolset = Toolset::Admin;
    type Params = Params;
    type Output = Output;

    async fn run(server: &Server, _: Params, call: &Call) -> Result<Answer, ToolError> {
        let status = server.service().status(&call.caller).await?;
        let engine = if status.engine_is_up { "up" } else { "down" };
        let text = format!(
            "engine {} is {engine}; {} containers, {} execs running, {} queued; {}",
            status.engine,
            status.containers,
            status.execs_running,
            status.execs_queued,
            unenforced(&status.limits)
        );
        Ok(Answer::of(text, Output::new(status, server, call)))
    }
}

impl Output {
    fn new(status: Status, server: &Server, call: &Call) -> Self {
        let totals = Totals::of(&status);
        let (at, reconciled): (Option<u64>, Option<Reconciled>) = status.reconciled.unzip();
        Self {
            version: server.version().to_owned(),
            engine: status.engine,
            engine_up: status.engine_is_up,
            ready: status.is_ready,
            started_at: rfc3339(status.started_unix_ms),
            containers: status.containers,
            execs_running: status.execs_running,
            execs_queued: status.execs_queued,
            principals: principals(&status.principals),
            limits: status.limits.iter().map(Limit::from).collect(),
            profile: Profile::of(server.service()),
            maxima: server.service().maxima().map(Maxima::from),
            totals,
            workspaces: status.workspaces,
            warm: status.warm.iter().map(Warm::from).collect(),
            languages: status.languages.into_iter().collect(),
            image_aliases: image_aliases(server.service()),
            upstreams: upstreams(server, call),
            reconciled: reconciled.map(Counts::from),
            reconciled_at: at.map(rfc3339),
        }
    }
}

fn upstreams(server: &Server, call: &Call) -> Vec<Upstream> {
    let servers = server.codemode().servers(call.caller.principal.as_str());
    let listed = servers.list().into_iter().take(UPSTREAMS_MAX);
    let one = |server: hotcell_codemode::ServerSummary| Upstream {
        name: server.name,
        health: server.health,
        tools: server.tools,
    };
    listed.map(one).collect()
}

fn image_aliases(service: &Service) -> BTreeMap<String, String> {
    let aliases = service.image_aliases();
    aliases
        .iter()
        .map(|(name, image)| (name.to_owned(), image.to_string()))
        .collect()
}

impl Profile {
    fn of(service: &Service) -> Self {
        let profile = service.default_profile();
        let limits = profile.limits;
        Self {
            image: service.default_image().to_string(),
            memory_bytes: limits.memory.get(),
            cpus: f64::from(limits.cpus.get()) / 1000.0,
            pids: limits.pids.get(),
            tmp_bytes: limits.tmp.get(),
            disk_bytes: limits.disk.get(),
            files: limits.files(),
            network: profile.network.word(),
            user: profile.user(),
        }
    }
}

impl From<hotcell_domain::Maxima> for Maxima {
    fn from(maxima: hotcell_domain::Maxima) -> Self {
        Self {
            memory_bytes: maxima.memory.get(),
            cpus: f64::from(maxima.cpus.get()) / 1000.0,
            pids: maxima.pids.get(),
            disk_bytes: maxima.disk.get(),
        }
    }
}

impl Totals {
    fn of(status: &Status) -> Self {
        let totals = status.totals;
        Self {
            memory_bytes: totals.map(|totals| totals.memory.get()),
            memory_bytes_held: status.held.memory_bytes,
            pids: totals.map(|totals| totals.pids.get()),
            pids_held: status.held.pids,
        }
    }
}

impl From<&PoolView> for Warm {
    fn from(view: &PoolView) -> Self {
        Self {
            image: view.image.to_string(),
            memory_bytes: view.limits.memory.get(),
            cpus: f64::from(view.limits.cpus.get()) / 1000.0,
            pids: view.limits.pids.get(),
            wanted: view.wanted,
            ready: view.ready,
            hits: view.hits,
            misses: view.misses,
        }
    }
}

fn principals(all: &[PrincipalUse]) -> Vec<PrincipalItem> {
    let listed = all.iter().take(PRINCIPALS_MAX);
    listed.map(PrincipalItem::from).collect()
}

impl From<&PrincipalUse> for PrincipalItem {
    fn from(used: &PrincipalUse) -> Self {
        Self {
            principal: used.principal.to_string(),
            containers: used.containers,
            containers_max: used.quota.containers,
            execs: used.execs,
            execs_max: used.quota.execs,
            disk_bytes: used.disk_bytes,
            disk_bytes_max: used.quota.disk_bytes,
            output_bytes: used.output_bytes,
            output_bytes_max: used.quota.output_bytes,
        }
    }
}

impl From<&LimitView> for Limit {
    fn from(view: &LimitView) -> Self {
        Self {
            name: view.limit,
            enforced: is_enforced(view),
            by: view.by,
        }
    }
}

/// Whether a limit holds for the whole container: an rlimit holds only for each process, and there
/// may be many.
fn is_enforced(limit: &LimitView) -> bool {
    !matches!(limit.by, None | Some("rlimit"))
}

fn unenforced(limits: &[LimitView]) -> String {
    let missing: Vec<&str> = limits
        .iter()
        .filter(|limit| !is_enforced(limit))
        .map(|limit| limit.limit)
        .collect();
    let is_watched = limits.iter().any(|limit| limit.by == Some("watched"));
    if missing.is_empty() && is_watched {
        "all limits are enforced, disk space by looking at it every second".to_owned()
    } else if missing.is_empty() {
        "all limits are enforced".to_owned()
    } else {
        format!(
            "this host does not enforce for a container as a whole: {}",
            missing.join(", ")
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn limits(by: [Option<&'static str>; 4]) -> Vec<LimitView> {
        let names = ["memory", "cpu", "pids", "disk"].into_iter();
        let view = |(limit, by)| LimitView { limit, by };
        names.zip(by).map(view).collect()
    }

    #[test]
    fn a_limit_of_each_process_is_not_called_enforced() {
        let some = limits([Some("rlimit"), None, Some("cgroup"), Some("project_quota")]);
        assert_eq!(
            unenforced(&some),
            "this host does not enforce for a container as a whole: memory, cpu"
        );
        let told: Vec<_> = some.iter().map(|view| Limit::from(view).enforced).collect();
        assert_eq!(told, [false, false, true, true]);
        assert_eq!(
            unenforced(&limits([Some("cgroup"); 4])),
            "all limits are enforced"
        );
        let watched = limits([
            Some("cgroup"),
            Some("cgroup"),
            Some("cgroup"),
            Some("watched"),
        ]);
        assert_eq!(
            unenforced(&watched),
            "all limits are enforced, disk space by looking at it every second"
        );
    }
}
