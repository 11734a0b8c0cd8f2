//! The accounts of an image, plus one for the container's user.
//!
//! Programs look up their own user, which an image may lack. So a container gets its own
//! `/etc/passwd` and `/etc/group`, made from the image's; the image itself is not changed.

use std::fs::File;
use std::io::Read;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;

use hotcell_domain::Profile;
use rustix::fs::{AtFlags, CWD, FileType, Mode, OFlags, ResolveFlags};
use rustix::io::Errno;
use serde::{Deserialize, Serialize};

use crate::bounds::ACCOUNTS_BYTES_MAX;
use crate::unpack::OPAQUE;

/// The content of both files.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Accounts {
    /// `/etc/passwd`.
    pub passwd: String,
    /// `/etc/group`.
    pub group: String,
}

impl Accounts {
    /// Reads both files from stacked layers, lowest first, and adds missing entries. A file that
    /// cannot be parsed counts as missing.
    pub(crate) fn of_layers<P: AsRef<Path>>(layers: &[P]) -> Self {
        let passwd = stacked(layers, "passwd").unwrap_or_default();
        let group = stacked(layers, "group").unwrap_or_default();
        let (id, home) = (Profile::USER_ID.to_string(), Profile::WORKSPACE);
        let user_line = format!("user:x:{id}:{id}:user:{home}:/bin/sh");
        let group_line = format!("user:x:{id}:");
        Self {
            passwd: completed(
                &passwd,
                &[
                    ("root", "0", "root:x:0:0:root:/root:/bin/sh"),
                    ("user", &id, &user_line),
                ],
            ),
            group: completed(
                &group,
                &[("root", "0", "root:x:0:"), ("user", &id, &group_line)],
            ),
        }
    }
}

/// Adds a line for each id that has none.
fn completed(text: &str, wanted: &[(&str, &str, &str)]) -> String {
    let mut text = text.to_owned();
    if !text.is_empty() && !text.ends_with('\n') {
        text.push('\n');
    }
    for (name, id, line) in wanted {
        let field = |line: &str, n: usize| line.split(':').nth(n).map(str::to_owned);
        if text
            .lines()
            .any(|line| field(line, 2).as_deref() == Some(id))
        {
            continue;
        }
        // An image may have a `user` with another id.
        let is_taken = text
            .lines()
            .any(|line| field(line, 0).as_deref() == Some(name));
        let line = if is_taken {
            line.replacen(name, &format!("hotcell-{name}"), 1)
        } else {
            (*line).to_owned()
        };
        text.push_str(&line);
        text.push('\n');
    }
    text
}

/// A file of `/etc`, from the topmost layer that has or deletes it.
fn stacked<P: AsRef<Path>>(layers: &[P], name: &str) -> Option<String> {
    for layer in layers.iter().rev() {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let root = rustix::fs::openat(CWD, layer.as_ref(), flags, Mode::empty()).ok()?;
        let etc = match open(root.as_fd(), "etc", OFlags::RDONLY | OFlags::DIRECTORY) {
            Ok(etc) => etc,
            Err(Errno::NOENT) => continue,
            // Deleted, or `etc` is not a directory.
            Err(_) => return None,
        };
        match rustix::fs::statat(&etc, name, AtFlags::SYMLINK_NOFOLLOW) {
            Ok(stat) if FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile => {
                return read(etc.as_fd(), name);
            }
            Ok(_) => return None,
            Err(_) => {}
        }
        if is_opaque(&etc) {
            return None;
        }
    }
    None
}

fn open(at: BorrowedFd<'_>, name: &str, how: OFlags) -> Result<OwnedFd, Errno> {
    let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS;
    let flags = how | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    rustix::fs::openat2(at, name, flags, Mode::empty(), resolve)
}

fn read(at: BorrowedFd<'_>, name: &str) -> Option<String> {
    let file = File::from(open(at, name, OFlags::RDONLY).ok()?);
    let mut text = Vec::new();
    let limit = ACCOUNTS_BYTES_MAX + 1;
    file.take(limit).read_to_end(&mut text).ok()?;
    let fits = text.len() as u64 <= ACCOUNTS_BYTES_MAX;
    let is_text = |text: &String| text.chars().all(|c| !c.is_control() || c == '\n');
    String::from_utf8(text)
        .ok()
        .filter(|text| fits && is_text(text))
}

fn is_opaque(directory: &OwnedFd) -> bool {
    let mut value = [0_u8; 8];
    matches!(rustix::fs::fgetxattr(directory, OPAQUE, &mut value), Ok(1) if value[0] == b'y')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_containers_user_has_an_account_in_every_image() {
        let none = Accounts::of_layers::<&Path>(&[]);
        assert!(none.passwd.contains("user:x:1000:1000:"));
        let layer = tempfile::tempdir().unwrap();
        std::fs::create_dir(layer.path().join("etc")).unwrap();
        let passwd = "root:x:0:0::/root:/bin/ash\nnode:x:1000:1000::/home/node:/bin/sh";
        std::fs::write(layer.path().join("etc/passwd"), passwd).unwrap();
        std::fs::write(layer.path().join("etc/group"), "user:x:7:\n").unwrap();
        let some = Accounts::of_layers(&[layer.path()]);
        assert_eq!(some.passwd, format!("{passwd}\n"));
        assert_eq!(some.group, "user:x:7:\nroot:x:0:\nhotcell-user:x:1000:\n");
    }

    #[test]
    fn the_topmost_layer_decides_and_links_are_not_followed() {
        let (low, top) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        for (layer, text) in [(&low, "low:x:5:\n"), (&top, "top:x:6:\n")] {
            std::fs::create_dir(layer.path().join("etc")).unwrap();
            std::fs::write(layer.path().join("etc/group"), text).unwrap();
        }
        std::os::unix::fs::symlink("/etc/passwd", top.path().join("etc/passwd")).unwrap();
        let both = Accounts::of_layers(&[low.path(), top.path()]);
        assert!(both.group.starts_with("top:"));
        assert!(
            both.passwd
                .starts_with("root:x:0:0:root:/root:/bin/sh\nuser:")
        );
    }
}
