//! What requests a rule lets through, where the broker can see them.

use std::fmt;

/// Which requests are allowed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Access {
    /// All of them; nothing needs to be seen.
    #[default]
    Full,
    /// GET and HEAD, without a body.
    Read,
    /// Cloning and fetching over git's HTTP protocol, but not pushing.
    GitRead,
    /// Those that match one of the lines.
    Lines(Vec<Line>),
}

/// A method and a path, such as `POST /repos/acme/**`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Line {
    /// `None` for `*`.
    method: Option<String>,
    path: PathPattern,
}

/// A path whose segments may be `*` (one segment) and whose last may be `**` (any number).
#[derive(Clone, Debug, PartialEq, Eq)]
struct PathPattern {
    segments: Vec<String>,
    has_tail: bool,
}

/// Why a text is not an access.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "`{0}`: access is \"full\", \"read\", \"git-read\" or lines such as \"GET /**\" and \"POST /repos/*/issues\""
)]
pub struct AccessError(String);

impl Access {
    /// Parses the short form.
    pub fn parse(text: &str) -> Result<Self, AccessError> {
        match text {
            "full" => Ok(Self::Full),
            "read" => Ok(Self::Read),
            "git-read" => Ok(Self::GitRead),
            line => Ok(Self::Lines(vec![Line::parse(line)?])),
        }
    }

    /// Parses a list of lines.
    pub fn parse_lines<'a>(lines: impl IntoIterator<Item = &'a str>) -> Result<Self, AccessError> {
        let lines = lines.into_iter().map(Line::parse);
        Ok(Self::Lines(lines.collect::<Result<_, _>>()?))
    }

    /// Whether requests must be seen to decide, so that TLS has to be opened.
    pub fn needs_requests(&self) -> bool {
        *self != Self::Full
    }

    /// Whether a request may pass. `query` is what follows the question mark.
    pub fn allows(&self, method: &str, path: &str, query: Option<&str>, has_body: bool) -> bool {
        match self {
            Self::Full => true,
            Self::Read => matches!(method, "GET" | "HEAD") && !has_body,
            Self::GitRead => is_git_read(method, path, query),
            Self::Lines(lines) => {
                is_plain(path) && lines.iter().any(|line| line.matches(method, path))
            }
        }
    }
}

impl fmt::Display for Access {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Full => f.write_str("full"),
            Self::Read => f.write_str("read"),
            Self::GitRead => f.write_str("git-read"),
            Self::Lines(lines) => {
                for (index, line) in lines.iter().enumerate() {
                    let comma = if index == 0 { "" } else { ", " };
                    write!(f, "{comma}{line}")?;
                }
                Ok(())
            }
        }
    }
}

impl fmt::Display for Line {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ", self.method.as_deref().unwrap_or("*"))?;
        for segment in &self.path.segments {
            write!(f, "/{segment}")?;
        }
        f.write_str(if self.path.has_tail { "/**" } else { "" })
    }
}

impl Line {
    fn parse(text: &str) -> Result<Self, AccessError> {
        let wrong = || AccessError(text.to_owned());
        let (method, path) = text.split_once(' ').ok_or_else(wrong)?;
        let is_method = !method.is_empty() && method.bytes().all(|byte| byte.is_ascii_uppercase());
        if !is_method && method != "*" {
            return Err(wrong());
        }
        let path = path.trim();
        let mut segments: Vec<String> = path
            .strip_prefix('/')
            .ok_or_else(wrong)?
            .split('/')
            .map(str::to_owned)
            .collect();
        let has_tail = segments.pop_if(|last| last == "**").is_some();
        let is_legal = |segment: &String| segment == "*" || !segment.contains(['*', '?', '#']);
        if !is_plain(path) || !segments.iter().all(is_legal) {
            return Err(wrong());
        }
        Ok(Self {
            method: (method != "*").then(|| method.to_owned()),
            path: PathPattern { segments, has_tail },
        })
    }

    fn matches(&self, method: &str, path: &str) -> bool {
        self.method.as_deref().is_none_or(|own| own == method) && self.path.matches(path)
    }
}

impl PathPattern {
    fn matches(&self, path: &str) -> bool {
        let Some(path) = path.strip_prefix('/') else {
            return false;
        };
        let mut rest = path.split('/');
        let begins = self.segments.iter().all(|segment| {
            let found = rest.next();
            found.is_some_and(|found| segment == found || (segment == "*" && !found.is_empty()))
        });
        begins && self.has_tail == rest.next().is_some()
    }
}

/// A path that every server reads alike: no dot segments, no empty ones in the middle, no escapes
/// of dots, slashes or backslashes.
fn is_plain(path: &str) -> bool {
    let lower = path.to_ascii_lowercase();
    let has_escapes = ["%2e", "%2f", "%5c", "%00", "%25"]
        .iter()
        .any(|escape| lower.contains(escape));
    let has_dots = path.split('/').any(|segment| matches!(segment, "." | ".."));
    !has_escapes && !has_dots && !path.contains("//") && !path.contains(['\\', '\0'])
}

/// git's smart HTTP protocol, reading only.
fn is_git_read(method: &str, path: &str, query: Option<&str>) -> bool {
    is_plain(path)
        && match method {
            "GET" => path.ends_with("/info/refs") && query == Some("service=git-upload-pack"),
            "POST" => path.ends_with("/git-upload-pack"),
            _ => false,
        }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reading_is_get_and_head_without_a_body() {
        let read = Access::parse("read").unwrap();
        assert!(read.allows("GET", "/simple/x/", None, false));
        assert!(read.allows("HEAD", "/", Some("a=b"), false));
        assert!(!read.allows("GET", "/", None, true));
        for method in ["POST", "PUT", "DELETE", "TRACE", "get", "CONNECT"] {
            assert!(!read.allows(method, "/", None, false), "{method}");
        }
    }

    #[test]
    fn git_read_clones_and_never_pushes() {
        let git = Access::parse("git-read").unwrap();
        assert!(git.allows(
            "GET",
            "/a/b.git/info/refs",
            Some("service=git-upload-pack"),
            false
        ));
        assert!(git.allows("POST", "/a/b.git/git-upload-pack", None, true));
        assert!(!git.allows(
            "GET",
            "/a/b.git/info/refs",
            Some("service=git-receive-pack"),
            false
        ));
        assert!(!git.allows("GET", "/a/b.git/info/refs", None, false));
        assert!(!git.allows("POST", "/a/b.git/git-receive-pack", None, true));
        assert!(!git.allows("POST", "/x/../git-upload-pack", None, true));
    }

    #[test]
    fn lines_match_whole_segments_and_no_tricks() {
        let lines = ["GET /**", "POST /repos/acme/**", "PATCH /users/*/name"];
        let access = Access::parse_lines(lines).unwrap();
        for (method, path) in [
            ("GET", "/"),
            ("GET", "/anything/at/all"),
            ("POST", "/repos/acme/x/issues"),
            ("POST", "/repos/acme/"),
            ("PATCH", "/users/ann/name"),
        ] {
            assert!(access.allows(method, path, None, true), "{method} {path}");
        }
        for (method, path) in [
            ("POST", "/"),
            ("POST", "/repos/acme"),
            ("POST", "/repos/acmecorp/x"),
            ("POST", "/repos/acme/../other/x"),
            ("POST", "/repos/acme/%2e%2E/other"),
            ("POST", "/repos/acme/%252e%252e/other"),
            ("POST", "//repos/acme/x"),
            ("POST", "/repos/acme\\x/y"),
            ("PATCH", "/users//name"),
            ("PATCH", "/users/a/b/name"),
            ("DELETE", "/repos/acme/x"),
            ("POST", "repos/acme/x"),
            ("GET", "*"),
        ] {
            assert!(!access.allows(method, path, None, true), "{method} {path}");
        }
    }

    #[test]
    fn what_is_no_access_is_refused() {
        for text in [
            "",
            "write",
            "GET",
            "GET repos",
            "get /x",
            "GET /a**",
            "GET /**/a",
            "GET /a?b",
            "GET /../a",
        ] {
            assert!(Access::parse(text).is_err(), "{text}");
        }
        assert_eq!(
            Access::parse_lines(["GET /a/*", "* /**"])
                .unwrap()
                .to_string(),
            "GET /a/*, * /**"
        );
    }
}
