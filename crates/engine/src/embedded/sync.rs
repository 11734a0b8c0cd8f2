//! Syncs containers to disk.
//!
//! Their files are written without syncing, which would take longer than all other steps of
//! creating a container.

use std::fs::File;
use std::io;
use std::path::Path;

use hotcell_domain::ContainerId;

use super::home::Home;
use super::tree::{NodeId, Tree};

impl Home {
    /// Syncs what is needed to find containers and restart them. A container that is gone, or is
    /// removed meanwhile, needs nothing.
    pub(super) fn sync(&self, ids: &[ContainerId]) -> io::Result<()> {
        for id in ids {
            let directory = self.directory(id);
            // The files before their directory entries.
            for path in ["launch.json", "state.json", "."] {
                sync_if_there(&directory.join(path))?;
            }
        }
        for directory in self.directories() {
            sync_if_there(&directory)?;
        }
        Ok(())
    }
}

impl Tree {
    /// Syncs the existence and the format of workspaces; their contents are synced by the programs
    /// that write them.
    pub(super) fn sync(&self, ids: &[ContainerId]) -> io::Result<()> {
        for id in ids {
            let directory = self.directory(&NodeId::of(id));
            for path in ["format.json", "."] {
                sync_if_there(&directory.join(path))?;
            }
        }
        sync_if_there(self.path())
    }
}

fn sync_if_there(path: &Path) -> io::Result<()> {
    match File::open(path) {
        Ok(file) => file.sync_all(),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    /// Whether a file has no blocks on disk yet, as far as can be told here.
    fn is_delayed(path: &Path) -> bool {
        let mut filefrag = std::process::Command::new("/usr/sbin/filefrag");
        let told = filefrag.arg("-v").arg(path).output();
        told.is_ok_and(|told| String::from_utf8_lossy(&told.stdout).contains("delalloc"))
    }

    #[test]
    fn what_is_half_there_or_gone_is_no_error_and_what_cannot_be_opened_is() {
        let directory = tempfile::tempdir().unwrap();
        let home = Home::open(directory.path()).unwrap();
        let ids = [1, 2, 3].map(|number| ContainerId::from_parts(number, [0; 10]));
        for id in &ids[..2] {
            fs::create_dir(home.directory(id)).unwrap();
            fs::write(home.directory(id).join("state.json"), "{}").unwrap();
        }
        fs::write(home.directory(&ids[0]).join("launch.json"), "{}").unwrap();
        home.sync(&ids).unwrap();
        for file in ["launch.json", "state.json"] {
            assert!(!is_delayed(&home.directory(&ids[0]).join(file)));
        }
        fs::remove_dir_all(home.directory(&ids[0])).unwrap();
        home.sync(&ids).unwrap();
        let odd = home.directory(&ids[1]).join("launch.json");
        std::os::unix::fs::symlink("launch.json", odd).unwrap();
        assert!(home.sync(&ids).is_err());
    }
}
