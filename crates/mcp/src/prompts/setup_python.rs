//! `setup_python`: set up a Python project.

use super::{Argument, CONTAINER, PromptSpec, Values, container_step};

pub(super) const PROMPT: PromptSpec = PromptSpec {
    name: "setup_python",
    description: "Set up a Python project in a container",
    arguments: &[
        CONTAINER,
        Argument {
            name: "packages",
            description: "Packages the project needs, with spaces between them",
            is_required: false,
        },
    ],
    text,
};

fn text(value: Values<'_>) -> String {
    let container = container_step(value("container_id"));
    let packages = value("packages").map_or_else(String::new, |packages| {
        format!(
            "\n4. The project needs: {packages}. Check each with `.venv/bin/python -c 'import …'`. A container has no network by default, so \
             install what is missing from wheels in /workspace (fs_import brings them in), or say which are missing."
        )
    });
    format!(
        "Set up a Python project.\n\
         1. {container}\n\
         2. Run `python3 --version` with exec_start and wait_s=10.\n\
         3. Make an environment: `python3 -m venv --system-site-packages .venv` in /workspace. If venv is missing, work with python3 itself.{packages}\n\
         Finish by running a line of Python in it, and tell which version and which packages there are."
    )
}
