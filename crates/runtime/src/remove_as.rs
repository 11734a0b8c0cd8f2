//! Removes files that belong to ids of a container.
//!
//! An ordinary user cannot remove files owned by its subordinate ids, but root of a user namespace
//! with the same map can.

use std::fs::File;
use std::io;
use std::os::fd::AsFd;
use std::path::Path;

use rustix::process::{WaitId, WaitIdOptions, waitid};

use crate::plan::{Op, Plan, Step};
use crate::spec::IdMap;
use crate::start::{self, StartError};
use crate::sys::ExecArgs;

/// Candidates for the program that removes the files.
const PROGRAMS: [&str; 2] = ["/usr/bin/rm", "/bin/rm"];

/// Removes a directory tree as root of a user namespace with these ids, which must include root. A
/// missing directory is not an error.
pub fn remove_tree_as(ids: &IdMap, path: &Path) -> io::Result<()> {
    let program = PROGRAMS.iter().find_map(|path| File::open(path).ok());
    let program = program.ok_or_else(|| io::Error::other("there is no rm on this host"))?;
    let arguments = ["rm", "-rf", "--one-file-system", "--"].map(str::to_owned);
    let mut arguments = arguments.to_vec();
    let path_text = path.to_str();
    arguments.push(
        path_text
            .ok_or_else(|| io::Error::other("the path is not UTF-8"))?
            .to_owned(),
    );
    let args = ExecArgs::new(&arguments, &[]).map_err(io::Error::other)?;
    let step = |name, op| Step { name, op };
    let steps = vec![
        step("await the id map", Op::AwaitGo),
        step("become the container's root", Op::BecomeRoot),
        step(
            "run rm",
            Op::Exec {
                file: program.into(),
                args,
            },
        ),
    ];
    let plan = Plan {
        steps,
        slots: 0,
        mapped: Vec::new(),
    };
    let started = start::start(&plan, libc::CLONE_NEWUSER, Some(ids), None).map_err(cause)?;
    let ended = waitid(WaitId::PidFd(started.pidfd.as_fd()), WaitIdOptions::EXITED)?;
    match ended.and_then(|status| status.exit_status()) {
        Some(0) => Ok(()),
        _ => Err(io::Error::other(format!(
            "rm failed for {}",
            path.display()
        ))),
    }
}

fn cause(error: StartError) -> io::Error {
    match error {
        StartError::Step { source, .. } => source,
        StartError::Died | StartError::TimedOut => io::Error::other(error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::chown;

    #[test]
    fn what_a_namespaces_root_owns_goes_with_it() {
        let ids = crate::ids::choose(|| crate::ids::range_base(5).unwrap());
        let base = tempfile::tempdir().unwrap();
        let tree = base.path().join("tree");
        std::fs::create_dir_all(tree.join("inner")).unwrap();
        std::fs::write(tree.join("inner/file"), "x").unwrap();
        let (Some(uid), true) = (ids.host_uid(0), rustix::process::geteuid().is_root()) else {
            return;
        };
        for path in [
            base.path(),
            &tree,
            &tree.join("inner"),
            &tree.join("inner/file"),
        ] {
            chown(path, Some(uid), Some(uid)).unwrap();
        }
        remove_tree_as(&ids, &tree).unwrap();
        assert!(!tree.exists());
        remove_tree_as(&ids, &tree).unwrap();
    }
}
