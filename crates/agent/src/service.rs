//! The gRPC service: each method finds its exec or file, calls it, and translates errors into
//! statuses. Nothing is decided here.

use std::io;
use std::os::unix::ffi::OsStringExt;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use hotcell_agent_api::bounds::{
    ENGINE_ENV_BYTES_MAX, ENGINE_ENV_MAX, EXEC_ID_BYTES_MAX, IMAGE_ENV_BYTES_MAX, IMAGE_ENV_MAX,
    PROTOCOL_VERSION_MIN,
};
use hotcell_agent_api::v1::agent_server::Agent;
use hotcell_agent_api::v1::exec_request::Request as ExecCall;
use hotcell_agent_api::v1::{
    BatchReply, BatchRequest, CancelReply, CancelRequest, CopyRequest, DeleteReply, DeleteRequest,
    DiskUseReply, DiskUseRequest, EndExecsReply, EndExecsRequest, EnvVar, ExecEvent, ExecRequest,
    ExitCause, ExportRequest, Feature, FileInfo, ForgetReply, ForgetRequest, HelloReply,
    HelloRequest, ImportReply, ImportRequest, InputReply, InputRequest, Interpreter,
    ListExecsReply, ListExecsRequest, ListReply, ListRequest, MkdirRequest, MoveRequest,
    ReadRequest, ResizeReply, ResizeRequest, ShutdownReply, ShutdownRequest, SignalReply,
    SignalRequest, StatRequest, TrustReply, TrustRequest, TunnelEventsRequest, TunnelListenReply,
    TunnelListenRequest, TunnelRequest, TunnelUnlistenReply, TunnelUnlistenRequest, WarmUpReply,
    WarmUpRequest, WriteRequest,
};
use rustix::io::Errno;
use tokio_stream::Stream;
use tonic::{Request, Response, Status, Streaming};

use crate::exec::{Acks, Exec, ExecError, Execs, Follower, grace, window};
use crate::files::{ExportStream, Files, ReadStream};
use crate::serve::Connections;
use crate::sys;
use crate::trust;
use crate::tunnel::{self, Tunnels};

const BOOT_ID_BYTES: usize = 16;

/// The contents of a `Hello` reply.
pub(crate) struct HelloInfo {
    root: String,
    boot_id: Vec<u8>,
    env: Vec<EnvVar>,
    protocol_max: u32,
}

impl HelloInfo {
    /// For an agent that supports no version above `protocol_max`.
    pub(crate) fn new(root: &str, protocol_max: u32) -> io::Result<Self> {
        let mut boot_id = vec![0; BOOT_ID_BYTES];
        // A read of so few bytes is never partial.
        rustix::rand::getrandom(&mut boot_id[..], rustix::rand::GetRandomFlags::empty())?;
        Ok(Self {
            root: root.to_owned(),
            boot_id,
            env: process_environment(),
            protocol_max,
        })
    }

    /// Feature bits; version 1 has none.
    fn features(&self) -> u64 {
        if self.protocol_max == 1 {
            return 0;
        }
        let features = [
            Feature::Tunnel,
            Feature::WarmPython,
            Feature::Disk,
            Feature::Datagrams,
            Feature::Trust,
            Feature::Cleanup,
            Feature::Input,
        ];
        let bits = features.map(|feature| 1 << feature as u32);
        bits.into_iter().fold(0, |all, bit| all | bit)
    }
}

/// Our own environment, which is the image's. Engines refuse images with more variables than this.
fn process_environment() -> Vec<EnvVar> {
    let mut bytes_left = IMAGE_ENV_BYTES_MAX + ENGINE_ENV_BYTES_MAX;
    std::env::vars_os()
        .map(|(name, value)| EnvVar {
            name: name.into_vec().into(),
            value: value.into_vec().into(),
        })
        .take(IMAGE_ENV_MAX + ENGINE_ENV_MAX)
        .take_while(|one| {
            let fits = bytes_left.checked_sub(one.name.len() + one.value.len() + 2);
            bytes_left = fits.unwrap_or(0);
            fits.is_some()
        })
        .collect()
}

pub(crate) struct AgentService {
    about: HelloInfo,
    execs: Arc<Execs>,
    files: Files,
    tunnels: Tunnels,
    connections: Arc<Connections>,
}

impl AgentService {
    /// Serves these execs and files; `Shutdown` closes the connections.
    pub(crate) fn new(
        about: HelloInfo,
        execs: Arc<Execs>,
        files: Files,
        connections: Arc<Connections>,
    ) -> Self {
        Self {
            about,
            execs,
            files,
            tunnels: Tunnels::new(),
            connections,
        }
    }

    /// The tunnels, if our protocol version has them.
    fn tunnels(&self) -> Result<&Tunnels, Status> {
        let has_tunnels = self.about.features() & (1 << Feature::Tunnel as u32) != 0;
        let missing = || Status::unimplemented("this version of the protocol has no tunnels");
        has_tunnels.then_some(&self.tunnels).ok_or_else(missing)
    }

    fn exec_named(&self, id: &str) -> Result<Arc<Exec>, ExecError> {
        if id.is_empty() || id.len() > EXEC_ID_BYTES_MAX {
            return Err(ExecError::Request("exec_id is empty or too long"));
        }
        self.execs.get(id)
    }
}

type RpcResult<T> = Result<Response<T>, Status>;

#[tonic::async_trait]
impl Agent for AgentService {
    /// Answers any protocol version: the server sees ours and decides.
    async fn hello(&self, _: Request<HelloRequest>) -> RpcResult<HelloReply> {
        Ok(Response::new(HelloReply {
            protocol: PROTOCOL_VERSION_MIN,
            version: env!("CARGO_PKG_VERSION").into(),
            boot_id: self.about.boot_id.clone().into(),
            root: self.about.root.clone(),
            uid: rustix::process::geteuid().as_raw(),
            gid: rustix::process::getegid().as_raw(),
            can_switch_user: self.execs.can_switch_user(),
            env: self.about.env.clone(),
            // Version 1 has no range.
            protocol_max: match self.about.protocol_max {
                1 => 0,
                newest => newest,
            },
            features: self.about.features(),
        }))
    }

    type ExecStream = Events;

    async fn exec(&self, request: Request<Streaming<ExecRequest>>) -> RpcResult<Events> {
        let mut calls = request.into_inner();
        let follower = match calls.message().await?.and_then(|call| call.request) {
            Some(ExecCall::Start(start)) => {
                let execs = self.execs.clone();
                to_its_end(async move { execs.start(&start).await }).await?
            }
            Some(ExecCall::Resume(resume)) => self.execs.resume(&resume)?,
            Some(ExecCall::Ack(_)) | None => {
                return Err(ExecError::Request("the first request must be start or resume").into());
            }
        };
        tokio::spawn(acknowledge(calls, follower.acks()));
        Ok(Response::new(Events(follower)))
    }

    async fn input(&self, request: Request<InputRequest>) -> RpcResult<InputReply> {
        let InputRequest {
            exec_id,
            offset,
            data,
            eof,
        } = request.into_inner();
        let exec = self.exec_named(&exec_id)?;
        let accepted = exec.input.write(offset, &data, eof).await?;
        Ok(Response::new(InputReply { accepted }))
    }

    async fn signal(&self, request: Request<SignalRequest>) -> RpcResult<SignalReply> {
        let SignalRequest {
            exec_id,
            signal,
            whole_tree,
        } = request.into_inner();
        let signal = sys::signal(signal).ok_or(ExecError::Request("there is no such signal"))?;
        let exec = self.exec_named(&exec_id)?;
        to_its_end(async move { exec.signal(signal, whole_tree).await }).await?;
        Ok(Response::new(SignalReply {}))
    }

    async fn resize(&self, request: Request<ResizeRequest>) -> RpcResult<ResizeReply> {
        let ResizeRequest { exec_id, size } = request.into_inner();
        let size = size.ok_or(ExecError::Request("size is missing"))?;
        let size = window(&size).map_err(ExecError::from)?;
        self.exec_named(&exec_id)?.resize(size)?;
        Ok(Response::new(ResizeReply {}))
    }

    async fn cancel(&self, request: Request<CancelRequest>) -> RpcResult<CancelReply> {
        let CancelRequest { exec_id, grace_ms } = request.into_inner();
        let grace = grace(grace_ms).map_err(ExecError::from)?;
        let exec = self.exec_named(&exec_id)?;
        to_its_end(async move { exec.end(ExitCause::Cancelled, grace).await }).await?;
        Ok(Response::new(CancelReply {}))
    }

    async fn list_execs(&self, _: Request<ListExecsRequest>) -> RpcResult<ListExecsReply> {
        Ok(Response::new(ListExecsReply {
            execs: self.execs.list(),
        }))
    }

    async fn warm_up(&self, request: Request<WarmUpRequest>) -> RpcResult<WarmUpReply> {
        let request = request.into_inner();
        if request.interpreter() == Interpreter::Python {
            self.execs.warm_up(request)?;
        }
        Ok(Response::new(WarmUpReply {}))
    }

    async fn forget(&self, request: Request<ForgetRequest>) -> RpcResult<ForgetReply> {
        let ForgetRequest { exec_id } = request.into_inner();
        self.exec_named(&exec_id)?;
        self.execs.forget(&exec_id)?;
        Ok(Response::new(ForgetReply {}))
    }

    async fn shutdown(&self, request: Request<ShutdownRequest>) -> RpcResult<ShutdownReply> {
        let grace = grace(request.into_inner().grace_ms).map_err(ExecError::from)?;
        let (execs, connections) = (self.execs.clone(), self.connections.clone());
        to_its_end(async move {
            execs.shut_down(grace).await;
            connections.close();
            Ok(())
        })
        .await?;
        Ok(Response::new(ShutdownReply {}))
    }

    async fn disk_use(&self, request: Request<DiskUseRequest>) -> RpcResult<DiskUseReply> {
        // Read before the disk is measured: an exec that starts meanwhile counts at the next
        // measurement.
        let busy = self.execs.is_busy();
        let usage = self.files.usage(request.into_inner().files_max).await?;
        Ok(Response::new(DiskUseReply {
            bytes: usage.bytes,
            files: usage.files,
            beyond_measure: usage.is_cut || usage.is_too_deep,
            busy,
        }))
    }

    async fn end_execs(&self, _: Request<EndExecsRequest>) -> RpcResult<EndExecsReply> {
        let execs = self.execs.clone();
        to_its_end(async move {
            execs.end_all(Duration::ZERO).await;
            Ok(())
        })
        .await?;
        Ok(Response::new(EndExecsReply {}))
    }

    async fn trust(&self, request: Request<TrustRequest>) -> RpcResult<TrustReply> {
        let reply = trust::install(&self.files, &self.about.root, request.into_inner()).await?;
        Ok(Response::new(reply))
    }

    async fn stat(&self, request: Request<StatRequest>) -> RpcResult<FileInfo> {
        self.files
            .stat(request.into_inner())
            .await
            .map(Response::new)
    }

    async fn list(&self, request: Request<ListRequest>) -> RpcResult<ListReply> {
        self.files
            .list(request.into_inner())
            .await
            .map(Response::new)
    }

    type ReadStream = ReadStream;

    async fn read(&self, request: Request<ReadRequest>) -> RpcResult<ReadStream> {
        self.files
            .read(request.into_inner())
            .await
            .map(Response::new)
    }

    async fn write(&self, request: Request<Streaming<WriteRequest>>) -> RpcResult<FileInfo> {
        self.files
            .write(request.into_inner())
            .await
            .map(Response::new)
    }

    async fn delete(&self, request: Request<DeleteRequest>) -> RpcResult<DeleteReply> {
        self.files
            .delete(request.into_inner())
            .await
            .map(Response::new)
    }

    async fn r#move(&self, request: Request<MoveRequest>) -> RpcResult<FileInfo> {
        self.files
            .r#move(request.into_inner())
            .await
            .map(Response::new)
    }

    async fn copy(&self, request: Request<CopyRequest>) -> RpcResult<FileInfo> {
        self.files
            .copy(request.into_inner())
            .await
            .map(Response::new)
    }

    async fn mkdir(&self, request: Request<MkdirRequest>) -> RpcResult<FileInfo> {
        self.files
            .mkdir(request.into_inner())
            .await
            .map(Response::new)
    }

    async fn batch(&self, request: Request<BatchRequest>) -> RpcResult<BatchReply> {
        self.files
            .batch(request.into_inner())
            .await
            .map(Response::new)
    }

    async fn import(&self, request: Request<Streaming<ImportRequest>>) -> RpcResult<ImportReply> {
        self.files
            .import(request.into_inner())
            .await
            .map(Response::new)
    }

    type ExportStream = ExportStream;

    async fn export(&self, request: Request<ExportRequest>) -> RpcResult<ExportStream> {
        self.files
            .export(request.into_inner())
            .await
            .map(Response::new)
    }

    async fn tunnel_listen(
        &self,
        request: Request<TunnelListenRequest>,
    ) -> RpcResult<TunnelListenReply> {
        let reply = self.tunnels()?.listen(request.into_inner())?;
        Ok(Response::new(reply))
    }

    async fn tunnel_unlisten(
        &self,
        request: Request<TunnelUnlistenRequest>,
    ) -> RpcResult<TunnelUnlistenReply> {
        self.tunnels()?.unlisten(&request.into_inner().purpose)?;
        Ok(Response::new(TunnelUnlistenReply {}))
    }

    type TunnelEventsStream = tunnel::Events;

    async fn tunnel_events(&self, _: Request<TunnelEventsRequest>) -> RpcResult<tunnel::Events> {
        Ok(Response::new(self.tunnels()?.events()))
    }

    type TunnelStream = tunnel::Replies;

    async fn tunnel(
        &self,
        request: Request<Streaming<TunnelRequest>>,
    ) -> RpcResult<tunnel::Replies> {
        let replies = self.tunnels()?.serve(request.into_inner()).await?;
        Ok(Response::new(replies))
    }
}

/// Completes the future even if the caller disconnects: an end that was begun must be finished.
async fn to_its_end<T: Send + 'static>(
    work: impl Future<Output = Result<T, ExecError>> + Send + 'static,
) -> Result<T, Status> {
    match tokio::spawn(work).await {
        Ok(result) => Ok(result?),
        Err(error) => Err(Status::internal(error.to_string())),
    }
}

/// Reads a follower's acknowledgements, including those after its last event.
async fn acknowledge(mut calls: Streaming<ExecRequest>, acks: Acks) {
    while let Ok(Some(call)) = calls.message().await {
        let goes_on = match call.request {
            Some(ExecCall::Ack(ack)) => acks.ack(ack.seq),
            Some(ExecCall::Start(_) | ExecCall::Resume(_)) | None => acks.refuse(),
        };
        if !goes_on {
            return;
        }
    }
}

/// A follower's events as a gRPC stream.
pub(crate) struct Events(Follower);

impl Stream for Events {
    type Item = Result<ExecEvent, Status>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let next = Pin::new(&mut self.0).poll_next(cx);
        next.map(|event| event.map(|event| event.map_err(Status::from)))
    }
}

impl From<ExecError> for Status {
    fn from(error: ExecError) -> Self {
        let message = error.to_string();
        match error {
            ExecError::Start(_) | ExecError::Request(_) => Self::invalid_argument(message),
            ExecError::NotFound => Self::not_found(message),
            ExecError::Exists => Self::already_exists(message),
            ExecError::TakenOver => Self::aborted(message),
            ExecError::Seq(_)
            | ExecError::Running
            | ExecError::NotRunning
            | ExecError::NoTerminal
            | ExecError::StdinClosed { .. }
            | ExecError::StdinGap { .. } => Self::failed_precondition(message),
            ExecError::OtherUser => Self::permission_denied(message),
            ExecError::Full => Self::resource_exhausted(message),
            ExecError::ShuttingDown => Self::unavailable(message),
            ExecError::Tree(_) => Self::internal(message),
            ExecError::Os { errno, .. } => match errno {
                Errno::AGAIN | Errno::NOMEM | Errno::MFILE | Errno::NFILE | Errno::NOSPC => {
                    Self::resource_exhausted(message)
                }
                Errno::PERM | Errno::ACCESS => Self::permission_denied(message),
                Errno::SRCH => Self::failed_precondition(message),
                _ => Self::internal(message),
            },
        }
    }
}
