//! What Python snippets find besides: a Matplotlib backend and a viewer of Pillow that put pictures
//! into `/workspace/artifacts`.
//!
//! The modules are files of the session, written once and again after a snippet failed. Code in
//! the session may change them, as it may change whatever else its next snippet imports; no other
//! session sees that. A program that does not plot loads none of them.

use bytes::Bytes;
use hotcell_domain::Env;

use crate::file::{FileOperation, WriteOptions};

/// Below `/workspace`.
const DIRECTORY: &str = ".hotcell/python";

const MODULES: [(&str, &str); 2] = [
    (
        "hotcell_figures.py",
        include_str!("python/hotcell_figures.py"),
    ),
    ("PIL/__init__.py", include_str!("python/PIL/__init__.py")),
];

/// Writes the modules.
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

/// Has Python find the modules. `root` is what the container calls `/workspace`; `path` is the
/// image's own `PYTHONPATH`. `figures` begins the names of the pictures of this snippet.
pub(super) fn set_variables(env: &mut Env, root: &str, path: Option<&str>, figures: &str) {
    let ours = format!("{root}/{DIRECTORY}");
    let path = match path {
        Some(path) if !path.is_empty() => format!("{ours}:{path}"),
        Some(_) | None => ours,
    };
    // Each is a short text of ours, or the image's.
    let _ = env.set("PYTHONPATH", &path);
    let _ = env.set("MPLBACKEND", "module://hotcell_figures");
    let _ = env.set("HOTCELL_FIGURES", figures);
}
