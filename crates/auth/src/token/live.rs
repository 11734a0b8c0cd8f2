//! The tokens of a running server.
//!
//! At most twice a second, a request checks whether the file has changed, and reads it if so: a
//! revoked token is refused within a second, without a restart and without a notification that
//! could get lost. The check is one `stat`; an idle server does nothing. Watching with inotify
//! would save that, but misses changes on network filesystems.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, RwLock};
use std::time::Duration;

use futures_util::future::BoxFuture;
use hotcell_domain::{Caller, Name, Principal};

use super::file::{FileStamp, TokenFile, TokenFileError, TokenRecord};
use super::name::TokenName;
use super::secret::{Secret, SecretHash};
use super::uses;
use crate::{Authenticate, Clock as _, Failure, SystemClock};

/// The shortest interval between two checks of the file.
const LOOK_INTERVAL_MS: u64 = 500;

/// The last use is recorded again only after this many seconds.
const USE_GRAIN_S: u64 = 60;

/// How long uses are collected before they are written.
const USES_WRITE_DELAY: Duration = Duration::from_secs(5);

/// The longest header value that is examined.
const TOKEN_BYTES_MAX: usize = 8 << 10;

/// The named tokens, and the one of `--bearer-token`, if it is set.
#[derive(Clone)]
pub struct Tokens {
    shared: Arc<Shared>,
}

struct Shared {
    file: TokenFile,
    chosen: Option<(SecretHash, Caller)>,
    set: RwLock<Arc<TokenSet>>,
    stamp: Mutex<Option<FileStamp>>,
    clock: SystemClock,
    next_look_ms: AtomicU64,
    has_new_uses: AtomicBool,
}

/// Sorted by [`SecretHash::id`]. A server may have thousands of tokens and few callers, so each token
/// is kept small, and its caller is created when it calls.
struct TokenSet(Box<[Token]>);

struct Token {
    hash: SecretHash,
    name: TokenName,
    is_admin: bool,
    expires_unix_s: u64,
    used_unix_s: AtomicU64,
}

impl Tokens {
    /// Reads the tokens of a state directory. `chosen` is the one of `--bearer-token`.
    pub fn open(file: TokenFile, chosen: Option<&Secret>) -> Result<Self, TokenFileError> {
        let (records, stamp) = file.read_stamped()?;
        let set = TokenSet::new(records, &uses::token_uses(file.directory()));
        Ok(Self {
            shared: Arc::new(Shared {
                file,
                chosen: chosen.map(|secret| (secret.hash(), chosen_caller())),
                set: RwLock::new(Arc::new(set)),
                stamp: Mutex::new(stamp),
                clock: SystemClock::default(),
                next_look_ms: AtomicU64::new(LOOK_INTERVAL_MS),
                has_new_uses: AtomicBool::new(false),
            }),
        })
    }

    /// Whether there are no tokens, so that nobody can log in.
    pub fn is_empty(&self) -> bool {
        self.shared.chosen.is_none() && self.count() == 0
    }

    /// The number of named tokens.
    pub fn count(&self) -> usize {
        self.shared.set().0.len()
    }

    async fn look_if_due(&self) {
        if self.shared.is_look_due() {
            let shared = Arc::clone(&self.shared);
            // Fails only after a panic, which the panic hook has reported.
            let _ = tokio::task::spawn_blocking(move || shared.look()).await;
        }
    }

    /// Records a use. It is written later, and not at all if the last recorded use is recent.
    fn note_use(&self, token: &Token, now_unix_s: u64) {
        let before = token.used_unix_s.load(Ordering::Relaxed);
        if now_unix_s < before + USE_GRAIN_S {
            return;
        }
        token.used_unix_s.store(now_unix_s, Ordering::Relaxed);
        if !self.shared.has_new_uses.swap(true, Ordering::AcqRel) {
            let shared = Arc::clone(&self.shared);
            tokio::spawn(async move {
                tokio::time::sleep(USES_WRITE_DELAY).await;
                let _ = tokio::task::spawn_blocking(move || shared.write_uses()).await;
            });
        }
    }

    fn check(&self, text: &str, now_unix_s: u64) -> Result<Caller, Failure> {
        let hash = SecretHash::of(text);
        if let Some((chosen, caller)) = &self.shared.chosen
            && chosen.is(hash)
        {
            return Ok(caller.clone());
        }
        let set = self.shared.set();
        let token = set.find(hash).ok_or(Failure::Unknown)?;
        if token.expires_unix_s <= now_unix_s {
            return Err(Failure::Expired);
        }
        self.note_use(token, now_unix_s);
        Ok(caller(token.name.principal(), token.is_admin))
    }
}

impl Authenticate for Tokens {
    fn authenticate<'a>(&'a self, token: &'a str) -> BoxFuture<'a, Result<Caller, Failure>> {
        Box::pin(async move {
            self.look_if_due().await;
            self.check(token, self.shared.clock.unix_s())
        })
    }

    fn token_bytes_max(&self) -> usize {
        TOKEN_BYTES_MAX
    }
}

impl Shared {
    fn set(&self) -> Arc<TokenSet> {
        Arc::clone(&self.set.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// True for one request per interval.
    fn is_look_due(&self) -> bool {
        let now = u64::try_from(self.clock.steady().as_millis()).unwrap_or(u64::MAX);
        let due = self.next_look_ms.load(Ordering::Relaxed);
        let next = now + LOOK_INTERVAL_MS;
        let takes = |due| {
            let order = Ordering::Relaxed;
            self.next_look_ms.compare_exchange(due, next, order, order)
        };
        now >= due && takes(due).is_ok()
    }

    /// Reads the file if it has changed. If it cannot be read, the tokens stay unchanged.
    fn look(&self) {
        if let Err(error) = self.try_look() {
            let error: &dyn std::error::Error = &error;
            tracing::error!(target: "hotcell::auth", error, "could not read the tokens; the known ones stay valid");
        }
    }

    fn try_look(&self) -> Result<(), TokenFileError> {
        let mut stamp = self.stamp.lock().unwrap_or_else(PoisonError::into_inner);
        let found = self.file.stamp()?;
        if found == *stamp {
            return Ok(());
        }
        let read = self.file.read_stamped();
        if matches!(read, Err(TokenFileError::Broken { .. })) {
            // Logged once, not at each check.
            *stamp = found;
        }
        let (records, new_stamp) = read?;
        let set = TokenSet::new(records, &self.uses());
        let count = set.0.len();
        *self.set.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(set);
        *stamp = new_stamp;
        tracing::info!(target: "hotcell::auth", tokens = count, "the tokens have changed");
        Ok(())
    }

    fn uses(&self) -> HashMap<u64, u64> {
        let set = self.set();
        let used = |token: &Token| (token.hash.id(), token.used_unix_s.load(Ordering::Relaxed));
        let used = set.0.iter().map(used);
        used.filter(|(_, used)| *used > 0).collect()
    }

    fn write_uses(&self) {
        if !self.has_new_uses.swap(false, Ordering::AcqRel) {
            return;
        }
        if let Err(error) = uses::write(self.file.directory(), &self.uses()) {
            tracing::warn!(target: "hotcell::auth", %error, "could not note when tokens were used");
        }
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        self.write_uses();
    }
}

impl TokenSet {
    fn new(records: Vec<TokenRecord>, uses: &HashMap<u64, u64>) -> Self {
        let token = |record: TokenRecord| Token {
            hash: record.sha256,
            used_unix_s: AtomicU64::new(uses.get(&record.id()).copied().unwrap_or(0)),
            name: record.name,
            is_admin: record.admin,
            expires_unix_s: record.expires_unix_s.unwrap_or(u64::MAX),
        };
        let mut tokens: Box<[Token]> = records.into_iter().map(token).collect();
        tokens.sort_unstable_by_key(|token| token.hash.id());
        Self(tokens)
    }

    fn find(&self, hash: SecretHash) -> Option<&Token> {
        let id = hash.id();
        let at = self.0.partition_point(|token| token.hash.id() < id);
        let mut same_id = self.0[at..]
            .iter()
            .take_while(|token| token.hash.id() == id);
        same_id.find(|token| token.hash.is(hash))
    }
}

/// The caller of `--bearer-token`. Its principal has no colon, so it differs from every named
/// token's.
fn chosen_caller() -> Caller {
    let name = Name::parse("token").expect("it is short and printable");
    caller(Principal::new(name), false)
}

fn caller(principal: Principal, is_admin: bool) -> Caller {
    Caller {
        principal,
        client: None,
        client_version: None,
        is_admin,
        trace: None,
    }
}

#[cfg(test)]
mod tests {
    use super::super::NewToken;
    use super::*;

    fn new(name: &str) -> NewToken {
        NewToken {
            name: TokenName::parse(name).unwrap(),
            admin: name == "boss",
            now_unix_s: 1_000,
            expires_unix_s: None,
        }
    }

    fn empty() -> (tempfile::TempDir, TokenFile) {
        let directory = tempfile::tempdir().unwrap();
        let file = TokenFile::in_directory(directory.path());
        (directory, file)
    }

    #[tokio::test]
    async fn each_token_is_its_own_principal_and_admin_if_it_was_made_so() {
        let (_directory, file) = empty();
        let (ci, boss) = (file.add(new("ci")).unwrap(), file.add(new("boss")).unwrap());
        let tokens = Tokens::open(file, None).unwrap();
        let caller = tokens.check(ci.expose(), 2_000).unwrap();
        assert_eq!(
            (caller.principal.as_str(), caller.is_admin),
            ("token:ci", false)
        );
        let caller = tokens.check(boss.expose(), 2_000).unwrap();
        assert_eq!(
            (caller.principal.as_str(), caller.is_admin),
            ("token:boss", true)
        );
    }

    #[tokio::test]
    async fn what_is_no_token_is_refused() {
        let (_directory, file) = empty();
        let secret = file.add(new("ci")).unwrap();
        let tokens = Tokens::open(file, None).unwrap();
        let text = secret.expose();
        let upper = text.to_uppercase();
        let hash = secret.hash().to_hex();
        for bad in [
            "",
            "ci",
            "token:ci",
            &text[..75],
            &upper,
            &hash,
            &format!("{text}0"),
        ] {
            assert_eq!(tokens.check(bad, 2_000), Err(Failure::Unknown), "{bad}");
        }
        assert!(tokens.check(text, 2_000).is_ok());
    }

    #[tokio::test]
    async fn an_expired_token_is_refused() {
        let (_directory, file) = empty();
        let mut short = new("short");
        short.expires_unix_s = Some(2_000);
        let secret = file.add(short).unwrap();
        let tokens = Tokens::open(file, None).unwrap();
        assert!(tokens.check(secret.expose(), 1_999).is_ok());
        assert_eq!(tokens.check(secret.expose(), 2_000), Err(Failure::Expired));
    }

    #[tokio::test]
    async fn the_chosen_token_works_beside_named_ones_and_is_nobody_of_them() {
        let (_directory, file) = empty();
        file.add(new("token")).unwrap();
        let chosen = Secret::parse("chosen-by-the-operator").unwrap();
        let tokens = Tokens::open(file, Some(&chosen)).unwrap();
        let caller = tokens.check("chosen-by-the-operator", 2_000).unwrap();
        assert_eq!(
            (caller.principal.as_str(), caller.is_admin),
            ("token", false)
        );
    }

    #[tokio::test]
    async fn changes_of_the_file_are_taken_over_and_a_broken_file_changes_nothing() {
        let (directory, file) = empty();
        let tokens = Tokens::open(file.clone(), None).unwrap();
        let secret = file.add(new("ci")).unwrap();
        assert!(tokens.check(secret.expose(), 2_000).is_err());
        tokens.shared.look();
        assert!(tokens.check(secret.expose(), 2_000).is_ok());
        let path = directory.path().join("tokens.json");
        let whole = std::fs::read(&path).unwrap();
        std::fs::write(&path, "garbage").unwrap();
        tokens.shared.look();
        assert!(tokens.check(secret.expose(), 2_000).is_ok());
        std::fs::write(&path, whole).unwrap();
        file.revoke(&TokenName::parse("ci").unwrap()).unwrap();
        tokens.shared.look();
        assert_eq!(tokens.check(secret.expose(), 2_000), Err(Failure::Unknown));
    }

    #[tokio::test]
    async fn the_last_use_outlives_the_server_and_a_change_of_the_file() {
        let (directory, file) = empty();
        let secret = file.add(new("ci")).unwrap();
        let id = file.read().unwrap()[0].id();
        let tokens = Tokens::open(file.clone(), None).unwrap();
        tokens.check(secret.expose(), 2_000).unwrap();
        file.add(new("other")).unwrap();
        tokens.shared.look();
        tokens
            .check(secret.expose(), 2_000 + USE_GRAIN_S - 1)
            .unwrap();
        tokens.shared.write_uses();
        assert_eq!(token_uses_of(&directory, id), Some(2_000));
        let tokens = Tokens::open(file, None).unwrap();
        tokens.check(secret.expose(), 2_000 + USE_GRAIN_S).unwrap();
        tokens.shared.write_uses();
        assert_eq!(token_uses_of(&directory, id), Some(2_000 + USE_GRAIN_S));
    }

    fn token_uses_of(directory: &tempfile::TempDir, id: u64) -> Option<u64> {
        uses::token_uses(directory.path()).get(&id).copied()
    }
}
