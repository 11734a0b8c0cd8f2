//! What is known about a download: its headers, its body's digest, and how long it is fresh.

use std::time::{Duration, SystemTime};

use http::{HeaderMap, HeaderName, HeaderValue, StatusCode, header};

use super::key::{Hash, Key};

/// How long an answer is fresh that does not say so itself, and the longest that it may say.
const FRESH_DEFAULT: Duration = Duration::from_mins(1);
const FRESH_MAX: Duration = Duration::from_hours(24);

/// Bytes of headers that are kept.
const HEADER_BYTES_MAX: usize = 8 * 1024;

/// The first line of an entry's file.
const FORMAT: &str = "hotcell cache 1";

/// Headers that are kept. All others concern one answer only, or one connection.
const KEPT: [HeaderName; 8] = [
    header::CONTENT_TYPE,
    header::CONTENT_ENCODING,
    header::CONTENT_DISPOSITION,
    header::CACHE_CONTROL,
    header::ETAG,
    header::LAST_MODIFIED,
    header::LINK,
    header::VARY,
];

/// One download.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Entry {
    pub(crate) host: String,
    pub(crate) body: Hash,
    pub(crate) bytes: u64,
    /// `None`: for ever.
    pub(crate) fresh_until: Option<SystemTime>,
    pub(crate) headers: HeaderMap,
}

/// The headers of an answer that may be kept, and until when it is fresh.
#[derive(Clone, Debug)]
pub(crate) struct Head {
    pub(crate) headers: HeaderMap,
    pub(crate) fresh_until: Option<SystemTime>,
    /// If the host says it.
    pub(crate) bytes: Option<u64>,
}

impl Head {
    /// `None` if the answer must not be kept.
    pub(crate) fn of(
        key: &Key,
        status: StatusCode,
        headers: &HeaderMap,
        now: SystemTime,
    ) -> Option<Self> {
        let control = Control::of(headers);
        let is_whole = status == StatusCode::OK && !headers.contains_key(header::CONTENT_RANGE);
        // Without either, an answer that was cut off looks like a whole one.
        let is_framed = headers.contains_key(header::CONTENT_LENGTH)
            || headers.contains_key(header::TRANSFER_ENCODING);
        let varies = headers.get_all(header::VARY).iter();
        let varies_always = varies
            .into_iter()
            .any(|value| value.as_bytes().contains(&b'*'));
        let is_personal = headers.contains_key(header::SET_COOKIE) || control.is_private;
        if !is_whole || !is_framed || varies_always || is_personal {
            return None;
        }
        let kept = kept(headers);
        let bytes = kept
            .iter()
            .map(|(name, value)| name.as_str().len() + value.len());
        if bytes.sum::<usize>() > HEADER_BYTES_MAX {
            return None;
        }
        let length = headers.get(header::CONTENT_LENGTH);
        Some(Self {
            headers: kept,
            fresh_until: control.fresh_until(key, now),
            bytes: length.and_then(|length| length.to_str().ok()?.parse().ok()),
        })
    }
}

/// Until when the answer to a question whether something has changed makes it fresh.
pub(crate) fn fresh_until(key: &Key, headers: &HeaderMap, now: SystemTime) -> Option<SystemTime> {
    Control::of(headers).fresh_until(key, now)
}

fn kept(headers: &HeaderMap) -> HeaderMap {
    let own = |name: &HeaderName| headers.get(name).map(|value| (name.clone(), value.clone()));
    KEPT.iter().filter_map(own).collect()
}

/// What `Cache-Control` says.
#[derive(Debug, Default)]
struct Control {
    is_private: bool,
    is_immutable: bool,
    max_age: Option<Duration>,
}

impl Control {
    fn of(headers: &HeaderMap) -> Self {
        let mut control = Self::default();
        let values = headers.get_all(header::CACHE_CONTROL).iter();
        let texts = values.filter_map(|value| value.to_str().ok());
        for directive in texts.flat_map(|text| text.split(',')) {
            let directive = directive.trim().to_ascii_lowercase();
            match directive.split_once('=') {
                Some(("max-age", seconds)) => {
                    let seconds = seconds.trim_matches('"').parse().unwrap_or(0);
                    control.max_age = Some(Duration::from_secs(seconds).min(FRESH_MAX));
                }
                None if directive == "no-cache" => control.max_age = Some(Duration::ZERO),
                None if directive == "immutable" => control.is_immutable = true,
                None if matches!(directive.as_str(), "no-store" | "private") => {
                    control.is_private = true;
                }
                _ => {}
            }
        }
        control
    }

    fn fresh_until(&self, key: &Key, now: SystemTime) -> Option<SystemTime> {
        let is_safe = key.scheme == crate::http::Scheme::Https;
        let is_immutable = key.is_immutable() || (is_safe && self.is_immutable);
        (!is_immutable).then(|| now + self.max_age.unwrap_or(FRESH_DEFAULT))
    }
}

impl Entry {
    pub(crate) fn is_fresh(&self, now: SystemTime) -> bool {
        self.fresh_until.is_none_or(|end| now < end)
    }

    /// The headers with which a host is asked whether it has changed.
    pub(crate) fn validators(&self) -> HeaderMap {
        let pairs = [
            (header::ETAG, header::IF_NONE_MATCH),
            (header::LAST_MODIFIED, header::IF_MODIFIED_SINCE),
        ];
        let known = |(own, asked): (HeaderName, HeaderName)| {
            self.headers.get(own).map(|value| (asked, value.clone()))
        };
        pairs.into_iter().filter_map(known).collect()
    }

    /// The text of its file.
    pub(crate) fn write(&self) -> String {
        let until = self.fresh_until.map_or(0, |until| {
            let since = until.duration_since(SystemTime::UNIX_EPOCH);
            since.unwrap_or_default().as_secs()
        });
        let (host, body, bytes) = (&self.host, hex(&self.body), self.bytes);
        let mut text = format!("{FORMAT}\n{host}\n{body}\n{bytes}\n{until}\n");
        for (name, value) in &self.headers {
            if let Ok(value) = value.to_str() {
                text.extend([name.as_str(), ": ", value, "\n"]);
            }
        }
        text
    }

    /// Reads such a text; `None` if it is none.
    pub(crate) fn read(text: &str) -> Option<Self> {
        let mut lines = text.lines();
        if lines.next()? != FORMAT {
            return None;
        }
        let host = lines.next()?.to_owned();
        let body = unhex(lines.next()?)?;
        let bytes = lines.next()?.parse().ok()?;
        let until: u64 = lines.next()?.parse().ok()?;
        let header = |line: &str| {
            let (name, value) = line.split_once(": ")?;
            let value = HeaderValue::from_str(value).ok()?;
            Some((name.parse::<HeaderName>().ok()?, value))
        };
        Some(Self {
            host,
            body,
            bytes,
            fresh_until: (until > 0)
                .then(|| SystemTime::UNIX_EPOCH.checked_add(Duration::from_secs(until)))
                .flatten(),
            headers: lines.map(header).collect::<Option<_>>()?,
        })
    }
}

pub(crate) fn hex(hash: &Hash) -> String {
    use std::fmt::Write as _;
    hash.iter().fold(String::new(), |mut text, byte| {
        // Writing to a string cannot fail.
        let _ = write!(text, "{byte:02x}");
        text
    })
}

pub(crate) fn unhex(text: &str) -> Option<Hash> {
    let mut hash = Hash::default();
    if text.len() != 2 * hash.len() || !text.is_ascii() {
        return None;
    }
    for (index, byte) in hash.iter_mut().enumerate() {
        *byte = u8::from_str_radix(&text[2 * index..2 * index + 2], 16).ok()?;
    }
    Some(hash)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::HostName;
    use crate::cache::key::Accept;
    use crate::http::Scheme;

    fn key(scheme: Scheme, path: &str) -> Key {
        Key {
            scheme,
            host: HostName::parse("example.com").unwrap(),
            port: 443,
            path: path.to_owned(),
            accept: Accept::Any,
            is_gzip: false,
        }
    }

    fn headers(pairs: &[(&str, &str)]) -> HeaderMap {
        let pair = |(name, value): &(&str, &str)| {
            let name: HeaderName = name.parse().unwrap();
            (name, value.parse::<HeaderValue>().unwrap())
        };
        pairs.iter().map(pair).collect()
    }

    #[test]
    fn only_whole_answers_for_everybody_are_kept() {
        let now = SystemTime::now();
        let head = |status: u16, more: &[(&str, &str)]| {
            let mut all = headers(&[("content-length", "3")]);
            all.extend(headers(more));
            let status = StatusCode::from_u16(status).unwrap();
            Head::of(&key(Scheme::Https, "/x"), status, &all, now)
        };
        assert!(head(200, &[]).is_some());
        assert!(head(200, &[("vary", "accept")]).is_some());
        for (status, more) in [
            (206, &[][..]),
            (404, &[]),
            (302, &[]),
            (200, &[("set-cookie", "a=b")]),
            (200, &[("vary", "*")]),
            (200, &[("cache-control", "max-age=5, private")]),
            (200, &[("cache-control", "no-store")]),
            (200, &[("content-range", "bytes 0-2/9")]),
        ] {
            assert!(head(status, more).is_none(), "{status} {more:?}");
        }
        let unframed = Head::of(
            &key(Scheme::Https, "/x"),
            StatusCode::OK,
            &headers(&[]),
            now,
        );
        assert!(unframed.is_none());
    }

    #[test]
    fn freshness_follows_the_host_and_nothing_is_for_ever_without_tls() {
        let now = SystemTime::now();
        let fresh = |scheme, path: &str, control: &str| {
            let until = fresh_until(
                &key(scheme, path),
                &headers(&[("cache-control", control)]),
                now,
            );
            until.map(|until| until.duration_since(now).unwrap().as_secs())
        };
        assert_eq!(fresh(Scheme::Https, "/simple/x/", "public"), Some(60));
        assert_eq!(fresh(Scheme::Https, "/simple/x/", "max-age=600"), Some(600));
        assert_eq!(fresh(Scheme::Https, "/simple/x/", "no-cache"), Some(0));
        assert_eq!(fresh(Scheme::Https, "/x/-/x-1.tgz", "max-age=1"), None);
        assert_eq!(fresh(Scheme::Https, "/y", "immutable"), None);
        assert_eq!(fresh(Scheme::Http, "/x/-/x-1.tgz", "immutable"), Some(60));
        assert_eq!(
            fresh(Scheme::Https, "/y", "max-age=99999999999"),
            Some(86400)
        );
    }

    #[test]
    fn an_entry_reads_what_it_wrote_and_nothing_else() {
        let entry = Entry {
            host: "example.com".to_owned(),
            body: [7; 32],
            bytes: 42,
            fresh_until: Some(SystemTime::UNIX_EPOCH + Duration::from_secs(1_000)),
            headers: headers(&[("etag", "\"x\""), ("content-type", "text/plain")]),
        };
        assert_eq!(Entry::read(&entry.write()), Some(entry.clone()));
        for text in ["", "other\n", "hotcell cache 1\nexample.com\nxx\n1\n0\n"] {
            assert_eq!(Entry::read(text), None);
        }
        let cut = entry.write();
        assert_eq!(Entry::read(&cut[..cut.len() / 3]), None);
    }
}
