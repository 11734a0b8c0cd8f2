//! Globs with bounded matching time.
//!
//! Matching time grows with the length of the path and the number of brace expansions, so both the
//! length of a pattern and its alternatives are limited. At both limits, a path of 4 KiB takes some
//! tens of milliseconds; ordinary paths take microseconds.

use hotcell_agent_api::bounds::{GLOB_BYTES_MAX, GLOBS_MAX};

use super::error::Error;

/// The most expansions of all braces of one pattern.
const ALTERNATIVES_MAX: usize = 64;

/// A valid pattern.
#[derive(Clone, Debug)]
pub(super) struct Glob(String);

impl Glob {
    /// Parses a pattern. An empty pattern is `None` and matches everything.
    pub(super) fn parse(raw: &str) -> Result<Option<Self>, Error> {
        if raw.len() > GLOB_BYTES_MAX {
            return Err(Error::Invalid("the glob is too long"));
        }
        if fast_glob::validate(raw).is_err() {
            return Err(Error::Invalid("the glob is malformed"));
        }
        if alternatives(raw) > ALTERNATIVES_MAX {
            return Err(Error::Invalid(
                "the glob has too many alternatives in braces",
            ));
        }
        Ok((!raw.is_empty()).then(|| Self(raw.to_owned())))
    }

    pub(super) fn parse_all(raw: &[String]) -> Result<Vec<Self>, Error> {
        if raw.len() > GLOBS_MAX {
            return Err(Error::Invalid("there are too many globs"));
        }
        let parsed: Result<Vec<_>, _> = raw.iter().map(|raw| Self::parse(raw)).collect();
        Ok(parsed?.into_iter().flatten().collect())
    }

    pub(super) fn matches(&self, path: &[u8]) -> bool {
        fast_glob::glob_match(&self.0, path)
    }
}

/// An upper bound of the expansions: counts nested groups and escaped commas in full.
fn alternatives(raw: &str) -> usize {
    let mut product = 1_usize;
    let mut open: Vec<usize> = Vec::new();
    for byte in raw.bytes() {
        match byte {
            b'{' => open.push(1),
            b',' => {
                if let Some(branches) = open.last_mut() {
                    *branches += 1;
                }
            }
            b'}' => product = product.saturating_mul(open.pop().unwrap_or(1)),
            _ => {}
        }
    }
    product
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn braces_may_not_multiply_without_bound() {
        assert!(Glob::parse("**/*.{rs,toml,md}").is_ok());
        assert!(Glob::parse(&"{a,b}".repeat(6)).is_ok());
        assert!(Glob::parse(&"{a,b}".repeat(7)).is_err());
        assert!(Glob::parse(&format!("{{{}}}", "a,".repeat(64))).is_err());
        assert!(Glob::parse("{a").is_err());
    }

    #[test]
    fn the_worst_pattern_allowed_is_still_quick() {
        let glob = Glob::parse(&format!("**/{{{}}}b", ["*a*"; 64].join(",")));
        let glob = glob.ok().flatten().expect("64 alternatives are allowed");
        let before = std::time::Instant::now();
        assert!(!glob.matches(&b"a".repeat(4000)));
        // Generous, because the machine may be busy.
        assert!(before.elapsed().as_secs() < 60);
    }
}
