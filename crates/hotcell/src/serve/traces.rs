//! The traces of a server: the task that sends them, and its end.

use std::time::Duration;

use anyhow::{Context, Result};
use hotcell_otlp::Exporter;

use crate::cli::OtelArgs;

/// How long the last spans may take to be sent.
const FLUSH_WAIT_MAX: Duration = Duration::from_secs(3);

/// Starts to send traces, if the operator says where to.
pub(super) fn start(arguments: &OtelArgs) -> Result<Option<Exporter>> {
    let Some(endpoint) = &arguments.otel_endpoint else {
        return Ok(None);
    };
    let exporter = Exporter::start(endpoint).context("send traces to --otel-endpoint")?;
    Ok(Some(exporter))
}

/// Sends what is left.
pub(super) async fn flush(exporter: Option<Exporter>) {
    if let Some(exporter) = exporter
        && !exporter.flush(FLUSH_WAIT_MAX).await
    {
        tracing::warn!("the last traces were not sent: the collector took too long");
    }
}
