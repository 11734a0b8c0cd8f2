//! What a profile allows gets through.

use hotcell_egress::{Access, Pattern, ProfileSettings, RuleSettings, Target, Tls};

use crate::world::{Origin, World, name};

const HOST: &str = "api.example.com";

fn full() -> ProfileSettings {
    ProfileSettings {
        allow: vec![Pattern::parse(HOST).unwrap()],
        ..ProfileSettings::default()
    }
}

fn ruled(access: Access) -> ProfileSettings {
    ProfileSettings {
        rules: vec![RuleSettings::new(Pattern::parse(HOST).unwrap(), access)],
        ..ProfileSettings::default()
    }
}

async fn text(response: reqwest::Response) -> String {
    let status = response.status().as_u16();
    format!("{status} {}", response.text().await.unwrap())
}

#[tokio::test]
async fn full_access_keeps_the_hosts_own_certificate() {
    let origin = Origin::start(HOST).await;
    let world = World::with_origin(full(), HOST, &origin);
    let door = world.door(Target::Name(name(HOST), 443)).await;
    let client = world.pinned(HOST, door);
    let posted = client.post(format!("https://{HOST}/x")).body("four");
    let posted = posted.send().await.unwrap();
    assert_eq!(text(posted).await, "200 origin HTTP/1.1 POST /x 4");
    drop(client);
    assert_eq!(
        world.events_once(2).await,
        [
            "open api.example.com:443 by work: api.example.com",
            "close api.example.com true"
        ]
    );
}

#[tokio::test]
async fn read_access_lets_reading_through_and_nothing_else() {
    let origin = Origin::start(HOST).await;
    let world = World::with_origin(ruled(Access::Read), HOST, &origin);
    let door = world.door(Target::Name(name(HOST), 443)).await;
    let client = world.trusting(HOST, door);
    let url = format!("https://{HOST}/simple/x?y=z");
    let got = client.get(&url).send().await.unwrap();
    assert_eq!(text(got).await, "200 origin HTTP/1.1 GET /simple/x 0");
    let posted = client.post(&url).body("secret").send().await.unwrap();
    assert_eq!(posted.status(), 403);
    assert_eq!(posted.headers()["hotcell-egress"], "denied");
    let page = posted.text().await.unwrap();
    assert!(
        page.starts_with(
            "# egress to api.example.com:443 denied by profile work (POST /simple/x is not allowed)"
        ),
        "{page}"
    );
    let again = client.get(&url).send().await.unwrap();
    assert_eq!(again.status(), 200);
}

#[tokio::test]
async fn plain_http_is_read_request_by_request() {
    let origin = Origin::start(HOST).await;
    let world = World::with_origin(full(), HOST, &origin);
    let door = world.door(Target::Name(name(HOST), 80)).await;
    let client = world.trusting(HOST, door);
    let got = client.get(format!("http://{HOST}/a")).send().await.unwrap();
    assert_eq!(text(got).await, "200 origin HTTP/1.1 GET /a 0");
    let other = client
        .get(format!("http://{HOST}/a"))
        .header("host", "evil.example.com");
    assert_eq!(other.send().await.unwrap().status(), 421);
}

#[tokio::test]
async fn a_host_whose_certificate_is_wrong_is_a_bad_gateway_that_says_so() {
    let origin = Origin::start("other.example.com").await;
    let world = World::with_origin(ruled(Access::Read), HOST, &origin);
    let door = world.door(Target::Name(name(HOST), 443)).await;
    let got = world.trusting(HOST, door).get(format!("https://{HOST}/"));
    let got = text(got.send().await.unwrap()).await;
    assert!(
        got.starts_with("502 # egress to api.example.com: TLS towards the host failed"),
        "{got}"
    );
}

#[tokio::test]
async fn a_policy_that_changes_decides_about_the_next_request() {
    let origin = Origin::start(HOST).await;
    let world = World::with_origin(ruled(Access::Read), HOST, &origin);
    let door = world.door(Target::Name(name(HOST), 443)).await;
    let client = world.trusting(HOST, door);
    let url = format!("https://{HOST}/");
    assert_eq!(client.get(&url).send().await.unwrap().status(), 200);
    world.replace_profile(ruled(Access::parse("GET /other").unwrap()));
    assert_eq!(client.get(&url).send().await.unwrap().status(), 403);
}

#[tokio::test]
async fn a_strict_profile_opens_what_a_rule_does_not_keep_closed() {
    let origin = Origin::start(HOST).await;
    let strict = |tls| ProfileSettings {
        strict: true,
        rules: vec![RuleSettings {
            tls,
            ..RuleSettings::new(Pattern::parse(HOST).unwrap(), Access::Full)
        }],
        ..ProfileSettings::default()
    };
    for (tls, is_opened) in [(Tls::Auto, true), (Tls::Open, true), (Tls::Splice, false)] {
        let world = World::with_origin(strict(tls), HOST, &origin);
        let door = world.door(Target::Name(name(HOST), 443)).await;
        let url = format!("https://{HOST}/");
        // The certificate tells who has ended TLS.
        let by_broker = world.trusting(HOST, door).get(&url).send().await;
        let by_host = world.pinned(HOST, door).get(&url).send().await;
        assert_eq!(by_broker.is_ok(), is_opened, "{tls:?}");
        assert_eq!(by_host.is_ok(), !is_opened, "{tls:?}");
    }
}
