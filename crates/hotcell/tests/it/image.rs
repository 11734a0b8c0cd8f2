//! `hotcell pull`, `hotcell image` and `hotcell run --image`, as people use them.

use std::path::Path;
use std::process::{Command, Output};

use crate::support;

fn hotcell(state: &Path, line: &[&str]) -> Output {
    Command::new(support::hotcell())
        .args(line)
        .env("HOTCELL_STATE_DIR", state)
        .output()
        .expect("hotcell starts")
}

fn said(output: &Output) -> String {
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(
        output.status.success(),
        "{text}{}",
        String::from_utf8_lossy(&output.stderr)
    );
    text
}

#[test]
fn an_image_is_loaded_run_listed_and_removed() {
    let state = support::scratch();
    let file = support::image::archive(state.path());
    let file = file.to_str().expect("text");
    let name = support::image::NAME;
    let pulled = said(&hotcell(state.path(), &["pull", "--from", file]));
    assert!(
        pulled.starts_with("localhost/busybox:latest@sha256:"),
        "{pulled}"
    );

    let script = "echo $FROM_IMAGE $HOME $PATH; id -un; pwd; cat /etc/secret 2>/dev/null; \
                  ls -ln /bin/busybox | awk '{print $3}'; touch /bin/new 2>/dev/null || echo sealed";
    let run = ["run", "--image", name, "--", "sh", "-c", script];
    let told = said(&hotcell(state.path(), &run));
    let mut lines = told.lines();
    assert_eq!(lines.next(), Some("yes /workspace /bin"));
    assert_eq!(lines.next(), Some("user"));
    assert_eq!(lines.next(), Some("/workspace"));
    if rustix::process::geteuid().is_root() {
        // Root's file is root's inside too, and the container's user is not root.
        assert_eq!(lines.next(), Some("0"), "{told}");
    }
    assert!(told.ends_with("sealed\n"), "{told}");

    let list = said(&hotcell(state.path(), &["image", "ls", "--json"]));
    let list: serde_json::Value = serde_json::from_str(&list).expect("JSON");
    assert_eq!(list[0]["image"], "localhost/busybox:latest");
    let list = said(&hotcell(state.path(), &["image", "ls"]));
    let mut lines = list.lines();
    assert!(
        lines.next().is_some_and(|line| line.starts_with("DIGEST")),
        "{list}"
    );
    assert!(
        lines
            .next()
            .is_some_and(|line| line.ends_with("localhost/busybox:latest")),
        "{list}"
    );
    let removed = said(&hotcell(state.path(), &["image", "rm", name, "--json"]));
    assert_eq!(removed, "{\"images\":1,\"layers\":1,\"partial\":0}\n");
    let list = said(&hotcell(state.path(), &["image", "ls"]));
    assert_eq!(list.lines().count(), 1, "{list}");
    let gone = hotcell(state.path(), &run);
    assert_eq!(gone.status.code(), Some(125));
    let told = String::from_utf8_lossy(&gone.stderr);
    assert!(
        told.contains("localhost/busybox:latest is not on this host"),
        "{told}"
    );
}

#[test]
fn a_refusal_names_its_rule_before_anybody_is_asked() {
    let state = support::scratch();
    for (line, code) in [
        (&["pull", "quay.io/a/b"][..], 1),
        (&["run", "--image", "quay.io/a/b", "--", "true"], 125),
    ] {
        let output = hotcell(state.path(), line);
        assert_eq!(output.status.code(), Some(code));
        let told = String::from_utf8_lossy(&output.stderr);
        assert!(told.contains("rule `allowed_registries`"), "{told}");
    }
}
