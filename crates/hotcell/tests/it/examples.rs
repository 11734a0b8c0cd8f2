//! The programs in examples/, as a reader would run them.

use std::process::Command;

use crate::clients::{client, root, run};
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
