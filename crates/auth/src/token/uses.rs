//! `STATE/token-uses.json`: when each token was last used, to the minute. Only the server
//! writes it.

use std::collections::HashMap;
use std::io;
use std::path::Path;

use super::atomic;

const FILE: &str = "token-uses.json";

/// A larger file is not ours: all tokens together need less.
const FILE_BYTES_MAX: u64 = 8 << 20;

/// The last uses: by [`super::TokenRecord::id`], in seconds since 1970. If the file cannot be read,
/// it is empty: nothing depends on it.
pub fn token_uses(directory: &Path) -> HashMap<u64, u64> {
    read(&directory.join(FILE)).unwrap_or_default()
}

fn read(path: &Path) -> Option<HashMap<u64, u64>> {
    if std::fs::metadata(path).ok()?.len() > FILE_BYTES_MAX {
        return None;
    }
    serde_json::from_slice(&std::fs::read(path).ok()?).ok()
}

pub(super) fn write(directory: &Path, uses: &HashMap<u64, u64>) -> io::Result<()> {
    let content = serde_json::to_vec(uses).expect("numbers are JSON");
    atomic::replace(&directory.join(FILE), &content)
}
