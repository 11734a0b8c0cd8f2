//! Two principals on one server: neither sees, reads or ends what is the other's.

#![expect(clippy::unwrap_used, reason = "a test may fail here")]

use serde_json::{Value, json};

use super::server_auth::token;
use crate::support::home::Home;
use crate::support::http::Http;
use crate::support::mcp::Client;

/// A container and an exec that nobody has.
const NO_CONTAINER: &str = "c_00000000000000000000000000";
const NO_EXEC: &str = "e_00000000000000000000000000";

/// All that a tool says about a handle, with the handle taken out.
fn said(client: &mut Client, tool: &str, arguments: &Value, handle: &str) -> String {
    client
        .call(tool, arguments.clone())
        .to_string()
        .replace(handle, "HANDLE")
}

fn read(client: &mut Client, uri: &str, handle: &str) -> String {
    let read = client.request("resources/read", json!({ "uri": uri }));
    format!("{read:?}").replace(handle, "HANDLE")
}

fn completed(client: &mut Client, argument: &str) -> Value {
    let uri = "workspace://{container_id}/{path}";
    let params = json!({
        "ref": { "type": "ref/resource", "uri": uri },
        "argument": { "name": argument, "value": "" },
    });
    let completed = client.request("completion/complete", params).unwrap();
    completed["completion"]["values"].clone()
}

fn fetched(url: &str, token: &str, container: &str) -> (u16, String) {
    let mut http = Http::connect(url).with_token(token);
    http.get(&format!("/v1/containers/{container}/files/a"), &[]);
    let body = String::from_utf8(http.read_whole()).unwrap();
    (http.status, body.replace(container, "HANDLE"))
}

#[test]
fn what_belongs_to_another_token_does_not_exist() {
    let home = Home::new();
    let (alice, bob) = (token(&home, &["alice"]), token(&home, &["bob"]));
    let server = home.serve_with(&["--auth", "bearer", "--drain-grace-s", "0"]);
    let mut owner = Client::http_by_token(&server.url, &alice);
    let mut other = Client::http_by_token(&server.url, &bob);
    let made = owner.ok("spawn", json!({ "alias": "mine" }));
    let id = made["container_id"].as_str().unwrap().to_owned();
    owner.ok(
        "fs_write",
        json!({ "container_id": id, "path": "a", "content": "secret" }),
    );
    let run = json!({ "container_id": id, "cmd": ["echo", "secret"], "wait_s": 30 });
    let exec = owner.ok("exec_start", run)["exec_id"]
        .as_str()
        .unwrap()
        .to_owned();

    let at = |handle: &str| {
        [
            (
                "exec_start",
                json!({ "container_id": handle, "cmd": ["true"] }),
            ),
            ("fs_read", json!({ "container_id": handle, "path": "a" })),
            (
                "fs_write",
                json!({ "container_id": handle, "path": "a", "content": "x" }),
            ),
            ("fs_list", json!({ "container_id": handle, "path": "." })),
            ("fs_delete", json!({ "container_id": handle, "path": "a" })),
            (
                "attach",
                json!({ "target": handle, "client_name": "x", "session_id": "y" }),
            ),
            ("kill", json!({ "container_id": handle })),
        ]
    };
    let nobodys: Vec<String> = at(NO_CONTAINER)
        .iter()
        .map(|(tool, arguments)| said(&mut other, tool, arguments, NO_CONTAINER))
        .collect();
    for handle in [id.as_str(), "mine"] {
        for ((tool, arguments), nobodys) in at(handle).iter().zip(&nobodys) {
            let foreign = said(&mut other, tool, arguments, handle);
            assert!(foreign.contains("not_found"), "{tool}: {foreign}");
            assert_eq!(&foreign, nobodys, "{tool} tells foreign from missing");
        }
    }
    for tool in ["exec_poll", "exec_cancel"] {
        let foreign = said(&mut other, tool, &json!({ "exec_id": exec }), &exec);
        let missing = said(&mut other, tool, &json!({ "exec_id": NO_EXEC }), NO_EXEC);
        assert!(foreign.contains("not_found"), "{tool}: {foreign}");
        assert_eq!(foreign, missing, "{tool}");
    }
    for (uri, handle, none) in [
        ("workspace://HANDLE/a", id.as_str(), NO_CONTAINER),
        ("stats://HANDLE", &id, NO_CONTAINER),
        ("logs://HANDLE", &exec, NO_EXEC),
    ] {
        let foreign = read(&mut other, &uri.replace("HANDLE", handle), handle);
        let missing = read(&mut other, &uri.replace("HANDLE", none), none);
        assert!(foreign.starts_with("Err"), "{foreign}");
        assert_eq!(foreign, missing, "{uri}");
    }
    assert_eq!(
        fetched(&server.url, &bob, &id),
        fetched(&server.url, &bob, NO_CONTAINER)
    );
    assert_eq!(
        fetched(&server.url, &alice, &id),
        (200, "secret".to_owned())
    );
    assert_eq!(
        other.ok("list_containers", json!({}))["containers"],
        json!([])
    );
    for list in ["list_execs", "list_containers"] {
        let listed = other.ok(list, json!({})).to_string();
        assert!(!listed.contains(&id) && !listed.contains(&exec), "{listed}");
    }
    let resources = other.request("resources/list", json!({})).unwrap();
    assert!(!resources.to_string().contains(&id), "{resources}");
    for argument in ["container_id", "exec_id"] {
        assert_eq!(completed(&mut other, argument), json!([]), "{argument}");
        assert_ne!(completed(&mut owner, argument), json!([]), "{argument}");
    }
    // Another's session is nobody's, and the socket's user is a third principal.
    let session = [("Mcp-Session-Id", owner.session().unwrap().to_owned())];
    let mut http = Http::connect(&server.url).with_token(&bob);
    let list = json!({ "jsonrpc": "2.0", "id": 1, "method": "tools/list" });
    http.post("/mcp", &session, &list.to_string());
    assert_eq!(http.status, 404);
    let local = Client::socket(&home).ok("list_containers", json!({}));
    assert_eq!(local["containers"], json!([]));
    // All of that has changed nothing.
    let read = owner.ok("fs_read", json!({ "container_id": "mine", "path": "a" }));
    assert!(read.to_string().contains("secret"), "{read}");
    owner.ok("kill", json!({ "container_id": "mine" }));
    assert!(server.terminate().success());
}
