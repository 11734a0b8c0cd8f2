//! Who may use a server.

/// Globs of principals.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Principals(Vec<String>);

/// The principal of the user who runs the server.
const LOCAL: &str = "local";

impl Principals {
    /// Everybody: what a configured server is for, unless its entry says otherwise.
    pub fn all() -> Self {
        Self(vec!["*".to_owned()])
    }

    /// The user who runs Hotcell: what a discovered server is for.
    pub fn local() -> Self {
        Self(vec![LOCAL.to_owned()])
    }

    /// Those that match one of the globs.
    pub fn matching(globs: impl IntoIterator<Item = String>) -> Self {
        Self(globs.into_iter().collect())
    }

    /// The globs.
    pub fn globs(&self) -> &[String] {
        &self.0
    }

    pub(crate) fn contain(&self, principal: &str) -> bool {
        self.0
            .iter()
            .any(|glob| fast_glob::glob_match(glob, principal))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_principal_is_matched_by_globs() {
        assert!(Principals::all().contain("token:ann"));
        assert!(Principals::local().contain("local"));
        assert!(!Principals::local().contain("token:local"));
        let some = Principals::matching(["token:*".to_owned(), "user:bob".to_owned()]);
        assert!(some.contain("token:ann") && some.contain("user:bob"));
        assert!(!some.contain("user:ann") && !some.contain("local"));
        assert!(!Principals::matching([]).contain("local"));
    }
}
