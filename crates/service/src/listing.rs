//! Pages of the lists of containers and execs. The first page holds the newest rows, the next
//! one older rows; within a page the oldest comes first.

pub use hotcell_store::PageCursor;

/// A request for a page of a list. The default is everything.
#[derive(Debug, Clone)]
pub struct PageRequest<Id> {
    /// Only rows older than this one, which need not exist any more.
    pub before: Option<PageCursor<Id>>,
    /// Most rows; the newest of them are returned.
    pub rows_max: usize,
}

/// A page of a list.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Listing<T> {
    /// Oldest first.
    pub rows: Vec<T>,
    /// Whether there are rows older than these.
    pub has_older: bool,
}

impl<Id> Default for PageRequest<Id> {
    fn default() -> Self {
        Self {
            before: None,
            rows_max: usize::MAX,
        }
    }
}

impl<Id: Ord> PageRequest<Id> {
    /// Whether a row is older than the cursor.
    pub(crate) fn includes(&self, created_unix_ms: u64, id: &Id) -> bool {
        let is_older =
            |cursor: &PageCursor<Id>| (created_unix_ms, id) < (cursor.created_unix_ms, &cursor.id);
        self.before.as_ref().is_none_or(is_older)
    }

    /// The number of rows to read: one more than the page, at most `rows_max`, tells whether there
    /// are older ones.
    pub(crate) fn with_one_more(&self, rows_max: usize) -> usize {
        self.rows_max.saturating_add(1).min(rows_max)
    }

    /// Truncates sorted rows to the page.
    pub(crate) fn cut<T>(&self, mut rows: Vec<T>) -> Listing<T> {
        let older = rows.len().saturating_sub(self.rows_max);
        rows.drain(..older);
        Listing {
            rows,
            has_older: older > 0,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_go_from_the_newest_to_the_oldest_without_gap_or_repetition() {
        let all: Vec<(u64, u32)> = (0..7).map(|n| (u64::from(n / 3), n)).collect();
        let mut page = PageRequest {
            before: None,
            rows_max: 3,
        };
        let mut pages = Vec::new();
        loop {
            let rows = all.iter().copied();
            let listing = page.cut(rows.filter(|(at, id)| page.includes(*at, id)).collect());
            let (created_unix_ms, id) = listing.rows[0];
            page.before = Some(PageCursor {
                created_unix_ms,
                id,
            });
            pages.push(listing.rows.iter().map(|row| row.1).collect::<Vec<_>>());
            if !listing.has_older {
                break;
            }
        }
        assert_eq!(pages, [vec![4, 5, 6], vec![1, 2, 3], vec![0]]);
    }
}
