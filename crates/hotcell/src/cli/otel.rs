//! Where traces go.

use clap::Args;
use hotcell_otlp::Endpoint;

/// Where a server sends the spans of its operations.
#[derive(Debug, Args)]
#[command(next_help_heading = "Otel")]
pub(crate) struct OtelArgs {
    /// Send traces to this OpenTelemetry collector (OTLP over HTTP, such as `http://127.0.0.1:4318`) [default: none are sent]
    #[arg(long, value_name = "URL", env = "HOTCELL_OTEL_ENDPOINT", value_parser = Endpoint::parse)]
    pub(crate) otel_endpoint: Option<Endpoint>,
}
