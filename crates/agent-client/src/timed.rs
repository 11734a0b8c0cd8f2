//! Measures how long an agent takes to answer.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use tonic::body::Body;
use tonic::codegen::http::{Request, Response};
use tonic::transport::{Channel, Error};
use tower::Service;

/// The calls of the protocol, for counting.
const CALLS: [&str; 28] = [
    "Hello",
    "Exec",
    "Input",
    "Signal",
    "Resize",
    "Cancel",
    "ListExecs",
    "Forget",
    "WarmUp",
    "Stat",
    "List",
    "Read",
    "Write",
    "Delete",
    "Move",
    "Copy",
    "Mkdir",
    "Batch",
    "Import",
    "Export",
    "DiskUse",
    "EndExecs",
    "Trust",
    "Shutdown",
    "TunnelListen",
    "TunnelUnlisten",
    "TunnelEvents",
    "Tunnel",
];

/// Called with the name of a call and the time until the agent began to answer, in the task that
/// made the call.
pub type CallObserver = Arc<dyn Fn(&'static str, Duration) + Send + Sync>;

/// A channel whose calls are timed.
#[derive(Clone)]
pub(crate) struct TimedChannel {
    pub(crate) channel: Channel,
    pub(crate) observer: Option<CallObserver>,
}

impl Service<Request<Body>> for TimedChannel {
    type Response = Response<Body>;
    type Error = Error;
    type Future = Pin<Box<dyn Future<Output = Result<Response<Body>, Error>> + Send>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), Error>> {
        self.channel.poll_ready(context)
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        let call = name(request.uri().path());
        let observer = self.observer.clone();
        let (began, answer) = (Instant::now(), self.channel.call(request));
        Box::pin(async move {
            let answer = answer.await;
            if let Some(observer) = observer {
                observer(call, began.elapsed());
            }
            answer
        })
    }
}

fn name(path: &str) -> &'static str {
    let last = path.rsplit('/').next();
    let known = CALLS.into_iter().find(|call| Some(*call) == last);
    known.unwrap_or("other")
}

impl fmt::Debug for TimedChannel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TimedChannel").finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_call_of_the_protocol_has_its_name() {
        let protocol = include_str!("../../agent-api/proto/agent.proto");
        let calls = protocol.lines().filter_map(|line| {
            let (name, _) = line.trim().strip_prefix("rpc ")?.split_once('(')?;
            Some(name.trim())
        });
        assert_eq!(calls.collect::<Vec<_>>(), CALLS);
        assert_eq!(name("/hotcell.agent.v1.Agent/Stat"), "Stat");
        assert_eq!(name("/hotcell.agent.v2.Agent/Fly"), "other");
    }
}
