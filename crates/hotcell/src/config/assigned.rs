//! `[principal.NAME]` and `[images.egress]`: the egress profiles of one principal and of one image.

use hotcell_domain::{ImageName, Name, Principal};
use hotcell_egress::ProfileName;
use hotcell_service::PrincipalEgress;
use serde_json::{Value, json};

use super::problem::Problem;
use super::table::{Entry, Table, TableSection, Tables};

const KEYS: [&str; 2] = ["egress", "egress_profiles"];

/// Images with an egress profile of their own.
const IMAGES_MAX: usize = 1024;

pub(super) const PRINCIPALS: TableSection = TableSection {
    path: "principal",
    help: "Egress of one principal: `egress` is the profile of its containers that name none, `egress_profiles` are those that it may name instead of `[egress] profiles`",
    example: "\"token:ann\" = { egress = \"packages\", egress_profiles = [\"packages\"] }",
    schema: principal_schema,
    read: read_principals,
};

pub(super) const IMAGES: TableSection = TableSection {
    path: "images.egress",
    help: "Egress profile of containers of an image that name none; an `egress` of the principal comes first",
    example: "\"python:3.12-slim\" = \"packages\"",
    schema: image_schema,
    read: read_images,
};

fn principal_schema() -> Value {
    json!({
        "type": "object",
        "additionalProperties": {
            "type": "object",
            "additionalProperties": false,
            "properties": {
                "egress": { "type": "string" },
                "egress_profiles": { "type": "array", "items": { "type": "string" } },
            },
        },
    })
}

fn image_schema() -> Value {
    json!({ "type": "object", "additionalProperties": { "type": "string" } })
}

fn read_principals(table: &Table<'_>, tables: &mut Tables, problems: &mut Vec<Problem>) {
    for entry in table.entries() {
        problems.extend(principal(&entry, tables).err());
    }
}

fn principal(entry: &Entry<'_>, tables: &mut Tables) -> Result<(), Problem> {
    let name = Name::parse(entry.name);
    let name = name.map_err(|error| entry.misnamed(format!("the principal {error}")))?;
    let mut egress = PrincipalEgress::default();
    for field in entry.table()?.entries() {
        match field.name {
            "egress" => egress.default = Some(tables.profile(&field)?),
            "egress_profiles" => egress.granted = Some(tables.profiles(&field)?),
            _ => return Err(field.unknown("key of a principal:", KEYS)),
        }
    }
    tables.principals.insert(Principal::new(name), egress);
    Ok(())
}

fn read_images(table: &Table<'_>, tables: &mut Tables, problems: &mut Vec<Problem>) {
    for entry in table.entries() {
        problems.extend(image(&entry, tables).err());
    }
}

fn image(entry: &Entry<'_>, tables: &mut Tables) -> Result<(), Problem> {
    let name = ImageName::parse(entry.name);
    let name = name.map_err(|error| entry.misnamed(error.to_string()))?;
    if tables.image_egress.len() >= IMAGES_MAX {
        let message = format!("at most {IMAGES_MAX} images have an egress profile");
        return Err(entry.misnamed(message));
    }
    let profile = tables.profile(entry)?;
    tables.image_egress.push((name, profile));
    Ok(())
}

/// A place of the file that names a profile, which may be defined further below.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ProfileUse {
    at: usize,
    name: ProfileName,
}

impl Tables {
    /// The profile that a value names.
    pub(super) fn profile(&mut self, entry: &Entry<'_>) -> Result<ProfileName, Problem> {
        let name = ProfileName::parse(entry.text()?);
        let name = name.map_err(|error| entry.wrong(error.to_string()))?;
        self.profile_uses.push(ProfileUse {
            at: entry.value_at(),
            name: name.clone(),
        });
        Ok(name)
    }

    /// The profiles that an array names.
    pub(super) fn profiles(&mut self, entry: &Entry<'_>) -> Result<Vec<ProfileName>, Problem> {
        let mut names = Vec::new();
        for (at, text) in entry.texts()? {
            let name = ProfileName::parse(text);
            let name = name.map_err(|error| Problem::new(at, error.to_string()))?;
            self.profile_uses.push(ProfileUse {
                at,
                name: name.clone(),
            });
            names.push(name);
        }
        Ok(names)
    }

    /// Finds places that name profiles which do not exist, once the whole file is read.
    pub(super) fn check_profiles(&mut self) -> Vec<Problem> {
        let defined = &self.egress.profiles;
        let is_known = |name: &ProfileName| {
            name.is_none() || *name == ProfileName::packages() || defined.contains_key(name)
        };
        let uses = std::mem::take(&mut self.profile_uses);
        let unknown = uses.into_iter().filter(|used| !is_known(&used.name));
        let problem = |ProfileUse { at, name }| {
            let message =
                format!("there is no egress profile `{name}`; [egress.{name}] defines it");
            Problem::new(at, message)
        };
        unknown.map(problem).collect()
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use clap::CommandFactory;

    use crate::cli::Cli;
    use crate::config::{Catalogue, Document};

    fn said(text: &str) -> String {
        let catalogue = Catalogue::of(&Cli::command());
        match Document::read(Path::new("h.toml"), text, &catalogue) {
            Ok(document) => format!(
                "{:?} {:?}",
                document.tables.principals, document.tables.image_egress
            ),
            Err(broken) => broken.to_string(),
        }
    }

    #[test]
    fn profiles_of_principals_and_images_are_read_before_they_are_defined() {
        let read = said(
            "[principal.\"token:ann\"]\negress = 'work'\negress_profiles = ['packages', 'none']\n\
             [images.egress]\n'python:3.12' = 'work'\n[egress.work]\nallow = ['a.example.com']\n",
        );
        assert!(
            read.contains("token:ann") && read.contains("python:3.12"),
            "{read}"
        );
    }

    #[test]
    fn an_unknown_profile_is_refused_with_its_place() {
        let missing = "there is no egress profile `wrok`; [egress.wrok] defines it";
        for (text, place) in [
            ("[principal.ann]\negress = 'wrok'\n", "2:10"),
            (
                "[principal.ann]\negress_profiles = ['none', 'wrok']\n",
                "2:28",
            ),
            ("[images.egress]\n'python:3.12' = 'wrok'\n", "2:17"),
            ("[egress]\ndefault = 'wrok'\n", "2:11"),
            ("[egress]\nprofiles = ['wrok']\n", "2:13"),
            ("[egress.a]\ninclude = ['wrok']\n", "2:12"),
        ] {
            assert_eq!(said(text), format!("h.toml:{place}: {missing}"), "{text}");
        }
        for (text, expected) in [
            (
                "[principal.ann]\negres = 'none'\n",
                "did you mean `egress`?",
            ),
            (
                "[principal.ann]\negress = 'No'\n",
                "2:10: the name of a profile",
            ),
            (
                "[images.egress]\n'x y' = 'none'\n",
                "2:1: not an image reference",
            ),
        ] {
            let said = said(text);
            assert!(said.contains(expected), "{text}: {said}");
        }
    }
}
