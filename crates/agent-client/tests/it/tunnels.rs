//! Agents that lie about tunnels.

use std::io::ErrorKind;

use bytes::Bytes;
use hotcell_agent_api::v1::tunnel_address::Address;
use hotcell_agent_api::v1::tunnel_event::Event;
use hotcell_agent_api::v1::tunnel_reply::Reply;
use hotcell_agent_api::v1::{
    TcpAddress, TunnelAddress, TunnelEvent, TunnelIncoming, TunnelListener, TunnelListeners,
    TunnelReply,
};
use hotcell_agent_client::bounds::{
    CHUNK_BYTES_MAX, TUNNEL_LISTENERS_MAX, TUNNEL_PURPOSE_BYTES_MAX, TUNNELS_MAX,
};
use hotcell_agent_client::{AgentError, Feature};
use tokio::io::AsyncReadExt;

use crate::fake::{Answer, DEADLINE, agent, connect, framed, honest_hello, messages};

async fn in_time<T>(future: impl Future<Output = T>) -> T {
    tokio::time::timeout(DEADLINE, future)
        .await
        .expect("an answer or an error in time")
}

fn unix(path: &[u8]) -> Address {
    Address::UnixPath(Bytes::copy_from_slice(path))
}

fn listener(purpose: &str, address: impl Into<Option<Address>>) -> TunnelListener {
    let address = address.into();
    TunnelListener {
        purpose: purpose.to_owned(),
        address: Some(TunnelAddress { address }),
    }
}

fn table(listeners: Vec<TunnelListener>) -> TunnelEvent {
    let event = Some(Event::Listeners(TunnelListeners { listeners }));
    TunnelEvent { event }
}

fn honest_table() -> TunnelEvent {
    table(vec![listener("test", unix(b"/tmp/test"))])
}

fn incoming(tunnel_id: u64, purpose: &str) -> TunnelEvent {
    let purpose = purpose.to_owned();
    let event = Some(Event::Incoming(TunnelIncoming { tunnel_id, purpose }));
    TunnelEvent { event }
}

/// The events of a stream that stays open.
fn events(events: &[TunnelEvent]) -> Answer {
    Answer::Body(events.iter().map(framed).collect(), None)
}

#[tokio::test(start_paused = true)]
async fn a_table_that_no_agent_of_ours_has_is_refused() {
    let tcp = |ip: &[u8], port| {
        let ip = Bytes::copy_from_slice(ip);
        Address::Tcp(TcpAddress { ip, port })
    };
    let udp = |ip: &[u8]| {
        let (ip, port) = (Bytes::copy_from_slice(ip), 53);
        Address::Udp(TcpAddress { ip, port })
    };
    let many =
        (0..=TUNNEL_LISTENERS_MAX).map(|number| listener(&format!("p{number}"), unix(b"/x")));
    let lies = [
        incoming(1, "test"),
        TunnelEvent { event: None },
        table(vec![listener("", unix(b"/x"))]),
        table(vec![listener(
            &"x".repeat(TUNNEL_PURPOSE_BYTES_MAX + 1),
            unix(b"/x"),
        )]),
        table(vec![listener(&"x".repeat(1 << 20), unix(b"/x"))]),
        table(vec![listener("a\x1b[2J", unix(b"/x"))]),
        table(vec![listener("a", None)]),
        table(vec![listener("a", unix(b"relative"))]),
        table(vec![listener("a", unix(&[b'/'; 200]))]),
        table(vec![listener("a", tcp(&[10, 0, 0, 1], 80))]),
        table(vec![listener("a", tcp(&[127, 0, 0], 80))]),
        table(vec![listener("a", udp(&[10, 0, 0, 1]))]),
        table(vec![listener("a", udp(&[0; 16]))]),
        table(vec![listener("a", tcp(&[127, 0, 0, 1], 1 << 20))]),
        table(many.collect()),
    ];
    for lie in lies {
        let agent = agent(events(std::slice::from_ref(&lie))).await;
        let error = in_time(agent.tunnels()).await.map(drop);
        assert!(matches!(error, Err(AgentError::Protocol(_))), "{error:?}");
    }
    let honest = agent(events(&[honest_table()])).await;
    assert_eq!(
        in_time(honest.tunnels()).await.unwrap().listeners().len(),
        1
    );
}

#[tokio::test(start_paused = true)]
async fn what_is_announced_twice_or_for_nobody_ends_the_tunnels() {
    let lies = [
        vec![incoming(0, "test")],
        vec![incoming(5, "test"), incoming(5, "test")],
        vec![incoming(5, "test"), incoming(4, "test")],
        vec![incoming(1, "other")],
        vec![incoming(1, &"x".repeat(1 << 20))],
        vec![honest_table()],
        vec![TunnelEvent { event: None }],
    ];
    for lie in lies {
        let sent: Vec<_> = [honest_table()].into_iter().chain(lie).collect();
        let agent = agent(events(&sent)).await;
        let mut tunnels = in_time(agent.tunnels()).await.unwrap();
        let outcome = loop {
            if let Err(error) = in_time(tunnels.accept()).await {
                break error;
            }
        };
        assert!(matches!(outcome, AgentError::Protocol(_)), "{outcome:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn connections_without_end_are_taken_no_faster_than_they_are_let_go() {
    let sent = (1..=1000).map(|id| incoming(id, "test"));
    let sent: Vec<_> = [honest_table()].into_iter().chain(sent).collect();
    let agent = agent(events(&sent)).await;
    let mut tunnels = in_time(agent.tunnels()).await.unwrap();
    let mut taken = Vec::new();
    for _ in 0..TUNNELS_MAX {
        taken.push(in_time(tunnels.accept()).await.unwrap());
    }
    let beyond = tokio::time::timeout(DEADLINE, tunnels.accept()).await;
    assert!(beyond.is_err(), "one more than the bound was taken");
    taken.pop();
    in_time(tunnels.accept()).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_tunnel_that_breaks_the_protocol_is_an_error() {
    let reply = |reply| TunnelReply { reply: Some(reply) };
    let opened = || reply(Reply::Opened(true));
    let data = |bytes: usize| reply(Reply::Data(vec![7; bytes].into()));
    let end = || reply(Reply::End(true));
    let lies = [
        vec![data(1)],
        vec![reply(Reply::Opened(false))],
        vec![TunnelReply { reply: None }],
        vec![opened(), data(0)],
        vec![opened(), data(CHUNK_BYTES_MAX + 1)],
        vec![opened(), opened()],
        vec![opened(), reply(Reply::End(false))],
        vec![opened(), TunnelReply { reply: None }],
        vec![opened(), data(9)],
        vec![opened(), end(), data(1)],
        vec![opened(), end(), end()],
    ];
    for (number, lie) in lies.iter().enumerate() {
        let agent = agent(messages(lie)).await;
        let target = hotcell_agent_client::TunnelAddress::Unix(b"/x".to_vec());
        let mut stream = match in_time(agent.open_tunnel(&target)).await {
            Ok(stream) => stream,
            Err(error) => {
                assert!(
                    matches!(error, AgentError::Protocol(_)),
                    "{number}: {error:?}"
                );
                continue;
            }
        };
        let mut read = Vec::new();
        let mut outcome = in_time(stream.read_to_end(&mut read)).await;
        // A later read notices what follows the end.
        for _ in 0..1000 {
            if outcome.is_ok() {
                tokio::task::yield_now().await;
                outcome = in_time(stream.read_to_end(&mut read)).await;
            }
        }
        let kind = outcome.err().map(|error| error.kind());
        assert_eq!(kind, Some(ErrorKind::InvalidData), "{number}");
    }
    let honest = agent(messages(&[opened(), data(9), end()])).await;
    let target = hotcell_agent_client::TunnelAddress::Unix(b"/x".to_vec());
    let mut stream = in_time(honest.open_tunnel(&target)).await.unwrap();
    let mut read = Vec::new();
    in_time(stream.read_to_end(&mut read)).await.unwrap();
    assert_eq!(read, [7; 9]);
}

#[tokio::test(start_paused = true)]
async fn an_agent_from_before_ranges_and_features_is_served_without_them() {
    let mut first_version = honest_hello();
    (first_version.protocol_max, first_version.features) = (0, 0);
    let agent = in_time(connect(vec![messages(&[first_version])])).await;
    let agent = agent.unwrap();
    assert_eq!(agent.hello().protocol, 1);
    let feature = Feature::Tunnel;
    assert!(!agent.has(feature));
    let too_old = AgentError::TooOld { feature };
    assert_eq!(in_time(agent.tunnels()).await.unwrap_err(), too_old);
    let mut later = honest_hello();
    later.protocol_max = 99;
    let agent = in_time(connect(vec![messages(&[later])])).await.unwrap();
    assert_eq!(agent.hello().protocol, 2);
    assert!(agent.has(feature));
}
