//! Packages that a snippet needs, as a caller names them.

use std::fmt;

use crate::Language;

/// Packages of one call.
pub const PACKAGES_MAX: usize = 64;

/// The longest name with its version.
const PACKAGE_BYTES_MAX: usize = 200;

/// What installs packages of a language.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Installer {
    /// Python's.
    Pip,
    /// Node's.
    Npm,
}

impl Installer {
    /// The installer of a language; `None` if packages cannot be installed for it.
    pub fn of(language: &Language) -> Option<Self> {
        match language.name {
            "python" => Some(Self::Pip),
            "javascript" | "typescript" => Some(Self::Npm),
            _ => None,
        }
    }
}

/// A package: a name, perhaps with a version. Never an option, a path or a URL, so an installer takes
/// it for nothing else.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Package(String);

/// Why a text is no package.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PackageError {
    /// Not a name with a version.
    #[error("`{0}` is not a package: write a name, perhaps with a version ({1})")]
    Form(String, &'static str),
    /// Too many.
    #[error("more than {PACKAGES_MAX} packages")]
    TooMany,
}

impl Package {
    /// Parses what a caller wrote.
    pub fn parse(text: &str, installer: Installer) -> Result<Self, PackageError> {
        let text = text.trim();
        let (is_legal, example) = match installer {
            Installer::Pip => (is_python(text), "numpy, rich[jupyter]==13.7.0, flask>=3,<4"),
            Installer::Npm => (is_node(text), "left-pad, left-pad@1.3.0, @scope/name@^2"),
        };
        if !is_legal || text.len() > PACKAGE_BYTES_MAX {
            return Err(PackageError::Form(text.chars().take(64).collect(), example));
        }
        Ok(Self(text.to_owned()))
    }

    /// Parses a list, sorted and without repetitions.
    pub fn parse_all(texts: &[String], installer: Installer) -> Result<Vec<Self>, PackageError> {
        if texts.len() > PACKAGES_MAX {
            return Err(PackageError::TooMany);
        }
        let parsed = texts.iter().map(|text| Self::parse(text, installer));
        let mut packages = parsed.collect::<Result<Vec<_>, _>>()?;
        packages.sort_unstable();
        packages.dedup();
        Ok(packages)
    }

    /// As it was written.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for Package {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// `name[extra,…]` and versions, separated by commas.
fn is_python(text: &str) -> bool {
    let text: String = text.chars().filter(|c| *c != ' ').collect();
    let end = text.find(['[', '=', '<', '>', '~', '!']);
    let (name, rest) = text.split_at(end.unwrap_or(text.len()));
    let (extras, versions) = match rest.strip_prefix('[') {
        Some(rest) => match rest.split_once(']') {
            Some((extras, versions)) => (Some(extras), versions),
            None => return false,
        },
        None => (None, rest),
    };
    let are_extras = extras.is_none_or(|extras| extras.split(',').all(is_python_name));
    let are_versions = versions.is_empty() || versions.split(',').all(is_python_version);
    is_python_name(name) && are_extras && are_versions
}

fn is_python_name(name: &str) -> bool {
    let is_end = |byte: Option<&u8>| byte.is_some_and(u8::is_ascii_alphanumeric);
    let bytes = name.as_bytes();
    let is_inner = |byte: &u8| byte.is_ascii_alphanumeric() || b"._-".contains(byte);
    is_end(bytes.first()) && is_end(bytes.last()) && bytes.iter().all(is_inner) && !is_file(name)
}

fn is_python_version(text: &str) -> bool {
    const OPERATORS: [&str; 8] = ["===", "==", "~=", "!=", "<=", ">=", "<", ">"];
    let version = OPERATORS.iter().find_map(|it| text.strip_prefix(it));
    version.is_some_and(|version| {
        let is_legal = |byte: u8| byte.is_ascii_alphanumeric() || b".*+!_-".contains(&byte);
        version.starts_with(|c: char| c.is_ascii_alphanumeric()) && version.bytes().all(is_legal)
    })
}

/// `name@version` or `@scope/name@version`.
fn is_node(text: &str) -> bool {
    let (scope, rest) = match text.strip_prefix('@') {
        Some(scoped) => match scoped.split_once('/') {
            Some((scope, rest)) => (Some(scope), rest),
            None => return false,
        },
        None => (None, text),
    };
    let (name, version) = match rest.split_once('@') {
        Some((name, version)) => (name, Some(version)),
        None => (rest, None),
    };
    let is_name = |name: &str| {
        let is_legal =
            |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || b"._-".contains(&byte);
        let is_begin = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit();
        name.starts_with(is_begin) && name.bytes().all(is_legal) && !is_file(name)
    };
    let is_version = |version: &str| {
        let is_legal = |byte: u8| byte.is_ascii_alphanumeric() || b".^~<>=*+-".contains(&byte);
        !version.is_empty()
            && !version.starts_with('-')
            && version.bytes().all(is_legal)
            && !is_file(version)
    };
    scope.is_none_or(is_name) && is_name(name) && version.is_none_or(is_version)
}

/// Whether an installer would take a name for that of a file in its working directory.
fn is_file(name: &str) -> bool {
    let name = name.to_ascii_lowercase();
    let endings = [".tgz", ".tar", ".gz", ".zip", ".whl", ".bz2", ".xz"];
    endings.iter().any(|ending| name.ends_with(ending))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_with_a_version_is_a_package() {
        for text in [
            "numpy",
            "ruamel.yaml",
            "rich[jupyter,a]==13.7.0",
            "flask >= 3, < 4",
            "torch==2.1.0+cpu",
            "a==1.*",
        ] {
            assert!(Package::parse(text, Installer::Pip).is_ok(), "{text}");
        }
        for text in [
            "left-pad",
            "left-pad@1.3.0",
            "@scope/name@^2",
            "typescript@next",
        ] {
            assert!(Package::parse(text, Installer::Npm).is_ok(), "{text}");
        }
    }

    #[test]
    fn nothing_else_is() {
        for text in [
            "",
            "-r requirements.txt",
            "--index-url=https://example.com",
            "name@https://example.com/x.whl",
            "https://example.com/x.whl",
            "git+https://example.com/x",
            "./local",
            "../up",
            "x.whl",
            "a;b",
            "a==",
            "a[b",
            "a\nb",
            "a==1;python_version<'3'",
            "ä",
        ] {
            assert!(Package::parse(text, Installer::Pip).is_err(), "{text}");
        }
        for text in [
            "",
            "-g",
            "--registry=https://example.com",
            "user/repo",
            "name@file:../x",
            "name@npm:other",
            "https://example.com/x.tgz",
            "x.tgz",
            "@scope",
            "@scope/",
            "name@",
            "name@-x",
            "../x",
            "A B",
        ] {
            assert!(Package::parse(text, Installer::Npm).is_err(), "{text}");
        }
        let many = vec!["a".to_owned(); PACKAGES_MAX + 1];
        assert_eq!(
            Package::parse_all(&many, Installer::Pip),
            Err(PackageError::TooMany)
        );
    }

    #[test]
    fn a_list_is_the_same_in_any_order() {
        let list = |texts: &[&str]| {
            let texts: Vec<_> = texts.iter().map(|text| (*text).to_owned()).collect();
            Package::parse_all(&texts, Installer::Pip).unwrap()
        };
        assert_eq!(list(&["b", "a", "b "]), list(&["a", "b"]));
    }
}
