//! The state directory, which outlives processes, and `hotcell state`, which checks, copies and
//! restores it.

mod archive;
mod check;
mod difference;
mod export;
mod import;
mod report;

use std::fs::{DirBuilder, File, Permissions};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

use std::process::ExitCode;

use anyhow::{Context, Result, bail};

use crate::cli::{StateCommand, StateCommandArgs};

/// Only its owner may access the state directory. Containers need no access: what they see of it is
/// mounted before they change their user.
const MODE: u32 = 0o700;

/// Mode bits that let group or others write.
const OTHERS_WRITE: u32 = 0o022;

/// Mode bits that give group or others any access.
const OTHERS: u32 = 0o077;

/// Runs the subcommand.
pub(crate) fn manage(arguments: &StateCommandArgs) -> Result<ExitCode> {
    match &arguments.command {
        StateCommand::Check(arguments) => check::run(arguments),
        StateCommand::Export(arguments) => export::run(arguments),
        StateCommand::Import(arguments) => import::run(arguments),
    }
}

/// The requested state directory, or the default for this user.
pub(crate) fn directory(asked: Option<PathBuf>) -> Result<PathBuf> {
    if let Some(asked) = asked {
        return std::path::absolute(&asked).context("make the state directory's path absolute");
    }
    if rustix::process::geteuid().is_root() {
        return Ok(PathBuf::from("/var/lib/hotcell"));
    }
    let absolute = |name| {
        std::env::var_os(name)
            .map(PathBuf::from)
            .filter(|path| path.is_absolute())
    };
    let state = absolute("XDG_STATE_HOME").or_else(|| Some(absolute("HOME")?.join(".local/state")));
    let state = state.context("neither XDG_STATE_HOME nor HOME is set; use --state-dir")?;
    Ok(state.join("hotcell"))
}

/// The path of the unix socket of a state directory's server.
pub(crate) fn socket(directory: &Path) -> PathBuf {
    directory.join("hotcell.sock")
}

/// The directory of a state directory's unpacked images.
pub(crate) fn images(directory: &Path) -> PathBuf {
    directory.join("images")
}

/// Creates the state directory, or checks that an existing one is ours alone. If others can write
/// to it, it is rejected: it could contain anything, such as a forged socket or image. If they can
/// only read it, their access is removed.
pub(crate) fn prepare(directory: &Path) -> Result<()> {
    let shown = directory.display();
    let mut make = DirBuilder::new();
    make.recursive(true).mode(MODE);
    make.create(directory)
        .with_context(|| format!("make the state directory {shown}"))?;
    let look = || format!("look at the state directory {shown}");
    let opened = File::open(directory).with_context(look)?;
    let found = opened.metadata().with_context(look)?;
    let ours = rustix::process::geteuid().as_raw();
    if found.uid() != ours {
        bail!(
            "the state directory {shown} belongs to another user (uid {}, we are {ours}); \
             name another with --state-dir, or `chown -R {ours} {shown}` if you trust what is in it",
            found.uid()
        );
    }
    if found.mode() & OTHERS_WRITE != 0 {
        bail!(
            "other users can write to the state directory {shown} (mode {:o}); \
             `chmod 700 {shown}` if you trust what is in it, or name another with --state-dir",
            found.mode() & 0o7777
        );
    }
    if found.mode() & OTHERS != 0 {
        opened
            .set_permissions(Permissions::from_mode(MODE))
            .with_context(|| format!("close the state directory {shown} to other users"))?;
        tracing::info!(state = %shown, "closed the state directory to other users");
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mode(path: &Path) -> u32 {
        std::fs::metadata(path).expect("it is there").mode() & 0o7777
    }

    #[test]
    fn a_new_directory_is_ours_alone() {
        let parent = tempfile::tempdir().expect("a directory");
        let state = parent.path().join("a/b");
        prepare(&state).expect("it is made");
        assert_eq!(mode(&state), 0o700);
        prepare(&state).expect("and taken again");
    }

    #[test]
    fn what_others_can_read_is_closed_to_them() {
        let state = tempfile::tempdir().expect("a directory");
        for open in [0o755, 0o750, 0o711, 0o704] {
            let permissions = Permissions::from_mode(open);
            std::fs::set_permissions(state.path(), permissions).expect("it is ours");
            prepare(state.path()).expect("it is taken");
            assert_eq!(mode(state.path()), 0o700, "from {open:o}");
        }
    }

    #[test]
    fn what_others_can_write_to_is_refused_with_the_command_that_helps() {
        let state = tempfile::tempdir().expect("a directory");
        for open in [0o770, 0o707, 0o777, 0o1777, 0o720] {
            let permissions = Permissions::from_mode(open);
            std::fs::set_permissions(state.path(), permissions).expect("it is ours");
            let refused = prepare(state.path())
                .expect_err("it is refused")
                .to_string();
            let command = format!("chmod 700 {}", state.path().display());
            assert!(refused.contains(&command), "{refused}");
            assert_eq!(mode(state.path()), open);
        }
    }

    #[test]
    fn what_belongs_to_another_user_is_refused() {
        let state = tempfile::tempdir().expect("a directory");
        let theirs = if rustix::process::geteuid().is_root() {
            let nobody = Some(65534);
            std::os::unix::fs::chown(state.path(), nobody, nobody).expect("we are root");
            state.path()
        } else {
            Path::new("/usr")
        };
        let refused = prepare(theirs).expect_err("it is refused").to_string();
        assert!(refused.contains("belongs to another user"), "{refused}");
    }

    #[test]
    fn what_is_no_directory_is_refused() {
        let file = tempfile::NamedTempFile::new().expect("a file");
        assert!(prepare(file.path()).is_err());
    }
}
