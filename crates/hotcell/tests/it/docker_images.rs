//! Images that the server had Docker pull are removed when nobody uses them, and no others.

use hotcell_engine::docker::Flavor;
use serde_json::{Value, json};

use crate::support;
use crate::support::engines::{IMAGE, Private};
use crate::support::home::Home;
use crate::support::mcp::Client;
use crate::support::registry::Registry;
use crate::support::server::Server;

/// Pushes a new image to the registry and removes it from the engine.
fn push(private: &Private, registry: &Registry, name: &str) -> String {
    let name = format!("{}/{name}:one", registry.host);
    let change = format!("LABEL for={name}");
    let scratch = support::scratch();
    let file = scratch.path().join("image.tar");
    let mut layer = tar::Builder::new(std::fs::File::create(&file).expect("a file"));
    let mut header = tar::Header::new_gnu();
    header.set_mode(0o755);
    header.set_size(name.len() as u64);
    let added = layer.append_data(&mut header, "name", name.as_bytes());
    added.expect("a member");
    layer.into_inner().expect("an archive");
    let file = file.to_str().expect("a plain path");
    private.says(&["import", "--change", &change, file, &name]);
    private.says(&["push", &name]);
    private.says(&["rmi", &name]);
    name
}

fn serve(home: &Home, registry: &Registry) -> Server {
    home.serve_with(&[
        "--engine=docker",
        "--default-image",
        IMAGE,
        "--warm=0",
        "--drain-grace-s=0",
        "--image-gc-days=1",
        "--allowed-registries",
        &registry.host,
    ])
}

/// Creates and removes a container of each image.
fn use_each(server: &Server, names: &[&String]) {
    let mut client = server.client();
    for name in names {
        let made = client.ok("spawn", json!({ "image": name }));
        let kill = json!({ "container_id": made["container_id"], "force": true });
        client.ok("kill", kill);
    }
}

/// Sets the last use of all images to long ago.
fn age(home: &Home) {
    let path = home.path().join("pulled-images.json");
    let text = std::fs::read(&path).expect("a record");
    let mut images: Value = serde_json::from_slice(&text).expect("JSON");
    for image in images.as_array_mut().expect("a list") {
        image["used_unix_s"] = json!(1);
    }
    std::fs::write(&path, images.to_string()).expect("it is written");
}

#[test]
fn docker_keeps_what_is_used_and_what_others_pulled_and_loses_what_we_pulled() {
    let Some(private) = Private::start(Flavor::Docker) else {
        return;
    };
    let Some(registry) = Registry::start() else {
        return;
    };
    let [ours, used, tagged, theirs] =
        ["ours", "used", "tagged", "theirs"].map(|name| push(&private, &registry, name));
    private.says(&["pull", &theirs]);
    let (variable, address) = private.address();
    let home = Home::new().with(variable, &address);
    let server = serve(&home, &registry);
    use_each(&server, &[&ours, &used, &tagged, &theirs]);
    assert!(server.terminate().success());
    age(&home);
    let holder = private.says(&["create", &used, "/name"]);
    let mine = format!("{}/mine:one", registry.host);
    private.says(&["tag", &tagged, &mine]);

    let server = serve(&home, &registry);
    let mut admin = Client::socket(&home);
    let counted = admin.ok("garbage_collect", json!({ "dry_run": true }));
    assert_eq!(counted["images"], 1, "{counted}");
    let has = |name: &str| !private.says(&["images", "-q", name]).is_empty();
    assert!(has(&ours), "a dry run removes nothing");
    let collected = admin.ok("garbage_collect", json!({}));
    assert_eq!(collected["images"], 1, "{collected}");
    assert!(!has(&ours));
    for name in [&used, &tagged, &theirs] {
        assert!(has(name), "{name}");
    }
    // What was removed is pulled again by whoever needs it.
    use_each(&server, &[&ours]);
    drop(admin);
    assert!(server.terminate().success());
    private.says(&["rm", holder.trim()]);
    private.says(&["rmi", &ours, &used, &tagged, &mine, &theirs]);
}
