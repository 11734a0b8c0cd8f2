//! `limit` and `cursor` of `list_containers` and `list_execs`.
//!
//! A cursor names the oldest row of its page, so the next page is right even if rows came and went
//! in between. Its text is opaque: base64 of the row's time and id.

use std::fmt::Display;

use hotcell_service::{Listing, PageCursor, PageRequest};
use serde::Serialize;

use super::ToolError;
use super::answer::{fitting, size};
use super::file_view::{bad_cursor, cursor_bytes, cursor_text};

/// Most rows of one answer. Fewer fit if they are long.
pub(super) const ROWS_MAX: u32 = 500;

/// Longer than any cursor that we hand out.
const CURSOR_BYTES_MAX: usize = 128;

/// Parses the page that a caller requests.
pub(super) fn request<Id>(
    limit: u32,
    cursor: Option<&str>,
    parse: impl Fn(&str) -> Option<Id>,
) -> Result<PageRequest<Id>, ToolError> {
    Ok(PageRequest {
        before: cursor.map(|text| read(text, parse)).transpose()?,
        rows_max: limit as usize,
    })
}

fn read<Id>(text: &str, parse: impl Fn(&str) -> Option<Id>) -> Result<PageCursor<Id>, ToolError> {
    let read = || {
        let bytes = cursor_bytes(text).ok()?;
        let text = String::from_utf8(bytes).ok()?;
        let (created, id) = text.split_once(' ')?;
        Some(PageCursor {
            created_unix_ms: created.parse().ok()?,
            id: parse(id)?,
        })
    };
    let is_short = text.len() <= CURSOR_BYTES_MAX;
    is_short.then(read).flatten().ok_or_else(bad_cursor)
}

/// The rows that fit into one answer, as JSON, and the cursor of the older rest.
pub(super) struct Fitted<T, J> {
    pub(super) rows: Vec<T>,
    pub(super) items: Vec<J>,
    pub(super) next_cursor: Option<String>,
}

/// Renders a page and leaves out older rows that do not fit. The newest row always stays.
pub(super) fn fit<T, J: Serialize, Id: Display>(
    listing: Listing<T>,
    render: impl Fn(&T) -> J,
    age: impl Fn(&T) -> (u64, Id),
) -> Fitted<T, J> {
    let mut rows = listing.rows;
    let mut items: Vec<J> = rows.iter().map(render).collect();
    let unfitting = fitting(items.iter().map(size)).min(items.len().saturating_sub(1));
    rows.drain(..unfitting);
    items.drain(..unfitting);
    let oldest = rows.first().filter(|_| listing.has_older || unfitting > 0);
    let next_cursor = oldest.map(|row| {
        let (created_unix_ms, id) = age(row);
        cursor_text(format!("{created_unix_ms} {id}").as_bytes())
    });
    Fitted {
        rows,
        items,
        next_cursor,
    }
}

/// Tells a model how to get the next page.
pub(super) fn next_step(next_cursor: &str) -> String {
    format!("[there are older ones: pass cursor={next_cursor}]")
}

/// Default number of rows.
pub(super) fn rows() -> u32 {
    ROWS_MAX
}

#[cfg(test)]
mod tests {
    use super::*;

    fn number(text: &str) -> Option<u32> {
        text.parse().ok()
    }

    #[test]
    fn a_cursor_comes_back_as_it_was_and_another_is_refused() {
        let listing = Listing {
            rows: vec![7_u32, 8],
            has_older: true,
        };
        let fitted = fit(listing, |row| *row, |row| (12, *row));
        let cursor = fitted.next_cursor.expect("there are older ones");
        let asked = request(5, Some(&cursor), number).expect("it is ours");
        let before = asked.before.expect("a row");
        assert_eq!(
            (before.created_unix_ms, before.id, asked.rows_max),
            (12, 7, 5)
        );
        let long = cursor_text(&[b'1'; CURSOR_BYTES_MAX]);
        for foreign in ["", "!", &cursor_text(b"12"), &cursor_text(b"12 x"), &long] {
            assert!(request(5, Some(foreign), number).is_err(), "{foreign}");
        }
    }

    #[test]
    fn what_does_not_fit_is_behind_the_cursor_and_a_page_is_never_empty() {
        let listing = |rows: Vec<usize>| Listing {
            rows,
            has_older: false,
        };
        let render = |length: &usize| "x".repeat(*length);
        let fitted = fit(listing(vec![10, 40_000, 40_000]), render, |row| (0, *row));
        assert_eq!((fitted.rows, fitted.items.len()), (vec![40_000], 1));
        assert!(fitted.next_cursor.is_some());
        let fitted = fit(listing(vec![70_000]), render, |row| (0, *row));
        assert_eq!((fitted.rows.len(), fitted.next_cursor), (1, None));
    }
}
