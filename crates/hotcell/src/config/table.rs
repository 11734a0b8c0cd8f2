//! Sections that are not flags but tables with names that the operator chooses, such as
//! `[images.aliases]`.
//!
//! A new section is a function that reads it, a field of [`Tables`] and an entry of [`TABLES`]: the
//! reference, the schema and `hotcell config init` derive from there.

use std::collections::BTreeMap;

use serde_json::Value;
use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::aliases;
use super::assigned::{self, ProfileUse};
use super::egress;
use super::kind::{Kind, described};
use super::problem::{Problem, nearest};
use super::quotas;
use super::rules;
use super::secrets;
use super::upstreams;
use hotcell_codemode::Rule;
use hotcell_domain::{ImageAliases, ImageName, Principal, QuotaOverride};
use hotcell_egress::ProfileName;
use hotcell_service::PrincipalEgress;

/// The content of all tables.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct Tables {
    pub(crate) aliases: ImageAliases,
    pub(crate) quotas: BTreeMap<Principal, QuotaOverride>,
    pub(crate) rules: Vec<Rule>,
    pub(crate) upstreams: Vec<hotcell_upstream::Entry>,
    pub(crate) egress: hotcell_egress::Settings,
    pub(crate) principals: BTreeMap<Principal, PrincipalEgress>,
    pub(crate) image_egress: Vec<(ImageName, ProfileName)>,
    /// Empty once the whole file is read.
    pub(super) profile_uses: Vec<ProfileUse>,
}

/// The definition of a section.
pub(crate) struct TableSection {
    /// Its name in the file, at most two words: `images.aliases`.
    pub(crate) path: &'static str,
    /// A description in one sentence.
    pub(crate) help: &'static str,
    /// Lines below the heading, which `hotcell config init` writes as a comment.
    pub(crate) example: &'static str,
    /// The JSON Schema of the table.
    pub(crate) schema: fn() -> Value,
    /// Reads the table, or reports what is wrong and where.
    pub(crate) read: fn(&Table<'_>, &mut Tables, &mut Vec<Problem>),
}

/// All such sections.
pub(crate) const TABLES: &[TableSection] = &[
    aliases::SECTION,
    assigned::IMAGES,
    assigned::PRINCIPALS,
    quotas::SECTION,
    rules::SECTION,
    upstreams::SECTION,
    egress::SECTION,
    secrets::SECTION,
];

/// A table of the file.
pub(crate) struct Table<'a> {
    entries: &'a DeTable<'a>,
}

/// A value of the file. Its accessors return the requested type, or a problem with its position.
pub(crate) struct Entry<'a> {
    pub(crate) name: &'a str,
    name_at: usize,
    value: &'a Spanned<DeValue<'a>>,
}

impl<'a> Table<'a> {
    pub(super) fn new(entries: &'a DeTable<'a>) -> Self {
        Self { entries }
    }

    pub(crate) fn entries(&self) -> impl Iterator<Item = Entry<'a>> {
        self.entries.iter().map(|(name, value)| Entry {
            name: name.get_ref(),
            name_at: name.span().start,
            value,
        })
    }
}

impl Entry<'_> {
    /// A problem with the name.
    pub(crate) fn misnamed(&self, message: impl Into<String>) -> Problem {
        Problem::new(self.name_at, message)
    }

    /// A problem with the value.
    pub(crate) fn wrong(&self, message: impl Into<String>) -> Problem {
        Problem::new(self.value.span().start, message)
    }

    pub(crate) fn text(&self) -> Result<&str, Problem> {
        let text = self.value.get_ref().as_str();
        text.ok_or_else(|| self.wrong_type("a string"))
    }

    /// A value of this kind, in the form that a flag accepts.
    pub(crate) fn of(&self, kind: Kind) -> Result<String, Problem> {
        let text = kind.text(self.value.get_ref());
        text.map_err(|reason| self.wrong(format!("`{}` {reason}", self.name)))
    }

    /// The strings of an array, each with its position.
    pub(super) fn texts(&self) -> Result<Vec<(usize, &str)>, Problem> {
        let array = self.value.get_ref().as_array();
        let array = array.ok_or_else(|| self.wrong_type("an array of strings"))?;
        let text = |item: &'_ Spanned<DeValue<'_>>| -> Result<usize, Problem> {
            let at = item.span().start;
            let found = described(item.get_ref());
            let name = self.name;
            let message = format!("an item of `{name}` must be a string, not {found}");
            item.get_ref()
                .as_str()
                .map(|_| at)
                .ok_or_else(|| Problem::new(at, message))
        };
        let places: Vec<usize> = array.iter().map(text).collect::<Result<_, _>>()?;
        let texts = array.iter().filter_map(|item| item.get_ref().as_str());
        Ok(places.into_iter().zip(texts).collect())
    }

    /// The tables of an array, each with its position.
    pub(super) fn tables(&self) -> Result<Vec<(usize, Table<'_>)>, Problem> {
        let array = self.value.get_ref().as_array();
        let array = array.ok_or_else(|| self.wrong_type("an array of tables"))?;
        let table = |item: &Spanned<DeValue<'_>>| item.get_ref().as_table().is_some();
        if let Some(other) = array.iter().find(|item| !table(item)) {
            let message = format!("an item of `{}` must be a table", self.name);
            return Err(Problem::new(other.span().start, message));
        }
        let tables = array.iter().filter_map(|item| {
            let table = item.get_ref().as_table().map(Table::new)?;
            Some((item.span().start, table))
        });
        Ok(tables.collect())
    }

    fn wrong_type(&self, wanted: &str) -> Problem {
        let (name, found) = (self.name, described(self.value.get_ref()));
        self.wrong(format!("`{name}` must be {wanted}, not {found}"))
    }

    /// A problem with an unknown name, which suggests a similar one.
    pub(super) fn unknown<'k>(
        &self,
        what: &str,
        known: impl IntoIterator<Item = &'k str>,
    ) -> Problem {
        let name = self.name;
        let shown = super::document::shown(name);
        self.misnamed(match nearest(name, known) {
            Some(near) => format!("unknown {what} `{shown}`; did you mean `{near}`?"),
            None => format!("unknown {what} `{shown}`"),
        })
    }

    /// The position of the value.
    pub(super) fn value_at(&self) -> usize {
        self.value.span().start
    }

    pub(super) fn value(&self) -> &DeValue<'_> {
        self.value.get_ref()
    }

    pub(crate) fn table(&self) -> Result<Table<'_>, Problem> {
        let table = self.value.get_ref().as_table();
        table
            .map(Table::new)
            .ok_or_else(|| self.wrong_type("a table"))
    }
}
