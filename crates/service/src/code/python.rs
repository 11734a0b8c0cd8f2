//! Modules for Python snippets: a Matplotlib backend and a Pillow viewer that save pictures to
//! `/workspace/artifacts`.
//!
//! The modules are files in the session, written once, and again after a snippet failed. Code in
//! the session may change them, like everything else that its next snippet imports; other sessions
//! are not affected. A program that does not plot loads none of them.

use bytes::Bytes;
use hotcell_agent_client::Agent;
use hotcell_domain::Env;

use crate::ServiceError;
use crate::container::LiveContainer;
use crate::file::{FileOperation, FilePath, Precondition, WriteOptions, once};

/// Relative to `/workspace`.
const DIRECTORY: &str = ".hotcell/python";

const MODULES: [(&str, &str); 2] = [
    (
        "hotcell_figures.py",
        include_str!("python/hotcell_figures.py"),
    ),
    ("PIL/__init__.py", include_str!("python/PIL/__init__.py")),
];

/// Entries beside our modules that are removed at once.
const FOREIGN_MAX: u32 = 256;

/// Removes whatever snippets have put beside our modules, compiled modules included. Interpreters
/// search this directory before the standard library, so one file there could keep all later ones
/// from starting.
pub(super) async fn remove_foreign(container: &LiveContainer) {
    let removed = async {
        let path = FilePath::parse(DIRECTORY.as_bytes())?;
        let list = async |agent: Agent| {
            let directory = DIRECTORY.as_bytes();
            agent.list(directory, true, None, FOREIGN_MAX, None).await
        };
        let page = once(container, &path, list).await?;
        for entry in page.entries.iter().filter(|entry| !is_ours(&entry.path)) {
            let path = FilePath::parse(&entry.path)?;
            let delete = async |agent: Agent| {
                let deleted = agent.delete(&entry.path, true, Precondition::Any);
                deleted.await.map(drop)
            };
            match once(container, &path, delete).await {
                // Its directory was removed before it.
                Ok(()) | Err(ServiceError::NotFound { .. }) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    };
    match removed.await {
        Ok(()) | Err(ServiceError::NotFound { .. }) => {}
        Err(error) => tracing::debug!(%error, "files beside the modules of a session are left"),
    }
}

/// Whether a path below `/workspace` is one of our modules or the directory of one.
fn is_ours(path: &[u8]) -> bool {
    let name = path.strip_prefix(DIRECTORY.as_bytes());
    let Some(name) = name.and_then(|name| name.strip_prefix(b"/")) else {
        return false;
    };
    MODULES.iter().any(|(ours, _)| {
        let directory = ours.split_once('/').map(|(directory, _)| directory);
        name == ours.as_bytes() || directory.is_some_and(|ours| name == ours.as_bytes())
    })
}

/// The operations that write the modules.
pub(super) fn modules() -> Vec<FileOperation> {
    let write = |(name, text): (&str, &'static str)| FileOperation::Write {
        path: format!("{DIRECTORY}/{name}").into_bytes(),
        data: Bytes::from_static(text.as_bytes()),
        options: WriteOptions {
            create_parents: true,
            ..WriteOptions::default()
        },
    };
    MODULES.map(write).to_vec()
}

/// Sets the variables that let Python find the modules. `root` is the container's path of
/// `/workspace`; `path` is the image's own `PYTHONPATH`. `figures` is the prefix of the names of
/// this snippet's pictures.
pub(super) fn set_variables(env: &mut Env, root: &str, path: Option<&str>, figures: &str) {
    let ours = format!("{root}/{DIRECTORY}");
    let path = match path {
        Some(path) if !path.is_empty() => format!("{ours}:{path}"),
        Some(_) | None => ours,
    };
    // Cannot fail: each value is short, and ours or the image's.
    let _ = env.set("PYTHONPATH", &path);
    let _ = env.set("MPLBACKEND", "module://hotcell_figures");
    let _ = env.set("HOTCELL_FIGURES", figures);
}
