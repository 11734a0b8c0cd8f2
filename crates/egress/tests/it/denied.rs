//! What a profile does not allow gets an answer that says why.

use hotcell_egress::{Limits, Pattern, ProfileSettings, Target};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use crate::world::{Origin, World, name};

fn allowing(host: &str) -> ProfileSettings {
    ProfileSettings {
        allow: vec![Pattern::parse(host).unwrap()],
        ..ProfileSettings::default()
    }
}

#[tokio::test]
async fn a_refused_name_answers_403_over_tls_and_without() {
    let world = World::new(allowing("api.example.com"));
    for (port, scheme) in [(443, "https"), (80, "http")] {
        let door = world.door(Target::Refused(port)).await;
        let client = world.trusting("evil.example.org", door);
        let got = client
            .get(format!("{scheme}://evil.example.org/x"))
            .send()
            .await
            .unwrap();
        assert_eq!(got.status(), 403);
        let page = got.text().await.unwrap();
        assert_eq!(
            page,
            format!(
                "# egress to evil.example.org:{port} denied by profile work (not listed); \
                 ask the operator to add \"evil.example.org\" to `allow` of [egress.work]\n"
            )
        );
    }
    let report = world.guest.report(std::time::SystemTime::UNIX_EPOCH);
    assert_eq!(report.denied.len(), 2);
    assert_eq!(report.connections, 0);
}

#[tokio::test]
async fn a_connection_that_names_another_host_is_refused() {
    let origin = Origin::start("evil.example.org").await;
    let world = World::with_origin(allowing("api.example.com"), "api.example.com", &origin);
    let door = world.door(Target::Name(name("api.example.com"), 443)).await;
    // The program dials the allowed address and asks for another host by SNI.
    let client = world.pinned("evil.example.org", door);
    assert!(
        client
            .get("https://evil.example.org/")
            .send()
            .await
            .is_err()
    );
    let denied = "egress to api.example.com:443 denied by profile work (the connection names evil.example.org)";
    assert!(
        world.events().contains(&denied.to_owned()),
        "{:?}",
        world.events()
    );
}

#[tokio::test]
async fn what_is_not_tls_does_not_pass_port_443() {
    let origin = Origin::start("api.example.com").await;
    let world = World::with_origin(allowing("api.example.com"), "api.example.com", &origin);
    let door = world.door(Target::Name(name("api.example.com"), 443)).await;
    let mut stream = TcpStream::connect(door).await.unwrap();
    stream
        .write_all(b"GET / HTTP/1.1\r\nHost: api.example.com\r\n\r\n")
        .await
        .unwrap();
    let mut answer = Vec::new();
    let _ = stream.read_to_end(&mut answer).await;
    assert!(answer.is_empty(), "{answer:?}");
}

#[tokio::test]
async fn a_used_budget_is_a_denial_with_that_reason() {
    let origin = Origin::start("api.example.com").await;
    let profile = ProfileSettings {
        limits: Limits {
            up_bytes: 10,
            ..Limits::default()
        },
        ..allowing("api.example.com")
    };
    let world = World::with_origin(profile, "api.example.com", &origin);
    let door = world.door(Target::Name(name("api.example.com"), 80)).await;
    let client = world.trusting("api.example.com", door);
    let _ = client.get("http://api.example.com/").send().await;
    let client = world.trusting("api.example.com", door);
    let got = client.get("http://api.example.com/").send().await.unwrap();
    assert_eq!(got.status(), 403);
    assert!(
        got.text()
            .await
            .unwrap()
            .contains("the budget for bytes up is used up")
    );
}
