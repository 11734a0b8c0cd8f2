//! A new policy decides about what is open already.

use hotcell_egress::{Access, Pattern, ProfileSettings, RuleSettings, Target, Tls};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};

use crate::world::{World, ends, name};

const HOST: &str = "db.example.com";
const PORT: u16 = 5432;

fn rule(tls: Tls) -> ProfileSettings {
    let pattern = Pattern::parse(&format!("{HOST}:{PORT}")).unwrap();
    ProfileSettings {
        rules: vec![RuleSettings {
            tls,
            ..RuleSettings::new(pattern, Access::Full)
        }],
        ..ProfileSettings::default()
    }
}

/// A spliced connection, from the program inside to the host.
async fn connected(world: &World, listener: &TcpListener) -> (TcpStream, TcpStream) {
    let door = world.door(Target::Name(name(HOST), PORT)).await;
    let mut inside = TcpStream::connect(door).await.unwrap();
    let (mut outside, _) = listener.accept().await.unwrap();
    inside.write_all(b"hello").await.unwrap();
    outside.read_exact(&mut [0; 5]).await.unwrap();
    (inside, outside)
}

async fn world() -> (World, TcpListener) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let world = World::with_hosts(rule(Tls::Auto), &[(HOST, PORT, address)], None);
    (world, listener)
}

#[tokio::test]
async fn what_a_new_policy_refuses_is_closed_and_what_it_allows_goes_on() {
    let (world, listener) = world().await;
    let (mut inside, mut outside) = connected(&world, &listener).await;
    world.replace_profile(rule(Tls::Auto));
    outside.write_all(b"still").await.unwrap();
    inside.read_exact(&mut [0; 5]).await.unwrap();
    world.replace_profile(ProfileSettings::default());
    assert!(ends(&mut inside).await);
    let events = world.events_once(3).await;
    assert_eq!(
        events[1..],
        [
            "egress to db.example.com:5432 denied by profile work (not listed)",
            "close db.example.com true"
        ]
    );
}

#[tokio::test]
async fn what_a_new_policy_wants_to_see_is_closed_if_it_was_not_seen() {
    let (world, listener) = world().await;
    let (mut inside, _outside) = connected(&world, &listener).await;
    world.replace_profile(rule(Tls::Open));
    assert!(ends(&mut inside).await);
}
