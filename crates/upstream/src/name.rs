//! Names of servers.

use std::borrow::Borrow;
use std::fmt;
use std::sync::Arc;

/// The longest name, in characters.
const CHARS_MAX: usize = 64;

/// Names that Python has taken.
const KEYWORDS: [&str; 39] = [
    "False", "None", "True", "and", "as", "assert", "async", "await", "break", "case", "class",
    "continue", "def", "del", "elif", "else", "except", "finally", "for", "from", "global", "if",
    "import", "in", "is", "lambda", "match", "nonlocal", "not", "or", "pass", "raise", "return",
    "try", "type", "while", "with", "yield", "_",
];

/// What the user calls a server: 1 to 64 printable characters.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ServerName(Arc<str>);

/// Why a text is no name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error(
    "a server's name is 1 to 64 letters, digits, spaces or characters of `-_.@/:`, and begins with a letter or digit"
)]
pub struct ServerNameError;

impl ServerName {
    /// Parses a name.
    pub fn parse(text: &str) -> Result<Self, ServerNameError> {
        let legal = |c: char| c.is_alphanumeric() || " -_.@/:".contains(c);
        let begins = |c: char| c.is_alphanumeric() || c == '@';
        let is_short = text.chars().count() <= CHARS_MAX;
        if is_short && text.starts_with(begins) && !text.ends_with(' ') && text.chars().all(legal) {
            return Ok(Self(text.into()));
        }
        Err(ServerNameError)
    }

    /// The name as it was given.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// A Python identifier for it; two names may share one, so [`aliases`] makes them unique.
    fn identifier(&self) -> String {
        let mut alias = String::with_capacity(self.0.len());
        for c in self.0.chars() {
            let c = if c.is_ascii_alphanumeric() { c } else { '_' };
            if c != '_' || !alias.ends_with('_') {
                alias.push(c);
            }
        }
        let trimmed = alias.trim_matches('_');
        let mut alias = if trimmed.is_empty() {
            "server".to_owned()
        } else {
            trimmed.to_owned()
        };
        if alias.starts_with(|c: char| c.is_ascii_digit()) {
            alias.insert_str(0, "s_");
        }
        if KEYWORDS.contains(&alias.as_str()) {
            alias.push('_');
        }
        alias
    }
}

/// A Python identifier for each name, in the same order, no two alike.
pub(crate) fn aliases<'a>(names: impl Iterator<Item = &'a ServerName>) -> Vec<Arc<str>> {
    let mut taken = std::collections::HashSet::new();
    names
        .map(|name| {
            let base = name.identifier();
            let numbered = (2..).map(|number| format!("{base}_{number}"));
            let mut candidates = std::iter::once(base.clone()).chain(numbered);
            let alias = candidates
                .find(|alias| !taken.contains(alias))
                .expect("numbers do not end");
            taken.insert(alias.clone());
            alias.into()
        })
        .collect()
}

impl fmt::Display for ServerName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Debug for ServerName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&*self.0, f)
    }
}

impl Borrow<str> for ServerName {
    fn borrow(&self) -> &str {
        &self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_short_and_printable() {
        for good in ["git", "@scope/server-x", "My Server", "a", "7zip", "größe"] {
            assert!(ServerName::parse(good).is_ok(), "{good}");
        }
        for bad in [
            "",
            " a",
            "a ",
            "-a",
            "a\nb",
            "a\u{1b}[2J",
            "../x",
            &"x".repeat(65),
        ] {
            assert!(ServerName::parse(bad).is_err(), "{bad:?}");
        }
    }

    #[test]
    fn aliases_are_python_identifiers_and_unique() {
        let names = [
            "my-server",
            "my server",
            "import",
            "7zip",
            "@a/b",
            "größe",
            "日本",
        ];
        let names: Vec<_> = names.map(|name| ServerName::parse(name).unwrap()).into();
        let aliases = aliases(names.iter());
        let aliases: Vec<&str> = aliases.iter().map(|alias| &**alias).collect();
        assert_eq!(
            aliases,
            [
                "my_server",
                "my_server_2",
                "import_",
                "s_7zip",
                "a_b",
                "gr_e",
                "server"
            ]
        );
    }
}
