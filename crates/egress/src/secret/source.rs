//! Where the value of a secret comes from, and when it is read again.

use std::io::{self, Read as _};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::str::FromStr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use tokio::io::AsyncReadExt as _;
use tokio::time::timeout;
use zeroize::Zeroizing;

use super::value::{self, Value};

/// How long a command may take.
const COMMAND_TIMEOUT: Duration = Duration::from_secs(10);
/// How long what a command printed is used, so that not every request starts a process.
const COMMAND_VALUE_TIME: Duration = Duration::from_mins(1);
/// More than the longest value and its end of line, to see that it is too long.
const READ_BYTES_MAX: u64 = value::VALUE_BYTES_MAX as u64 + 16;

/// Where the value of a secret is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SecretSource {
    /// A variable of the server.
    Env(String),
    /// A file of the host, read again when it changes.
    File(PathBuf),
    /// What a program prints, started without a shell.
    Command(Vec<String>),
}

/// Not a place for a secret.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{0}`: a secret is from \"env:NAME\", \"file:/PATH\" or \"command:PROGRAM ARGUMENT…\"")]
pub struct SecretSourceError(String);

/// Why there is no value. No message has any part of it.
#[derive(Debug, thiserror::Error)]
pub enum SecretError {
    /// The server does not have the variable.
    #[error("the server has no variable {0}")]
    Variable(String),
    /// The file could not be read.
    #[error("could not read {path}")]
    File {
        /// The file.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// The program could not be started.
    #[error("could not run {program}")]
    Command {
        /// Its name.
        program: String,
        /// Why.
        source: io::Error,
    },
    /// The program failed.
    #[error("{program} failed ({status})")]
    Failed {
        /// Its name.
        program: String,
        /// How it ended.
        status: std::process::ExitStatus,
    },
    /// The program did not end.
    #[error("{0} took longer than 10 seconds")]
    Timeout(String),
    /// Nothing was read.
    #[error("the value is empty")]
    Empty,
    /// Too short to be found in responses, or too long for a header.
    #[error("the value of a secret has 8 to 4096 characters")]
    Length,
    /// It could not be sent.
    #[error("the value of a secret is one line of printable ASCII characters")]
    Characters,
}

impl FromStr for SecretSource {
    type Err = SecretSourceError;

    fn from_str(text: &str) -> Result<Self, SecretSourceError> {
        let wrong = || SecretSourceError(text.to_owned());
        let (kind, rest) = text.split_once(':').ok_or_else(wrong)?;
        let source = match kind {
            "env" => Self::Env(rest.to_owned()),
            "file" => Self::File(rest.into()),
            "command" => Self::Command(rest.split_whitespace().map(str::to_owned).collect()),
            _ => return Err(wrong()),
        };
        source.is_legal().then_some(source).ok_or_else(wrong)
    }
}

impl SecretSource {
    fn is_legal(&self) -> bool {
        match self {
            Self::Env(name) => !name.is_empty() && !name.contains(['=', '\0']),
            Self::File(path) => path.is_absolute(),
            Self::Command(words) => !words.is_empty(),
        }
    }
}

/// Reads a value, and keeps it while it is known to be the same.
#[derive(Debug)]
pub(super) struct Reader {
    source: SecretSource,
    kept: Mutex<Option<Kept>>,
}

#[derive(Clone, Debug)]
struct Kept {
    value: Arc<Value>,
    stamp: Stamp,
}

/// While this is the same, so is the value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stamp {
    File {
        inode: u64,
        bytes: u64,
        changed: (i64, i64),
    },
    Until(Instant),
}

impl Reader {
    pub(super) fn new(source: SecretSource) -> Self {
        Self {
            source,
            kept: Mutex::default(),
        }
    }

    /// The value as it is now.
    pub(super) async fn read(&self) -> Result<Arc<Value>, SecretError> {
        match &self.source {
            SecretSource::Env(name) => read_variable(name).map(Arc::new),
            SecretSource::File(path) => self.read_file(path),
            SecretSource::Command(words) => self.read_command(words).await,
        }
    }

    /// A stat and at most four kilobytes: shorter than the hop to another thread.
    fn read_file(&self, path: &Path) -> Result<Arc<Value>, SecretError> {
        let failed = |source| SecretError::File {
            path: path.to_owned(),
            source,
        };
        let found = std::fs::metadata(path).map_err(failed)?;
        if !found.is_file() {
            return Err(failed(io::Error::other("not a regular file")));
        }
        let stamp = Stamp::File {
            inode: found.ino(),
            bytes: found.size(),
            changed: (found.ctime(), found.ctime_nsec()),
        };
        if let Some(kept) = self.kept().filter(|kept| kept.stamp == stamp) {
            return Ok(kept.value);
        }
        let mut read = Zeroizing::new(Vec::with_capacity(value::VALUE_BYTES_MAX + 16));
        let file = std::fs::File::open(path).map_err(failed)?;
        file.take(READ_BYTES_MAX)
            .read_to_end(&mut read)
            .map_err(failed)?;
        Ok(self.keep(Value::parse(&read)?, stamp))
    }

    async fn read_command(&self, words: &[String]) -> Result<Arc<Value>, SecretError> {
        let is_fresh =
            |kept: &Kept| matches!(kept.stamp, Stamp::Until(end) if Instant::now() < end);
        if let Some(kept) = self.kept().filter(is_fresh) {
            return Ok(kept.value);
        }
        let program = words.first().map_or("", String::as_str);
        let running = timeout(COMMAND_TIMEOUT, run(program, &words[1..]));
        let read = running
            .await
            .map_err(|_| SecretError::Timeout(program.to_owned()))??;
        let stamp = Stamp::Until(Instant::now() + COMMAND_VALUE_TIME);
        Ok(self.keep(Value::parse(&read)?, stamp))
    }

    fn kept(&self) -> Option<Kept> {
        let kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        kept.clone()
    }

    fn keep(&self, value: Value, stamp: Stamp) -> Arc<Value> {
        let value = Arc::new(value);
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        *kept = Some(Kept {
            value: Arc::clone(&value),
            stamp,
        });
        value
    }
}

fn read_variable(name: &str) -> Result<Value, SecretError> {
    use std::os::unix::ffi::OsStringExt as _;
    let found = std::env::var_os(name).ok_or_else(|| SecretError::Variable(name.to_owned()))?;
    Value::parse(&Zeroizing::new(found.into_vec()))
}

/// What a program prints. Its error output is dropped: it could repeat the value.
async fn run(program: &str, arguments: &[String]) -> Result<Zeroizing<Vec<u8>>, SecretError> {
    let failed = |source| SecretError::Command {
        program: program.to_owned(),
        source,
    };
    let mut child = tokio::process::Command::new(program)
        .args(arguments)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .kill_on_drop(true)
        .spawn()
        .map_err(failed)?;
    let mut read = Zeroizing::new(Vec::with_capacity(value::VALUE_BYTES_MAX + 16));
    if let Some(output) = child.stdout.take() {
        let mut output = output.take(READ_BYTES_MAX);
        output.read_to_end(&mut read).await.map_err(failed)?;
    }
    let status = child.wait().await.map_err(failed)?;
    if !status.success() {
        return Err(SecretError::Failed {
            program: program.to_owned(),
            status,
        });
    }
    Ok(read)
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn read(source: &str) -> Result<String, String> {
        let reader = Reader::new(source.parse().unwrap());
        text(reader.read().await)
    }

    fn text(read: Result<Arc<Value>, SecretError>) -> Result<String, String> {
        let text = |value: Arc<Value>| String::from_utf8(value.as_bytes().to_vec()).unwrap();
        read.map(text).map_err(|error| error.to_string())
    }

    #[test]
    fn sources_are_a_variable_a_file_or_a_command() {
        for text in ["env:A", "file:/a b", "command:pass show a"] {
            assert!(text.parse::<SecretSource>().is_ok(), "{text}");
        }
        for text in [
            "",
            "env:",
            "env:A=B",
            "file:a",
            "file:",
            "command: ",
            "A",
            "http:x",
        ] {
            assert!(text.parse::<SecretSource>().is_err(), "{text}");
        }
    }

    #[tokio::test]
    async fn a_file_is_read_again_when_it_changes() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("token");
        let reader = Reader::new(SecretSource::File(path.clone()));
        let missing = reader.read().await.unwrap_err().to_string();
        assert!(missing.starts_with("could not read "), "{missing}");
        std::fs::write(&path, "the-first-one\n").unwrap();
        assert_eq!(text(reader.read().await).unwrap(), "the-first-one");
        // Replaced as editors and secret managers do it: another file of the same length.
        std::fs::write(directory.path().join("new"), "the-other-one\n").unwrap();
        std::fs::rename(directory.path().join("new"), &path).unwrap();
        assert_eq!(text(reader.read().await).unwrap(), "the-other-one");
        assert!(!format!("{reader:?}").contains("other"));
    }

    #[tokio::test]
    async fn a_command_prints_the_value_and_errors_do_not_repeat_it() {
        assert_eq!(
            read("command:echo a-secret-value").await.unwrap(),
            "a-secret-value"
        );
        let failed = read("command:sh -c exit${IFS}3").await.unwrap_err();
        assert_eq!(failed, "sh failed (exit status: 3)");
        let missing = read("command:/nonexistent/program a-secret-value").await;
        assert_eq!(missing.unwrap_err(), "could not run /nonexistent/program");
        let unset = read("env:HOTCELL_TEST_IS_NOT_SET").await.unwrap_err();
        assert_eq!(unset, "the server has no variable HOTCELL_TEST_IS_NOT_SET");
    }
}
