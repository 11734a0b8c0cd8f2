//! A cache of verified tokens, so that a signature is verified once and not at each request.
//!
//! This does not affect revocation: a signed token cannot be revoked anyway; it ends at `exp`, with
//! and without the cache. When the issuer's keys change, all tokens verified with the old keys are
//! dropped from the cache.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};

use hotcell_domain::Caller;
use sha2::{Digest, Sha256};

/// Most cached tokens in each half, the newer and the older one.
const HALF_MAX: usize = 2048;

/// The callers of verified tokens. When the newer half is full, it becomes the older one; entries
/// of the old one that were not used since are dropped.
#[derive(Default)]
pub(super) struct Checked {
    halves: Mutex<Halves>,
}

#[derive(Default)]
struct Halves {
    generation: u64,
    newer: HashMap<TokenHash, Owner>,
    older: HashMap<TokenHash, Owner>,
}

/// The SHA-256 of a whole token: nothing in the cache can be used as a token.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct TokenHash([u8; 32]);

#[derive(Clone)]
struct Owner {
    caller: Caller,
    ends_unix_s: u64,
}

impl TokenHash {
    pub(super) fn of(token: &str) -> Self {
        Self(Sha256::digest(token).into())
    }
}

impl Checked {
    /// The caller of a token, if it was verified with the same keys and has not expired.
    pub(super) fn find(&self, hash: TokenHash, generation: u64, now_unix_s: u64) -> Option<Caller> {
        let mut halves = self.halves.lock().unwrap_or_else(PoisonError::into_inner);
        halves.begin(generation);
        if let Some(owner) = halves.older.remove(&hash) {
            halves.keep(hash, owner);
        }
        let owner = halves.newer.get(&hash)?;
        (owner.ends_unix_s > now_unix_s).then(|| owner.caller.clone())
    }

    /// Caches the caller of a token.
    pub(super) fn remember(
        &self,
        hash: TokenHash,
        generation: u64,
        caller: Caller,
        ends_unix_s: u64,
    ) {
        let mut halves = self.halves.lock().unwrap_or_else(PoisonError::into_inner);
        halves.begin(generation);
        halves.keep(
            hash,
            Owner {
                caller,
                ends_unix_s,
            },
        );
    }
}

impl Halves {
    fn begin(&mut self, generation: u64) {
        if self.generation != generation {
            *self = Self {
                generation,
                ..Self::default()
            };
        }
    }

    fn keep(&mut self, hash: TokenHash, owner: Owner) {
        if self.newer.len() >= HALF_MAX {
            self.older = std::mem::take(&mut self.newer);
        }
        self.newer.insert(hash, owner);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_is_remembered_until_it_ends_or_the_keys_change() {
        let (checked, hash) = (Checked::default(), TokenHash::of("a.b.c"));
        checked.remember(hash, 0, Caller::local(), 100);
        assert!(checked.find(hash, 0, 99).is_some());
        assert!(checked.find(TokenHash::of("a.b.d"), 0, 99).is_none());
        assert!(checked.find(hash, 0, 100).is_none());
        assert!(checked.find(hash, 1, 99).is_none());
        assert!(checked.find(hash, 0, 99).is_none());
    }

    #[test]
    fn what_is_used_stays_and_the_rest_is_bounded() {
        let (checked, used) = (Checked::default(), TokenHash::of("used"));
        checked.remember(used, 0, Caller::local(), 100);
        for number in 0..4 * HALF_MAX {
            let hash = TokenHash::of(&number.to_string());
            checked.remember(hash, 0, Caller::local(), 100);
            assert!(checked.find(used, 0, 99).is_some(), "{number}");
        }
        let halves = checked.halves.lock().unwrap();
        assert!(halves.newer.len() <= HALF_MAX && halves.older.len() <= HALF_MAX);
        assert!(!halves.older.contains_key(&TokenHash::of("0")));
    }
}
