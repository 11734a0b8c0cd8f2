//! `exec_poll`: the output and status of a command.

use std::time::Duration;

use hotcell_domain::ExecId;
use hotcell_service::Poll;
use schemars::JsonSchema;
use serde::Deserialize;

use super::exec_view::{Output, POLL_BYTES_DEFAULT, POLL_BYTES_MAX};
use super::polling::{self, ExecWait};
use super::{Answer, Hints, Tool, ToolError};
use crate::Server;
use crate::asking::{Attended, Ongoing};
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
        let attended = if let Some(ongoing) = resumed(server, &id, poll, call) {
            ongoing.attend(server, call).await?
        } else {
            let exec = ExecWait::new(server, call, id.clone(), poll, None);
            polling::wait(server, call, exec).await?
        };
        if let Attended::Asks(input) = attended {
            return Ok(Answer::needs(input));
        }
        let view = polling::read(server, &id, poll, call).await?;
        Ok(super::exec_answer(view, params.max_bytes as usize))
    }
}

/// The same poll, if this request repeats it with what the user filled in.
fn resumed(server: &Server, id: &ExecId, poll: Poll, call: &Call) -> Option<Ongoing<ExecWait>> {
    let is_meant = |exec: &ExecWait| exec.waiting.is_none() && exec.id == *id;
    let mut ongoing = Ongoing::resume(server, call, call.repeated.as_ref()?, is_meant)?;
    ongoing.work.poll = poll;
    Some(ongoing)
}

fn bytes_default() -> u32 {
    POLL_BYTES_DEFAULT
}
