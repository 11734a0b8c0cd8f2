//! Settings of sessions and snippets.

use std::time::Duration;

use clap::Args;
use hotcell_domain::{ImageAliases, ImageName};
use hotcell_egress::ProfileName;
use hotcell_service::CodeSettings;

use super::parse_seconds;

/// The most output of one stream in an answer.
const OUTPUT_CHARS_MAX: usize = 1_000_000;

/// Settings of sessions and snippets.
#[derive(Debug, Args)]
#[command(next_help_heading = "Code")]
pub(crate) struct CodeArgs {
    /// Image of sessions [default: --default-image]
    #[arg(long, value_name = "IMAGE", value_parser = ImageName::parse, env = "HOTCELL_CODE_IMAGE")]
    code_image: Option<ImageName>,

    /// Egress profile of sessions [default: that of other containers]
    #[arg(long, value_name = "PROFILE", value_parser = ProfileName::parse, env = "HOTCELL_CODE_EGRESS")]
    code_egress: Option<ProfileName>,

    /// Time limit of a snippet whose caller sets none
    #[arg(long, value_name = "SECONDS", default_value = "30", value_parser = parse_seconds, env = "HOTCELL_CODE_TIMEOUT_S")]
    code_timeout_s: Duration,

    /// End sessions that nobody has used for this long
    #[arg(long, value_name = "SECONDS", default_value = "900", value_parser = parse_seconds, env = "HOTCELL_SESSION_IDLE_S")]
    session_idle_s: Duration,

    /// Characters of each output stream of a snippet in an answer; of more, the beginning and the end
    #[arg(long, value_name = "N", default_value_t = 50_000, value_parser = parse_chars, env = "HOTCELL_MAX_OUTPUT_SIZE")]
    max_output_size: usize,
}

impl CodeArgs {
    pub(crate) fn settings(&self, aliases: &ImageAliases) -> CodeSettings {
        let image = self.code_image.as_ref();
        CodeSettings {
            image: image.map(|name| aliases.resolve(name)),
            session_idle_max: self.session_idle_s,
            timeout: self.code_timeout_s,
            output_chars_max: self.max_output_size,
            egress: self.code_egress.clone(),
        }
    }
}

fn parse_chars(text: &str) -> Result<usize, String> {
    match text.parse() {
        Ok(number @ 100..=OUTPUT_CHARS_MAX) => Ok(number),
        _ => Err(format!("must be a number from 100 to {OUTPUT_CHARS_MAX}")),
    }
}
