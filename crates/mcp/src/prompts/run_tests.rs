//! `run_tests`: run a project's tests and explain failures.

use super::{Argument, CONTAINER, PromptSpec, Values, container_step};

pub(super) const PROMPT: PromptSpec = PromptSpec {
    name: "run_tests",
    description: "Run a project's tests and explain what fails",
    arguments: &[
        CONTAINER,
        Argument {
            name: "path",
            description: "Where the project is, below /workspace",
            is_required: false,
        },
        Argument {
            name: "command",
            description: "How its tests are run; empty: find out",
            is_required: false,
        },
    ],
    text,
};

fn text(value: Values<'_>) -> String {
    let container = container_step(value("container_id"));
    let path = value("path").unwrap_or_else(|| "/workspace".to_owned());
    let command = value("command").map_or_else(
        || "Find out how its tests are run: look at its files with fs_list and fs_read (pyproject.toml, package.json, Makefile, Cargo.toml).".to_owned(),
        |command| format!("Its tests are run by `{command}`."),
    );
    format!(
        "Run the tests of a project and explain what fails.\n\
         1. {container} The project is in `{path}`.\n\
         2. {command}\n\
         3. Run them with exec_start (cwd set to the project, wait_s=50) and follow with exec_poll until complete=true.\n\
         4. For each failure tell the test, the reason in a sentence, and the line of code to look at. Change nothing unless you are asked to."
    )
}
