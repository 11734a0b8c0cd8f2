//! The programs in examples/, as a reader would run them.

use std::process::Command;

use crate::clients::{client, root, run};
use crate::server_oidc::Provider;
use crate::support::home::Home;
use crate::support::hotcell;

/// What an example prints; `None` if it cannot be run here.
fn printed(name: &str) -> Option<String> {
    let home = Home::new();
    let mut command = Command::new(client("python-mcp")?);
    command
        .arg(root().join("examples").join(name))
        .arg(hotcell())
        .args(["serve", "--transport", "stdio", "--state-dir"])
        .arg(home.path())
        .env("PYTHONDONTWRITEBYTECODE", "1")
        .env("HOME", home.path())
        .env("XDG_CONFIG_HOME", home.path());
    Some(run(&mut command))
}

#[test]
fn the_agent_corrects_itself_and_ends() {
    if let Some(printed) = printed("agent_loop.py") {
        assert_eq!(printed, "The sum is 45.\n");
    }
}

#[test]
fn the_notebook_keeps_its_variables_and_files() {
    if let Some(printed) = printed("notebook.py") {
        assert_eq!(
            printed,
            "median: 3.5\nerror: IndexError: list index out of range\nfiles: values.txt\n"
        );
    }
}

#[test]
fn the_script_of_code_mode_calls_two_servers() {
    if let Some(printed) = printed("code_mode.py") {
        assert_eq!(
            printed,
            "result: {\"articles\": 3, \"euros\": 184.0}\ncalls: 7\n"
        );
    }
}

#[test]
fn the_ci_job_tests_packs_and_leaves_no_container() {
    if let Some(printed) = printed("ci_job.py") {
        assert_eq!(
            printed,
            "check: exit code 0\ntest: exit code 0\npackage: double.py\n"
        );
    }
}

#[test]
fn the_team_logs_in_at_its_identity_provider_and_has_containers() {
    let home = Home::new();
    let (Some(provider), Some(python)) = (Provider::start(), client("python-mcp")) else {
        return;
    };
    let browser = root().join("tests/clients/browser.py");
    let printed = run(Command::new(python)
        .arg(root().join("examples/team_server.py"))
        .arg(&provider.issuer)
        .arg(hotcell())
        .args(["serve", "--state-dir"])
        .arg(home.path())
        .env("BROWSER", format!("python3 {} %s &", browser.display()))
        .env("PYTHONDONTWRITEBYTECODE", "1")
        .env("HOME", home.path()));
    assert_eq!(printed, "a container of my own\noperator's tools: no\n");
}
