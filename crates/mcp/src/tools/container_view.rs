//! Containers as clients see them.

use std::time::Duration;

use hotcell_domain::Principal;
use hotcell_service::ContainerView;
use schemars::JsonSchema;
use serde::Serialize;

use hotcell_domain::rfc3339;

/// A container in a list.
#[derive(Serialize, JsonSchema)]
pub(super) struct ContainerItem {
    container_id: String,
    /// Its owner, with `all`
    #[serde(skip_serializing_if = "Option::is_none")]
    principal: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    alias: Option<String>,
    /// Of `execute_code`, if it is one
    #[serde(skip_serializing_if = "Option::is_none")]
    session: Option<String>,
    status: &'static str,
    image: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    image_digest: Option<String>,
    persistent: bool,
    engine: String,
    egress: String,
    created_at: String,
    last_used_at: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    expires_at: Option<String>,
    memory: Memory,
    disk: Disk,
    /// Processor time used so far
    #[serde(skip_serializing_if = "Option::is_none")]
    cpu_ms: Option<u64>,
    /// User ids of its files on the host's disk: plain, shifted, owner
    #[serde(skip_serializing_if = "Option::is_none")]
    workspace_ids: Option<&'static str>,
    attachments: Vec<Attachment>,
}

/// How much memory a container may use and uses.
#[derive(Serialize, JsonSchema)]
struct Memory {
    limit_bytes: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    used_bytes: Option<u64>,
}

/// How much disk space a container may use and uses.
#[derive(Serialize, JsonSchema)]
struct Disk {
    limit_bytes: u64,
    /// Files, directories and links
    limit_files: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    used_bytes: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    used_files: Option<u64>,
    /// `project_quota`: by the kernel; `watched`: execs end within seconds
    #[serde(skip_serializing_if = "Option::is_none")]
    enforced_by: Option<&'static str>,
}

/// Somebody who works in a container.
#[derive(Serialize, JsonSchema)]
struct Attachment {
    client_name: String,
    session_id: String,
    attached_at: String,
}

impl From<&ContainerView> for ContainerItem {
    fn from(view: &ContainerView) -> Self {
        Self {
            container_id: view.id.to_string(),
            principal: None,
            alias: view.alias.as_ref().map(ToString::to_string),
            session: view.session.as_ref().map(ToString::to_string),
            status: view.phase.as_str(),
            image: view.image.to_string(),
            image_digest: view.image_digest.clone(),
            persistent: view.is_persistent,
            engine: view.engine.clone(),
            egress: egress_of(view),
            created_at: rfc3339(view.created_unix_ms),
            last_used_at: rfc3339(view.last_used_unix_ms),
            expires_at: view.expires_unix_ms.map(rfc3339),
            memory: Memory {
                limit_bytes: view.limits.memory.get(),
                used_bytes: view.memory_bytes,
            },
            disk: Disk::of(view),
            cpu_ms: view.cpu_time.map(millis),
            workspace_ids: view.workspace_ids,
            attachments: view.attachments.iter().map(Attachment::from).collect(),
        }
    }
}

impl Disk {
    fn of(view: &ContainerView) -> Self {
        let enforced = view.enforced.iter().find(|limit| limit.limit == "disk");
        Self {
            limit_bytes: view.limits.disk.get(),
            limit_files: view.limits.files(),
            used_bytes: view.disk_use.map(|used| used.bytes),
            used_files: view.disk_use.map(|used| used.files),
            enforced_by: enforced.and_then(|limit| limit.by),
        }
    }
}

fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

impl ContainerItem {
    pub(super) fn with_principal(self, principal: &Principal) -> Self {
        Self {
            principal: Some(principal.to_string()),
            ..self
        }
    }
}

impl From<&hotcell_service::Attached> for Attachment {
    fn from(attached: &hotcell_service::Attached) -> Self {
        Self {
            client_name: attached.client_name.to_string(),
            session_id: attached.session_id.to_string(),
            attached_at: rfc3339(attached.attached_unix_ms),
        }
    }
}

/// The egress profile of a container.
pub(super) fn egress_of(view: &ContainerView) -> String {
    let profile = view.egress.as_ref();
    profile.map_or_else(|| "none".to_owned(), ToString::to_string)
}

/// A container in one line.
pub(super) fn line(view: &ContainerView) -> String {
    let alias = view.alias.as_ref().map_or("-", |alias| alias.as_str());
    let kind = if view.is_persistent {
        "persistent"
    } else {
        "transient"
    };
    let (id, status, image) = (&view.id, view.phase.as_str(), &view.image);
    let (created, used) = (
        rfc3339(view.created_unix_ms),
        rfc3339(view.last_used_unix_ms),
    );
    let expires = view.expires_unix_ms.map(rfc3339);
    let expires = expires.map(|at| format!("  until {at}"));
    let session = view.session.as_ref();
    let session = session.map(|session| format!("  session {session}"));
    format!(
        "{id}  {alias}  {status}  {image}  {kind}  made {created}  used {used}{}{}",
        expires.unwrap_or_default(),
        session.unwrap_or_default()
    )
}

/// All statistics of a container: the content of `stats://`.
pub(crate) fn stats(view: &ContainerView) -> serde_json::Value {
    let enforced = view.enforced.iter().map(|limit| {
        let by = limit.by.map_or(serde_json::Value::Null, Into::into);
        (limit.limit.to_owned(), by)
    });
    let mut stats = serde_json::to_value(ContainerItem::from(view)).expect("its keys are strings");
    stats["cpus"] = (f64::from(view.limits.cpus.get()) / 1000.0).into();
    stats["pids"] = view.limits.pids.get().into();
    stats["tmp_bytes"] = view.limits.tmp.get().into();
    stats["oom_kills"] = view.oom_kills.into();
    stats["network"] = view.network.word().into();
    let labels = view
        .labels
        .iter()
        .map(|(name, value)| (name.to_owned(), value.into()));
    stats["labels"] = labels.collect::<serde_json::Map<_, _>>().into();
    stats["enforced_by"] = enforced.collect::<serde_json::Map<_, _>>().into();
    stats
}
