//! `setup_node`: set up a Node.js project.

use super::{Argument, CONTAINER, PromptSpec, Values, container_step};

pub(super) const PROMPT: PromptSpec = PromptSpec {
    name: "setup_node",
    description: "Set up a Node.js project in a container",
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
            "\n4. The project needs: {packages}. A container has no network by default, so bring a node_modules directory or packed tarballs in with \
             fs_import and install from those (`npm install --offline ./x.tgz`), or say which are missing."
        )
    });
    format!(
        "Set up a Node.js project.\n\
         1. {container}\n\
         2. Run `node --version` and `npm --version` with exec_start and wait_s=10.\n\
         3. If there is no package.json in /workspace, write one with fs_write.{packages}\n\
         Finish by running a line of JavaScript with node, and tell which version and which packages there are."
    )
}
