//! A snippet's output, shortened for the reply.

use hotcell_domain::{Caller, ExecEnd, ExecId, Principal, Stream};

use super::cut::{CutText, Cutter};
use crate::exec::no_exec;
use crate::{Action, Inner, Service, ServiceError};

/// How much of the log one read returns.
const PAGE_BYTES: usize = 1 << 20;

/// The shortened output of a snippet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CodeOutput {
    /// Standard output.
    pub stdout: CutText,
    /// Standard error.
    pub stderr: CutText,
    /// Bytes that the log itself does not have: they were dropped from the middle of the output.
    pub not_kept_bytes: u64,
}

impl Service {
    /// Most characters of each stream that [`Service::code_output`] returns.
    pub fn code_output_chars_max(&self) -> usize {
        let inner = self.inner.without_operation();
        inner.environment.settings().code.output_chars_max
    }

    /// The beginning and the end of the output of an exec that has ended, for its owner.
    pub async fn code_output(
        &self,
        caller: &Caller,
        exec: &ExecId,
        end: &ExecEnd,
        owner: &Principal,
    ) -> Result<CodeOutput, ServiceError> {
        let (operation, inner) = self.begin(caller, Action::ExecPoll, exec);
        let output = async {
            if caller.principal != *owner {
                return Err(no_exec(exec));
            }
            inner.code_output(exec, end).await
        };
        let (output, mut operation) = operation.open(output).await?;
        operation.count_bytes(output.stdout.bytes() + output.stderr.bytes());
        operation.end().written().await?;
        Ok(output)
    }
}

impl Inner {
    pub(super) async fn code_output(
        &self,
        exec: &ExecId,
        end: &ExecEnd,
    ) -> Result<CodeOutput, ServiceError> {
        let environment = &self.environment;
        let chars_max = environment.settings().code.output_chars_max;
        let (mut stdout, mut stderr) = (Cutter::new(chars_max), Cutter::new(chars_max));
        let usage = end.usage.as_ref();
        let wrote_nothing = usage.is_some_and(|it| it.stdout_bytes == 0 && it.stderr_bytes == 0);
        let (mut after_seq, mut has_more, mut not_kept_bytes) = (0, !wrote_nothing, 0);
        while has_more {
            let page = environment.store.read_log(exec, after_seq, PAGE_BYTES);
            let page = page.await?;
            for message in &page.messages {
                match message.stream {
                    Stream::Stdout => stdout.push(&message.data),
                    Stream::Stderr => stderr.push(&message.data),
                }
            }
            has_more = page.has_more && page.next_seq > after_seq;
            after_seq = page.next_seq;
            not_kept_bytes = page.truncated_bytes;
        }
        Ok(CodeOutput {
            stdout: stdout.finish(usage.map(|usage| usage.stdout_bytes)),
            stderr: stderr.finish(usage.map(|usage| usage.stderr_bytes)),
            not_kept_bytes,
        })
    }
}

impl CutText {
    fn bytes(&self) -> usize {
        self.head.len() + self.tail.as_ref().map_or(0, String::len)
    }
}
