//! Environment variables of a container and of an exec.

use std::collections::BTreeMap;

/// How many variables a caller may set.
const VARIABLES_MAX: usize = 1024;

/// The largest value.
const VALUE_BYTES_MAX: usize = 128 << 10;

/// Variables of an image; an image with more is refused.
pub const IMAGE_VARIABLES_MAX: usize = 1024;

/// Their total size, including `=` and NUL.
pub const IMAGE_ENV_BYTES_MAX: usize = 32 << 10;

/// Variables that engines set themselves, each differently; execs do not inherit them.
const OF_ENGINES: [&str; 4] = ["HOME", "HOSTNAME", "TERM", "container"];

/// The default `PATH` in a container.
const PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

/// Valid environment variables.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Env(BTreeMap<String, String>);

/// Why a variable is invalid.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum EnvError {
    /// The name cannot be written as `NAME=value`.
    #[error("`{0}` is not a variable's name: letters, digits and `_`, not starting with a digit")]
    Name(String),
    /// The value has a NUL or is too large.
    #[error("the value of {0} has a NUL byte or more than {VALUE_BYTES_MAX} bytes")]
    Value(String),
    /// Too many.
    #[error("more than {VARIABLES_MAX} variables")]
    TooMany,
}

impl Env {
    /// The environment of every command in a container: a UTF-8 locale and `PATH` unless the image
    /// sets them, the image's other variables, `HOME`, and `TERM` for a terminal.
    ///
    /// Invalid variables of the image are dropped: the caller cannot fix the image.
    pub fn of_container<'a>(
        home: &str,
        term: Option<&str>,
        image: impl IntoIterator<Item = (&'a [u8], &'a [u8])>,
    ) -> Self {
        let mut env = Self::default();
        let mut set = |name: &str, value: &str| {
            let _ = env.set(name, value);
        };
        set("LANG", "C.UTF-8");
        set("PATH", PATH);
        for (name, value) in image {
            match (str::from_utf8(name), str::from_utf8(value)) {
                (Ok(name), Ok(value)) if !OF_ENGINES.contains(&name) => set(name, value),
                (_, _) => {}
            }
        }
        set("HOME", home);
        if let Some(term) = term {
            set("TERM", term);
        }
        env
    }

    /// Sets all variables of `other`, replacing earlier values.
    pub fn extend(&mut self, other: &Self) {
        let other = other.0.iter();
        self.0
            .extend(other.map(|(name, value)| (name.clone(), value.clone())));
    }

    /// Sets a variable, replacing an earlier value.
    pub fn set(&mut self, name: &str, value: &str) -> Result<(), EnvError> {
        let head = |c: char| c.is_ascii_alphabetic() || c == '_';
        let legal = name.starts_with(head)
            && name.chars().all(|c| head(c) || c.is_ascii_digit())
            && name.len() <= 256;
        if !legal {
            return Err(EnvError::Name(name.chars().take(64).collect()));
        }
        if value.contains('\0') || value.len() > VALUE_BYTES_MAX {
            return Err(EnvError::Value(name.to_owned()));
        }
        if self.0.len() >= VARIABLES_MAX && !self.0.contains_key(name) {
            return Err(EnvError::TooMany);
        }
        self.0.insert(name.to_owned(), value.to_owned());
        Ok(())
    }

    /// The variables, sorted by name.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &str)> {
        self.0
            .iter()
            .map(|(name, value)| (name.as_str(), value.as_str()))
    }

    /// The value of a variable.
    pub fn get(&self, name: &str) -> Option<&str> {
        self.0.get(name).map(String::as_str)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_that_would_break_the_environment_are_refused() {
        let mut env = Env::default();
        for name in ["", "1A", "A=B", "A B", "Ä", "A\0"] {
            assert!(env.set(name, "x").is_err(), "{name}");
        }
        assert!(env.set("PATH_2", "/usr/bin").is_ok());
    }

    #[test]
    fn later_variables_replace_those_of_every_container() {
        let mut env = Env::of_container("/workspace", None, []);
        let mut other = Env::default();
        other.set("HOME", "/tmp").unwrap();
        env.extend(&other);
        assert_eq!(env.get("HOME"), Some("/tmp"));
        assert_eq!((env.get("LANG"), env.get("TERM")), (Some("C.UTF-8"), None));
    }

    #[test]
    fn an_images_variables_go_before_the_defaults_and_below_the_containers_own() {
        let image: [(&[u8], &[u8]); 6] = [
            (b"PATH", b"/opt/bin:/bin"),
            (b"LANG", b"C"),
            (b"HOME", b"/root"),
            (b"container", b"podman"),
            (b"no name", b"x"),
            (b"BYTES", b"\xff"),
        ];
        let env = Env::of_container("/workspace", Some("xterm"), image);
        let all: Vec<_> = env.iter().collect();
        let wanted = [
            ("HOME", "/workspace"),
            ("LANG", "C"),
            ("PATH", "/opt/bin:/bin"),
            ("TERM", "xterm"),
        ];
        assert_eq!(all, wanted);
    }

    #[test]
    fn values_with_a_nul_are_refused() {
        assert_eq!(
            Env::default().set("A", "x\0y"),
            Err(EnvError::Value("A".into()))
        );
    }
}
