//! Two principals on one server. Whatever one of them names that is the other's is answered exactly
//! as if it did not exist: in every byte, and within noise in the same time.
//!
//! The rows come from what the server itself lists (tools, resource templates, prompts, paths), so
//! something new that has no row here fails.

#![expect(clippy::unwrap_used, reason = "a test may fail here")]

mod ask;
mod session;
mod timing;

use serde_json::json;

use self::ask::{Ask, Person, asks};
use super::server_auth::token;
use crate::support::home::Home;
use crate::support::http::Http;
use crate::support::mcp::Client;
use crate::support::server::Server;
use hotcell_testkit::arguments::{Handles, nobody};

/// What the owner calls the container, and a name of the same length that nobody uses.
const ALIAS: &str = "alices-own";
const NO_ALIAS: &str = "nobody-has";

/// A server with what alice owns, and bob.
struct Two {
    home: Home,
    server: Server,
    alice: Person,
    bob: Person,
    /// Alice's handles, and handles of the same form that do not exist.
    pairs: [(Handles, Handles); 2],
}

impl Two {
    fn new() -> Self {
        let home = Home::new();
        let tokens = [token(&home, &["alice", "--admin"]), token(&home, &["bob"])];
        let server = home.serve_with(&["--auth", "bearer", "--drain-grace-s", "0"]);
        let [mut alice, bob] = tokens.map(|token| Person::new(&server.url, &token));
        let spawn = json!({ "alias": ALIAS, "idempotency_key": "k" });
        let made = alice.mcp.ok("spawn", spawn);
        let id = made["container_id"].as_str().unwrap().to_owned();
        let mut run = |script: &str, wait_s: u32| {
            let cmd = json!(["sh", "-c", script]);
            let run = json!({ "container_id": id, "cmd": cmd, "keep_stdin_open": true, "wait_s": wait_s });
            let ran = alice.mcp.ok("exec_start", run);
            ran["exec_id"].as_str().unwrap().to_owned()
        };
        let ended = run("mkdir d; echo kept > d/file; echo said", 30);
        let running = run("cat", 0);
        let by_alias = Handles {
            container: ALIAS.to_owned(),
            exec: ended,
        };
        let no_alias = Handles {
            container: NO_ALIAS.to_owned(),
            ..nobody()
        };
        let by_id = Handles {
            container: id,
            exec: running,
        };
        Self {
            home,
            server,
            alice,
            bob,
            pairs: [(by_id, nobody()), (by_alias, no_alias)],
        }
    }

    fn asks(&mut self) -> Vec<Ask> {
        asks(&mut self.alice.mcp)
    }

    /// Alice's container still runs, and its file is unchanged.
    fn expect_untouched(&mut self) {
        let read = json!({ "container_id": ALIAS, "path": "d/file" });
        let read = self.alice.mcp.ok("fs_read", read);
        assert_eq!(read["content"], "kept\n");
        let list = json!({ "container_id": ALIAS, "recursive": true });
        let files = self.alice.mcp.ok("fs_list", list);
        assert_eq!(files["entries"].as_array().unwrap().len(), 2, "{files}");
        let poll = json!({ "exec_id": self.pairs[0].0.exec });
        assert_eq!(self.alice.mcp.ok("exec_poll", poll)["status"], "running");
    }

    fn end(mut self) {
        // The last row may have killed it.
        self.alice
            .mcp
            .call("kill", json!({ "container_id": ALIAS, "force": true }));
        assert!(self.server.terminate().success());
        drop(self.home);
    }
}

#[test]
fn what_is_anothers_is_answered_as_what_does_not_exist() {
    let mut two = Two::new();
    let asks = two.asks();
    assert!(asks.len() > 40, "{}", asks.len());
    let pairs = two.pairs.clone();
    for (foreign, missing) in &pairs {
        for ask in &asks {
            let of_foreign = ask.answer(&mut two.bob, foreign);
            let of_missing = ask.answer(&mut two.bob, missing);
            assert_eq!(of_foreign, of_missing, "{ask} tells foreign from missing");
            if let Some(expected) = ask.refusal() {
                assert!(of_foreign.contains(expected), "{ask}: {of_foreign}");
            }
        }
    }
    two.expect_untouched();
    // The positive control: the same asked by the owner is answered otherwise.
    let (own, missing) = &pairs[1];
    for ask in asks.iter().filter(|ask| ask.tells_owners_apart()) {
        let of_own = ask.answer(&mut two.alice, own);
        assert_ne!(of_own, ask.answer(&mut two.alice, missing), "{ask}");
    }
    two.end();
}

#[test]
fn what_is_anothers_takes_as_long_as_what_does_not_exist() {
    let mut two = Two::new();
    let asks = two.asks();
    let pairs = two.pairs.clone();
    let mut report = timing::Report::default();
    for (foreign, missing) in &pairs {
        for ask in &asks {
            report.compare(ask, &mut two.bob, (foreign, missing));
        }
    }
    report.print();
    two.end();
}

#[test]
fn nothing_of_anothers_is_listed_and_neither_a_name_nor_a_session_is_shared() {
    let mut two = Two::new();
    let (own, _) = two.pairs[0].clone();
    let seen = |person: &mut Person| {
        let all = json!({ "include_stopped": true, "include_finished": true });
        let only = |field: &str| json!({ field: all[field] });
        let mcp = &mut person.mcp;
        [
            mcp.ok("list_containers", only("include_stopped")),
            mcp.ok("list_execs", only("include_finished")),
            mcp.request("resources/list", json!({})).unwrap(),
        ]
        .map(|listed| listed.to_string())
    };
    let is_told = |listed: &String| listed.contains(&own.container) || listed.contains(&own.exec);
    assert!(seen(&mut two.alice).iter().all(is_told));
    assert!(!seen(&mut two.bob).iter().any(is_told));
    // An alias and a key are each principal's own.
    let spawn = json!({ "alias": ALIAS, "idempotency_key": "k" });
    let theirs = two.bob.mcp.ok("spawn", spawn.clone());
    let again = two.bob.mcp.ok("spawn", spawn);
    assert_ne!(theirs["container_id"], own.container.as_str());
    assert_eq!(theirs["container_id"], again["container_id"]);
    two.bob.mcp.ok("kill", json!({ "container_id": ALIAS }));
    two.expect_untouched();
    // Another's session is nobody's, and the socket's user is a third principal.
    let foreign = two.alice.mcp.session().unwrap().to_owned();
    let missing: String = foreign
        .chars()
        .map(|c| if c == '-' { c } else { '0' })
        .collect();
    let list = json!({ "jsonrpc": "2.0", "id": 1, "method": "tools/list" }).to_string();
    let asked = |session: &str| {
        let mut http = Http::connect(&two.server.url).with_token(&two.bob.token);
        http.post("/mcp", &[("Mcp-Session-Id", session.to_owned())], &list);
        let body = String::from_utf8(http.read_whole()).unwrap();
        (http.status, body.replace(session, "SESSION"))
    };
    assert_eq!(asked(&foreign), asked(&missing));
    assert_eq!(asked(&foreign).0, 404);
    let local = Client::socket(&two.home).ok("list_containers", json!({}));
    assert_eq!(local["containers"], json!([]));
    two.end();
}

#[test]
fn an_admin_sees_everybodys_in_every_list_that_can_show_it() {
    let mut two = Two::new();
    let theirs = two.bob.mcp.ok("spawn", json!({}))["container_id"].clone();
    let run = json!({ "container_id": theirs, "cmd": ["cat"], "keep_stdin_open": true });
    let exec = two.bob.mcp.ok("exec_start", run)["exec_id"].clone();
    let tools = two.alice.mcp.request("tools/list", json!({})).unwrap();
    let tools = tools["tools"].as_array().unwrap().clone();
    let mut lists = Vec::new();
    for tool in tools {
        if tool["inputSchema"]["properties"].get("all").is_some() {
            lists.push(tool["name"].as_str().unwrap().to_owned());
        }
    }
    assert_eq!(lists, ["list_containers", "list_execs"]);
    for list in &lists {
        let handle = if list == "list_execs" { &exec } else { &theirs };
        let handle = handle.as_str().unwrap();
        let all = two.alice.mcp.ok(list, json!({ "all": true })).to_string();
        assert!(
            all.contains(handle) && all.contains("token:bob"),
            "{list}: {all}"
        );
        let own = two.alice.mcp.ok(list, json!({})).to_string();
        assert!(!own.contains(handle), "{list}: {own}");
        assert_eq!(two.bob.mcp.refused(list, json!({ "all": true })), "denied");
    }
    let listed = two.home.run(&["ps", "--all", "--json"]);
    let listed = String::from_utf8(listed.stdout).unwrap();
    assert!(listed.contains(theirs.as_str().unwrap()), "{listed}");
    two.bob
        .mcp
        .ok("kill", json!({ "container_id": theirs, "force": true }));
    two.end();
}
