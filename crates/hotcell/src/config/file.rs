//! Finds and reads the configuration file. A file that another user could have written is rejected:
//! it decides what containers may do to this host.

use std::fs::{File, Metadata, OpenOptions};
use std::io::{ErrorKind, Read};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail, ensure};

/// Larger files are refused.
pub(crate) const FILE_BYTES_MAX: u64 = 1 << 20;

/// Mode bits that let group or others write.
const OTHERS_WRITE: u32 = 0o022;

/// A file that was found and read.
#[derive(Debug)]
pub(crate) struct ConfigFile {
    pub(crate) path: PathBuf,
    pub(crate) text: String,
}

/// Reads the named file, or else the first one that exists in the usual places.
pub(crate) fn find(named: Option<&Path>) -> Result<Option<ConfigFile>> {
    if let Some(path) = named {
        let found = read(path)?;
        let found = found.with_context(|| {
            format!(
                "there is no file {}; `hotcell config init` writes one",
                path.display()
            )
        })?;
        return Ok(Some(found));
    }
    for path in usual_places().into_iter().filter(|path| is_reachable(path)) {
        if let Some(found) = read(&path)? {
            return Ok(Some(found));
        }
    }
    Ok(None)
}

/// The paths that are searched, in this order.
pub(crate) fn usual_places() -> Vec<PathBuf> {
    [PathBuf::from("hotcell.toml")]
        .into_iter()
        .chain(user_place())
        .chain([PathBuf::from("/etc/hotcell/hotcell.toml")])
        .collect()
}

/// The user's own file.
pub(super) fn user_place() -> Option<PathBuf> {
    let absolute = |name| {
        let path = std::env::var_os(name).map(PathBuf::from);
        path.filter(|path| path.is_absolute())
    };
    let directory = absolute("XDG_CONFIG_HOME").or_else(|| Some(absolute("HOME")?.join(".config")));
    Some(directory?.join("hotcell/hotcell.toml"))
}

/// Reads one file; `None` if there is none.
fn read(path: &Path) -> Result<Option<ConfigFile>> {
    let shown = path.display();
    // Without it, opening a pipe would wait for a writer.
    let nonblocking = rustix::fs::OFlags::NONBLOCK.bits().cast_signed();
    let opened = OpenOptions::new()
        .read(true)
        .custom_flags(nonblocking)
        .open(path);
    let file = match opened {
        Err(error) if is_absent(&error) => return Ok(None),
        opened => opened.with_context(|| format!("open the configuration file {shown}"))?,
    };
    let found = file.metadata();
    check(
        path,
        &found.with_context(|| format!("look at the configuration file {shown}"))?,
    )?;
    let text = read_text(file).with_context(|| format!("read the configuration file {shown}"))?;
    Ok(Some(ConfigFile {
        path: path.to_owned(),
        text,
    }))
}

/// Whether we may access the path. `HOME` may be another user's, after `setpriv` or `sudo`.
fn is_reachable(path: &Path) -> bool {
    let found = std::fs::symlink_metadata(path);
    !found.is_err_and(|error| error.kind() == ErrorKind::PermissionDenied)
}

fn is_absent(error: &std::io::Error) -> bool {
    matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory)
}

/// Checks the open file, which nobody can exchange afterwards.
fn check(path: &Path, found: &Metadata) -> Result<()> {
    let shown = path.display();
    ensure!(
        found.is_file(),
        "the configuration file {shown} is not a regular file"
    );
    let (owner, us) = (found.uid(), rustix::process::geteuid().as_raw());
    ensure!(
        owner == us || owner == 0,
        "the configuration file {shown} belongs to another user (uid {owner}, we are {us}); \
         `chown {us} {shown}` if you trust what is in it"
    );
    if found.mode() & OTHERS_WRITE != 0 {
        bail!(
            "other users can write to the configuration file {shown} (mode {:o}); \
             `chmod go-w {shown}` if you trust what is in it",
            found.mode() & 0o7777
        );
    }
    Ok(())
}

/// Limits what is actually read: the size in the metadata may be wrong.
fn read_text(file: File) -> Result<String> {
    let mut bytes = Vec::new();
    file.take(FILE_BYTES_MAX + 1).read_to_end(&mut bytes)?;
    ensure!(
        bytes.len() as u64 <= FILE_BYTES_MAX,
        "it is larger than {} KiB",
        FILE_BYTES_MAX >> 10
    );
    String::from_utf8(bytes).map_err(|error| {
        let at = error.utf8_error().valid_up_to();
        anyhow::anyhow!("it is not UTF-8 text (byte {at})")
    })
}

#[cfg(test)]
mod tests {
    use std::fs::Permissions;
    use std::os::unix::fs::PermissionsExt;

    use hotcell_testkit::{Need, skip};

    use super::*;

    fn refusal(path: &Path) -> String {
        let refused = find(Some(path)).expect_err("it is refused");
        format!("{refused:#}")
    }

    #[test]
    fn a_file_of_ours_is_read() {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("a.toml");
        std::fs::write(&path, "x = 1").expect("it is ours");
        let link = directory.path().join("link.toml");
        std::os::unix::fs::symlink(&path, &link).expect("a link");
        for path in [&path, &link] {
            let found = find(Some(path)).expect("it is read").expect("it exists");
            assert_eq!((&found.path, found.text.as_str()), (path, "x = 1"));
        }
    }

    #[test]
    fn what_is_not_a_text_file_of_bounded_length_is_refused() {
        let directory = tempfile::tempdir().expect("a directory");
        let path = |name| directory.path().join(name);
        assert!(refusal(directory.path()).contains("not a regular file"));
        assert!(refusal(Path::new("/dev/null")).contains("not a regular file"));
        assert!(refusal(&path("missing")).contains("there is no file"));
        rustix::fs::mkfifoat(rustix::fs::CWD, path("fifo"), rustix::fs::Mode::RUSR)
            .expect("a pipe");
        assert!(refusal(&path("fifo")).contains("not a regular file"));
        std::os::unix::fs::symlink(path("loop"), path("loop")).expect("a link");
        assert!(refusal(&path("loop")).contains("open the configuration file"));
        std::fs::write(path("long"), vec![b'#'; 10 << 20]).expect("it is ours");
        assert!(refusal(&path("long")).contains("larger than 1024 KiB"));
        std::fs::write(path("binary"), b"a = \xff").expect("it is ours");
        assert!(refusal(&path("binary")).contains("not UTF-8 text (byte 4)"));
    }

    #[test]
    fn what_others_can_write_is_refused_with_the_command_that_helps() {
        let file = tempfile::NamedTempFile::new().expect("a file");
        for open in [0o620, 0o602, 0o666] {
            let permissions = Permissions::from_mode(open);
            std::fs::set_permissions(file.path(), permissions).expect("it is ours");
            let refused = refusal(file.path());
            assert!(refused.contains("chmod go-w"), "{refused}");
        }
    }

    #[test]
    fn what_belongs_to_another_user_is_refused() {
        if !rustix::process::geteuid().is_root() {
            return skip(Need::Root, "only root can give a file away");
        }
        let file = tempfile::NamedTempFile::new().expect("a file");
        std::os::unix::fs::chown(file.path(), Some(65534), None).expect("we are root");
        assert!(refusal(file.path()).contains("belongs to another user"));
    }

    #[test]
    fn a_usual_place_that_cannot_be_there_is_passed_over() {
        // `/etc/passwd` is not a directory: nothing can be below it.
        let path = Path::new("/etc/passwd/hotcell/hotcell.toml");
        assert!(read(path).expect("it is absent").is_none());
    }
}
