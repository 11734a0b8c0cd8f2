//! What a container needs so that the agent can serve names inside.

use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4};
use std::time::Duration;

use anyhow::Context as _;
use hotcell_agent_client::{Datagrams, Feature, TunnelAddress};

use super::container::TestContainer;
use super::{Outcome, Subject};

const NAME: &str = "a.name.example";
const ADDRESS: Ipv4Addr = Ipv4Addr::new(127, 77, 0, 1);
const LISTEN_TIMEOUT: Duration = Duration::from_secs(20);

/// A program inside resolves a name with the system's own resolver, and the agent listens on the
/// ports that such names have.
pub(super) async fn names_are_resolved_and_served_inside(subject: &Subject) -> Outcome {
    if !super::claimed(subject.traits.sealed, "a network of its own") {
        return Ok(());
    }
    let container = TestContainer::make(subject).await?;
    if container.is_older(Feature::Datagrams) {
        return container.end().await;
    }
    let mut tunnels = container.agent.tunnels().await?;
    let names = TunnelAddress::Udp(SocketAddrV4::new(Ipv4Addr::LOCALHOST, 53));
    tunnels.listen("names", &names).await?;
    for port in [443, 80, 22] {
        let address = TunnelAddress::Tcp(SocketAddr::new(ADDRESS.into(), port));
        let bound = tunnels.listen(&format!("port-{port}"), &address).await;
        assert_eq!(bound?, address);
    }
    if container.shell("command -v getent").await?.exit.code != Some(0) {
        crate::not_claimed("the image has no getent");
        return container.end().await;
    }
    let datagrams = container.agent.datagrams("names").await?;
    let answering = tokio::spawn(answer_all(datagrams));
    let asked = format!("getent ahostsv4 {NAME}");
    let found = tokio::time::timeout(LISTEN_TIMEOUT, container.shell(&asked)).await;
    let found = found.context("resolve a name inside")??;
    answering.abort();
    let text = String::from_utf8_lossy(&found.stdout).into_owned();
    let error = String::from_utf8_lossy(&found.stderr).into_owned();
    assert!(text.starts_with("127.77.0.1 "), "{text:?} {error:?}");
    container.end().await
}

/// Answers each query for an IPv4 address with the same one, and others with nothing.
async fn answer_all(mut datagrams: Datagrams) {
    while let Ok((from, query)) = datagrams.receive().await {
        if let Some(answer) = answer(&query) {
            datagrams.sender().send(from, &answer).await;
        }
    }
}

fn answer(query: &[u8]) -> Option<Vec<u8>> {
    let name_end = 12 + query.get(12..)?.iter().position(|byte| *byte == 0)? + 1;
    let question = query.get(12..name_end + 4)?;
    let is_address = question.get(question.len() - 4..question.len() - 2)? == [0, 1];
    let mut message = query.get(..2)?.to_vec();
    message.extend([0x85, 0x80, 0, 1, 0, u8::from(is_address), 0, 0, 0, 0]);
    message.extend(question);
    if is_address {
        message.extend([0xc0, 12, 0, 1, 0, 1, 0, 0, 0, 60, 0, 4]);
        message.extend(ADDRESS.octets());
    }
    Some(message)
}
