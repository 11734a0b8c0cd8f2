//! `spawn`: creates a container.

use std::collections::BTreeMap;

use hotcell_domain::{Alias, Bytes, CpuMillis, ImageName, Limits, Name, Network, Pids};
use hotcell_service::{Abandonment, ContainerView, EgressChoice, Progress, Service};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::arguments::{self, Quantity};
use super::container_view::egress_of;
use super::{Answer, Code, Hints, Tool, ToolError};
use crate::Server;
use crate::call::Call;
use hotcell_domain::rfc3339;

pub(super) struct Spawn;

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Params {
    /// OCI reference, or host (the host's own /usr); default: as configured
    image: Option<String>,
    /// Keep it until kill, also over a restart
    #[serde(default)]
    persistent: bool,
    /// Your name for it: a-z, 0-9, . _ -, at most 63
    alias: Option<String>,
    /// Ended after so many seconds
    #[schemars(range(min = 1))]
    ttl_s: Option<u64>,
    /// Same key within 24 h: same container
    idempotency_key: Option<String>,
    /// none, or full where the operator allows it
    #[serde(default = "no_network")]
    network: String,
    /// Egress profile: what it may reach; default: as configured
    egress: Option<String>,
    /// Such as 512m (the default); up to the operator's maximum, as cpus, pids and disk
    memory: Option<Quantity>,
    /// Such as 0.5; default 1
    cpus: Option<Quantity>,
    /// Processes and threads; default 256
    #[schemars(range(min = 1, max = 4_194_304))]
    pids: Option<u32>,
    /// Disk space, such as 2g; default 10g
    disk: Option<Quantity>,
    /// Variables of every command
    #[serde(default)]
    #[schemars(extend("default" = null))]
    env: BTreeMap<String, String>,
    /// Notes, at most 64
    #[serde(default)]
    #[schemars(extend("default" = null))]
    labels: BTreeMap<String, String>,
}

#[derive(Serialize, JsonSchema)]
pub(super) struct Output {
    container_id: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    alias: Option<String>,
    status: &'static str,
    image: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    image_digest: Option<String>,
    engine: String,
    egress: String,
    /// It was kept ready
    warm: bool,
    created_at: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    expires_at: Option<String>,
    next_step: &'static str,
}

/// The next step after a spawn.
const NEXT_STEP: &str =
    "run commands with exec_start (wait_s=50 for short ones); files are in /workspace";

impl Output {
    fn text(&self) -> String {
        let alias = self.alias.as_ref().map(|alias| format!(" (alias {alias})"));
        let expires = self.expires_at.as_ref().map(|at| format!(", until {at}"));
        let egress = (self.egress != "none").then(|| format!(", egress {}", self.egress));
        format!(
            "container {}{} is {}: image {}, engine {}{}{}; {}",
            self.container_id,
            alias.unwrap_or_default(),
            self.status,
            self.image,
            self.engine,
            egress.unwrap_or_default(),
            expires.unwrap_or_default(),
            self.next_step
        )
    }
}

impl Tool for Spawn {
    const NAME: &'static str = "spawn";
    const DESCRIPTION: &'static str = "Make a sealed Linux container to work in: no network but its egress profile, read-only root, user 1000, /workspace writable. \
        All other tools take its container_id or alias.";
    const HINTS: Hints = Hints::ADDS;
    type Params = Params;
    type Output = Output;

    async fn run(server: &Server, params: Params, call: &Call) -> Result<Answer, ToolError> {
        let request = params.request(server.service())?;
        let view = spawn(server, request, call).await?;
        let output = Output::from(&view);
        Ok(Answer::of(output.text(), output))
    }
}

/// Creates the container. If the client cancels the call, the service decides whether it is kept.
async fn spawn(
    server: &Server,
    mut request: hotcell_service::Spawn,
    call: &Call,
) -> Result<ContainerView, ToolError> {
    let (progress, updates) = Progress::channel();
    let (abandonment, waiting) = Abandonment::new();
    request.progress = progress;
    request.abandonment = abandonment;
    let what = || match &*updates.borrow() {
        Some(pulling) => pulling.to_string(),
        None => "making the container".to_owned(),
    };
    let spawning = server.service().spawn(&call.caller, request);
    let view = call.attend_telling(what, spawning).await??;
    waiting.answered();
    Ok(view)
}

impl Params {
    fn request(&self, service: &Service) -> Result<hotcell_service::Spawn, ToolError> {
        let image = self.image.as_deref().map(ImageName::parse).transpose();
        let image = image.map_err(|error| ToolError::argument("image", error))?;
        let alias = self.alias.as_deref().map(Alias::parse).transpose();
        Ok(hotcell_service::Spawn {
            image: image.map(|name| service.resolve_image(&name)),
            is_persistent: self.persistent,
            alias: alias.map_err(|error| ToolError::argument("alias", error))?,
            ttl_s: self.ttl_s,
            key: arguments::key(self.idempotency_key.as_deref())?,
            network: Some(network(&self.network)?),
            egress: egress(self.egress.as_deref())?,
            limits: self.limits(service.default_profile().limits)?,
            env: arguments::env(&self.env)?,
            labels: arguments::labels(&self.labels)?,
            session: None,
            progress: Progress::default(),
            abandonment: Abandonment::default(),
        })
    }

    /// The requested limits; those that are not given have their configured default.
    fn limits(&self, default: Limits) -> Result<Option<Limits>, ToolError> {
        let mut limits = default;
        if let Some(memory) = &self.memory {
            limits.memory = Bytes::parse(&memory.text())
                .map_err(|error| ToolError::argument("memory", error))?;
        }
        if let Some(cpus) = &self.cpus {
            limits.cpus = CpuMillis::parse(&cpus.text())
                .map_err(|error| ToolError::argument("cpus", error))?;
        }
        if let Some(pids) = self.pids {
            limits.pids = Pids::new(pids).map_err(|error| ToolError::argument("pids", error))?;
        }
        if let Some(disk) = &self.disk {
            limits.disk =
                Bytes::parse(&disk.text()).map_err(|error| ToolError::argument("disk", error))?;
        }
        Ok((limits != default).then_some(limits))
    }
}

fn no_network() -> String {
    "none".to_owned()
}

fn egress(profile: Option<&str>) -> Result<EgressChoice, ToolError> {
    let Some(profile) = profile else {
        return Ok(EgressChoice::Default);
    };
    let name = Name::parse(profile).map_err(|error| ToolError::argument("egress", error))?;
    Ok(EgressChoice::Asked(name))
}

fn network(word: &str) -> Result<Network, ToolError> {
    match word {
        "none" => Ok(Network::None),
        "full" => Ok(Network::Full),
        _ => Err(ToolError::new(
            Code::Denied,
            "`network` may be none, or full where the operator allows it",
        )
        .with_hint("leave it out: a container needs no network to run code")),
    }
}

impl From<&ContainerView> for Output {
    fn from(view: &ContainerView) -> Self {
        Self {
            container_id: view.id.to_string(),
            alias: view.alias.as_ref().map(ToString::to_string),
            status: view.phase.as_str(),
            image: view.image.to_string(),
            image_digest: view.image_digest.clone(),
            engine: view.engine.clone(),
            egress: egress_of(view),
            warm: view.is_warm,
            created_at: rfc3339(view.created_unix_ms),
            expires_at: view.expires_unix_ms.map(rfc3339),
            next_step: NEXT_STEP,
        }
    }
}
