//! Ranges of host user ids, one for each container that root creates.
//!
//! A range is taken by a symlink with its number that points to the container's directory. It is
//! created by one system call, so two servers never take the same range, and it survives a crash. A
//! symlink to a directory that is gone is free. Containers outlive servers, so a range is held by a
//! directory, not by a process.
//!
//! ```text
//! /run/hotcell/ids/N ─▶ HOME/containers/ID    for all servers of this host, until it restarts
//! HOME/ids/N         ─▶ ID                    what this home has, by which the next server
//!                                             after a restart of the host takes it again
//! HOME/ids/N         ─▶ shared                the range of the user that all containers of a
//!                                             home share, where their ids cannot be mapped
//! ```

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, symlink};
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use hotcell_domain::ContainerId;
use hotcell_runtime::USER_ID;
use hotcell_runtime::ids::{RANGE_COUNT, RANGE_FIRST, RANGE_LEN, range_base};
use rustix::fs::{FlockOperation, flock};
use rustix::process::geteuid;

use super::home::Home;
use crate::EngineError;

/// The ranges that are in use, for all servers of a host. Empty after a restart of the host.
const HOST_DIRECTORY: &str = "/run/hotcell/ids";

/// Assigns ranges to containers.
#[derive(Debug)]
pub(super) struct IdRanges {
    directory: PathBuf,
    /// The directory that all servers of this host share; `None` if we are not root, or it cannot
    /// be shared.
    host: Option<PathBuf>,
    /// The host id of the user that containers share, once it is needed.
    shared_user: OnceLock<u32>,
}

/// The holder of a range.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Holder {
    Container(ContainerId),
    /// All containers of a home together.
    Shared,
}

impl Holder {
    const SHARED: &'static str = "shared";

    fn parse(name: &str) -> Option<Self> {
        if name == Self::SHARED {
            return Some(Self::Shared);
        }
        ContainerId::parse(name).ok().map(Self::Container)
    }

    fn name(&self) -> &str {
        match self {
            Self::Container(id) => id.as_str(),
            Self::Shared => Self::SHARED,
        }
    }

    /// The directory that exists as long as the holder has its range.
    fn directory(&self, home: &Home) -> PathBuf {
        match self {
            Self::Container(id) => home.directory(id),
            Self::Shared => home.path().to_owned(),
        }
    }
}

impl IdRanges {
    /// Opens the ranges of a home, and claims those of its containers again.
    pub(super) fn open(path: &Path, home: &Home) -> Result<Self, EngineError> {
        let is_root = geteuid().is_root();
        let host = is_root.then(|| PathBuf::from(HOST_DIRECTORY));
        Self::open_shared(path, home, host)
    }

    fn open_shared(path: &Path, home: &Home, host: Option<PathBuf>) -> Result<Self, EngineError> {
        let directory = path.join("ids");
        let step = "make the engine's directory";
        make_private(&directory).map_err(EngineError::engine(step))?;
        let host = host.filter(|host| match make_private(host) {
            Ok(()) => true,
            Err(error) => {
                tracing::warn!(
                    directory = %host.display(), %error,
                    "ranges of user ids cannot be shared with other servers on this host"
                );
                false
            }
        });
        let id_ranges = Self {
            directory,
            host,
            shared_user: OnceLock::new(),
        };
        let step = "take the user id ranges of this server's containers";
        id_ranges
            .take_again(home)
            .map_err(EngineError::engine(step))?;
        Ok(id_ranges)
    }

    /// Takes a free range for a container; returns its first id.
    pub(super) fn take(&self, id: &ContainerId, home: &Home) -> Result<u32, EngineError> {
        // Replacing a stale symlink takes two steps.
        let _lock = self
            .lock()
            .map_err(EngineError::engine("lock the user id ranges"))?;
        self.take_locked(&Holder::Container(id.clone()), home)
    }

    /// The host id of the user that the containers of a home share. It never changes for a home.
    pub(super) fn shared_user(&self, home: &Home) -> Result<u32, EngineError> {
        if let Some(user) = self.shared_user.get() {
            return Ok(*user);
        }
        let _lock = self
            .lock()
            .map_err(EngineError::engine("lock the user id ranges"))?;
        let known = self
            .shared_base(home)
            .map_err(EngineError::engine("find the shared user id"))?;
        let base = match known {
            Some(base) => base,
            None => self.take_locked(&Holder::Shared, home)?,
        };
        Ok(*self.shared_user.get_or_init(|| base + USER_ID))
    }

    fn shared_base(&self, home: &Home) -> io::Result<Option<u32>> {
        for entry in fs::read_dir(&self.directory)? {
            let entry = entry?;
            if holder(&entry.path(), home) == Some(Holder::Shared) {
                return Ok(slot_of(&entry.file_name()).and_then(range_base));
            }
        }
        Ok(None)
    }

    fn take_locked(&self, holder: &Holder, home: &Home) -> Result<u32, EngineError> {
        // Any start will do, as long as not everyone begins at the same slot.
        let first = holder.name().bytes().fold(0_u32, |sum, byte| {
            sum.wrapping_mul(31).wrapping_add(u32::from(byte))
        });
        for n in 0..RANGE_COUNT {
            let slot = first.wrapping_add(n) % RANGE_COUNT;
            let taken = self.take_slot(slot, holder, home);
            if taken.map_err(EngineError::engine("take a range of user ids"))? {
                return range_base(slot).ok_or(EngineError::Exhausted {
                    resource: "user id ranges",
                });
            }
        }
        Err(EngineError::Exhausted {
            resource: "user id ranges",
        })
    }

    /// One lock for all servers of the host, or else for those of this home.
    fn lock(&self) -> io::Result<File> {
        let directory = File::open(self.host.as_ref().unwrap_or(&self.directory))?;
        rustix::io::retry_on_intr(|| flock(&directory, FlockOperation::LockExclusive))?;
        Ok(directory)
    }

    /// Claims the ranges of containers that an earlier server of this home created, perhaps before
    /// a restart of the host.
    fn take_again(&self, home: &Home) -> io::Result<()> {
        let Some(host) = &self.host else {
            return Ok(());
        };
        let _lock = self.lock()?;
        for entry in fs::read_dir(&self.directory)? {
            let entry = entry?;
            let name = entry.file_name();
            let (Some(slot), Some(holder)) = (slot_of(&name), holder(&entry.path(), home)) else {
                continue;
            };
            let ours = absolute(&holder.directory(home))?;
            if !claim(&host.join(slot.to_string()), &ours, &ours)? {
                tracing::error!(
                    container.id = holder.name(),
                    slot,
                    "another server on this host uses the same user ids as a container"
                );
            }
        }
        Ok(())
    }

    fn take_slot(&self, slot: u32, new: &Holder, home: &Home) -> io::Result<bool> {
        let link = self.directory.join(slot.to_string());
        if holder(&link, home).is_some() {
            return Ok(false);
        }
        if let Some(host) = &self.host {
            let ours = absolute(&new.directory(home))?;
            if !claim(&host.join(slot.to_string()), &ours, Path::new(""))? {
                return Ok(false);
            }
        }
        match fs::remove_file(&link) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        Ok(symlink(new.name(), &link).is_ok())
    }

    /// Releases a container's range.
    pub(super) fn give_back(&self, base: u32, id: &ContainerId, home: &Home) {
        let slot = base.wrapping_sub(RANGE_FIRST) / RANGE_LEN;
        // A symlink that cannot be removed is free once its container is gone.
        let remove = |directory: &Path, holder: &Path| {
            let link = directory.join(slot.to_string());
            if fs::read_link(&link).is_ok_and(|found| found == holder) {
                let _ = fs::remove_file(link);
            }
        };
        remove(&self.directory, Path::new(id.as_str()));
        if let (Some(host), Ok(ours)) = (&self.host, absolute(&home.directory(id))) {
            remove(host, &ours);
        }
    }
}

/// The holder in this home that a symlink names, if it still exists.
fn holder(link: &Path, home: &Home) -> Option<Holder> {
    let holder = fs::read_link(link).ok()?;
    let holder = Holder::parse(holder.to_str()?)?;
    holder.directory(home).exists().then_some(holder)
}

/// Points a shared symlink to a container's directory; false if it points to another one that
/// exists. A symlink that already points to `same` is fine. The caller holds the lock.
fn claim(link: &Path, ours: &Path, same: &Path) -> io::Result<bool> {
    match symlink(ours, link) {
        Ok(()) => return Ok(true),
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
        Err(_) => {}
    }
    let holder = fs::read_link(link).unwrap_or_default();
    if holder == same {
        return Ok(true);
    }
    // If it is unknown whether it exists, it counts as in use.
    if !matches!(holder.try_exists(), Ok(false)) {
        return Ok(false);
    }
    fs::remove_file(link)?;
    symlink(ours, link)?;
    Ok(true)
}

fn slot_of(name: &std::ffi::OsStr) -> Option<u32> {
    let slot = name.to_str()?.parse().ok()?;
    range_base(slot).map(|_| slot)
}

fn absolute(path: &Path) -> io::Result<PathBuf> {
    let parent = path.parent().unwrap_or(path).canonicalize()?;
    Ok(parent.join(path.file_name().unwrap_or_default()))
}

/// Creates a directory that only we can access. Another user's directory is rejected: whoever can
/// write there decides who has which ids.
fn make_private(directory: &Path) -> io::Result<()> {
    let mut builder = fs::DirBuilder::new();
    builder.recursive(true).mode(0o700).create(directory)?;
    let found = fs::symlink_metadata(directory)?;
    if found.is_dir() && found.uid() == geteuid().as_raw() && found.mode() & 0o022 == 0 {
        return Ok(());
    }
    Err(io::Error::other("others can write there"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id(number: u64) -> ContainerId {
        ContainerId::from_parts(number, [0; 10])
    }

    /// A server's home with the ranges that it shares with others in `host`.
    fn server(path: &Path, host: &Path) -> (Home, IdRanges) {
        let home = Home::open(path).unwrap();
        let id_ranges = IdRanges::open_shared(path, &home, Some(host.to_owned())).unwrap();
        (home, id_ranges)
    }

    fn make(home: &Home, id: &ContainerId) {
        fs::create_dir(home.directory(id)).unwrap();
    }

    #[test]
    fn two_servers_with_homes_of_their_own_never_use_the_same_ids() {
        let base = tempfile::tempdir().unwrap();
        let host = base.path().join("host");
        let (home, id_ranges) = server(&base.path().join("one"), &host);
        let (other_home, other) = server(&base.path().join("two"), &host);
        make(&home, &id(1));
        make(&other_home, &id(1));
        // The same container id would start its search at the same slot.
        let ours = id_ranges.take(&id(1), &home).unwrap();
        let theirs = other.take(&id(1), &other_home).unwrap();
        assert_ne!(ours, theirs);

        // A released range is free for everyone, and nobody can release another's.
        other.give_back(ours, &id(1), &other_home);
        make(&other_home, &id(2));
        assert_ne!(other.take(&id(1), &other_home).unwrap(), ours);
        id_ranges.give_back(ours, &id(1), &home);
        assert_eq!(other.take(&id(1), &other_home).unwrap(), ours);
    }

    #[test]
    fn what_a_container_that_is_gone_had_is_free() {
        let base = tempfile::tempdir().unwrap();
        let host = base.path().join("host");
        let (home, id_ranges) = server(&base.path().join("one"), &host);
        make(&home, &id(1));
        let base_id = id_ranges.take(&id(1), &home).unwrap();
        fs::remove_dir(home.directory(&id(1))).unwrap();
        let (other_home, other) = server(&base.path().join("two"), &host);
        make(&other_home, &id(1));
        assert_eq!(other.take(&id(1), &other_home).unwrap(), base_id);
    }

    #[test]
    fn after_a_restart_of_the_host_containers_keep_their_ids() {
        let base = tempfile::tempdir().unwrap();
        let host = base.path().join("host");
        let (home, id_ranges) = server(&base.path().join("one"), &host);
        make(&home, &id(1));
        let kept = id_ranges.take(&id(1), &home).unwrap();
        fs::remove_dir_all(&host).unwrap();

        let (_, id_ranges) = server(&base.path().join("one"), &host);
        let (other_home, other) = server(&base.path().join("two"), &host);
        make(&other_home, &id(1));
        assert_ne!(other.take(&id(1), &other_home).unwrap(), kept);
        // Its own server knows it too, and may be started twice.
        assert_eq!(
            holder(&id_ranges.directory.join(number(kept)), &home),
            Some(Holder::Container(id(1)))
        );
        server(&base.path().join("one"), &host);
    }

    #[test]
    fn the_shared_user_stays_the_same_and_differs_between_homes() {
        let base = tempfile::tempdir().unwrap();
        let host = base.path().join("host");
        let (home, id_ranges) = server(&base.path().join("one"), &host);
        let user = id_ranges.shared_user(&home).unwrap();
        assert_eq!(id_ranges.shared_user(&home).unwrap(), user);
        let (other_home, other) = server(&base.path().join("two"), &host);
        assert_ne!(other.shared_user(&other_home).unwrap(), user);

        // The same after a restart of the host, and no container gets a range that contains it.
        fs::remove_dir_all(&host).unwrap();
        let (home, id_ranges) = server(&base.path().join("one"), &host);
        assert_eq!(id_ranges.shared_user(&home).unwrap(), user);
        make(&home, &id(1));
        let taken = id_ranges.take(&id(1), &home).unwrap();
        assert!(!(taken..taken + RANGE_LEN).contains(&user));
    }

    fn number(base: u32) -> String {
        ((base - RANGE_FIRST) / RANGE_LEN).to_string()
    }

    #[test]
    fn a_directory_that_others_can_write_is_not_trusted() {
        let base = tempfile::tempdir().unwrap();
        let host = base.path().join("host");
        fs::create_dir(&host).unwrap();
        let open = std::os::unix::fs::PermissionsExt::from_mode(0o777);
        fs::set_permissions(&host, open).unwrap();
        let (_, id_ranges) = server(&base.path().join("one"), &host);
        assert_eq!(id_ranges.host, None);
    }
}
