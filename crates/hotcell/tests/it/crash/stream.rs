//! A connection is cut in the middle.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};

use hotcell_agent_client::{Agent, AgentError, EventKind, Follow, Output};
use hotcell_engine::AgentStream;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use super::moment::Moments;
use crate::support::{TestContainer, deadline, shell};

/// What the command writes, to each of its streams.
const SCRIPT: &str =
    "i=0; while [ $i -lt 20000 ]; do i=$((i+1)); echo out $i; echo err $i >&2; done";

/// A stream that ends after so many bytes, in the middle of whatever they are.
struct Cut {
    stream: AgentStream,
    left: usize,
}

impl AsyncRead for Cut {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let mut piece = vec![0; buffer.remaining().min(self.left)];
        let mut part = ReadBuf::new(&mut piece);
        let polled = Pin::new(&mut self.stream).poll_read(cx, &mut part);
        let read = part.filled().len();
        buffer.put_slice(part.filled());
        self.left -= read;
        polled
    }
}

impl AsyncWrite for Cut {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        data: &[u8],
    ) -> Poll<io::Result<usize>> {
        if self.left == 0 {
            return Poll::Ready(Err(io::ErrorKind::BrokenPipe.into()));
        }
        Pin::new(&mut self.stream).poll_write(cx, data)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}

/// What has come so far.
#[derive(Default)]
struct Received {
    stdout: Vec<u8>,
    stderr: Vec<u8>,
    last_seq: u64,
    is_over: bool,
}

impl Received {
    /// Takes events until the connection is cut or the command has ended.
    async fn take(&mut self, follow: &mut Follow, moments: &mut Moments) -> Result<(), AgentError> {
        while let Some(event) = follow.next().await? {
            assert_eq!(event.seq, self.last_seq + 1);
            self.last_seq = event.seq;
            match event.kind {
                EventKind::Started(_) => {}
                EventKind::Output(Output::Stdout, data) => self.stdout.extend_from_slice(&data),
                EventKind::Output(Output::Stderr, data) => self.stderr.extend_from_slice(&data),
                EventKind::Exit(exit) => {
                    assert_eq!(exit.code, Some(0));
                    self.is_over = true;
                }
            }
            // Not everything that was received is acknowledged at once, but all of it has
            // been stored.
            if moments.below(3) > 0 {
                follow.ack(event.seq);
            }
        }
        Ok(())
    }
}

#[tokio::test]
async fn every_byte_comes_exactly_once_wherever_the_connection_is_cut() {
    let container = TestContainer::new().await;
    let expected = |name: &str| {
        let lines: Vec<_> = (1..=20_000).map(|n| format!("{name} {n}\n")).collect();
        lines.concat()
    };
    for seed in 400..420 {
        let mut moments = Moments::of(seed);
        let mut received = Received::default();
        let work = async {
            let mut cuts = 0;
            while !received.is_over {
                follow_until_cut(&container, seed, &mut moments, &mut received).await;
                cuts += 1;
            }
            cuts
        };
        let cuts = tokio::time::timeout(deadline(), work)
            .await
            .expect("it comes to an end");
        assert!(cuts > 2, "seed {seed}: {cuts} connections");
        assert!(received.stdout == expected("out").as_bytes(), "seed {seed}");
        assert!(received.stderr == expected("err").as_bytes(), "seed {seed}");
    }
    container.remove().await;
}

async fn follow_until_cut(
    container: &TestContainer,
    seed: u64,
    moments: &mut Moments,
    received: &mut Received,
) {
    let stream = container.engine.open(&container.id).await.unwrap();
    let left = usize::try_from(moments.below(150_000)).unwrap();
    // Cut so early that there is no hello yet: the next connection is another chance.
    let Ok(agent) = Agent::connect(Cut { stream, left }).await else {
        return;
    };
    let id = format!("cut-{seed}");
    let followed = if received.last_seq == 0 {
        agent.start(&id, &shell(SCRIPT)).await
    } else {
        agent.resume(&id, received.last_seq).await
    };
    match followed {
        Ok(mut follow) => match received.take(&mut follow, moments).await {
            Ok(()) | Err(AgentError::Lost) => {}
            Err(error) => panic!("seed {seed}: {error}"),
        },
        Err(AgentError::Lost) => {}
        Err(error) => panic!("seed {seed}: {error}"),
    }
}
