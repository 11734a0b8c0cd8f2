//! Resources: files, output and statistics that clients read without a tool.

mod list;
mod read;
mod uri;

pub(crate) use list::{list, templates};
pub(crate) use read::read;
pub(crate) use uri::{encoded_path, workspace_uri};
