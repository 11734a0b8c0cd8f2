//! `exec_poll`: the output and status of a command.

use std::time::Duration;

use hotcell_service::Poll;
use schemars::JsonSchema;
use serde::Deserialize;

use super::exec_view::{Output, POLL_BYTES_DEFAULT, POLL_BYTES_MAX};
use super::{Answer, Hints, Tool, ToolError};
use crate::Server;
use crate::call::Call;

pub(super) struct ExecPoll;

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Params {
    /// From `exec_start`
    exec_id: String,
    /// The last `next_seq`; 0: from the start
    #[serde(default)]
    after_seq: u64,
    /// Seconds to wait for news
    #[serde(default)]
    #[schemars(range(min = 0, max = 50))]
    wait_s: f64,
    /// Most output to return
    #[serde(default = "bytes_default")]
    #[schemars(range(min = 1, max = POLL_BYTES_MAX))]
    max_bytes: u32,
}

impl Tool for ExecPoll {
    const NAME: &'static str = "exec_poll";
    const DESCRIPTION: &'static str = "Read what a command wrote after after_seq, and its status. Returns as soon as there is news. \
        Call it with the last next_seq until complete=true: then it has ended and all was read.";
    const HINTS: Hints = Hints::READS;
    type Params = Params;
    type Output = Output;

    async fn run(server: &Server, params: Params, call: &Call) -> Result<Answer, ToolError> {
        let id = super::exec_id(&params.exec_id)?;
        let poll = Poll {
            after_seq: params.after_seq,
            wait: Duration::from_secs_f64(params.wait_s),
            bytes_max: params.max_bytes as usize,
            until_end: false,
        };
        let view = super::polling::poll(server, &id, poll, call).await?;
        Ok(super::exec_answer(view, params.max_bytes as usize))
    }
}

fn bytes_default() -> u32 {
    POLL_BYTES_DEFAULT
}
