//! `STATE/tokens.json`: the names and hashes of all tokens. Only the command line writes it,
//! one process at a time.

use std::fs::{File, OpenOptions};
use std::io::{self, Read};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::atomic::{self, MODE};
use super::name::TokenName;
use super::secret::{Secret, SecretHash};

const FILE: &str = "tokens.json";
const LOCK: &str = "tokens.lock";

/// The only version of the file format.
const VERSION: u32 = 1;

/// Most tokens of one server.
const TOKENS_MAX: usize = 100_000;

/// Larger than a file with the most tokens and the longest names.
const FILE_BYTES_MAX: u64 = 32 << 20;

/// The tokens of a state directory.
#[derive(Debug, Clone)]
pub struct TokenFile {
    directory: PathBuf,
}

/// The stored data of a token.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TokenRecord {
    /// The name that the operator chose.
    pub name: TokenName,
    pub(super) sha256: SecretHash,
    /// Whether it gives access to the admin tools and the metrics.
    pub admin: bool,
    /// When it was created, in seconds since 1970.
    pub created_unix_s: u64,
    /// When it expires, in seconds since 1970.
    pub expires_unix_s: Option<u64>,
}

/// A token to create.
#[derive(Debug, Clone)]
pub struct NewToken {
    /// The name that the operator chose.
    pub name: TokenName,
    /// Whether it gives access to the admin tools and the metrics.
    pub admin: bool,
    /// The time now, in seconds since 1970.
    pub now_unix_s: u64,
    /// When it expires.
    pub expires_unix_s: Option<u64>,
}

/// Why tokens could not be read or changed. Nothing was changed.
#[derive(Debug, thiserror::Error)]
pub enum TokenFileError {
    /// A token of this name exists.
    #[error("there is a token named {0}; revoke it first, or choose another name")]
    Exists(TokenName),
    /// There is no token of this name.
    #[error("there is no token named {0}")]
    Missing(TokenName),
    /// There are too many tokens.
    #[error("there are {TOKENS_MAX} tokens, which is the limit; revoke one first")]
    Full,
    /// The file is invalid.
    #[error("{path} cannot be understood: {reason}")]
    Broken {
        /// The file.
        path: PathBuf,
        /// Describes the problem.
        reason: String,
    },
    /// A file operation failed.
    #[error("could not {step}")]
    System {
        /// Completes "could not …".
        step: &'static str,
        /// The error of the system call.
        source: io::Error,
    },
}

/// Identifies a version of the file, to detect changes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct FileStamp {
    inode: u64,
    bytes: u64,
    modified_ns: (i64, i64),
    changed_ns: (i64, i64),
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Content {
    version: u32,
    tokens: Vec<TokenRecord>,
}

impl TokenFile {
    /// The file in this state directory, which need not exist yet.
    pub fn in_directory(directory: &Path) -> Self {
        Self {
            directory: directory.to_owned(),
        }
    }

    /// All tokens, oldest first; none if there is no file.
    pub fn read(&self) -> Result<Vec<TokenRecord>, TokenFileError> {
        Ok(self.read_stamped()?.0)
    }

    /// Creates a token and returns its text, which is not stored.
    pub fn add(&self, new: NewToken) -> Result<Secret, TokenFileError> {
        let secret = Secret::random();
        let secret = secret.map_err(|error| system("get random bytes")(io::Error::other(error)))?;
        self.edit(|tokens| {
            if tokens.iter().any(|known| known.name == new.name) {
                return Err(TokenFileError::Exists(new.name));
            }
            if tokens.len() >= TOKENS_MAX {
                return Err(TokenFileError::Full);
            }
            tokens.push(TokenRecord {
                name: new.name,
                sha256: secret.hash(),
                admin: new.admin,
                created_unix_s: new.now_unix_s,
                expires_unix_s: new.expires_unix_s,
            });
            Ok(())
        })?;
        Ok(secret)
    }

    /// Deletes a token.
    pub fn revoke(&self, name: &TokenName) -> Result<(), TokenFileError> {
        self.edit(|tokens| {
            let before = tokens.len();
            tokens.retain(|known| known.name != *name);
            if tokens.len() == before {
                return Err(TokenFileError::Missing(name.clone()));
            }
            Ok(())
        })
    }

    pub(super) fn directory(&self) -> &Path {
        &self.directory
    }

    /// The current version of the file, without reading it.
    pub(super) fn stamp(&self) -> Result<Option<FileStamp>, TokenFileError> {
        match std::fs::metadata(self.path()) {
            Ok(found) => Ok(Some(FileStamp::of(&found))),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(system("look at the tokens")(error)),
        }
    }

    /// The tokens, and the version of the file that they were read from.
    pub(super) fn read_stamped(
        &self,
    ) -> Result<(Vec<TokenRecord>, Option<FileStamp>), TokenFileError> {
        let mut file = match File::open(self.path()) {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok((Vec::new(), None)),
            Err(error) => return Err(system("open the tokens")(error)),
        };
        let found = file.metadata().map_err(system("look at the tokens"))?;
        if found.len() > FILE_BYTES_MAX {
            return Err(self.broken("it is too long"));
        }
        let mut text = String::new();
        let read = file.by_ref().take(FILE_BYTES_MAX).read_to_string(&mut text);
        read.map_err(system("read the tokens"))?;
        Ok((self.parse(&text)?, Some(FileStamp::of(&found))))
    }

    fn parse(&self, text: &str) -> Result<Vec<TokenRecord>, TokenFileError> {
        let content: Content =
            serde_json::from_str(text).map_err(|error| self.broken(&error.to_string()))?;
        if content.version != VERSION {
            return Err(self.broken("it is from another version of Hotcell"));
        }
        if content.tokens.len() > TOKENS_MAX {
            return Err(self.broken("it has too many tokens"));
        }
        Ok(content.tokens)
    }

    /// Changes the tokens under a lock, so that no other process does at the same time.
    fn edit(
        &self,
        change: impl FnOnce(&mut Vec<TokenRecord>) -> Result<(), TokenFileError>,
    ) -> Result<(), TokenFileError> {
        let lock = self.open_lock();
        let lock = lock.map_err(system("open the lock of the tokens"))?;
        lock.lock().map_err(system("lock the tokens"))?;
        let mut tokens = self.read()?;
        change(&mut tokens)?;
        let version = VERSION;
        let content = serde_json::to_vec(&Content { version, tokens });
        let content = content.expect("names and numbers are JSON");
        atomic::replace(&self.path(), &content).map_err(system("write the tokens"))
    }

    /// Changes the owner only of a lock file that was created here: the server's user may have
    /// replaced an existing one by a link to anything.
    fn open_lock(&self) -> io::Result<File> {
        let path = self.directory.join(LOCK);
        let mut options = OpenOptions::new();
        options.write(true).mode(MODE);
        match options.create_new(true).open(&path) {
            Ok(lock) => {
                atomic::give(&lock, &File::open(&self.directory)?)?;
                Ok(lock)
            }
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                options.create_new(false).open(&path)
            }
            Err(error) => Err(error),
        }
    }

    fn path(&self) -> PathBuf {
        self.directory.join(FILE)
    }

    fn broken(&self, reason: &str) -> TokenFileError {
        TokenFileError::Broken {
            path: self.path(),
            reason: reason.to_owned(),
        }
    }
}

impl TokenRecord {
    /// Whether it has expired.
    pub fn is_expired(&self, now_unix_s: u64) -> bool {
        self.expires_unix_s.is_some_and(|end| end <= now_unix_s)
    }

    /// The key in [`super::token_uses`].
    pub fn id(&self) -> u64 {
        self.sha256.id()
    }
}

impl FileStamp {
    fn of(found: &std::fs::Metadata) -> Self {
        Self {
            inode: found.ino(),
            bytes: found.len(),
            modified_ns: (found.mtime(), found.mtime_nsec()),
            changed_ns: (found.ctime(), found.ctime_nsec()),
        }
    }
}

fn system(step: &'static str) -> impl Fn(io::Error) -> TokenFileError {
    move |source| TokenFileError::System { step, source }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    fn new(name: &str) -> NewToken {
        NewToken {
            name: TokenName::parse(name).unwrap(),
            admin: false,
            now_unix_s: 1_000,
            expires_unix_s: Some(2_000),
        }
    }

    #[test]
    fn a_token_is_kept_as_a_hash_that_others_cannot_read() {
        let directory = tempfile::tempdir().unwrap();
        let file = TokenFile::in_directory(directory.path());
        assert!(file.read().unwrap().is_empty());
        let secret = file.add(new("ci")).unwrap();
        let text = std::fs::read_to_string(file.path()).unwrap();
        assert!(text.contains(&secret.hash().to_hex()), "{text}");
        assert!(!text.contains(&secret.expose()[4..68]), "{text}");
        for entry in std::fs::read_dir(directory.path()).unwrap() {
            let mode = entry.unwrap().metadata().unwrap().permissions().mode();
            assert_eq!(mode & 0o777, 0o600);
        }
        let [kept] = &file.read().unwrap()[..] else {
            panic!("one token")
        };
        assert!(kept.is_expired(2_000) && !kept.is_expired(1_999));
    }

    #[test]
    fn names_are_given_once_and_can_be_taken_back() {
        let directory = tempfile::tempdir().unwrap();
        let file = TokenFile::in_directory(directory.path());
        file.add(new("ci")).unwrap();
        let again = file.add(new("ci"));
        assert!(matches!(again, Err(TokenFileError::Exists(_))), "{again:?}");
        let name = TokenName::parse("ci").unwrap();
        file.revoke(&name).unwrap();
        let again = file.revoke(&name);
        assert!(
            matches!(again, Err(TokenFileError::Missing(_))),
            "{again:?}"
        );
        file.add(new("ci")).unwrap();
    }

    #[test]
    fn what_we_did_not_write_is_refused_and_left_alone() {
        let directory = tempfile::tempdir().unwrap();
        let file = TokenFile::in_directory(directory.path());
        for text in [
            "",
            "{",
            "[]",
            r#"{"version":2,"tokens":[]}"#,
            r#"{"version":1,"tokens":[{"name":"a b","sha256":"","admin":true,"created_unix_s":0,"expires_unix_s":null}]}"#,
            r#"{"version":1,"tokens":[{"name":"a","sha256":"00","admin":true,"created_unix_s":0,"expires_unix_s":null}]}"#,
            r#"{"version":1,"tokens":[],"more":1}"#,
        ] {
            std::fs::write(file.path(), text).unwrap();
            let added = file.add(new("ci"));
            assert!(
                matches!(added, Err(TokenFileError::Broken { .. })),
                "{text}"
            );
            assert_eq!(std::fs::read_to_string(file.path()).unwrap(), text);
        }
    }

    #[test]
    fn processes_that_add_at_once_lose_nothing() {
        let directory = tempfile::tempdir().unwrap();
        std::thread::scope(|scope| {
            for writer in 0..8 {
                // Each has its own descriptor, like separate processes.
                let file = TokenFile::in_directory(directory.path());
                scope.spawn(move || {
                    for number in 0..8 {
                        file.add(new(&format!("t{writer}-{number}"))).unwrap();
                    }
                });
            }
        });
        let file = TokenFile::in_directory(directory.path());
        assert_eq!(file.read().unwrap().len(), 64);
    }

    #[test]
    fn files_that_root_writes_belong_to_the_servers_user() {
        const SERVER: u32 = 4711;
        let directory = tempfile::tempdir().unwrap();
        if std::os::unix::fs::chown(directory.path(), Some(SERVER), Some(SERVER)).is_err() {
            let reason = "only root can give a directory away";
            return hotcell_testkit::skip(hotcell_testkit::Need::Root, reason);
        }
        let file = TokenFile::in_directory(directory.path());
        file.add(new("ci")).unwrap();
        file.revoke(&TokenName::parse("ci").unwrap()).unwrap();
        for name in [FILE, LOCK] {
            let found = std::fs::metadata(directory.path().join(name)).unwrap();
            assert_eq!((found.uid(), found.gid()), (SERVER, SERVER), "{name}");
            assert_eq!(found.permissions().mode() & 0o777, MODE, "{name}");
        }
    }
}
