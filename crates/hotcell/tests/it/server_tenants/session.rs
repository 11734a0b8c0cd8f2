//! The name of a session is its principal's own word: whose it is cannot be told from an answer.

use hotcell_testkit::arguments::{base, nobody};
use serde_json::{Value, json};

use super::Two;
use super::ask::Person;

/// The name of alice's session, and one of the same length that nobody has used.
const SESSION: &str = "alices-notes";
const NO_SESSION: &str = "nobodys-note";

/// The tools that take the name of a session, by what the server lists.
fn tools(person: &mut Person) -> Vec<String> {
    let listed = person.mcp.request("tools/list", json!({})).unwrap();
    let listed = listed["tools"].as_array().unwrap().clone();
    let takes_it = |tool: &Value| tool["inputSchema"]["properties"].get("session").is_some();
    let names = listed.iter().filter(|tool| takes_it(tool));
    names
        .map(|tool| tool["name"].as_str().unwrap().to_owned())
        .collect()
}

/// What a tool answers about a session, without names, ids, sizes and times.
fn told(person: &mut Person, tool: &str, session: &str) -> String {
    let mut arguments = base(tool, &nobody()).unwrap();
    arguments["session"] = session.into();
    let answer = person.mcp.call(tool, arguments).to_string();
    let answer = answer.replace(session, "SESSION");
    let is_word = |it: char| it.is_ascii_alphanumeric() || it == '_' || it == '.';
    let mut told = String::new();
    for part in answer.split_inclusive(|it| !is_word(it)) {
        let word = part.trim_end_matches(|it| !is_word(it));
        let has_digit = word.contains(|it: char| it.is_ascii_digit());
        told.push_str(if has_digit { "#" } else { word });
        told.push_str(&part[word.len()..]);
    }
    told
}

#[test]
fn anothers_session_is_answered_as_one_that_does_not_exist() {
    let mut two = Two::new();
    let code = "mkdir -p d; echo kept > d/file";
    let run = json!({ "session": SESSION, "language": "sh", "code": code });
    two.alice.mcp.ok("execute_code", run);
    let tools = tools(&mut two.alice);
    assert!(tools.len() >= 4, "{tools:?}");
    for tool in &tools {
        let of_foreign = told(&mut two.bob, tool, SESSION);
        let of_missing = told(&mut two.bob, tool, NO_SESSION);
        assert_eq!(of_foreign, of_missing, "{tool} tells foreign from missing");
    }
    // The positive control: the owner finds what is in it, and nobody has written there.
    let read = json!({ "session": SESSION, "path": "d/file" });
    let own = two.alice.mcp.call("sandbox_read_file", read.clone());
    assert!(own.to_string().contains("kept"), "{own}");
    let foreign = two.bob.mcp.call("sandbox_read_file", read);
    assert!(!foreign.to_string().contains("kept"), "{foreign}");
    let list = json!({ "session": SESSION });
    let files = two.alice.mcp.call("sandbox_list_files", list);
    assert!(!files.to_string().contains("\"w\""), "{files}");
    two.end();
}
