//! The difference between two readings of the configuration.

use super::load::{Config, Effective};

/// Sections whose settings a running server can change.
const RELOADED_SECTIONS: [&str; 7] = [
    "policy",
    "images",
    "limits",
    "quotas",
    "storage",
    "codemode",
    "discovery",
];

/// Settings of other sections that a running server can change.
const RELOADED: [&str; 2] = ["log-level", "warm-check-s"];

/// Settings of those sections that it cannot change.
const FIXED: [&str; 2] = ["state-dir", "docker-config"];

/// The settings that changed, by their key in the file.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Difference {
    /// Settings that apply at once.
    pub(crate) changed: Vec<String>,
    /// Settings that apply after a restart.
    pub(crate) needs_restart: Vec<String>,
}

/// Whether a running server can change a setting.
pub(crate) fn is_reloaded(section: &str, flag: &str) -> bool {
    let is_in_section = RELOADED_SECTIONS.contains(&section) && !FIXED.contains(&flag);
    is_in_section || RELOADED.contains(&flag)
}

impl Config {
    /// The changes that a later reading makes.
    pub(crate) fn difference(&self, later: &Self) -> Difference {
        let mut difference = Difference::default();
        let pairs = self.effective.iter().zip(&later.effective);
        for (_, later) in pairs.filter(|(one, other)| one.values != other.values) {
            let place = format!("[{}] {}", later.section, later.key);
            if is_reloaded(&later.section, &later.flag) {
                difference.changed.push(place);
            } else {
                difference.needs_restart.push(place);
            }
        }
        let (before, after) = (&self.tables, &later.tables);
        let tables = [
            ("[images.aliases]", before.aliases != after.aliases),
            ("[images.egress]", before.image_egress != after.image_egress),
            ("[principal]", before.principals != after.principals),
            ("[quota]", before.quotas != after.quotas),
            ("[rule]", before.rules != after.rules),
            ("[upstream]", before.upstreams != after.upstreams),
            ("[egress]", before.egress != after.egress),
        ];
        let changed = tables.into_iter().filter(|(_, is_changed)| *is_changed);
        difference
            .changed
            .extend(changed.map(|(name, _)| name.to_owned()));
        difference
    }

    /// The later reading, but with the old values of settings that need a restart, so that the next
    /// reload reports them again.
    pub(crate) fn after_reload(mut self, before: &Self) -> Self {
        let pairs = self.effective.iter_mut().zip(&before.effective);
        for (later, before) in pairs {
            let Effective { section, flag, .. } = &later;
            if !is_reloaded(section, flag) {
                *later = before.clone();
            }
        }
        self
    }
}
