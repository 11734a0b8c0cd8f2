//! The handshake, and connections that end early or are not the protocol.

use bytes::Bytes;
use hotcell_agent_api::v1::HelloReply;
use hotcell_agent_client::{Agent, AgentError};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use crate::fake::{Answer, DEADLINE, agent, connect, framed, honest_hello, messages, raw_frame};

/// The result of a stream that sends these bytes and then closes, or stays open.
async fn greeted_with(bytes: &[u8], stays_open: bool) -> AgentError {
    let (ours, mut theirs) = tokio::io::duplex(1 << 16);
    let bytes = bytes.to_vec();
    tokio::spawn(async move {
        let _ = theirs.write_all(&bytes).await;
        if stays_open {
            let mut sink = [0; 4096];
            while theirs.read(&mut sink).await.is_ok_and(|read| read > 0) {}
        }
    });
    tokio::time::timeout(DEADLINE, Agent::connect(ours))
        .await
        .expect("it is refused in time")
        .expect_err("it is no agent")
}

/// Random bytes determined by the seed.
fn noise(seed: u64, length: usize) -> Vec<u8> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state.to_le_bytes()[3]
    };
    (0..length).map(|_| next()).collect()
}

#[tokio::test(start_paused = true)]
async fn noise_is_not_taken_for_an_agent() {
    for seed in 0..200 {
        let length = usize::from(noise(seed, 1)[0]) * 16;
        let error = greeted_with(&noise(seed, length), seed % 2 == 0).await;
        assert_eq!(error, AgentError::Lost, "seed {seed}");
    }
}

#[tokio::test(start_paused = true)]
async fn frames_that_lie_are_not_taken_for_an_agent() {
    // Length, kind, flags, stream.
    let frame = |length: u32, kind: u8, flags: u8, stream: u32, body: &[u8]| {
        let mut frame = length.to_be_bytes()[1..].to_vec();
        frame.extend([kind, flags]);
        frame.extend(stream.to_be_bytes());
        frame.extend(body);
        frame
    };
    let settings = frame(0, 4, 0, 0, &[]);
    let lies = [
        frame(0x00ff_ffff, 4, 0, 0, &[]),
        frame(5, 4, 0, 0, &[0; 5]),
        [settings.clone(), frame(0x00ff_ffff, 0, 0, 1, &[0; 100])].concat(),
        [settings.clone(), frame(4, 1, 4, 1, &[0xff; 4])].concat(),
        [settings.clone(), frame(8, 7, 0, 0, &[0; 8])].concat(),
        [settings.clone(), frame(4, 8, 0, 0, &[0xff; 4])].concat(),
        [settings.clone(), frame(0, 9, 0, 1, &[])].concat(),
        [settings.clone(), frame(4, 5, 4, 1, &[0, 0, 0, 2])].concat(),
        [settings.clone(), frame(1, 0xfa, 0, 0, &[0])].concat(),
        settings.repeat(5000),
        [settings.clone(), frame(8, 6, 0, 0, &[0; 8]).repeat(5000)].concat(),
        b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n".to_vec(),
    ];
    for (number, lie) in lies.iter().enumerate() {
        for stays_open in [false, true] {
            let error = greeted_with(lie, stays_open).await;
            assert_eq!(error, AgentError::Lost, "lie {number}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn an_agent_that_says_nothing_is_given_up() {
    assert_eq!(greeted_with(b"", true).await, AgentError::Lost);
    let silent = connect(vec![Answer::Silence]).await;
    assert_eq!(silent.unwrap_err(), AgentError::Lost);
}

#[tokio::test(start_paused = true)]
async fn a_hello_that_is_not_ours_is_refused() {
    let with = |change: fn(&mut HelloReply)| {
        let mut hello = honest_hello();
        change(&mut hello);
        hello
    };
    let lies = [
        with(|hello| (hello.protocol, hello.protocol_max) = (99, 0)),
        with(|hello| (hello.protocol, hello.protocol_max) = (3, u32::MAX)),
        with(|hello| (hello.protocol, hello.protocol_max) = (2, 1)),
        with(|hello| (hello.protocol, hello.protocol_max) = (0, 2)),
        with(|hello| hello.boot_id = vec![1; 15].into()),
        with(|hello| hello.root = "workspace".into()),
        with(|hello| hello.root = format!("/{}", "x".repeat(5000))),
        with(|hello| hello.root = "/a\x1b[2J".into()),
        HelloReply::default(),
    ];
    for lie in lies {
        let error = connect(vec![messages(&[lie])]).await.unwrap_err();
        assert!(
            matches!(error, AgentError::Protocol(_) | AgentError::Version { .. }),
            "{error:?}"
        );
    }
}

#[tokio::test(start_paused = true)]
async fn a_hello_that_is_no_message_is_an_error() {
    let hello = framed(&honest_hello());
    let done = || Some((0, String::new()));
    let broken = [
        Answer::Body(vec![], done()),
        Answer::Body(vec![raw_frame(0, None, &[0xff; 40])], done()),
        Answer::Body(vec![raw_frame(0, Some(u32::MAX), b"x")], done()),
        Answer::Body(vec![raw_frame(0, Some(1 << 20), b"x")], done()),
        Answer::Body(vec![raw_frame(1, None, &hello)], done()),
        Answer::Body(vec![raw_frame(9, None, &hello)], done()),
        Answer::Body(vec![hello.slice(..7)], done()),
        Answer::Body(vec![], Some((99, "no such code".into()))),
        Answer::Body(vec![], Some((13, "x".repeat(4000)))),
        Answer::Header(200 << 10),
        Answer::Http(404),
        Answer::Reset,
        Answer::HangUp(vec![hello.slice(..7)]),
    ];
    for answer in broken {
        let what = format!("{answer:?}");
        assert!(connect(vec![answer]).await.is_err(), "{what:.100}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_connection_that_ends_is_lost_for_every_call_and_hangs_none() {
    let agent = agent(Answer::HangUp(vec![Bytes::from_static(&[0, 0, 0])])).await;
    let calls = async {
        assert_eq!(agent.stat(b"a", false).await.unwrap_err(), AgentError::Lost);
        assert_eq!(agent.list_execs().await.unwrap_err(), AgentError::Lost);
        let mut writer = agent.write(b"a", hotcell_agent_client::WriteOptions::default());
        let wrote = writer.write(Bytes::from(vec![0; 1 << 20])).await;
        assert_eq!(wrote.unwrap_err(), AgentError::Lost);
        assert_eq!(writer.finish().await.unwrap_err(), AgentError::Lost);
    };
    tokio::time::timeout(DEADLINE, calls)
        .await
        .expect("every call ends");
}
