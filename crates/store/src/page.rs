//! Cursors of lists.

use crate::row::sql_ms;

/// A position in a list that is sorted newest first. The next page starts after it, so rows that
/// are added or removed meanwhile do not shift the pages.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PageCursor<Id> {
    /// The creation time of the last row.
    pub created_unix_ms: u64,
    /// Orders rows of the same millisecond.
    pub id: Id,
}

/// The values for `(created_unix_ms, id) < (?, ?)`; `None` starts with the newest.
pub(crate) fn before<Id>(after: Option<&PageCursor<Id>>, id: impl Fn(&Id) -> &str) -> (i64, &str) {
    after.map_or((i64::MAX, ""), |cursor| {
        (sql_ms(cursor.created_unix_ms), id(&cursor.id))
    })
}
