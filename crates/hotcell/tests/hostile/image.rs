//! Attacks by images on Docker and Podman, which unpack and mount them for us: an image that
//! would be its container's PID 1, or every container's.

use hotcell_agent_client::Agent;
use hotcell_domain::{Admitted, ContainerId, ContainerSpec, ImageRef, Lifetime, Policy};
use hotcell_engine::docker::{DockerConfig, Flavor};
use hotcell_engine::{Docker, Engine};
use tar::{Builder, EntryType, Header};

use crate::support;
use crate::support::engines::{IMAGE, Private, said};
use crate::support::{chain, new_id};

const FLAVORS: [Flavor; 2] = [Flavor::Docker, Flavor::Podman];

/// Makes an image with a shell, with these files (each a program), links and volumes.
fn import(private: &Private, name: &str, files: &[&str], links: &[(&str, &str)], volumes: &str) {
    import_with(private, name, files, links, &format!("VOLUME {volumes}"));
}

fn import_with(
    private: &Private,
    name: &str,
    files: &[&str],
    links: &[(&str, &str)],
    change: &str,
) {
    let scratch = support::scratch();
    let file = scratch.path().join("image.tar");
    let mut layer = Builder::new(std::fs::File::create(&file).expect("a file"));
    let header = |kind, size: usize| {
        let mut header = Header::new_gnu();
        header.set_entry_type(kind);
        header.set_mode(0o755);
        header.set_size(size as u64);
        header
    };
    let busybox = std::fs::read("/bin/busybox").expect("a static busybox");
    for path in [&["bin/busybox"], files].concat() {
        let mut header = header(EntryType::Regular, busybox.len());
        let added = layer.append_data(&mut header, path, &busybox[..]);
        added.expect("a member");
    }
    let shell = ["sh", "ls", "stat", "tr", "wc"].map(|name| format!("bin/{name}"));
    let shell = shell.iter().map(|name| (&**name, "busybox"));
    for (path, target) in shell.chain(links.iter().copied()) {
        let mut header = header(EntryType::Symlink, 0);
        layer
            .append_link(&mut header, path, target)
            .expect("a link");
    }
    // Podman fails to import a layer while it removes another image with the same one.
    let unique = new_id().to_string();
    let mut header = header(EntryType::Regular, unique.len());
    let added = layer.append_data(&mut header, "etc/unique", unique.as_bytes());
    added.expect("a member");
    layer.into_inner().expect("an archive");
    let file = file.to_str().expect("a plain path");
    private.says(&["import", "--change", change, file, name]);
}

fn spec_of(name: &str) -> Admitted<ContainerSpec> {
    let image = ImageRef::parse(name).expect("a reference");
    let spec = Policy::default().admit(ContainerSpec::new(image));
    spec.expect("it is admitted")
}

/// A server with a modified agent, which no other test has already put into the engine.
fn new_server(private: &Private, flavor: Flavor) -> (Docker, usize) {
    let mut agent = hotcell_agent_image::AGENT.to_vec();
    agent.extend_from_slice(new_id().to_string().as_bytes());
    let config = DockerConfig {
        agent: agent.leak(),
        ..private.config(flavor, None)
    };
    let size = config.agent.len();
    (Docker::new(config), size)
}

async fn make(engine: &Docker, image: &str) -> (ContainerId, Agent) {
    let id = new_id();
    let made = hotcell_engine::fetch_and_create(engine, &id, &spec_of(image)).await;
    made.unwrap_or_else(|error| panic!("{image}: {}", chain(&error)));
    let agent = Agent::connect(engine.open(&id).await.expect("a stream"));
    (id, agent.await.expect("the agent says hello"))
}

/// Creates a container of the image; fails unless its PID 1 is our unmodified agent and nothing else runs.
async fn expect_our_agent(engine: &Docker, size: usize, image: &str) {
    let (id, agent) = make(engine, image).await;
    // Its path is the first word of its command line.
    let script = "set -- $(tr '\\0' ' ' < /proc/1/cmdline); ls ${1%/*}; wc -c < $1";
    let words = said(&agent, script, None).await;
    let words: Vec<_> = words.split_whitespace().collect();
    let size = size.to_string();
    assert_eq!(
        words,
        ["complete", "filter", "hotcell-agent", &size],
        "{image}"
    );
    engine.destroy(&id).await.expect("it is destroyed");
}

/// The names of the volumes with an agent, but for those of other tests.
fn agents(private: &Private) -> Vec<String> {
    let listed = private.says(&["volume", "ls", "-q"]);
    let agents = listed
        .lines()
        .filter(|name| name.starts_with("hotcell-agent-"));
    agents.map(str::to_owned).collect()
}

#[tokio::test]
async fn an_image_cannot_be_the_agent_of_any_container() {
    for flavor in FLAVORS {
        let Some(private) = Private::start_own(flavor, &[]) else {
            return;
        };
        let program = [".hotcell/hotcell-agent", "v/hotcell-agent", "v/complete"];
        for (name, links, volumes) in [
            ("localhost/evil:mark", &[][..], "/.hotcell/complete"),
            ("localhost/evil:whole", &[], "/.hotcell /v"),
            ("localhost/evil:link", &[(".hotcell", "/v")], "/v"),
        ] {
            let files = if links.is_empty() {
                &program[..]
            } else {
                &program[1..]
            };
            import(&private, name, files, links, volumes);
            let (engine, size) = new_server(&private, flavor);
            expect_our_agent(&engine, size, name).await;
            expect_our_agent(&engine, size, IMAGE).await;
            // Behind the server's back the volume goes, and the image is the first to use the next.
            for agent in agents(&private) {
                private.says(&["volume", "rm", &agent]);
            }
            expect_our_agent(&engine, size, name).await;
            expect_our_agent(&engine, size, IMAGE).await;
        }
    }
}

/// Somebody who can use the engine has filled the volume before, or since.
#[tokio::test]
async fn a_volume_with_another_agent_is_used_by_no_server() {
    for flavor in FLAVORS {
        let Some(private) = Private::start_own(flavor, &[]) else {
            return;
        };
        let (engine, size) = new_server(&private, flavor);
        expect_our_agent(&engine, size, IMAGE).await;
        let volume = agents(&private).pop().expect("a volume");
        let mountpoint = private.says(&["volume", "inspect", "-f", "{{.Mountpoint}}", &volume]);
        let agent = std::path::Path::new(mountpoint.trim()).join("hotcell-agent");
        let mut bytes = std::fs::read(&agent).expect("the agent");
        *bytes.last_mut().expect("it is not empty") ^= 1;
        std::fs::remove_file(&agent).expect("it is removed");
        std::fs::write(&agent, &bytes).expect("it is replaced");

        let next = again(&private, flavor, &bytes);
        let id = new_id();
        let refused = hotcell_engine::fetch_and_create(&next, &id, &spec_of(IMAGE)).await;
        let refused = chain(&refused.expect_err("another's agent is not run"));
        let words = format!("volume {volume} holds another hotcell-agent than this server's");
        assert!(refused.contains(&words), "{refused}");
        private.says(&["volume", "rm", "-f", &volume]);
        expect_our_agent(&next, size, IMAGE).await;
    }
}

/// The next server of [`new_server`], whose agent was changed by one bit.
fn again(private: &Private, flavor: Flavor, changed: &[u8]) -> Docker {
    let mut agent = changed.to_vec();
    *agent.last_mut().expect("it is not empty") ^= 1;
    Docker::new(DockerConfig {
        agent: agent.leak(),
        ..private.config(flavor, None)
    })
}

#[tokio::test]
async fn a_workspace_is_empty_and_its_users_whatever_the_image_has_there() {
    for flavor in FLAVORS {
        let Some(private) = Private::start(flavor) else {
            return;
        };
        let name = "localhost/evil:workspace";
        import(&private, name, &["workspace/planted"], &[], "/other");
        let engine = Docker::new(private.config(flavor, None));
        let (id, agent) = make(&engine, name).await;
        let seen = said(&agent, "ls -A; stat -c '%u %g %a' .; : > mine && ls", None).await;
        assert_eq!(seen, "1000 1000 755\nmine\n", "{}", flavor.name());
        engine.destroy(&id).await.expect("it is destroyed");
        private.says(&["rmi", name]);
    }
}

/// A container has its image's labels, and ours say whose it is and what may be removed.
#[tokio::test]
async fn an_image_cannot_label_its_containers_in_our_name() {
    for flavor in FLAVORS {
        let Some(private) = Private::start(flavor) else {
            return;
        };
        let name = "localhost/evil:labels";
        let labels = "LABEL io.hotcell.role=agent io.hotcell.lifetime=owner \
            io.hotcell.made=1 io.hotcell.scope=other io.hotcell.container=other \
            io.hotcell.image.digest=sha256:0 io.hotcell.image.id=sha256:0";
        import_with(&private, name, &[], &[], labels);
        let engine = Docker::new(private.config(flavor, None));
        let (id, _agent) = make(&engine, name).await;
        let found = engine.inspect(&id).await.expect("it is found");
        assert_eq!(found.lifetime, Lifetime::UntilDestroyed);
        assert_ne!(found.image_digest.as_deref(), Some("sha256:0"));
        assert_ne!(found.image_id.as_deref(), Some("sha256:0"));
        let label = "label=io.hotcell.role=agent";
        let claimed = private.says(&["ps", "-a", "-q", "--filter", label]);
        assert_eq!(claimed, "", "{}", flavor.name());
        engine.destroy(&id).await.expect("it is destroyed");
        private.says(&["rmi", name]);
    }
}

#[tokio::test]
async fn an_image_with_very_many_volumes_is_refused_as_such() {
    for flavor in FLAVORS {
        let Some(private) = Private::start(flavor) else {
            return;
        };
        let name = "localhost/evil:volumes";
        let volumes: Vec<_> = (0..33).map(|n| format!("/v{n}")).collect();
        import(&private, name, &[], &[], &volumes.join(" "));
        let engine = Docker::new(private.config(flavor, None));
        let refused = hotcell_engine::fetch_and_create(&engine, &new_id(), &spec_of(name)).await;
        let refused = refused.expect_err("it is refused").to_string();
        assert!(refused.contains("more than 32 volumes"), "{refused}");
        private.says(&["rmi", name]);
    }
}
