//! Secrets reach the host and never the container.

use std::sync::{Arc, Mutex};

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use bytes::Bytes;
use hotcell_egress::{
    Access, InsideName, Pattern, Policy, ProfileName, ProfileSettings, RuleSettings, SecretHeader,
    SecretName, SecretSettings, SecretSource, Settings, Target, Tls,
};
use http_body_util::Full;
use hyper::{Request, Response};

use crate::world::{Origin, World, name};

const HOST: &str = "api.example.com";
const VALUE: &str = "tok_s3cret/Value";

fn secret_name() -> SecretName {
    SecretName::parse("example").unwrap()
}

fn rule(host: &str) -> RuleSettings {
    RuleSettings {
        secret: Some(secret_name()),
        ..RuleSettings::new(Pattern::parse(host).unwrap(), Access::Full)
    }
}

fn settings(rule: RuleSettings, from: SecretSource, header: SecretHeader) -> Settings {
    let profile = ProfileSettings {
        rules: vec![rule],
        ..ProfileSettings::default()
    };
    let secret = SecretSettings {
        from,
        header,
        inside: Some(InsideName::parse("EXAMPLE_TOKEN").unwrap()),
    };
    Settings {
        profiles: [(ProfileName::parse("work").unwrap(), profile)].into(),
        secrets: [(secret_name(), secret)].into(),
        ..Settings::default()
    }
}

fn bearer() -> SecretHeader {
    SecretHeader::header("Authorization: Bearer {}").unwrap()
}

/// A host that remembers the credentials it was sent, and gives them back wherever it can.
struct Echo {
    origin: Origin,
    seen: Arc<Mutex<Vec<String>>>,
    directory: tempfile::TempDir,
}

impl Echo {
    async fn start() -> Self {
        let seen: Arc<Mutex<Vec<String>>> = Arc::default();
        let own = Arc::clone(&seen);
        let origin = Origin::answering(HOST, move |request| reflect(&request, &own)).await;
        let directory = tempfile::tempdir().unwrap();
        std::fs::write(directory.path().join("token"), format!("{VALUE}\n")).unwrap();
        Self {
            origin,
            seen,
            directory,
        }
    }

    fn world(&self, header: SecretHeader) -> World {
        let from = SecretSource::File(self.directory.path().join("token"));
        let hosts = [(HOST, 443, self.origin.tls), (HOST, 80, self.origin.plain)];
        let settings = settings(rule(HOST), from, header);
        World::with_settings(settings, &hosts, Some(self.origin.roots.clone()))
    }

    fn seen(&self) -> Vec<String> {
        self.seen.lock().unwrap().clone()
    }
}

fn reflect(request: &Request<Bytes>, seen: &Mutex<Vec<String>>) -> Response<Full<Bytes>> {
    let all = request.headers().get_all("authorization").iter();
    let all: Vec<&str> = all.map(|value| value.to_str().unwrap()).collect();
    let sent = all.join(",");
    seen.lock().unwrap().push(sent.clone());
    let encoded = BASE64_STANDARD.encode(&sent);
    let body = format!(
        "you sent {sent} or {encoded} or {}",
        sent.replace('/', "%2F")
    );
    let response = Response::builder()
        .header("x-echo", &sent)
        .header("location", format!("https://evil.example.org/?t={sent}"))
        .header("x-encoding", request.headers()["accept-encoding"].clone())
        .header(
            "x-range",
            request.headers().contains_key("range").to_string(),
        );
    let response = match request.uri().path() {
        "/gzip" => response.header("content-encoding", "gzip"),
        "/redirect" => response.status(302),
        _ => response,
    };
    response.body(Full::new(Bytes::from(body))).unwrap()
}

#[tokio::test]
async fn the_host_gets_the_secret_and_the_container_gets_asterisks() {
    let echo = Echo::start().await;
    let world = echo.world(bearer());
    let door = world.door(Target::Name(name(HOST), 443)).await;
    let client = world.trusting(HOST, door);
    let got = client
        .get(format!("https://{HOST}/x"))
        .header("authorization", "Bearer of-the-container")
        .header("range", "bytes=0-3")
        .send()
        .await
        .unwrap();
    // The container's own header is gone, and ours is there once.
    assert_eq!(echo.seen(), [format!("Bearer {VALUE}")]);
    assert_eq!(got.status(), 200);
    assert!(!got.headers().contains_key("x-echo"));
    assert!(!got.headers().contains_key("location"));
    assert_eq!(got.headers()["x-encoding"], "identity");
    assert_eq!(got.headers()["x-range"], "false");
    let body = got.text().await.unwrap();
    assert!(
        body.starts_with("you sent Bearer **************** or "),
        "{body}"
    );
    for form in [
        VALUE.to_owned(),
        VALUE.replace('/', "%2F"),
        BASE64_STANDARD.encode(format!("Bearer {VALUE}")),
    ] {
        assert!(!body.contains(&form), "{body}");
    }
    let events = world.events().join("\n");
    assert!(!events.contains("s3cret"), "{events}");
    assert!(!format!("{:?}", world.policy()).contains("s3cret"));
}

#[tokio::test]
async fn git_over_https_gets_basic_authentication() {
    let echo = Echo::start().await;
    let world = echo.world(SecretHeader::preset("git").unwrap());
    let door = world.door(Target::Name(name(HOST), 443)).await;
    let got = world.trusting(HOST, door).get(format!("https://{HOST}/"));
    let body = got.send().await.unwrap().text().await.unwrap();
    let credential = BASE64_STANDARD.encode(format!("x-access-token:{VALUE}"));
    assert_eq!(echo.seen(), [format!("Basic {credential}")]);
    assert!(!body.contains(credential.trim_end_matches('=')), "{body}");
}

#[tokio::test]
async fn a_redirect_goes_back_to_the_container_and_the_secret_does_not_follow() {
    let echo = Echo::start().await;
    let world = echo.world(bearer());
    let door = world.door(Target::Name(name(HOST), 443)).await;
    let client = world.trusting(HOST, door);
    let got = client.get(format!("https://{HOST}/redirect")).send().await;
    assert_eq!(got.unwrap().status(), 302);
    assert_eq!(echo.seen().len(), 1);
}

#[tokio::test]
async fn an_answer_that_cannot_be_read_is_not_passed_on() {
    let echo = Echo::start().await;
    let world = echo.world(bearer());
    let door = world.door(Target::Name(name(HOST), 443)).await;
    let got = world
        .trusting(HOST, door)
        .get(format!("https://{HOST}/gzip"));
    let got = got.send().await.unwrap();
    assert_eq!(got.status(), 502);
    let body = got.text().await.unwrap();
    assert!(body.contains("the host compressed its answer"), "{body}");
}

#[tokio::test]
async fn a_changed_file_counts_for_the_next_request_and_a_missing_one_stops_it() {
    let echo = Echo::start().await;
    let world = echo.world(bearer());
    let door = world.door(Target::Name(name(HOST), 443)).await;
    let client = world.trusting(HOST, door);
    let path = echo.directory.path().join("token");
    let get = || client.get(format!("https://{HOST}/")).send();
    assert_eq!(get().await.unwrap().status(), 200);
    std::fs::write(&path, "another-value").unwrap();
    assert_eq!(get().await.unwrap().status(), 200);
    assert_eq!(echo.seen()[1], "Bearer another-value");
    std::fs::remove_file(&path).unwrap();
    let got = get().await.unwrap();
    assert_eq!(got.status(), 502);
    let text = got.text().await.unwrap();
    assert!(text.contains("hotcell secret test example"), "{text}");
    assert!(!text.contains("token"), "host paths stay outside: {text}");
    assert_eq!(echo.seen().len(), 2);
}

#[tokio::test]
async fn a_secret_never_goes_over_plain_http() {
    let echo = Echo::start().await;
    let world = echo.world(bearer());
    let door = world.door(Target::Name(name(HOST), 80)).await;
    let got = world.trusting(HOST, door).get(format!("http://{HOST}/"));
    let got = got.send().await.unwrap();
    assert_eq!(got.status(), 403);
    let text = got.text().await.unwrap();
    assert!(text.contains("listed with other ports: 443"), "{text}");
    assert!(echo.seen().is_empty());
}

#[tokio::test]
async fn an_upgrade_is_refused_where_a_secret_is_set() {
    let echo = Echo::start().await;
    let world = echo.world(bearer());
    let door = world.door(Target::Name(name(HOST), 443)).await;
    let client = world.trusting(HOST, door);
    let upgrade = client.get(format!("https://{HOST}/"));
    let upgrade = upgrade.header("connection", "upgrade");
    let got = upgrade.header("upgrade", "websocket").send().await.unwrap();
    assert_eq!(got.status(), 403);
    assert!(echo.seen().is_empty());
}

#[tokio::test]
async fn whether_a_value_can_be_read_is_told_without_it() {
    let missing: SecretSource = "file:/nonexistent/token".parse().unwrap();
    let policy = Policy::compile(&settings(rule(HOST), missing, bearer())).unwrap();
    let secret = policy.secret(&secret_name()).unwrap();
    let error = secret.test().await.unwrap_err().to_string();
    assert_eq!(error, "could not read /nonexistent/token");
    let command: SecretSource = format!("command:echo {VALUE}").parse().unwrap();
    let policy = Policy::compile(&settings(rule(HOST), command, bearer())).unwrap();
    policy.secret(&secret_name()).unwrap().test().await.unwrap();
    let work = ProfileName::parse("work").unwrap();
    let profile = policy.profile(&work).unwrap();
    let inside = profile.variables_inside().into_iter();
    let inside: Vec<&str> = inside.map(InsideName::as_str).collect();
    assert_eq!(inside, ["EXAMPLE_TOKEN"]);
}

#[test]
fn rules_that_would_give_a_secret_away_do_not_load() {
    let from: SecretSource = "env:EXAMPLE_TOKEN".parse().unwrap();
    let refused = |rule: RuleSettings| {
        let settings = settings(rule, from.clone(), bearer());
        Policy::compile(&settings).unwrap_err().to_string()
    };
    assert!(refused(rule("*.example.com")).contains("name the exact host"));
    assert!(refused(rule("api.example.com:80")).contains("plain HTTP"));
    let spliced = RuleSettings {
        tls: Tls::Splice,
        ..rule(HOST)
    };
    assert!(refused(spliced).contains("tls = \"splice\""));
    let unknown = RuleSettings {
        secret: Some(SecretName::parse("other").unwrap()),
        ..rule(HOST)
    };
    assert!(refused(unknown).contains("there is no [secret.other]"));
    let spliced = RuleSettings {
        tls: Tls::Splice,
        ..RuleSettings::new(Pattern::parse(HOST).unwrap(), Access::Read)
    };
    assert!(refused(spliced).contains("requests cannot be seen"));
    assert!(Policy::compile(&settings(rule(HOST), from.clone(), bearer())).is_ok());
}
