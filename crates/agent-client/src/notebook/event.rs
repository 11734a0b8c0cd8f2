//! Events of a notebook's kernel, validated and bounded.

use serde::Deserialize;

use super::NotebookError;

/// Most characters of one text of a value. A kernel truncates its texts to fewer.
const TEXT_CHARS_MAX: usize = 21_000;

/// Most values that a cell can display.
const DISPLAYED_MAX: usize = 16;

/// The longest name of a file that contains a value.
const PATH_BYTES_MAX: usize = 160;

/// The longest version.
const VERSION_BYTES_MAX: usize = 32;

/// An event from a kernel.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum NotebookEvent {
    /// The first event on each channel.
    Hello(NotebookHello),
    /// A request has ended.
    End(CellEnd),
    /// The interpreter has ended, and its state is lost.
    Died(NotebookDeath),
}

/// The state of a kernel after connecting.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NotebookHello {
    /// The last request that it has begun; 0: none.
    pub last_id: u64,
    /// Whether that request still runs.
    pub is_busy: bool,
    /// The version of Python.
    pub python: String,
}

/// How a request ended.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct CellEnd {
    /// The number of the request.
    pub id: u64,
    /// The exit code that a program with this result would have.
    pub exit_code: u8,
    /// The value of the last expression.
    pub result: Option<CellValue>,
    /// The values that it displayed besides.
    pub displayed: Vec<CellValue>,
    /// Number of displayed values that were left out.
    pub left_out: u64,
    /// CPU time in user space.
    pub user_us: u64,
    /// CPU time in the kernel.
    pub system_us: u64,
    /// The largest resident size so far.
    pub max_rss_bytes: u64,
}

/// A value of a cell.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CellValue {
    /// The text that Python prints; a data frame as a table.
    pub text: String,
    /// The richest form of the value, if it has one.
    pub form: Option<CellForm>,
}

/// A rich form of a value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CellForm {
    /// Saved to a file below the root.
    File {
        /// One of a fixed list.
        mime_type: &'static str,
        /// `artifacts/NAME`.
        path: String,
    },
    /// Inline text.
    Text {
        /// One of a fixed list.
        mime_type: &'static str,
        /// The whole text.
        data: String,
    },
}

/// How an interpreter ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NotebookDeath {
    /// The request during which it ended; 0: none.
    pub id: u64,
    /// The exit code of its process.
    pub code: Option<u8>,
    /// The signal that killed it.
    pub signal: Option<u8>,
}

const MIME_TYPES: [&str; 6] = [
    "image/png",
    "image/jpeg",
    "image/svg+xml",
    "text/html",
    "text/markdown",
    "application/json",
];

#[derive(Deserialize)]
#[serde(tag = "event", rename_all = "lowercase")]
enum Wire {
    Hello {
        last_id: u64,
        busy: bool,
        python: String,
    },
    End(WireEnd),
    Died {
        id: u64,
        code: Option<u8>,
        signal: Option<u8>,
    },
}

#[derive(Deserialize)]
struct WireEnd {
    id: u64,
    #[serde(default)]
    code: u8,
    result: Option<WireValue>,
    #[serde(default)]
    displayed: Vec<WireValue>,
    #[serde(default)]
    left_out: u64,
    #[serde(default)]
    user_us: u64,
    #[serde(default)]
    system_us: u64,
    #[serde(default)]
    max_rss_bytes: u64,
}

#[derive(Deserialize)]
struct WireValue {
    text: String,
    mime_type: Option<String>,
    data: Option<String>,
    path: Option<String>,
}

impl NotebookEvent {
    pub(super) fn parse(json: &[u8]) -> Result<Self, NotebookError> {
        let wire = serde_json::from_slice(json);
        match wire.map_err(|_| NotebookError::Protocol("an event is not one"))? {
            Wire::Hello {
                last_id,
                busy,
                python,
            } => {
                let is_version = |byte: u8| byte.is_ascii_digit() || byte == b'.';
                if python.len() > VERSION_BYTES_MAX || !python.bytes().all(is_version) {
                    return Err(NotebookError::Protocol("its version is none"));
                }
                Ok(Self::Hello(NotebookHello {
                    last_id,
                    is_busy: busy,
                    python,
                }))
            }
            Wire::End(end) => CellEnd::parse(end).map(Self::End),
            Wire::Died { id, code, signal } => Ok(Self::Died(NotebookDeath { id, code, signal })),
        }
    }
}

impl CellEnd {
    fn parse(end: WireEnd) -> Result<Self, NotebookError> {
        if end.displayed.len() > DISPLAYED_MAX {
            return Err(NotebookError::Protocol("it displays too much"));
        }
        let displayed = end.displayed.into_iter().map(CellValue::parse);
        Ok(Self {
            id: end.id,
            exit_code: end.code,
            result: end.result.map(CellValue::parse).transpose()?,
            displayed: displayed.collect::<Result<_, _>>()?,
            left_out: end.left_out,
            user_us: end.user_us,
            system_us: end.system_us,
            max_rss_bytes: end.max_rss_bytes,
        })
    }
}

impl CellValue {
    fn parse(value: WireValue) -> Result<Self, NotebookError> {
        check_text(&value.text)?;
        let Some(mime_type) = value.mime_type else {
            return Ok(Self {
                text: value.text,
                form: None,
            });
        };
        let known = MIME_TYPES.into_iter().find(|known| *known == mime_type);
        let mime_type = known.ok_or(NotebookError::Protocol("a value has a strange type"))?;
        let form = match (value.path, value.data) {
            (Some(path), None) if is_artifact(&path) => CellForm::File { mime_type, path },
            (None, Some(data)) => {
                check_text(&data)?;
                CellForm::Text { mime_type, data }
            }
            _ => return Err(NotebookError::Protocol("a value has no form")),
        };
        Ok(Self {
            text: value.text,
            form: Some(form),
        })
    }
}

fn check_text(text: &str) -> Result<(), NotebookError> {
    match text.chars().nth(TEXT_CHARS_MAX) {
        None => Ok(()),
        Some(_) => Err(NotebookError::Protocol("a text is too long")),
    }
}

fn is_artifact(path: &str) -> bool {
    let is_legal = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
    path.len() <= PATH_BYTES_MAX
        && path
            .strip_prefix("artifacts/")
            .is_some_and(|name| name.bytes().all(is_legal) && !name.starts_with('.'))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(json: &str) -> Option<NotebookEvent> {
        NotebookEvent::parse(json.as_bytes()).ok()
    }

    #[test]
    fn what_a_kernel_says_is_understood() {
        let hello = parse(r#"{"event":"hello","last_id":3,"busy":false,"python":"3.11.2"}"#);
        assert!(matches!(hello, Some(NotebookEvent::Hello(hello)) if hello.last_id == 3));
        let end = parse(
            r#"{"event":"end","id":1,"code":0,"result":{"text":"V()","mime_type":"image/png","path":"artifacts/f-01.png"},"displayed":[{"text":"1"}],"left_out":0,"user_us":1,"system_us":2,"max_rss_bytes":3}"#,
        );
        let Some(NotebookEvent::End(end)) = end else {
            panic!("{end:?}");
        };
        let form = CellForm::File {
            mime_type: "image/png",
            path: "artifacts/f-01.png".to_owned(),
        };
        assert_eq!(end.result.unwrap().form, Some(form));
        assert_eq!(end.displayed.len(), 1);
        let died = parse(r#"{"event":"died","id":0,"signal":9}"#);
        assert!(matches!(died, Some(NotebookEvent::Died(death)) if death.signal == Some(9)));
    }

    #[test]
    fn what_no_kernel_says_is_refused() {
        let long = "x".repeat(TEXT_CHARS_MAX + 1);
        let many = vec![r#"{"text":""}"#; DISPLAYED_MAX + 1].join(",");
        let deep = "[".repeat(100_000);
        for json in [
            "",
            "[]",
            "{}",
            r#"{"event":"other"}"#,
            r#"{"event":"end","id":-1}"#,
            r#"{"event":"end","id":1,"code":256}"#,
            r#"{"event":"hello","last_id":0,"busy":false,"python":"\u001b[2J"}"#,
            r#"{"event":"end","id":1,"result":{"text":"","mime_type":"text/x","data":""}}"#,
            r#"{"event":"end","id":1,"result":{"text":"","mime_type":"text/html"}}"#,
            r#"{"event":"end","id":1,"result":{"text":"","mime_type":"image/png","path":"artifacts/../x"}}"#,
            r#"{"event":"end","id":1,"result":{"text":"","mime_type":"image/png","path":"/etc/passwd"}}"#,
            &format!(r#"{{"event":"end","id":1,"result":{{"text":"{long}"}}}}"#),
            &format!(r#"{{"event":"end","id":1,"displayed":[{many}]}}"#),
            &format!(r#"{{"event":"end","id":1,"result":{deep}"#),
        ] {
            assert!(parse(json).is_none(), "{json:.80}");
        }
    }
}
