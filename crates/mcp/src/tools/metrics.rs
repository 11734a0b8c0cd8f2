//! `metrics`: counters and gauges in the `OpenMetrics` format.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{Answer, Hints, Tool, ToolError};
use crate::call::Call;
use crate::{Server, Toolset};

pub(super) struct Metrics;

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Params {}

#[derive(Serialize, JsonSchema)]
pub(super) struct Output {
    format: &'static str,
    metrics: String,
}

impl Tool for Metrics {
    const NAME: &'static str = "metrics";
    const DESCRIPTION: &'static str = "Get the server's metrics as Prometheus text.";
    const HINTS: Hints = Hints::READS;
    const SET: Toolset = Toolset::Admin;
    type Params = Params;
    type Output = Output;

    async fn run(server: &Server, _: Params, call: &Call) -> Result<Answer, ToolError> {
        let metrics = server.service().metrics_text(&call.caller);
        let format = "prometheus";
        Ok(Answer::of(metrics.clone(), Output { format, metrics }))
    }
}
