//! Settings of traces.

use clap::Args;
use hotcell_otlp::{Endpoint, Headers};

/// Settings of the trace exporter.
#[derive(Debug, Args)]
#[command(next_help_heading = "Otel")]
pub(crate) struct OtelArgs {
    /// Send traces to this OpenTelemetry collector (OTLP over HTTP, such as `http://127.0.0.1:4318`) [default: none are sent]
    #[arg(long, value_name = "URL", env = "HOTCELL_OTEL_ENDPOINT", value_parser = Endpoint::parse)]
    pub(crate) otel_endpoint: Option<Endpoint>,

    /// Headers that the collector wants, such as `authorization=Bearer%20KEY`, separated by commas [default: none]
    #[arg(long, value_name = "NAME=VALUE", env = "HOTCELL_OTEL_HEADERS", hide_env_values = true, value_parser = Headers::parse)]
    pub(crate) otel_headers: Option<Headers>,
}
