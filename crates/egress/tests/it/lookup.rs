//! Names inside.

use std::net::SocketAddrV4;

use hotcell_egress::{Pattern, ProfileSettings, REFUSAL};

use crate::world::{Origin, World, loopback, name};

/// A query as glibc sends it.
fn query(host: &str, kind: u16) -> Vec<u8> {
    let mut message = vec![0, 7, 1, 0, 0, 1, 0, 0, 0, 0, 0, 0];
    for label in host.split('.') {
        message.push(u8::try_from(label.len()).unwrap());
        message.extend(label.as_bytes());
    }
    message.push(0);
    message.extend(kind.to_be_bytes());
    message.extend([0, 1]);
    message
}

/// The code of an answer, and its address if it has one.
async fn ask(world: &World, host: &str, kind: u16) -> (u8, Option<[u8; 4]>) {
    let answer = world.guest.answer(&query(host, kind)).await.unwrap();
    let has_record = answer[7] == 1;
    let address = answer.last_chunk::<4>().copied();
    (answer[3] & 15, address.filter(|_| has_record))
}

#[tokio::test]
async fn an_allowed_name_has_an_address_where_the_agent_listens() {
    let origin = Origin::start("api.example.com").await;
    let profile = ProfileSettings {
        allow: vec![Pattern::parse("api.example.com").unwrap()],
        ..ProfileSettings::default()
    };
    let world = World::with_origin(profile, "api.example.com", &origin);
    let expected = Some(loopback(1).octets());
    assert_eq!(ask(&world, "api.example.com", 1).await, (0, expected));
    assert_eq!(ask(&world, "API.example.com", 1).await, (0, expected));
    assert_eq!(ask(&world, "api.example.com", 28).await, (0, None));
    let mut listening = world.seen.listening.lock().unwrap().clone();
    listening.sort();
    listening.dedup();
    let at = |port| {
        (
            "api.example.com".to_owned(),
            SocketAddrV4::new(loopback(1), port),
        )
    };
    assert_eq!(listening, [at(80), at(443)]);
}

#[tokio::test]
async fn a_refused_name_leads_to_the_refusal_and_nothing_leaves_the_host() {
    let world = World::new(ProfileSettings::default());
    let refusal = Some(REFUSAL.octets());
    assert_eq!(
        ask(&world, "secret.evil.example.org", 1).await,
        (0, refusal)
    );
    assert_eq!(ask(&world, "secret.evil.example.org", 28).await, (0, None));
    for host in [
        "printer.local",
        "metadata.google.internal",
        "localhost",
        "127.0.0.1",
    ] {
        assert_eq!(ask(&world, host, 1).await, (3, None), "{host}");
    }
    assert!(world.seen.listening.lock().unwrap().is_empty());
}

#[tokio::test]
async fn an_address_that_an_earlier_server_assigned_has_its_name_again() {
    let world = World::new(ProfileSettings::default());
    world.guest.restore(name("api.example.com"), loopback(9));
    let answer = world
        .guest
        .answer(&query("9.0.77.127.in-addr.arpa", 12))
        .await
        .unwrap();
    assert!(answer.windows(5).any(|bytes| bytes == b"\x03api\x07"));
}

#[tokio::test]
async fn names_below_a_wildcard_are_limited_because_each_is_a_message() {
    let nowhere = std::net::SocketAddr::from(([127, 0, 0, 1], 9));
    let hosts: Vec<String> = (0..31).map(|n| format!("s3cret{n}.example.com")).collect();
    let fixed: Vec<_> = hosts
        .iter()
        .map(|host| (host.as_str(), 443, nowhere))
        .collect();
    let profile = ProfileSettings {
        allow: vec![Pattern::parse("*.example.com:443").unwrap()],
        ..ProfileSettings::default()
    };
    let world = World::with_hosts(profile, &fixed, None);
    for host in &hosts[..30] {
        assert_eq!(ask(&world, host, 1).await.0, 0, "{host}");
    }
    assert_eq!(ask(&world, &hosts[30], 1).await, (5, None));
    // A name that is known already is no new message.
    assert_eq!(ask(&world, &hosts[0], 1).await.0, 0);
}
