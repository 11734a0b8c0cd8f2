//! Where a page of a list begins.

use crate::row::sql_ms;

/// A row in a list that is sorted newest first. A page holds what comes behind it, so that
/// rows that are added or removed meanwhile shift nothing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PageCursor<Id> {
    /// When it was created.
    pub created_unix_ms: u64,
    /// Which of those that were created in that millisecond.
    pub id: Id,
}

/// The values that `(created_unix_ms, id) < (?, ?)` takes: `None` is before the newest.
pub(crate) fn before<Id>(after: Option<&PageCursor<Id>>, id: impl Fn(&Id) -> &str) -> (i64, &str) {
    after.map_or((i64::MAX, ""), |cursor| {
        (sql_ms(cursor.created_unix_ms), id(&cursor.id))
    })
}
