//! A warmed interpreter behaves as a new one: each script of `testkit/scripts/python` is run by both.
#![allow(clippy::unwrap_used, reason = "a test fails where it cannot go on")]

use std::fmt::Write as _;
use std::path::Path;

use hotcell_agent_api::v1::ExecStart;
use hotcell_testkit::python::{Script, scripts, without_addresses};

use super::harness::{Finished, variable};
use super::warm::Warmed;

#[tokio::test]
async fn a_script_does_the_same_whether_its_interpreter_is_warm_or_new() {
    let scripts = scripts();
    assert!(scripts.len() >= 60, "{} scripts", scripts.len());
    let warmed = Warmed::start().await;
    let mut differences = String::new();
    for script in &scripts {
        let new = run(&warmed, script, false).await;
        let warm = run(&warmed, script, true).await;
        if seen(&new) != seen(&warm) {
            let _ = writeln!(
                differences,
                "{}:\n new {:#?}\nwarm {:#?}",
                script.name,
                seen(&new),
                seen(&warm)
            );
        }
    }
    assert!(differences.is_empty(), "{differences}");
    assert!(warmed.is_warm().await, "none of them ended it");
}

#[tokio::test]
async fn what_is_random_differs_between_two_scripts() {
    let warmed = Warmed::start().await;
    for source in [
        "import random; print(random.random())",
        "import secrets; print(secrets.token_hex())",
        "import uuid; print(uuid.uuid4())",
        "import tempfile; print(next(tempfile._get_candidate_names()))",
        "import ssl; print(ssl.RAND_bytes(8))",
    ] {
        assert_ne!(
            warmed.said(source).await,
            warmed.said(source).await,
            "{source}"
        );
    }
    assert!(warmed.is_warm().await);
}

#[tokio::test]
async fn a_package_that_was_installed_afterwards_is_found() {
    let warmed = Warmed::start().await;
    assert!(warmed.run("import newcomer").await.exit.code == Some(1));
    let site = warmed
        .said("import site; print(site.getusersitepackages())")
        .await;
    let package = Path::new(&site).join("newcomer");
    std::fs::create_dir_all(&package).unwrap();
    std::fs::write(package.join("__init__.py"), "value = 'installed'").unwrap();
    assert_eq!(
        warmed.said("import newcomer; print(newcomer.value)").await,
        "installed"
    );
    let warm = warmed.said("import sys; print(sys.path)").await;
    let cold = warmed.agent.run(warmed.python(&["script.py"])).await;
    assert_eq!(warm, String::from_utf8(cold.stdout).unwrap().trim());
    assert!(warmed.is_warm().await);
}

#[tokio::test]
async fn modules_of_the_python_path_are_found_unless_one_of_them_comes_before_a_loaded_one() {
    let warmed = Warmed::start().await;
    let modules = warmed.path().join("modules");
    std::fs::create_dir(&modules).unwrap();
    std::fs::write(modules.join("neighbour.py"), "value = 'found'").unwrap();
    let script = "import sys, neighbour; print(neighbour.value, sys.path); \
                  print('hotcell' in open('/proc/self/cmdline').read())";
    warmed.write("tells.py", script);
    let path = format!("/does/not/exist:{}", modules.display());
    let run = async |mut start: ExecStart| {
        start.env.push(variable("PYTHONPATH", &path));
        let said = String::from_utf8(warmed.agent.run(start).await.stdout).unwrap();
        let (said, is_warm) = said.trim().rsplit_once('\n').expect("two lines");
        (said.to_owned(), is_warm == "True")
    };
    let cold = run(warmed.python(&["tells.py"])).await;
    let warm = run(warmed.warm_python(&["tells.py"])).await;
    assert!(cold.0.starts_with("found"), "{cold:?}");
    assert_eq!((warm.0, warm.1, cold.1), (cold.0, true, false));
    for name in ["sitecustomize.py", "stat.py", "decimal.py"] {
        std::fs::write(modules.join(name), "").unwrap();
        assert!(!run(warmed.warm_python(&["tells.py"])).await.1, "{name}");
        std::fs::remove_file(modules.join(name)).unwrap();
    }
}

#[tokio::test]
async fn what_a_warmed_interpreter_cannot_do_is_done_by_a_new_one() {
    let warmed = Warmed::start().await;
    let script = "import sys; print('hotcell' in open('/proc/self/cmdline').read())";
    warmed.write("tells.py", script);
    let is_warm = async |start: ExecStart| {
        let finished = warmed.agent.run(start).await;
        assert_eq!(finished.exit.code, Some(0));
        String::from_utf8(finished.stdout).unwrap().trim() == "True"
    };
    assert!(is_warm(warmed.warm_python(&["tells.py"])).await);
    let mut start = warmed.warm_python(&["tells.py"]);
    start.env.retain(|variable| variable.name != "PATH");
    let longer = "/usr/bin:/bin:/does/not/exist";
    start.env.push(variable("PATH", longer));
    assert!(is_warm(start).await, "it leads to the same interpreter");
    assert!(
        !is_warm(warmed.python(&["tells.py"])).await,
        "it was not allowed"
    );
    assert!(
        !is_warm(warmed.warm_python(&["-B", "tells.py"])).await,
        "an option"
    );
    for (name, value) in [
        ("PYTHONHASHSEED", "1"),
        ("PYTHONPATH", "relative"),
        ("LD_LIBRARY_PATH", "/"),
        ("LANG", "C"),
    ] {
        let mut start = warmed.warm_python(&["tells.py"]);
        start.env.retain(|variable| variable.name != name);
        start.env.push(variable(name, value));
        assert!(!is_warm(start).await, "{name}");
    }
    let long = "x".repeat(70_000);
    assert!(
        !is_warm(warmed.warm_python(&["tells.py", &long])).await,
        "a long argument"
    );
    warmed.write("decimal.py", "");
    assert!(
        !is_warm(warmed.warm_python(&["tells.py"])).await,
        "a module of the same name"
    );
    std::fs::remove_file(warmed.path().join("decimal.py")).unwrap();
    assert!(is_warm(warmed.warm_python(&["tells.py"])).await);
    let missing = warmed.agent.run(warmed.warm_python(&["missing.py"])).await;
    assert_eq!(missing.exit.code, Some(2));
    assert!(
        String::from_utf8(missing.stderr)
            .unwrap()
            .contains("No such file")
    );
}

#[tokio::test]
async fn an_exec_that_may_be_warm_warms_the_next_one_up() {
    let warmed = Warmed::start_cold().await;
    assert!(!warmed.is_warm().await, "nobody has asked yet");
    warmed.until_warm().await;
}

async fn run(warmed: &Warmed, script: &Script, is_warm: bool) -> Finished {
    for entry in std::fs::read_dir(warmed.path()).unwrap() {
        let path = entry.unwrap().path();
        let _ = std::fs::remove_file(&path).or_else(|_| std::fs::remove_dir_all(&path));
    }
    let file = format!("{}.py", script.name);
    warmed.write(&file, &script.source);
    let mut arguments = vec![file.as_str()];
    arguments.extend(script.args.iter().map(String::as_str));
    let mut start = if is_warm {
        warmed.warm_python(&arguments)
    } else {
        warmed.python(&arguments)
    };
    start
        .env
        .extend(script.env.iter().map(|(name, value)| variable(name, value)));
    start.stdin = !script.stdin.is_empty();
    let id = start.exec_id.clone();
    let following = warmed.agent.start_exec(start).await.unwrap();
    if !script.stdin.is_empty() {
        // A script may end without reading it.
        let _ = warmed.agent.input(&id, 0, script.stdin.clone(), true).await;
    }
    following.finish().await
}

/// What a user can see, without addresses in memory.
fn seen(finished: &Finished) -> (String, String, Option<u32>, Option<u32>) {
    (
        without_addresses(&finished.stdout),
        without_addresses(&finished.stderr),
        finished.exit.code,
        finished.exit.signal,
    )
}
