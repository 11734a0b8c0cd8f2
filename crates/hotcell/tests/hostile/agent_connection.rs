//! Attacks on the way between server and agent, where it leads through the container.

use hotcell_agent_client::{Agent, Command};
use hotcell_domain::{ContainerSpec, ImageRef, Policy};
use hotcell_engine::docker::Flavor;
use hotcell_engine::{Docker, Engine};

use crate::support::engines::{IMAGE, Private, said};
use crate::support::new_id;

/// The agent, as everybody inside sees it.
const AGENT: &str = "/.hotcell-*/hotcell-agent";

async fn attack(flavor: Flavor, runtime: Option<&str>) {
    let Some(private) = Private::start_with(flavor, runtime) else {
        return;
    };
    let engine = Docker::new(private.config(flavor, runtime));
    let policy = Policy {
        allow_root: true,
        ..Policy::default()
    };
    let mut spec = ContainerSpec::new(ImageRef::parse(IMAGE).expect("a reference"));
    spec.allow_root = runtime.is_none();
    let spec = policy.admit(spec).expect("it is admitted");
    let id = new_id();
    hotcell_engine::fetch_and_create(&engine, &id, &spec)
        .await
        .expect("it is made");
    let agent = Agent::connect(engine.open(&id).await.expect("a stream"));
    let agent = agent.await.expect("the agent says hello");

    let script = format!("sleep 2 | {AGENT} connect --door hotcell-agent | od -c | head -1");
    // The positive control: the user that may connect receives the agent's first bytes.
    let name = format!("hotcell-{id}");
    let guest = ["exec", "-u", "65533:65533", &name, "/bin/sh", "-c", &script];
    let answer = private.says(&guest);
    assert!(answer.contains("006"), "the guest did not get in: {answer}");
    // Nobody else inside receives a byte, root included.
    let users = [None, Some((0, 0))];
    for user in users
        .into_iter()
        .take(if runtime.is_none() { 2 } else { 1 })
    {
        // Of empty input, `od` prints only the final offset: it has run, and there was nothing.
        let answer = said(&agent, &script, user).await;
        assert!(answer.contains("0000000"), "{user:?} did not try: {answer}");
        assert!(!answer.contains("006"), "{user:?} got in: {answer}");
    }
    // Nobody can become the user that may connect.
    if runtime.is_none() {
        let mut command = Command::new(["/bin/true"]);
        command.user = Some((65533, 65533));
        let refused = match agent.start("guest", &command).await {
            Ok(mut follow) => follow.next().await.map(drop),
            Err(error) => Err(error),
        };
        assert!(refused.is_err(), "an exec became the guest");
    }
    // The bridge cannot be stopped, killed or read.
    let script = "for p in /proc/[0-9]*; do grep -q connect $p/cmdline 2>/dev/null || continue; \
                  n=${p#/proc/}; [ $n = $$ ] && continue; kill -STOP $n; kill -KILL $n; \
                  ls $p/fd/ 2>/dev/null | head -1; head -c 1 $p/mem 2>/dev/null; echo $n; done 2>&1";
    let tried = said(&agent, script, None).await;
    assert!(
        tried.contains("not permitted"),
        "there was no bridge to attack: {tried}"
    );
    assert_eq!(said(&agent, "echo alive", None).await, "alive\n");
    // Many silent connections do not block the next stream.
    let script = format!(
        "i=0; while [ $i -lt 30 ]; do ( exec 3<>/dev/null; sleep 3 | {AGENT} connect --door hotcell-agent ) \
         >/dev/null 2>&1 & i=$((i+1)); done; wait"
    );
    let flood = said(&agent, &script, None);
    let open = async {
        let stream = engine.open(&id).await.expect("a stream");
        Agent::connect(stream).await.expect("the agent says hello")
    };
    let (_, again) = tokio::join!(flood, open);
    assert_eq!(again.hello().boot_id, agent.hello().boot_id);
    engine.destroy(&id).await.expect("it is destroyed");
    assert!(engine.list().await.expect("it lists").is_empty());
}

#[tokio::test]
async fn nobody_inside_a_docker_container_passes_the_door() {
    attack(Flavor::Docker, None).await;
}

#[tokio::test]
async fn nobody_inside_a_podman_container_passes_the_door() {
    attack(Flavor::Podman, None).await;
}

#[tokio::test]
async fn nobody_inside_a_gvisor_container_passes_the_door() {
    attack(Flavor::Docker, Some("runsc")).await;
}
