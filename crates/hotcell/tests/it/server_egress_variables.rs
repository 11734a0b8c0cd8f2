//! Variables that a profile sets: the word that stands for a secret.

use serde_json::{Value, json};

use crate::server_egress::{Configured, HOST, Origin, output, run};
use crate::support::mcp::Client;

const VALUE: &str = "tok_s3cret_value";
const WORD: &str = "hotcell-sets-this-on-the-host";

/// The profile `work` with a rule whose secret is shown as this variable, and `other` without.
fn secret_config(origin: &Origin, inside: &str) -> String {
    format!(
        "{}[egress.other]\nallow = ['other.example.com']\n\
         [[egress.work.rule]]\nhost = '{HOST}'\nsecret = 'example'\n\
         [secret.example]\nfrom = 'env:REAL_TOKEN'\nheader = 'Authorization: Bearer {{}}'\n{inside}\n",
        origin
            .config(&[])
            .replace("[\"work\"]", "[\"work\", \"other\"]")
    )
}

fn printed(client: &mut Client, container: &str, script: &str) -> String {
    output(&run(client, container, script))
        .trim_end()
        .to_owned()
}

/// Runs a script with a variable of its own.
fn printed_with(client: &mut Client, container: &str, env: &Value, script: &str) -> String {
    let start =
        json!({ "container_id": container, "cmd": ["sh", "-c", script], "env": env, "wait_s": 50 });
    output(&client.ok("exec_start", start))
        .trim_end()
        .to_owned()
}

#[test]
fn a_secret_is_a_worthless_word_inside_and_its_value_only_at_the_host() {
    let origin = Origin::start();
    let configured = Configured::trusting(&origin, ("REAL_TOKEN", VALUE));
    configured.write(&secret_config(&origin, "inside = 'EXAMPLE_TOKEN'"));
    let server = configured.home.serve();
    let mut client = server.client();
    client.ok("spawn", json!({ "alias": "cell", "egress": "work" }));
    client.ok("spawn", json!({ "alias": "without", "egress": "other" }));
    let show = "echo ${EXAMPLE_TOKEN-unset}";
    assert_eq!(printed(&mut client, "cell", show), WORD);
    assert_eq!(printed(&mut client, "without", show), "unset");
    let all = printed(&mut client, "cell", "env; cat /proc/*/environ 2>/dev/null");
    assert!(all.contains(WORD) && !all.contains(VALUE), "{all}");
    // A program that sends the word has the real one sent.
    let ask =
        format!("curl -sS -m 20 -H \"Authorization: Bearer $EXAMPLE_TOKEN\" https://{HOST}/a 2>&1");
    assert_eq!(printed(&mut client, "cell", &ask), "tls /a");
    let seen = origin.seen();
    assert!(seen.contains(&format!("Bearer {VALUE}")), "{seen}");
    assert!(!seen.contains(WORD), "{seen}");
    // Python that was started before is no exception.
    let code = json!({ "container_id": "cell", "cmd": ["python3", "-c", "import os; print(os.environ['EXAMPLE_TOKEN'])"], "wait_s": 50 });
    let ran = client.ok("exec_start", code);
    assert_eq!(output(&ran).trim_end(), WORD, "{ran}");
    assert!(server.terminate().success());
}

#[test]
fn variables_of_spawn_and_exec_win_over_the_word_and_a_reload_changes_it() {
    let origin = Origin::start();
    let configured = Configured::trusting(&origin, ("REAL_TOKEN", VALUE));
    configured.write(&secret_config(&origin, "inside = 'EXAMPLE_TOKEN'"));
    let server = configured.home.serve();
    let mut client = server.client();
    let env = json!({ "EXAMPLE_TOKEN": "of-spawn" });
    let spawn = json!({ "alias": "own", "egress": "work", "env": env });
    client.ok("spawn", spawn);
    client.ok("spawn", json!({ "alias": "cell", "egress": "work" }));
    let show = "echo ${EXAMPLE_TOKEN-unset} ${NEW_TOKEN-unset}";
    assert_eq!(printed(&mut client, "own", show), "of-spawn unset");
    assert_eq!(printed(&mut client, "cell", show), format!("{WORD} unset"));
    let env = json!({ "EXAMPLE_TOKEN": "of-exec" });
    let own = printed_with(&mut client, "cell", &env, show);
    assert_eq!(own, "of-exec unset");
    for (inside, expected) in [
        ("inside = 'NEW_TOKEN'", format!("unset {WORD}")),
        ("", "unset unset".to_owned()),
    ] {
        configured.write(&secret_config(&origin, inside));
        assert!(configured.home.run(&["reload"]).status.success());
        assert_eq!(printed(&mut client, "cell", show), expected);
    }
    assert!(server.terminate().success());
}

#[test]
fn a_secret_can_be_tested_on_the_host_without_showing_it() {
    let origin = Origin::start();
    let configured = Configured::trusting(&origin, ("REAL_TOKEN", VALUE));
    configured.write(&secret_config(&origin, "inside = 'EXAMPLE_TOKEN'"));
    let tested = configured.home.run(&["secret", "test", "example"]);
    let said = String::from_utf8_lossy(&tested.stdout).into_owned();
    assert!(tested.status.success(), "{tested:?}");
    assert!(
        said.contains("can be read and sent (8 to 31 characters)"),
        "{said}"
    );
    assert!(said.contains("header: authorization: Bearer ***"), "{said}");
    assert!(
        said.contains(&format!("[egress.work] for {HOST}:443")),
        "{said}"
    );
    assert!(!format!("{tested:?}").contains(VALUE), "{tested:?}");
    let text = secret_config(&origin, "").replace("REAL_TOKEN", "MISSING_TOKEN");
    configured.write(&text);
    let tested = configured
        .home
        .run(&["secret", "test", "example", "--json"]);
    assert_eq!(tested.status.code(), Some(1), "{tested:?}");
    let said: Value = serde_json::from_slice(&tested.stdout).expect("it is JSON");
    assert_eq!(said["readable"], false, "{said}");
    let error = said["error"].as_str().expect("a text");
    assert!(error.contains("MISSING_TOKEN"), "{error}");
    let unknown = configured.home.run(&["secret", "test", "other"]);
    let said = String::from_utf8_lossy(&unknown.stderr).into_owned();
    assert_eq!(unknown.status.code(), Some(1), "{said}");
    assert!(said.contains("there are: example"), "{said}");
}
