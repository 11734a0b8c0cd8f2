//! The properties that a warm interpreter and an exec must share: everything that Python reads when
//! it starts.

use std::ffi::CString;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use crate::exec::Start;

/// World-writable directories.
const SHARED_DIRECTORIES: [&str; 3] = ["/tmp", "/var/tmp", "/dev/shm"];

/// Variables that libc and Python read when they start.
const READ_AT_START: [&[u8]; 4] = [b"LANG", b"LC_", b"PYTHON", b"MALLOC_"];

/// Python reads it at its start to find out which file it is, and for nothing else: where two values
/// lead to the same file, they may differ.
const SEARCH_PATH: &[u8] = b"PATH";

/// Variables of Python that can also be set in a zygote.
const HARMLESS: [&[u8]; 3] = [
    b"PYTHONUNBUFFERED",
    b"PYTHONDONTWRITEBYTECODE",
    b"PYTHONUTF8",
];

/// Variables that may differ from the zygote's: a spare applies `PYTHONPATH` when it gets its
/// script, and Python does not read the others, with which images describe their contents.
const NOT_OF_ZYGOTE: [&[u8]; 7] = [
    b"PYTHONPATH",
    b"PYTHON_VERSION",
    b"PYTHON_SHA256",
    b"PYTHON_PIP_VERSION",
    b"PYTHON_SETUPTOOLS_VERSION",
    b"PYTHON_GET_PIP_URL",
    b"PYTHON_GET_PIP_SHA256",
];

/// Variables that name files to load: a zygote must not load files that a script wrote. Numeric
/// libraries read theirs only once, when they are loaded.
const UNSAFE: [&[u8]; 12] = [
    b"LD_",
    b"GLIBC_TUNABLES",
    b"GCONV_PATH",
    b"LOCPATH",
    b"NLSPATH",
    b"OPENSSL_",
    b"OPENBLAS_",
    b"OMP_",
    b"MKL_",
    b"BLIS_",
    b"GOTO_",
    b"NPY_",
];

/// Equal for execs that the same zygote can serve.
#[derive(Debug, Clone)]
pub(super) struct Key {
    /// `argv[0]`.
    pub(super) program: CString,
    /// The file to execute.
    pub(super) path: CString,
    /// Variables that Python reads when it starts, sorted.
    pub(super) env: Vec<CString>,
    /// The variable by which the file was found. Execs with another one find the same file.
    pub(super) search_path: Option<CString>,
}

impl PartialEq for Key {
    fn eq(&self, other: &Self) -> bool {
        (&self.program, &self.path, &self.env) == (&other.program, &other.path, &other.env)
    }
}

impl Key {
    /// `None` if only the plain interpreter can run this exec: it has another user, a terminal, an
    /// option instead of a script, an unsupported variable, or a program that an exec may have
    /// written.
    pub(super) fn of(start: &Start, root: &str) -> Option<Self> {
        let script = start.argv.get(1)?.as_bytes();
        if start.user.is_some() || start.tty.is_some() || script.starts_with(b"-") {
            return None;
        }
        let path = start.candidates.iter().find(|path| exists(path))?.clone();
        if !is_trustworthy(&path, root) {
            return None;
        }
        let (mut env, mut search_path) = (Vec::new(), None);
        for variable in &start.env {
            let name = variable.as_bytes().split(|byte| *byte == b'=').next()?;
            if name == SEARCH_PATH {
                search_path = Some(variable.clone());
                continue;
            }
            match Effect::of(name) {
                Effect::None => {}
                Effect::Harmless => env.push(variable.clone()),
                Effect::Unsafe => return None,
            }
        }
        env.sort_unstable();
        let program = start.argv.first()?.clone();
        Some(Self {
            program,
            path,
            env,
            search_path,
        })
    }
}

/// The effect of a variable on the start of Python.
#[derive(Debug, PartialEq, Eq)]
enum Effect {
    None,
    /// Allowed, but its value must be the same in the zygote.
    Harmless,
    Unsafe,
}

impl Effect {
    fn of(name: &[u8]) -> Self {
        let begins = |list: &[&[u8]]| list.iter().any(|prefix| name.starts_with(prefix));
        if begins(&UNSAFE) {
            return Self::Unsafe;
        }
        if NOT_OF_ZYGOTE.contains(&name) || !begins(&READ_AT_START) {
            return Self::None;
        }
        if name.starts_with(b"PYTHON") && !HARMLESS.contains(&name) {
            return Self::Unsafe;
        }
        Self::Harmless
    }
}

fn exists(path: &CString) -> bool {
    std::fs::metadata(as_path(path)).is_ok_and(|file| file.is_file() && file.mode() & 0o111 != 0)
}

/// Whether no exec can have written this program: it is outside of the directories that execs can
/// write to, and does not belong to their user, unless that is root.
fn is_trustworthy(path: &CString, root: &str) -> bool {
    let Ok(found) = std::fs::canonicalize(as_path(path)) else {
        return false;
    };
    let own = rustix::process::geteuid();
    let is_own = std::fs::metadata(&found).is_ok_and(|file| file.uid() == own.as_raw());
    let is_inside = |directory: &str| found.starts_with(directory);
    path.as_bytes().starts_with(b"/")
        && !is_inside(root)
        && !SHARED_DIRECTORIES.into_iter().any(is_inside)
        && (own.is_root() || !is_own)
}

fn as_path(path: &CString) -> &Path {
    Path::new(std::ffi::OsStr::from_bytes(path.as_bytes()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_variable_that_python_reads_must_be_the_same_or_forbids_it() {
        for name in [
            "HOME",
            "TZ",
            "LANGUAGES_I_LIKE",
            "PYTHON_VERSION",
            "PYTHONPATH",
            "FOO",
        ] {
            let expected = match name {
                "LANGUAGES_I_LIKE" => Effect::Harmless,
                _ => Effect::None,
            };
            assert_eq!(Effect::of(name.as_bytes()), expected, "{name}");
        }
        for name in ["LANG", "LC_ALL", "PYTHONUNBUFFERED", "MALLOC_ARENA_MAX"] {
            assert_eq!(Effect::of(name.as_bytes()), Effect::Harmless, "{name}");
        }
        for name in [
            "PYTHONHOME",
            "PYTHONHASHSEED",
            "LD_PRELOAD",
            "OPENBLAS_NUM_THREADS",
        ] {
            assert_eq!(Effect::of(name.as_bytes()), Effect::Unsafe, "{name}");
        }
    }
}
