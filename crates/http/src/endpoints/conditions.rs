//! Conditional requests: `If-Match`, `If-None-Match` and `If-Range` (RFC 9110, section 13).
//!
//! Parsed by hand, because the crate `headers` compares entity tags but does not hand them out, and a `PUT` passes its tag on
//! to the agent.

use hotcell_service::Precondition;
use http::header::{IF_MATCH, IF_NONE_MATCH, IF_RANGE};
use http::{HeaderMap, HeaderName, HeaderValue};

use crate::error::HttpError;

/// How a client's copy compares with the file.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum CacheMatch {
    /// The client has the current content.
    Same,
    /// `If-Match` names other content.
    Other,
    /// The client has other content, or none.
    New,
}

/// Evaluates the headers against the file's etag.
pub(super) fn known(headers: &HeaderMap, etag: &str) -> CacheMatch {
    let wanted = tags(headers, &IF_MATCH, Comparison::Strong);
    if wanted.is_some_and(|tags| !tags.matches(etag)) {
        return CacheMatch::Other;
    }
    let had = tags(headers, &IF_NONE_MATCH, Comparison::Weak);
    if had.is_some_and(|tags| tags.matches(etag)) {
        return CacheMatch::Same;
    }
    CacheMatch::New
}

/// Whether the client wants a range of the file rather than all of it.
pub(super) fn wants_range(headers: &HeaderMap, etag: &str) -> bool {
    let begun = tags(headers, &IF_RANGE, Comparison::Strong);
    begun.is_none_or(|tags| tags.0.len() == 1 && tags.matches(etag))
}

/// The precondition of a write.
pub(super) fn precondition(headers: &HeaderMap) -> Result<Precondition, HttpError> {
    let wanted = tags(headers, &IF_MATCH, Comparison::Strong);
    match (wanted, tags(headers, &IF_NONE_MATCH, Comparison::Weak)) {
        (None, None) => Ok(Precondition::Any),
        (None, Some(EntityTags(tags))) if tags == ["*"] => Ok(Precondition::Absent),
        (Some(EntityTags(tags)), None) if tags != ["*"] && tags.len() == 1 => {
            Ok(Precondition::Matches(tags[0].clone()))
        }
        _ => Err(HttpError::invalid(
            "a PUT takes If-Match with one etag, or If-None-Match: *",
        )),
    }
}

/// Quotes an etag for a header.
pub(super) fn header(etag: &str) -> Option<HeaderValue> {
    HeaderValue::try_from(format!("\"{etag}\"")).ok()
}

/// Etags without their quotes, or a star.
struct EntityTags(Vec<String>);

impl EntityTags {
    fn matches(&self, etag: &str) -> bool {
        self.0.iter().any(|tag| tag == "*" || tag == etag)
    }
}

/// How a header compares entity tags.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Comparison {
    /// A weak tag matches nothing: it stands for content that is only equivalent.
    Strong,
    /// `W/` is ignored.
    Weak,
}

/// The etags in a header. Ours contain no comma and no quote, so foreign ones need not be parsed
/// exactly: a tag that keeps its `W/` and its quotes never equals one of ours.
fn tags(headers: &HeaderMap, name: &HeaderName, comparison: Comparison) -> Option<EntityTags> {
    let values = headers.get_all(name).iter().peekable();
    let mut tags = Vec::new();
    for value in values {
        for tag in value.to_str().unwrap_or_default().split(',') {
            let tag = tag.trim();
            let tag = match tag.strip_prefix("W/") {
                Some(opaque) if comparison == Comparison::Weak => opaque,
                _ => tag,
            };
            tags.push(tag.trim_matches('"').to_owned());
        }
    }
    headers.contains_key(name).then_some(EntityTags(tags))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(pairs: &[(HeaderName, &str)]) -> HeaderMap {
        let pairs = pairs
            .iter()
            .map(|(name, value)| (name.clone(), value.parse().unwrap()));
        pairs.collect()
    }

    #[test]
    fn a_reader_is_told_when_it_has_the_file() {
        let known = |name, value| known(&headers(&[(name, value)]), "abc");
        assert_eq!(known(IF_NONE_MATCH, "\"abc\""), CacheMatch::Same);
        assert_eq!(known(IF_NONE_MATCH, "\"x\", W/\"abc\""), CacheMatch::Same);
        assert_eq!(known(IF_NONE_MATCH, "*"), CacheMatch::Same);
        assert_eq!(known(IF_NONE_MATCH, "\"x\""), CacheMatch::New);
        assert_eq!(known(IF_MATCH, "\"x\""), CacheMatch::Other);
        assert_eq!(known(IF_MATCH, "\"abc\""), CacheMatch::New);
    }

    #[test]
    fn a_range_is_only_wanted_of_the_file_it_was_begun_with() {
        assert!(wants_range(&HeaderMap::new(), "abc"));
        assert!(wants_range(&headers(&[(IF_RANGE, "\"abc\"")]), "abc"));
        assert!(!wants_range(&headers(&[(IF_RANGE, "\"x\"")]), "abc"));
    }

    #[test]
    fn a_weak_tag_is_no_reason_to_change_or_continue_a_file() {
        let weak = |name| headers(&[(name, "W/\"abc\"")]);
        assert_eq!(known(&weak(IF_MATCH), "abc"), CacheMatch::Other);
        assert!(!wants_range(&weak(IF_RANGE), "abc"));
        let demanded = precondition(&weak(IF_MATCH)).unwrap();
        assert_ne!(demanded, Precondition::Matches("abc".to_owned()));
    }

    #[test]
    fn a_writer_demands_one_thing() {
        let demand = |pairs: &[(HeaderName, &str)]| precondition(&headers(pairs));
        assert_eq!(demand(&[]).unwrap(), Precondition::Any);
        assert_eq!(
            demand(&[(IF_NONE_MATCH, "*")]).unwrap(),
            Precondition::Absent
        );
        let matches = Precondition::Matches("abc".to_owned());
        assert_eq!(demand(&[(IF_MATCH, "\"abc\"")]).unwrap(), matches);
        for pairs in [
            &[(IF_NONE_MATCH, "\"abc\"")][..],
            &[(IF_MATCH, "*")],
            &[(IF_MATCH, "\"a\", \"b\"")],
            &[(IF_MATCH, "\"a\""), (IF_NONE_MATCH, "*")],
        ] {
            assert_eq!(demand(pairs).unwrap_err().status(), 400);
        }
    }
}
