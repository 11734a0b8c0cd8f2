//! Connections to names that are not listed wait while somebody decides.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use hotcell_egress::{
    Ask, AskWait, Limits, Pattern, ProfileSettings, Question, Settings, Target, Verdict,
};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::task::JoinHandle;

use crate::world::{Origin, World, name, work};

const HOST: &str = "new.example.com";

fn asking(profile: ProfileSettings, seconds: u64) -> Settings {
    Settings {
        ask: Ask::Hold,
        ask_wait: AskWait::from_seconds(seconds).unwrap(),
        profiles: [(work(), profile)].into(),
        ..Settings::default()
    }
}

/// A container that may reach nothing unless somebody says so.
fn holding(origin: &Origin, profile: ProfileSettings) -> World {
    let hosts = [(HOST, 443, origin.tls), (HOST, 80, origin.plain)];
    World::with_settings(asking(profile, 60), &hosts, Some(origin.roots.clone()))
}

fn get(client: reqwest::Client, url: String) -> JoinHandle<Result<(u16, String), reqwest::Error>> {
    tokio::spawn(async move {
        let got = client.get(url).send().await?;
        Ok((got.status().as_u16(), got.text().await?))
    })
}

/// The questions, once there are so many.
async fn questions(world: &World, count: usize) -> Vec<Question> {
    world.events_once(count).await;
    world.guest.questions()
}

fn said(verdict: Verdict, world: &World) -> usize {
    let answered = world.guest.answer_questions(|_| true, verdict);
    answered.len()
}

#[tokio::test]
async fn a_name_that_is_not_listed_is_held_until_somebody_allows_it() {
    let origin = Origin::start(HOST).await;
    for (port, scheme) in [(443, "https"), (80, "http")] {
        let world = holding(&origin, ProfileSettings::default());
        let door = world.door(Target::Refused(port)).await;
        // The connection is not opened, so the host's own certificate arrives.
        let client = world.pinned(HOST, door);
        let url = format!("{scheme}://{HOST}/a");
        let held = get(client.clone(), url.clone());
        let asked = questions(&world, 1).await;
        assert_eq!((asked[0].host.as_str(), asked[0].port), (HOST, port));
        assert!(!held.is_finished());
        assert_eq!(world.events(), [format!("asked {HOST}:{port}")]);
        assert_eq!(said(Verdict::Allow, &world), 1);
        let (status, text) = held.await.unwrap().unwrap();
        assert_eq!((status, text.contains("GET /a")), (200, true), "{text}");
        // It stays allowed, at the address of refused names and at one of its own.
        let own = world.door(Target::Name(name(HOST), port)).await;
        for door in [door, own] {
            let (status, _) = get(world.pinned(HOST, door), url.clone())
                .await
                .unwrap()
                .unwrap();
            assert_eq!(status, 200);
        }
        let opened = format!("open {HOST}:{port} by work: asked");
        assert!(world.events().contains(&opened), "{:?}", world.events());
        assert!(world.guest.questions().is_empty());
        // Another container has not been asked about.
        assert!(world.neighbour().questions().is_empty());
    }
}

#[tokio::test]
async fn what_somebody_denies_is_refused_at_once_until_it_is_listed() {
    let origin = Origin::start(HOST).await;
    let world = holding(&origin, ProfileSettings::default());
    let door = world.door(Target::Refused(443)).await;
    let client = world.trusting(HOST, door);
    let url = format!("https://{HOST}/");
    let held = get(client.clone(), url.clone());
    questions(&world, 1).await;
    said(Verdict::Deny, &world);
    for got in [held, get(world.trusting(HOST, door), url)] {
        let (status, text) = got.await.unwrap().unwrap();
        assert_eq!(status, 403);
        assert!(
            text.contains("the operator was asked and said no"),
            "{text}"
        );
    }
    // One may change one's mind, and a list comes before an answer.
    assert_eq!(said(Verdict::Allow, &world), 1);
    said(Verdict::Deny, &world);
    let listed = ProfileSettings {
        allow: vec![Pattern::parse(HOST).unwrap()],
        ..ProfileSettings::default()
    };
    world.replace_settings(asking(listed, 60));
    let door = world.door(Target::Name(name(HOST), 443)).await;
    let client = world.pinned(HOST, door);
    let (status, _) = get(client, format!("https://{HOST}/"))
        .await
        .unwrap()
        .unwrap();
    assert_eq!(status, 200);
}

#[tokio::test]
async fn silence_is_a_refusal_that_says_so_and_a_retry_finds_the_answer() {
    let origin = Origin::start(HOST).await;
    let hosts = [(HOST, 443, origin.tls), (HOST, 80, origin.plain)];
    let settings = asking(ProfileSettings::default(), 1);
    let world = World::with_settings(settings, &hosts, Some(origin.roots.clone()));
    let door = world.door(Target::Refused(80)).await;
    let client = world.pinned(HOST, door);
    let url = format!("http://{HOST}/");
    let (status, text) = get(client.clone(), url.clone()).await.unwrap().unwrap();
    assert_eq!(status, 403);
    let told = "the operator was asked and has not answered yet); \
                try again once the operator has run `hotcell egress allow new.example.com`";
    assert!(text.contains(told), "{text}");
    assert_eq!(world.guest.questions().len(), 1);
    said(Verdict::Allow, &world);
    let (status, _) = get(client, url).await.unwrap().unwrap();
    assert_eq!(status, 200);
    // A question is asked once.
    let asked = format!("asked {HOST}:80");
    let count = world
        .events()
        .iter()
        .filter(|event| **event == asked)
        .count();
    assert_eq!(count, 1, "{:?}", world.events());
}

#[tokio::test]
async fn once_is_one_connection() {
    let origin = Origin::start(HOST).await;
    // Opened and read, so that each request is decided about again.
    let strict = ProfileSettings {
        strict: true,
        ..ProfileSettings::default()
    };
    let world = holding(&origin, strict);
    let door = world.door(Target::Refused(443)).await;
    let client = world.trusting(HOST, door);
    let url = format!("https://{HOST}/");
    let held = get(client.clone(), url.clone());
    questions(&world, 1).await;
    said(Verdict::AllowOnce, &world);
    assert_eq!(held.await.unwrap().unwrap().0, 200);
    // The same connection carries the next request; another one is a new question.
    let again = get(client, url.clone()).await.unwrap().unwrap();
    assert_eq!(again.0, 200);
    let other = get(world.trusting(HOST, door), url);
    world.events_with(&format!("asked {HOST}:443"), 2).await;
    said(Verdict::Deny, &world);
    assert_eq!(other.await.unwrap().unwrap().0, 403);
}

#[tokio::test]
async fn permission_for_one_connection_is_not_used_by_a_program_that_has_gone() {
    let origin = Origin::start(HOST).await;
    for (port, scheme) in [(80, "http"), (443, "https")] {
        let url = format!("{scheme}://{HOST}/");
        let world = holding(&origin, ProfileSettings::default());
        let (mut near, far) = tokio::io::duplex(64 * 1024);
        let guest = Arc::clone(&world.guest);
        let serving = tokio::spawn(async move { guest.serve(Target::Refused(port), far).await });
        if port == 80 {
            let head = format!("GET / HTTP/1.1\r\nHost: {HOST}\r\n\r\n");
            near.write_all(head.as_bytes()).await.unwrap();
        } else {
            near.write_all(&crate::attacks::hello(HOST)).await.unwrap();
        }
        questions(&world, 1).await;
        drop(near);
        serving.await.unwrap();
        // It was not waited for.
        assert_eq!(world.events(), [format!("asked {HOST}:{port}")]);
        said(Verdict::AllowOnce, &world);
        let door = world.door(Target::Refused(port)).await;
        let got = get(world.pinned(HOST, door), url).await.unwrap().unwrap();
        assert_eq!(got.0, 200);
    }
}

#[tokio::test]
async fn nobody_is_asked_about_what_is_denied_special_or_beyond_a_budget() {
    let origin = Origin::start(HOST).await;
    let pattern = |text| Pattern::parse(text).unwrap();
    let profile = ProfileSettings {
        allow: vec![pattern("other.example.com:8443")],
        deny: vec![pattern("paste.example.org")],
        ..ProfileSettings::default()
    };
    let world = holding(&origin, profile);
    for host in [
        "paste.example.org",
        "metadata.google.internal",
        "other.example.com",
    ] {
        let door = world.door(Target::Refused(443)).await;
        let client = world.trusting(host, door);
        let (status, text) = get(client, format!("https://{host}/"))
            .await
            .unwrap()
            .unwrap();
        assert_eq!(status, 403, "{host}: {text}");
    }
    assert!(world.guest.questions().is_empty());
    let used_up = ProfileSettings {
        limits: Limits {
            up_bytes: 0,
            ..Limits::default()
        },
        ..ProfileSettings::default()
    };
    let world = holding(&origin, used_up);
    let door = world.door(Target::Refused(80)).await;
    let got = get(world.pinned(HOST, door), format!("http://{HOST}/"));
    assert_eq!(got.await.unwrap().unwrap().0, 403);
    assert!(world.guest.questions().is_empty());
}

/// A request for a host, over a connection of its own.
async fn request(door: SocketAddr, host: &str) -> TcpStream {
    let mut stream = TcpStream::connect(door).await.unwrap();
    let request = format!("GET / HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).await.unwrap();
    stream
}

/// The answer to a request, whole.
async fn answer(mut stream: TcpStream) -> String {
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.unwrap();
    answer
}

#[tokio::test]
async fn a_flood_of_names_is_answered_as_not_listed() {
    let origin = Origin::start(HOST).await;
    let world = holding(&origin, ProfileSettings::default());
    let door = world.door(Target::Refused(80)).await;
    let mut waiting = Vec::new();
    for number in 0..16 {
        waiting.push(request(door, &format!("n{number}.example.org")).await);
    }
    assert_eq!(questions(&world, 16).await.len(), 16);
    let refused = answer(request(door, "n16.example.org").await).await;
    assert!(refused.contains("(not listed);"), "{refused}");
    // More connections to the same name are no further questions.
    waiting.push(request(door, "n3.example.org").await);
    // Another container has questions of its own.
    let other = world.neighbour();
    let other_door = World::door_of(Arc::clone(&other), Target::Refused(80)).await;
    let elsewhere = request(other_door, "n16.example.org").await;
    world.events_once(18).await;
    assert_eq!(world.guest.questions().len(), 16);
    assert_eq!(other.questions().len(), 1);
    assert_eq!(said(Verdict::Deny, &world), 16);
    other.answer_questions(|_| true, Verdict::Deny);
    waiting.push(elsewhere);
    for stream in waiting {
        let refused = answer(stream).await;
        assert!(refused.contains("said no"), "{refused}");
    }
    // There is room again.
    let _waiting = request(door, "n17.example.org").await;
    world.events_with("asked n17.example.org:80", 1).await;
}

#[tokio::test]
async fn answers_outlast_a_reload_and_end_with_asking() {
    let origin = Origin::start(HOST).await;
    let world = holding(&origin, ProfileSettings::default());
    let door = world.door(Target::Refused(80)).await;
    let held = get(world.pinned(HOST, door), format!("http://{HOST}/"));
    questions(&world, 1).await;
    said(Verdict::Allow, &world);
    held.await.unwrap().unwrap();
    world.replace_settings(asking(ProfileSettings::default(), 60));
    let client = world.pinned(HOST, door);
    let url = format!("http://{HOST}/");
    assert_eq!(get(client, url.clone()).await.unwrap().unwrap().0, 200);
    // What is open is closed when nobody is asked any more.
    let own = world.door(Target::Name(name(HOST), 80)).await;
    let mut open = TcpStream::connect(own).await.unwrap();
    let request = format!("GET / HTTP/1.1\r\nHost: {HOST}\r\n\r\n");
    open.write_all(request.as_bytes()).await.unwrap();
    open.read_exact(&mut [0; 12]).await.unwrap();
    let settings = Settings {
        ask: Ask::Off,
        ..asking(ProfileSettings::default(), 60)
    };
    world.replace_settings(settings);
    let refused = format!("egress to {HOST}:80 denied by profile work (not listed)");
    world.events_with(&refused, 1).await;
    let mut rest = Vec::new();
    let _ = open.read_to_end(&mut rest).await;
    let client = world.pinned(HOST, door);
    let (status, text) = get(client, url).await.unwrap().unwrap();
    assert_eq!(status, 403);
    assert!(text.contains("(not listed);"), "{text}");
}

#[tokio::test]
async fn a_question_is_taken_by_one_until_it_is_given_back() {
    let origin = Origin::start(HOST).await;
    let world = holding(&origin, ProfileSettings::default());
    let guest = &world.guest;
    assert_eq!(guest.take_question(), None);
    let door = world.door(Target::Refused(80)).await;
    let _held = get(world.pinned(HOST, door), format!("http://{HOST}/"));
    questions(&world, 1).await;
    let taken = guest.take_question().expect("it is free");
    assert_eq!(taken.host.as_str(), HOST);
    assert_eq!(guest.take_question(), None);
    assert_eq!(guest.questions().len(), 1, "others may answer it");
    guest.give_back_question(&taken.id);
    assert_eq!(guest.take_question().as_ref(), Some(&taken));
    // It is closed by whoever answers it, and then nobody's to take.
    tokio::time::pause();
    let open = tokio::time::timeout(Duration::from_mins(1), guest.question_closed(&taken.id));
    assert!(open.await.is_err());
    let waiting = Arc::clone(guest);
    let id = taken.id.clone();
    let closed = tokio::spawn(async move { waiting.question_closed(&id).await });
    tokio::task::yield_now().await;
    let began = tokio::time::Instant::now();
    said(Verdict::Deny, &world);
    closed.await.expect("it does not panic");
    guest.question_closed(&taken.id).await;
    assert!(began.elapsed() < Duration::from_secs(1), "it waited");
    guest.give_back_question(&taken.id);
    assert_eq!(guest.take_question(), None);
}

#[tokio::test]
async fn a_question_that_nobody_answers_closes_when_it_is_too_old() {
    let origin = Origin::start(HOST).await;
    let world = holding(&origin, ProfileSettings::default());
    let door = world.door(Target::Refused(80)).await;
    let _held = get(world.pinned(HOST, door), format!("http://{HOST}/"));
    let asked = questions(&world, 1).await;
    tokio::time::pause();
    let began = tokio::time::Instant::now();
    world.guest.question_closed(&asked[0].id).await;
    let minutes = began.elapsed().as_secs() / 60;
    assert!((9..=10).contains(&minutes), "{minutes}");
    assert!(world.guest.questions().is_empty());
}
