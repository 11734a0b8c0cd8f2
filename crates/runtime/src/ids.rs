//! Maps a container's user and group ids to host ids.
//!
//! For host root, each container gets a range of ids that nothing else uses. For an ordinary user,
//! [`USER_ID`] maps to that user, and the other ids map to the user's subordinate ids if there are
//! any.

use std::fs;
use std::io;
use std::path::Path;
use std::process::{Command, Stdio};

use rustix::process::{getegid, geteuid};

use crate::spec::{IdMap, USER_ID};

/// The first host id of the first range, when the server runs as host root.
pub const RANGE_FIRST: u32 = 0x7000_0000;
/// The number of ranges: up to systemd's foreign ids, which own files on disk and must never run a
/// process.
pub const RANGE_COUNT: u32 = (FOREIGN_IDS_FIRST - RANGE_FIRST) / RANGE_LEN;
/// Ids of one range.
pub const RANGE_LEN: u32 = 65536;

/// The first of the 65,536 ids that systemd keeps for files of foreign origin (its document UIDS-GIDS).
const FOREIGN_IDS_FIRST: u32 = 0x7ffe_0000;

const NEWUIDMAP: &str = "newuidmap";
const NEWGIDMAP: &str = "newgidmap";

/// The first host id of range `slot`; `None` if `slot` is not below [`RANGE_COUNT`].
pub fn range_base(slot: u32) -> Option<u32> {
    (slot < RANGE_COUNT).then(|| RANGE_FIRST + slot * RANGE_LEN)
}

/// The best map that the calling user can have. `base` is called only for host root.
pub fn choose(base: impl FnOnce() -> u32) -> IdMap {
    if geteuid().is_root() {
        return IdMap::range(base());
    }
    subordinate().unwrap_or(IdMap::Single)
}

/// Why an ordinary user has no subordinate ids.
#[derive(Debug, thiserror::Error)]
pub enum NoSubordinateIds {
    /// `file` assigns the user no range, or too small a one.
    #[error("{file} has no {RANGE_LEN} ids for this user")]
    NotGiven {
        /// `/etc/subuid` or `/etc/subgid`.
        file: &'static str,
    },
    /// `newuidmap` or `newgidmap` is missing.
    #[error("{program} is not installed")]
    NoProgram {
        /// Its file name.
        program: &'static str,
    },
}

/// The map with this user's subordinate ids.
pub fn subordinate() -> Result<IdMap, NoSubordinateIds> {
    for program in [NEWUIDMAP, NEWGIDMAP] {
        if !is_installed(program) {
            return Err(NoSubordinateIds::NoProgram { program });
        }
    }
    Ok(IdMap::Subordinate {
        uid_base: given("/etc/subuid")?,
        gid_base: given("/etc/subgid")?,
        count: RANGE_LEN - 1,
    })
}

fn given(file: &'static str) -> Result<u32, NoSubordinateIds> {
    let uid = geteuid().as_raw();
    let text = fs::read_to_string(file).unwrap_or_default();
    let passwd = fs::read_to_string("/etc/passwd").unwrap_or_default();
    let name = user_name(&passwd, uid);
    first_range(&text, uid, name).ok_or(NoSubordinateIds::NotGiven { file })
}

fn user_name(passwd: &str, uid: u32) -> Option<&str> {
    passwd.lines().find_map(|line| {
        let mut fields = line.split(':');
        let name = fields.next()?;
        (fields.nth(1)?.parse() == Ok(uid)).then_some(name)
    })
}

/// The first range of at least [`RANGE_LEN`] ids that lines of the form `name:base:count` assign to
/// a user.
fn first_range(text: &str, uid: u32, name: Option<&str>) -> Option<u32> {
    text.lines().find_map(|line| {
        let mut fields = line.split(':');
        let owner = fields.next()?;
        let base: u32 = fields.next()?.parse().ok()?;
        let count: u32 = fields.next()?.parse().ok()?;
        let ours = Some(owner) == name || owner.parse() == Ok(uid);
        (ours && count >= RANGE_LEN && base.checked_add(RANGE_LEN).is_some()).then_some(base)
    })
}

fn is_installed(program: &str) -> bool {
    std::env::var_os("PATH")
        .is_some_and(|path| std::env::split_paths(&path).any(|dir| dir.join(program).is_file()))
}

impl IdMap {
    /// A range of which every id is the container's own.
    pub fn range(base: u32) -> Self {
        Self::Range { base, user: None }
    }

    /// The host user id of the container's user id `inner`; `None` if it is not mapped.
    pub fn host_uid(&self, inner: u32) -> Option<u32> {
        self.host_id(inner, geteuid().as_raw(), |uid_base, _| uid_base)
    }

    /// The host group id of the container's group id `inner`; `None` if it is not mapped.
    pub fn host_gid(&self, inner: u32) -> Option<u32> {
        self.host_id(inner, getegid().as_raw(), |_, gid_base| gid_base)
    }

    /// Whether id 0 is mapped.
    pub fn has_root(&self) -> bool {
        !matches!(self, Self::Single)
    }

    fn host_id(&self, inner: u32, own: u32, base_of: impl Fn(u32, u32) -> u32) -> Option<u32> {
        match *self {
            Self::Range {
                user: Some(user), ..
            } if inner == USER_ID => Some(user),
            Self::Range { base, .. } => (inner < RANGE_LEN).then(|| base + inner),
            Self::Single => (inner == USER_ID).then_some(own),
            Self::Subordinate {
                uid_base,
                gid_base,
                count,
            } => match inner {
                USER_ID => Some(own),
                0..USER_ID => Some(base_of(uid_base, gid_base) + inner),
                _ => (inner <= count).then(|| base_of(uid_base, gid_base) + inner - 1),
            },
        }
    }

    /// Writes the map of process `pid`; the caller must be its parent.
    pub(crate) fn apply(&self, pid: u32) -> io::Result<()> {
        let proc = |name: &str| format!("/proc/{pid}/{name}");
        match *self {
            Self::Range { base, user } => {
                let map = range_map(base, user);
                fs::write(proc("gid_map"), &map)?;
                fs::write(proc("uid_map"), &map)
            }
            Self::Single => {
                // Without this, the kernel refuses a group map from an ordinary user.
                fs::write(proc("setgroups"), "deny")?;
                fs::write(
                    proc("gid_map"),
                    format!("{USER_ID} {} 1", getegid().as_raw()),
                )?;
                fs::write(
                    proc("uid_map"),
                    format!("{USER_ID} {} 1", geteuid().as_raw()),
                )
            }
            Self::Subordinate {
                uid_base,
                gid_base,
                count,
            } => {
                helper(NEWGIDMAP, pid, getegid().as_raw(), gid_base, count)?;
                helper(NEWUIDMAP, pid, geteuid().as_raw(), uid_base, count)
            }
        }
    }
}

/// The lines that map a range, around the one id that is not in it.
fn range_map(base: u32, user: Option<u32>) -> String {
    let Some(user) = user else {
        return format!("0 {base} {RANGE_LEN}");
    };
    let above = USER_ID + 1;
    format!(
        "0 {base} {USER_ID}\n{USER_ID} {user} 1\n{above} {} {}",
        base + above,
        RANGE_LEN - above
    )
}

/// Runs `newuidmap` or `newgidmap`, the setuid programs that may map subordinate ids.
fn helper(program: &str, pid: u32, own: u32, base: u32, count: u32) -> io::Result<()> {
    let below = (0, base, USER_ID);
    let user = (USER_ID, own, 1);
    let above = (USER_ID + 1, base + USER_ID, count - USER_ID);
    let numbers = [below, user, above]
        .into_iter()
        .flat_map(|(inner, outer, len)| [inner, outer, len])
        .map(|number| number.to_string());
    let status = Command::new(program)
        .arg(pid.to_string())
        .args(numbers)
        .current_dir(Path::new("/"))
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status()?;
    if status.success() {
        Ok(())
    } else {
        Err(io::Error::other(format!("{program}: {status}")))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_range_gives_every_inner_id_its_own_host_id() {
        let map = IdMap::range(RANGE_FIRST);
        assert_eq!(map.host_uid(0), Some(0x7000_0000));
        assert_eq!(map.host_uid(USER_ID), Some(0x7000_03e8));
        assert_eq!(map.host_gid(65535), Some(0x7000_ffff));
        assert_eq!(map.host_uid(65536), None);
    }

    #[test]
    fn a_range_can_leave_its_user_to_an_id_outside_of_it() {
        let map = IdMap::Range {
            base: RANGE_FIRST,
            user: Some(77),
        };
        assert_eq!(map.host_uid(999), Some(RANGE_FIRST + 999));
        assert_eq!(map.host_gid(USER_ID), Some(77));
        assert_eq!(map.host_uid(1001), Some(RANGE_FIRST + 1001));
        let lines = range_map(RANGE_FIRST, Some(77));
        assert_eq!(lines, "0 1879048192 1000\n1000 77 1\n1001 1879049193 64535");
    }

    #[test]
    fn the_last_range_ends_below_the_foreign_ids_of_systemd() {
        assert_eq!(range_base(RANGE_COUNT), None);
        let last = range_base(RANGE_COUNT - 1).unwrap();
        let end = last.checked_add(RANGE_LEN);
        assert!(end.is_some_and(|end| end <= FOREIGN_IDS_FIRST), "{end:?}");
    }

    #[test]
    fn subordinate_ids_leave_room_for_the_user_itself() {
        let map = IdMap::Subordinate {
            uid_base: 100_000,
            gid_base: 200_000,
            count: 65535,
        };
        assert_eq!(map.host_uid(999), Some(100_999));
        assert_eq!(map.host_uid(1000), Some(geteuid().as_raw()));
        assert_eq!(map.host_uid(1001), Some(101_000));
        assert_eq!(map.host_gid(1001), Some(201_000));
        assert_eq!(map.host_uid(65535), Some(165_534));
        assert_eq!(map.host_uid(65536), None);
    }

    #[test]
    fn a_range_is_found_by_name_or_number_and_only_if_long_enough() {
        let text = "ann:100000:65536\nbob:165536:1000\n1002:231072:65536\n";
        assert_eq!(first_range(text, 1000, Some("ann")), Some(100_000));
        assert_eq!(first_range(text, 1001, Some("bob")), None);
        assert_eq!(first_range(text, 1002, None), Some(231_072));
        assert_eq!(first_range("ann:4294967000:65536", 1000, Some("ann")), None);
    }

    #[test]
    fn a_user_is_named_by_the_third_field() {
        assert_eq!(
            user_name("root:x:0:0::/:\nann:x:1000:1000::/:", 1000),
            Some("ann")
        );
        assert_eq!(user_name("broken\n", 0), None);
    }
}
