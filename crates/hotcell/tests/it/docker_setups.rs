//! Docker and Podman as others may have set them up: with several servers at once, or with gVisor by default.

use hotcell_domain::{Admitted, ContainerSpec, ImageRef, Policy};
use hotcell_engine::docker::{DockerConfig, Flavor};
use hotcell_engine::{Docker, Engine};

use crate::support::engines::{IMAGE, Private};
use crate::support::{chain, new_id};

fn spec() -> Admitted<ContainerSpec> {
    let image = ImageRef::parse(IMAGE).expect("a reference");
    let spec = Policy::default().admit(ContainerSpec::new(image));
    spec.expect("it is admitted")
}

#[tokio::test]
async fn servers_that_bring_a_new_agent_at_once_do_not_disturb_each_other() {
    const SERVERS: usize = 4;
    for flavor in [Flavor::Docker, Flavor::Podman] {
        let Some(private) = Private::start(flavor) else {
            return;
        };
        let config = private.config(flavor, None);
        let mut agent = config.agent.to_vec();
        agent.extend_from_slice(new_id().to_string().as_bytes());
        let agent: &'static [u8] = agent.leak();
        let creates = (0..SERVERS).map(|_| {
            let engine = Docker::new(DockerConfig {
                agent,
                ..config.clone()
            });
            tokio::spawn(async move {
                let id = new_id();
                let made = hotcell_engine::fetch_and_create(&engine, &id, &spec()).await;
                made.unwrap_or_else(|error| panic!("{}", chain(&error)));
                engine.destroy(&id).await.expect("it is destroyed");
            })
        });
        for create in creates.collect::<Vec<_>>() {
            create.await.expect("each has its container");
        }
    }
}

#[tokio::test]
async fn gvisor_as_the_engines_own_choice_has_the_processes_it_needs() {
    // Only whether it is there.
    if Private::start_with(Flavor::Docker, Some("runsc")).is_none() {
        return;
    }
    let gvisor = [("HOTCELL_ENGINE_OPTIONS", "--default-runtime runsc")];
    let Some(private) = Private::start_own(Flavor::Docker, &gvisor) else {
        return;
    };
    let engine = Docker::new(private.config(Flavor::Docker, None));
    let id = new_id();
    hotcell_engine::fetch_and_create(&engine, &id, &spec())
        .await
        .expect("it is made");
    let name = format!("hotcell-{id}");
    let limit = ["inspect", "--format", "{{.HostConfig.PidsLimit}}", &name];
    assert_eq!(private.says(&limit).trim(), "1280");
    engine.destroy(&id).await.expect("it is destroyed");
}
