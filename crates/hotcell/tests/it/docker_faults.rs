//! Faults at any call to the engine: the error says what to do, and nothing is left behind.

use hotcell_agent_client::{Agent, Command, EventKind, ExitCause, WriteOptions};
use hotcell_domain::{Admitted, ContainerSpec, ImageRef, Phase, Policy};
use hotcell_engine::docker::{DockerConfig, Flavor, Host};
use hotcell_engine::{Abandonment, Docker, Engine, EngineError};
use serde_json::json;

use crate::support;
use crate::support::engines::{IMAGE, Private};
use crate::support::proxy::{Fault, Proxy};
use crate::support::{chain, deadline, eventually, new_id};

/// More calls than creating a container takes: the last round has no fault.
const CALLS_MAX: u32 = 24;

const FAULTS: [Fault; 6] = [
    Fault::Refused,
    Fault::Failed,
    Fault::Full,
    Fault::Unanswered,
    Fault::Cut,
    Fault::Gone,
];

/// An engine behind a proxy, and the same engine without.
struct Rig {
    private: Private,
    proxy: Proxy,
    spoiled: DockerConfig,
    direct: Docker,
}

impl Rig {
    fn new() -> Option<Self> {
        Self::of(Flavor::Docker)
    }

    fn of(flavor: Flavor) -> Option<Self> {
        Private::start(flavor).map(|private| Self::on(private, flavor))
    }

    /// On an engine that no other test uses at the same time.
    fn own() -> Option<Self> {
        let private = Private::start_own(Flavor::Docker, &[])?;
        Some(Self::on(private, Flavor::Docker))
    }

    fn on(private: Private, flavor: Flavor) -> Self {
        let config = private.config(flavor, None);
        let proxy = Proxy::start(&private.socket);
        let spoiled = DockerConfig {
            host: Host::Unix(proxy.socket.clone()),
            ..config.clone()
        };
        Self {
            private,
            proxy,
            spoiled,
            direct: Docker::new(config),
        }
    }

    /// A new engine without cached answers, so that it makes every call again.
    fn engine(&self) -> Docker {
        Docker::new(self.spoiled.clone())
    }

    async fn expect_nothing_left(&self) {
        eventually("nothing is left", || async {
            self.direct.list().await.expect("it lists").is_empty() && self.told().is_empty()
        })
        .await;
    }

    /// What the engine itself lists, also what ours would not.
    fn told(&self) -> String {
        let label = format!("label=io.hotcell.scope={}", self.spoiled.scope);
        self.private.says(&["ps", "-a", "-q", "--filter", &label])
    }
}

fn spec() -> Admitted<ContainerSpec> {
    let image = ImageRef::parse(IMAGE).expect("a reference");
    let spec = Policy::default().admit(ContainerSpec::new(image));
    spec.expect("it is admitted")
}

fn is_clear(error: &EngineError) -> bool {
    match error {
        EngineError::Unavailable { hint, .. } => {
            hint.contains("start Docker") || hint.contains("start Podman")
        }
        EngineError::Engine { step, .. } => !step.is_empty(),
        EngineError::Image { image, .. } | EngineError::NoImage { image } => image == IMAGE,
        EngineError::Exhausted { resource } => *resource == "disk",
        EngineError::NotFound { .. }
        | EngineError::Unsupported { .. }
        | EngineError::Unlimited { .. }
        | EngineError::Abandoned => false,
    }
}

#[tokio::test]
async fn a_create_that_is_spoiled_at_any_call_leaves_nothing() {
    // A daemon that other tests keep busy may create what we cut off, after we looked for it.
    let Some(rig) = Rig::own() else { return };
    // Each call meets two of them.
    spoil_creates(&rig, &[0, 3]).await;
}

#[tokio::test]
async fn a_create_that_is_spoiled_at_any_call_leaves_nothing_in_podman() {
    let Some(rig) = Rig::of(Flavor::Podman) else {
        return;
    };
    spoil_creates(&rig, &[0]).await;
}

/// Injects faults into one call after the other, until there are no more.
async fn spoil_creates(rig: &Rig, turns: &[usize]) {
    let (mut failures, mut tried, mut is_over) = (0, 0, false);
    for call in 1..=CALLS_MAX {
        for turn in turns {
            let fault = FAULTS[(call as usize + turn) % FAULTS.len()];
            let has_failed = spoiled_create(rig, call, fault).await;
            rig.expect_nothing_left().await;
            is_over |= has_failed.is_none();
            tried += 1;
            failures += u32::from(has_failed == Some(true));
        }
        if is_over {
            break;
        }
    }
    assert!(is_over, "a create takes more than {CALLS_MAX} calls");
    assert!(
        failures > tried / 4,
        "only {failures} of {tried} met a fault"
    );
}

/// Creates a container while one call fails, and removes it if it was created. Returns whether it
/// failed; `None` if it took fewer calls.
async fn spoiled_create(rig: &Rig, call: u32, fault: Fault) -> Option<bool> {
    let engine = rig.engine();
    let id = new_id();
    rig.proxy.spoil(call, fault);
    let made = tokio::time::timeout(
        deadline(),
        hotcell_engine::fetch_and_create(&engine, &id, &spec()),
    )
    .await;
    let made = made.unwrap_or_else(|_| panic!("{fault:?} at call {call}: it hangs"));
    let calls = rig.proxy.mend();
    let has_failed = match made {
        Err(error) => {
            assert!(
                is_clear(&error),
                "{fault:?} at call {call}: {}",
                chain(&error)
            );
            true
        }
        Ok(container) => {
            assert_eq!(container.phase, Phase::Running, "{fault:?} at call {call}");
            rig.direct.destroy(&id).await.expect("it is destroyed");
            false
        }
    };
    (calls >= call).then_some(has_failed)
}

#[tokio::test]
async fn what_the_engine_fails_at_is_asked_for_again_and_not_for_ever() {
    let Some(rig) = Rig::new() else { return };
    for words in ["/start", "/exec", "DELETE /v"] {
        rig.proxy.fail(words, 2);
        lived(&rig)
            .await
            .unwrap_or_else(|error| panic!("{words} failed twice: {}", chain(&error)));
        rig.proxy.fail(words, u32::MAX);
        let error = lived(&rig).await.expect_err("it fails each time");
        assert!(
            chain(&error).contains("no luck"),
            "{words}: {}",
            chain(&error)
        );
        rig.proxy.mend();
        for container in rig.direct.list().await.expect("it lists") {
            let _ = rig.direct.destroy(&container.id).await;
        }
        rig.expect_nothing_left().await;
    }
}

/// A container's whole life.
async fn lived(rig: &Rig) -> Result<(), EngineError> {
    let (engine, id) = (rig.engine(), new_id());
    hotcell_engine::fetch_and_create(&engine, &id, &spec()).await?;
    engine.destroy(&id).await
}

#[tokio::test]
async fn a_destroy_that_is_spoiled_can_be_repeated() {
    let Some(rig) = Rig::new() else { return };
    spoil_destroys(&rig, 4).await;
}

#[tokio::test]
async fn a_destroy_that_is_spoiled_can_be_repeated_in_podman() {
    let Some(rig) = Rig::of(Flavor::Podman) else {
        return;
    };
    spoil_destroys(&rig, 2).await;
}

async fn spoil_destroys(rig: &Rig, calls: u32) {
    for fault in FAULTS {
        for call in 1..=calls {
            let engine = rig.engine();
            let id = new_id();
            hotcell_engine::fetch_and_create(&rig.direct, &id, &spec())
                .await
                .expect("it is made");
            rig.proxy.spoil(call, fault);
            let ended = engine.destroy(&id).await;
            rig.proxy.mend();
            if let Err(error) = ended {
                assert!(
                    is_clear(&error),
                    "{fault:?} at call {call}: {}",
                    chain(&error)
                );
                match engine.destroy(&id).await {
                    Ok(()) | Err(EngineError::NotFound { .. }) => {}
                    Err(error) => panic!("{fault:?} at call {call}: {}", chain(&error)),
                }
            }
            rig.expect_nothing_left().await;
        }
    }
}

#[tokio::test]
async fn a_container_that_the_engine_made_late_is_destroyed_with_its_volume() {
    for flavor in [Flavor::Docker, Flavor::Podman] {
        let Some(private) = Private::start(flavor) else {
            return;
        };
        let config = private.config(flavor, None);
        let (id, scope) = (new_id(), config.scope.clone());
        let (name, engine) = (format!("hotcell-{id}"), Docker::new(config));
        let container = format!("io.hotcell.container={id}");
        let scope = format!("io.hotcell.scope={scope}");
        let volume = format!("{name}:/workspace");
        let named = ["create", "--name", &name, "--volume", &volume];
        let labelled = ["--label", &container, "--label", &scope, IMAGE, "/bin/true"];
        private.says(&[&named[..], &labelled].concat());
        assert!(volumes(&private).contains(&name));
        engine.destroy(&id).await.expect("it is destroyed");
        assert!(!volumes(&private).contains(&name), "{}", flavor.name());
        // What is nobody's and has no container of ours stays.
        private.says(&["volume", "create", &name]);
        let answer = engine.destroy(&id).await;
        assert!(
            matches!(answer, Err(EngineError::NotFound { .. })),
            "{answer:?}"
        );
        private.says(&["volume", "rm", &name]);
    }
}

fn volumes(private: &Private) -> Vec<String> {
    let listed = private.says(&["volume", "ls", "-q"]);
    listed.lines().map(str::to_owned).collect()
}

/// Makes what a dead server leaves: containers that were to fill a volume, and volumes.
fn leave(rig: &Rig, fillers: usize, volumes: usize) {
    let scope = format!("io.hotcell.scope={}", rig.spoiled.scope);
    let labels = ["--label", &scope, "--label", "io.hotcell.role=agent"];
    for _ in 0..fillers {
        let words = [&["create"], &labels[..], &[IMAGE, "/bin/true"]].concat();
        rig.private.says(&words);
    }
    for _ in 0..volumes {
        let name = format!("hotcell-agent-{}", new_id());
        let words = [&["volume", "create"], &labels[..], &[&name]].concat();
        rig.private.says(&words);
    }
}

#[tokio::test]
async fn one_thing_that_cannot_be_removed_keeps_a_sweep_from_nothing_else() {
    // Agents' volumes belong to no scope: those of other tests would be counted.
    let Some(rig) = Rig::own() else { return };
    let engine = rig.engine();
    // An agent that something uses is not left over.
    leave(&rig, 0, 1);
    let used = volumes(&rig.private).pop().expect("it was left");
    let mount = format!("{used}:/agent");
    let words = ["create", "-v", &mount, IMAGE, "/bin/true"];
    let holder = rig.private.says(&words);
    assert_eq!(
        engine
            .sweep(
                hotcell_engine::Garbage::Containers,
                hotcell_engine::SweepMode::Count
            )
            .await
            .expect("it counts")
            .leftovers,
        0
    );
    rig.private.says(&["rm", holder.trim()]);
    rig.private.says(&["volume", "rm", &used]);
    // Three lists come before the first is removed.
    leave(&rig, 2, 2);
    assert_eq!(
        engine
            .sweep(
                hotcell_engine::Garbage::Containers,
                hotcell_engine::SweepMode::Count
            )
            .await
            .expect("it counts")
            .leftovers,
        4
    );
    rig.proxy.spoil(4, Fault::Failed);
    assert_eq!(
        engine
            .sweep(
                hotcell_engine::Garbage::Containers,
                hotcell_engine::SweepMode::Remove
            )
            .await
            .expect("it sweeps")
            .leftovers,
        3
    );
    rig.proxy.mend();
    // One more removal and one more list come before the first volume is.
    leave(&rig, 0, 2);
    rig.proxy.spoil(6, Fault::Full);
    assert_eq!(
        engine
            .sweep(
                hotcell_engine::Garbage::Containers,
                hotcell_engine::SweepMode::Remove
            )
            .await
            .expect("it sweeps")
            .leftovers,
        2
    );
    rig.proxy.mend();
    assert_eq!(
        engine
            .sweep(
                hotcell_engine::Garbage::Containers,
                hotcell_engine::SweepMode::Remove
            )
            .await
            .expect("it sweeps")
            .leftovers,
        1
    );
    rig.expect_nothing_left().await;
}

#[tokio::test]
async fn an_engine_that_comes_back_is_found_again() {
    let Some(rig) = Rig::new() else { return };
    expect_found_again(&rig).await;
}

#[tokio::test]
async fn podman_that_comes_back_is_found_again() {
    let Some(rig) = Rig::of(Flavor::Podman) else {
        return;
    };
    expect_found_again(&rig).await;
}

async fn expect_found_again(rig: &Rig) {
    let (engine, id) = (rig.engine(), new_id());
    hotcell_engine::fetch_and_create(&engine, &id, &spec())
        .await
        .expect("it is made");
    let agent = Agent::connect(engine.open(&id).await.expect("a stream"));
    let agent = agent.await.expect("the agent says hello");

    rig.proxy.spoil(1, Fault::Gone);
    for error in [
        engine.inspect(&id).await.err(),
        engine.open(&id).await.err(),
        engine.list().await.err(),
        engine.exited(&id).await.err(),
        engine.destroy(&id).await.err(),
    ] {
        assert!(
            matches!(error, Some(EngineError::Unavailable { .. })),
            "{error:?}"
        );
    }
    // Existing connections stay open; only new ones are refused.
    let command = Command::new(["/bin/true"]);
    agent
        .start("e1", &command)
        .await
        .expect("the agent answers");
    rig.proxy.mend();
    assert_eq!(
        engine.inspect(&id).await.expect("it is back").phase,
        Phase::Running
    );
    let again = Agent::connect(engine.open(&id).await.expect("a stream"));
    let again = again.await.expect("the agent says hello");
    assert_eq!(again.hello().boot_id, agent.hello().boot_id);
    engine.destroy(&id).await.expect("it is destroyed");
    rig.expect_nothing_left().await;
}

#[tokio::test]
async fn an_unknown_image_is_named_and_leaves_nothing() {
    let Some(rig) = Rig::new() else { return };
    let mut policy = Policy::default();
    policy.images.registries.push("127.0.0.1:1".to_owned());
    for name in ["127.0.0.1:1/no/such:image", "localhost/hotcell-test:absent"] {
        let image = ImageRef::parse(name).expect("a reference");
        let spec = policy.admit(ContainerSpec::new(image));
        let spec = spec.expect("it is admitted");
        let id = new_id();
        let create = hotcell_engine::fetch_and_create(&rig.direct, &id, &spec);
        let made = tokio::time::timeout(deadline(), create).await;
        match made.expect("it gives up soon") {
            Err(EngineError::Image { image, .. } | EngineError::NoImage { image }) => {
                assert_eq!(image, name);
            }
            other => panic!("{other:?}"),
        }
    }
    rig.expect_nothing_left().await;
}

/// Gives the engine an image with one empty directory, for an architecture.
fn load_empty(rig: &Rig, name: &str, architecture: &str) {
    let mut header = tar::Header::new_gnu();
    header.set_entry_type(tar::EntryType::Directory);
    header.set_mode(0o755);
    header.set_size(0);
    let mut layer = tar::Builder::new(Vec::new());
    let added = layer.append_data(&mut header, "etc/", std::io::empty());
    let layer = added.and_then(|()| layer.into_inner());
    let layer = layer.expect("memory is enough");
    let digest = support::image::digest(&layer);
    let config = json!({ "architecture": architecture, "os": "linux", "config": {},
        "rootfs": { "type": "layers", "diff_ids": [digest.as_str()] } });
    let list = json!([{ "Config": "config.json", "RepoTags": [name], "Layers": ["layer.tar"] }]);
    let scratch = support::scratch();
    let file = scratch.path().join("image.tar");
    let mut archive = tar::Builder::new(std::fs::File::create(&file).expect("a file"));
    for (path, content) in [
        ("layer.tar", layer),
        ("config.json", config.to_string().into_bytes()),
        ("manifest.json", list.to_string().into_bytes()),
    ] {
        let mut header = tar::Header::new_gnu();
        header.set_mode(0o644);
        header.set_size(content.len() as u64);
        let added = archive.append_data(&mut header, path, &content[..]);
        added.expect("a member");
    }
    archive.into_inner().expect("an archive");
    let file = file.to_str().expect("a plain path");
    rig.private.says(&["load", "-i", file]);
}

fn spec_of(name: &str) -> Admitted<ContainerSpec> {
    let image = ImageRef::parse(name).expect("a reference");
    let spec = Policy::default().admit(ContainerSpec::new(image));
    spec.expect("it is admitted")
}

#[tokio::test]
async fn an_image_with_nothing_in_it_works() {
    let Some(rig) = Rig::new() else { return };
    let (name, id) = ("localhost/hotcell-test:empty", new_id());
    load_empty(&rig, name, support::image::architecture());
    let made = hotcell_engine::fetch_and_create(&rig.direct, &id, &spec_of(name)).await;
    made.unwrap_or_else(|error| panic!("{}", chain(&error)));
    let agent = Agent::connect(rig.direct.open(&id).await.expect("a stream"));
    let agent = agent.await.expect("the agent says hello");
    let written = agent.write_all(b"file", "one".into(), WriteOptions::default());
    written.await.expect("files work");
    let shell = agent.start("e1", &Command::new(["/bin/sh"])).await;
    let mut shell = shell.expect("the agent answers");
    let mut cause = None;
    while let Some(event) = shell.next().await.expect("the agent answers") {
        if let EventKind::Exit(exit) = event.kind {
            cause = Some(exit.cause);
        }
    }
    assert!(
        matches!(cause, Some(ExitCause::NotStarted { .. })),
        "{cause:?}"
    );
    rig.direct.destroy(&id).await.expect("it is destroyed");
    rig.expect_nothing_left().await;
    rig.private.says(&["rmi", name]);
}

#[tokio::test]
async fn an_image_for_another_architecture_is_refused_as_such() {
    let Some(rig) = Rig::new() else { return };
    let other = match support::image::architecture() {
        "amd64" => "arm64",
        _ => "amd64",
    };
    let name = "localhost/hotcell-test:foreign";
    load_empty(&rig, name, other);
    let refused = hotcell_engine::fetch_and_create(&rig.direct, &new_id(), &spec_of(name)).await;
    let said = refused.expect_err("it cannot run").to_string();
    assert!(
        said.contains(name) && said.contains("another architecture"),
        "{said}"
    );
    rig.expect_nothing_left().await;
    rig.private.says(&["rmi", name]);
}

#[tokio::test]
async fn two_servers_on_one_engine_do_not_see_each_others_containers() {
    let Some(rig) = Rig::new() else { return };
    let other = Docker::new(DockerConfig {
        scope: "another".to_owned(),
        ..rig.spoiled.clone()
    });
    let id = new_id();
    hotcell_engine::fetch_and_create(&rig.direct, &id, &spec())
        .await
        .expect("it is made");
    assert!(
        other
            .list()
            .await
            .expect("it lists")
            .iter()
            .all(|there| there.id != id)
    );
    for answer in [
        other.inspect(&id).await.map(drop),
        other.open(&id).await.map(drop),
        other.destroy(&id).await,
        other.exited(&id).await,
    ] {
        assert!(
            matches!(answer, Err(EngineError::NotFound { .. })),
            "{answer:?}"
        );
    }
    rig.direct.destroy(&id).await.expect("it is destroyed");
    rig.expect_nothing_left().await;
}

#[tokio::test]
async fn an_image_is_inspected_once_for_a_container() {
    let Some(rig) = Rig::new() else { return };
    let engine = rig.engine();
    let inspections = || {
        let is_one = |line: &str| line.starts_with("GET ") && line.contains("/images/");
        rig.proxy.count(is_one)
    };
    let before = inspections();
    let (id, spec) = (new_id(), spec());
    let progress = hotcell_engine::Progress::default();
    let pull = hotcell_engine::Pull::IfMissing(&progress);
    let stays = Abandonment::default();
    let image = engine.fetch_image(&spec, pull, &stays).await;
    let image = image.expect("it is here");
    let made = engine.create(&id, &spec, image, &stays).await;
    let made = made.expect("it is made");
    assert_eq!(inspections() - before, 1);
    assert!(made.image_id.is_some());
    engine.destroy(&id).await.expect("it is destroyed");
    rig.expect_nothing_left().await;
}
