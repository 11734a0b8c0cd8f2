//! The directory of downloads, and what is in it.
//!
//! ```text
//! cache/bodies/DIGEST   a body, under the digest of its bytes
//! cache/index/KEY       an entry: headers, freshness, and which body
//! cache/new/NUMBER      a body that is being written
//! ```
//!
//! A body gets its name when all of it is there, and its entry after that. So whatever a crash
//! leaves is either whole or unnamed.

use std::collections::HashMap;
use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime};

use super::entry::{Entry, hex, unhex};
use super::key::Hash;

/// Entries that are kept, however small they are.
const ENTRIES_MAX: usize = 50_000;

/// How much is left when something has to go, in percent: then not every download removes one.
const LEFT_PERCENT: u64 = 90;

/// How exactly a restarted server knows when something was used last.
const USE_RESOLUTION: Duration = Duration::from_hours(1);

/// Longest file of an entry.
const ENTRY_BYTES_MAX: u64 = 32 * 1024;

/// Downloads on disk.
#[derive(Debug)]
pub(crate) struct Store {
    directory: PathBuf,
    bytes_max: AtomicU64,
    next: AtomicU64,
    index: Mutex<Index>,
}

#[derive(Debug, Default)]
struct Index {
    entries: HashMap<Hash, Stored>,
    /// How many entries have a body, and its size.
    bodies: HashMap<Hash, (usize, u64)>,
    bytes: u64,
}

#[derive(Clone, Debug)]
struct Stored {
    entry: Arc<Entry>,
    used: SystemTime,
    /// When its file was told so.
    noted: SystemTime,
}

/// A download and its body.
#[derive(Clone, Debug)]
pub(crate) struct Found {
    pub(crate) entry: Arc<Entry>,
    pub(crate) file: Arc<File>,
}

/// A body that is being written. It is removed unless it gets its name.
#[derive(Debug)]
pub(crate) struct NewBody {
    pub(crate) file: Arc<File>,
    path: PathBuf,
}

impl Drop for NewBody {
    fn drop(&mut self) {
        // It has another name by now, or nobody needs it.
        let _ = fs::remove_file(&self.path);
    }
}

impl Store {
    /// Opens a directory and reads its index. Blocks.
    pub(crate) fn open(directory: &Path, bytes_max: u64) -> io::Result<Self> {
        let mut builder = fs::DirBuilder::new();
        builder.recursive(true).mode(0o700);
        for part in ["bodies", "index", "new"] {
            builder.create(directory.join(part))?;
        }
        for left in fs::read_dir(directory.join("new"))? {
            fs::remove_file(left?.path())?;
        }
        let store = Self {
            directory: directory.to_owned(),
            bytes_max: AtomicU64::new(bytes_max),
            next: AtomicU64::new(0),
            index: Mutex::default(),
        };
        store.load()?;
        Ok(store)
    }

    fn load(&self) -> io::Result<()> {
        let mut index = self.index();
        for file in fs::read_dir(self.directory.join("index"))? {
            let path = file?.path();
            match self.load_entry(&path) {
                Some((key, stored)) => index.insert(key, stored),
                None => fs::remove_file(&path)?,
            }
        }
        for file in fs::read_dir(self.directory.join("bodies"))? {
            let file = file?;
            let hash = file.file_name().to_str().and_then(unhex);
            if !hash.is_some_and(|hash| index.bodies.contains_key(&hash)) {
                fs::remove_file(file.path())?;
            }
        }
        self.make_room(&mut index, 0);
        Ok(())
    }

    fn load_entry(&self, path: &Path) -> Option<(Hash, Stored)> {
        let key = unhex(path.file_name()?.to_str()?)?;
        let metadata = path.metadata().ok()?;
        if metadata.len() > ENTRY_BYTES_MAX {
            return None;
        }
        let entry = Entry::read(&fs::read_to_string(path).ok()?)?;
        let body = self.body_path(&entry.body).metadata().ok()?;
        let used = metadata.modified().ok()?;
        (body.len() == entry.bytes).then(|| {
            let stored = Stored {
                entry: Arc::new(entry),
                used,
                noted: used,
            };
            (key, stored)
        })
    }

    /// Changes how much may be kept.
    pub(crate) fn set_bytes_max(&self, bytes_max: u64) {
        self.bytes_max.store(bytes_max, Ordering::Relaxed);
        self.make_room(&mut self.index(), 0);
    }

    pub(crate) fn bytes_max(&self) -> u64 {
        self.bytes_max.load(Ordering::Relaxed)
    }

    /// Whether anything of a host is kept.
    pub(crate) fn has_host(&self, host: &str) -> bool {
        let index = self.index();
        index
            .entries
            .values()
            .any(|stored| stored.entry.host == host)
    }

    /// A download that is kept. Blocks for as long as opening a file takes.
    pub(crate) fn find(&self, key: &Hash) -> Option<Found> {
        let now = SystemTime::now();
        let entry = {
            let mut index = self.index();
            let stored = index.entries.get_mut(key)?;
            stored.used = now;
            if now.duration_since(stored.noted).unwrap_or_default() > USE_RESOLUTION {
                stored.noted = now;
                self.note_use(key, now);
            }
            Arc::clone(&stored.entry)
        };
        let file = File::open(self.body_path(&entry.body)).ok();
        let file = file.filter(|file| {
            let length = file.metadata().map(|metadata| metadata.len());
            length.is_ok_and(|length| length == entry.bytes)
        });
        let Some(file) = file else {
            self.remove(key);
            return None;
        };
        Some(Found {
            entry,
            file: Arc::new(file),
        })
    }

    fn note_use(&self, key: &Hash, now: SystemTime) {
        let file = OpenOptions::new().write(true).open(self.entry_path(key));
        if let Err(error) = file.and_then(|file| file.set_modified(now)) {
            tracing::debug!(%error, "could not note the use of a download");
        }
    }

    /// A place for a new body.
    pub(crate) fn begin(&self) -> io::Result<NewBody> {
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        let path = self.directory.join("new").join(number.to_string());
        let mut options = OpenOptions::new();
        options.read(true).write(true).create_new(true).mode(0o600);
        let file = Arc::new(options.open(&path)?);
        Ok(NewBody { file, path })
    }

    /// Keeps a whole body under a key. Blocks.
    pub(crate) fn keep(&self, key: &Hash, entry: Entry, body: &NewBody) -> io::Result<()> {
        body.file.sync_data()?;
        fs::rename(&body.path, self.body_path(&entry.body))?;
        let mut index = self.index();
        self.make_room(&mut index, entry.bytes);
        self.write_entry(key, &entry)?;
        let now = SystemTime::now();
        let stored = Stored {
            entry: Arc::new(entry),
            used: now,
            noted: now,
        };
        let old = index.entries.get(key).map(|old| old.entry.body);
        index.insert(*key, stored);
        if let Some(old) = old.filter(|old| !index.bodies.contains_key(old)) {
            fs::remove_file(self.body_path(&old))?;
        }
        Ok(())
    }

    /// Notes that the host says that nothing has changed. Blocks.
    pub(crate) fn refresh(&self, key: &Hash, fresh_until: Option<SystemTime>) {
        let mut index = self.index();
        let Some(stored) = index.entries.get_mut(key) else {
            return;
        };
        let entry = Entry {
            fresh_until,
            ..(*stored.entry).clone()
        };
        if let Err(error) = self.write_entry(key, &entry) {
            tracing::debug!(%error, "could not note that a download is fresh");
        }
        stored.entry = Arc::new(entry);
    }

    /// Forgets a download. Blocks.
    pub(crate) fn remove(&self, key: &Hash) {
        let mut index = self.index();
        self.remove_from(&mut index, key);
    }

    fn remove_from(&self, index: &mut Index, key: &Hash) {
        let Some(body) = index.remove(key) else {
            return;
        };
        let mut paths = vec![self.entry_path(key)];
        if !index.bodies.contains_key(&body) {
            paths.push(self.body_path(&body));
        }
        for path in paths {
            if let Err(error) = fs::remove_file(&path) {
                tracing::debug!(%error, "could not remove a download");
            }
        }
    }

    /// Removes what was not used for longest until so many bytes fit.
    fn make_room(&self, index: &mut Index, bytes: u64) {
        let bytes_max = self.bytes_max();
        if index.bytes + bytes <= bytes_max && index.entries.len() < ENTRIES_MAX {
            return;
        }
        let bytes_left = (bytes_max / 100 * LEFT_PERCENT).saturating_sub(bytes);
        let mut keys: Vec<(SystemTime, Hash)> = index
            .entries
            .iter()
            .map(|(key, stored)| (stored.used, *key))
            .collect();
        keys.sort_unstable();
        for (_, key) in keys {
            let has_room = index.bytes <= bytes_left && index.entries.len() < ENTRIES_MAX;
            if has_room {
                return;
            }
            self.remove_from(index, &key);
        }
    }

    fn write_entry(&self, key: &Hash, entry: &Entry) -> io::Result<()> {
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        let path = self.directory.join("new").join(number.to_string());
        fs::write(&path, entry.write())?;
        fs::rename(&path, self.entry_path(key))
    }

    fn entry_path(&self, key: &Hash) -> PathBuf {
        self.directory.join("index").join(hex(key))
    }

    fn body_path(&self, body: &Hash) -> PathBuf {
        self.directory.join("bodies").join(hex(body))
    }

    fn index(&self) -> MutexGuard<'_, Index> {
        self.index.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Index {
    fn insert(&mut self, key: Hash, stored: Stored) {
        let (body, bytes) = (stored.entry.body, stored.entry.bytes);
        // Counted before the old one goes, which may have the same body.
        let (count, _) = self.bodies.entry(body).or_insert((0, bytes));
        *count += 1;
        if *count == 1 {
            self.bytes += bytes;
        }
        if let Some(old) = self.entries.insert(key, stored) {
            self.release(old.entry.body);
        }
    }

    fn remove(&mut self, key: &Hash) -> Option<Hash> {
        let body = self.entries.remove(key)?.entry.body;
        self.release(body);
        Some(body)
    }

    fn release(&mut self, body: Hash) {
        let Some((count, bytes)) = self.bodies.get_mut(&body) else {
            return;
        };
        *count -= 1;
        if *count == 0 {
            self.bytes -= *bytes;
            self.bodies.remove(&body);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::FileExt as _;

    use http::HeaderMap;
    use sha2::{Digest as _, Sha256};

    use super::*;

    fn keep(store: &Store, key: u8, text: &str) {
        let body = store.begin().unwrap();
        body.file.write_all_at(text.as_bytes(), 0).unwrap();
        let entry = Entry {
            host: "example.com".to_owned(),
            body: Sha256::digest(text.as_bytes()).into(),
            bytes: text.len() as u64,
            fresh_until: None,
            headers: HeaderMap::new(),
        };
        store.keep(&[key; 32], entry, &body).unwrap();
    }

    fn text(store: &Store, key: u8) -> Option<String> {
        let found = store.find(&[key; 32])?;
        let mut bytes = vec![0; usize::try_from(found.entry.bytes).unwrap()];
        found.file.read_exact_at(&mut bytes, 0).unwrap();
        Some(String::from_utf8(bytes).unwrap())
    }

    fn files(directory: &Path, part: &str) -> usize {
        fs::read_dir(directory.join(part)).unwrap().count()
    }

    #[test]
    fn what_was_kept_is_there_after_a_restart_and_leftovers_are_not() {
        let directory = tempfile::tempdir().unwrap();
        let store = Store::open(directory.path(), 1000).unwrap();
        keep(&store, 1, "one");
        keep(&store, 2, "one");
        keep(&store, 3, "three");
        assert_eq!(files(directory.path(), "bodies"), 2);
        fs::write(directory.path().join("bodies/stray"), "x").unwrap();
        fs::write(directory.path().join("new/9"), "x").unwrap();
        // A body that a crash has cut off.
        let three = hex(&Sha256::digest(b"three").into());
        fs::write(directory.path().join("bodies").join(three), "th").unwrap();
        let store = Store::open(directory.path(), 1000).unwrap();
        assert_eq!(text(&store, 1).unwrap(), "one");
        assert_eq!(text(&store, 3), None);
        assert!(store.has_host("example.com") && !store.has_host("example.org"));
        store.remove(&[1; 32]);
        assert_eq!(text(&store, 2).unwrap(), "one");
        store.remove(&[2; 32]);
        for part in ["bodies", "index", "new"] {
            assert_eq!(files(directory.path(), part), 0, "{part}");
        }
    }

    #[test]
    fn what_was_not_used_for_longest_makes_room() {
        let directory = tempfile::tempdir().unwrap();
        let store = Store::open(directory.path(), 100).unwrap();
        for key in 1..=3 {
            keep(&store, key, &key.to_string().repeat(30));
        }
        assert!(text(&store, 1).is_some());
        keep(&store, 4, &"4".repeat(30));
        let left: Vec<u8> = (1..=4).filter(|key| text(&store, *key).is_some()).collect();
        assert_eq!(left, [1, 3, 4], "the second was used least recently");
        store.set_bytes_max(30);
        assert_eq!(files(directory.path(), "bodies"), 0);
    }

    #[test]
    fn a_new_version_replaces_the_old_one() {
        let directory = tempfile::tempdir().unwrap();
        let store = Store::open(directory.path(), 1000).unwrap();
        keep(&store, 1, "old");
        keep(&store, 1, "new");
        keep(&store, 1, "new");
        assert_eq!(text(&store, 1).unwrap(), "new");
        assert_eq!(files(directory.path(), "bodies"), 1);
        assert_eq!(store.index().bytes, 3);
    }
}
