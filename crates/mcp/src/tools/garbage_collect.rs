//! `garbage_collect`: removes what is no longer needed.

use hotcell_service::Collected;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{Answer, Hints, Tool, ToolError};
use crate::call::Call;
use crate::{Server, Toolset};

pub(super) struct GarbageCollect;

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Params {
    /// Only count
    #[serde(default)]
    dry_run: bool,
}

#[derive(Serialize, JsonSchema)]
pub(super) struct Output {
    dry_run: bool,
    expired_containers: u64,
    idle_containers: u64,
    execs: u64,
    container_records: u64,
    images: u64,
    leftovers: u64,
    errors: u64,
}

impl Tool for GarbageCollect {
    const NAME: &'static str = "garbage_collect";
    const DESCRIPTION: &'static str =
        "Remove expired and idle containers, unused images, ended execs and logs.";
    const HINTS: Hints = Hints::DESTROYS_ONCE;
    const SET: Toolset = Toolset::Admin;
    type Params = Params;
    type Output = Output;

    async fn run(server: &Server, params: Params, call: &Call) -> Result<Answer, ToolError> {
        let collecting = server
            .service()
            .collect_garbage(&call.caller, params.dry_run);
        let output = Output::new(
            params.dry_run,
            &call.attend("collecting", collecting).await??,
        );
        let verb = if params.dry_run {
            "would remove"
        } else {
            "removed"
        };
        let text = format!(
            "{verb} {} expired and {} idle containers, {} execs, {} records, {} images, {} leftovers; {} errors",
            output.expired_containers,
            output.idle_containers,
            output.execs,
            output.container_records,
            output.images,
            output.leftovers,
            output.errors
        );
        Ok(Answer::of(text, output))
    }
}

impl Output {
    fn new(dry_run: bool, collected: &Collected) -> Self {
        Self {
            dry_run,
            expired_containers: collected.expired_containers,
            idle_containers: collected.idle_containers,
            execs: collected.execs,
            container_records: collected.container_records,
            images: collected.images,
            leftovers: collected.leftovers,
            errors: collected.errors,
        }
    }
}
