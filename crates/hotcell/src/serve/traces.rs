//! Sends the traces of a server.

use std::time::Duration;

use anyhow::{Context, Result};
use hotcell_otlp::Exporter;

use crate::cli::OtelArgs;

/// How long sending the last spans may take.
const FLUSH_WAIT_MAX: Duration = Duration::from_secs(3);

/// Starts sending traces, if the operator configured a collector.
pub(super) fn start(arguments: &OtelArgs) -> Result<Option<Exporter>> {
    let Some(endpoint) = &arguments.otel_endpoint else {
        return Ok(None);
    };
    let headers = arguments.otel_headers.clone().unwrap_or_default();
    let exporter = Exporter::start(endpoint, &headers).context("send traces to --otel-endpoint")?;
    Ok(Some(exporter))
}

/// Sends the remaining spans.
pub(super) async fn flush(exporter: Option<Exporter>) {
    if let Some(exporter) = exporter
        && !exporter.flush(FLUSH_WAIT_MAX).await
    {
        tracing::warn!("the last traces were not sent: the collector took too long");
    }
}
