//! Values with `${ENV:NAME}` in them: secrets that stay on this host.

use std::fmt;

/// The shortest secret that is worth removing from a text; shorter ones are ordinary words.
const SECRET_BYTES_MIN: usize = 6;

/// A value of an entry. `Debug` shows no part of it: any value may be a secret.
#[derive(Clone, PartialEq, Eq)]
pub struct Template(Vec<Part>);

#[derive(Clone, PartialEq, Eq)]
enum Part {
    Text(String),
    Variable {
        name: String,
        default: Option<String>,
    },
}

/// Why a text is no template.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum TemplateError {
    /// `${` without its end.
    #[error("`${{` without `}}`")]
    Unclosed,
    /// Not a name of an environment variable.
    #[error("`${{ENV:NAME}}` needs the name of an environment variable")]
    Name,
    /// A variable of another program's, which we cannot resolve.
    #[error("`${{{kind}…}}` means something only to the program whose file this is")]
    Foreign {
        /// What it begins with.
        kind: &'static str,
    },
}

/// Which forms a variable may have besides `${ENV:NAME}`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Dialect {
    /// Ours alone; other `${…}` are ordinary text.
    Hotcell,
    /// Those of other programs too: `${env:NAME}`, `${NAME}`, `${NAME:-default}`.
    Discovered,
}

/// Where variables are looked up: this process's environment, except in tests.
pub(crate) type Environment<'a> = &'a dyn Fn(&str) -> Option<String>;

/// A value whose variables were filled in.
pub(crate) struct Resolved(String);

impl Template {
    /// A text in which nothing is a variable.
    pub fn literal(text: impl Into<String>) -> Self {
        Self(vec![Part::Text(text.into())])
    }

    /// Parses a text of hotcell.toml: `${ENV:NAME}` is a variable, everything else itself.
    pub fn parse(text: &str) -> Result<Self, TemplateError> {
        Self::parse_as(text, Dialect::Hotcell)
    }

    /// Parses a text of another program's file, with its forms of variables.
    pub fn parse_discovered(text: &str) -> Result<Self, TemplateError> {
        Self::parse_as(text, Dialect::Discovered)
    }

    fn parse_as(text: &str, dialect: Dialect) -> Result<Self, TemplateError> {
        let (mut parts, mut rest) = (Vec::new(), text);
        while let Some(start) = rest.find("${") {
            let (before, from) = rest.split_at(start);
            let end = from.find('}');
            let inside = end.map(|end| &from[2..end]);
            match inside.map(|inside| variable(inside, dialect)).transpose()? {
                Some(Some(part)) => {
                    push_text(&mut parts, before);
                    parts.push(part);
                    rest = &from[inside.map_or(0, str::len) + 3..];
                }
                Some(None) => {
                    push_text(&mut parts, &rest[..start + 2]);
                    rest = &from[2..];
                }
                None if from.starts_with("${ENV:") => return Err(TemplateError::Unclosed),
                None => break,
            }
        }
        push_text(&mut parts, rest);
        Ok(Self(parts))
    }

    /// The text with its variables filled in, or the name of one that is not set.
    pub(crate) fn resolve(&self, environment: Environment<'_>) -> Result<Resolved, String> {
        let mut text = String::new();
        for part in &self.0 {
            match part {
                Part::Text(literal) => text.push_str(literal),
                Part::Variable { name, default } => {
                    let value = environment(name).or_else(|| default.clone());
                    text.push_str(&value.ok_or_else(|| name.clone())?);
                }
            }
        }
        Ok(Resolved(text))
    }

    /// The text, if it has no variable; for what is no secret, such as a program's name.
    pub fn as_literal(&self) -> Option<&str> {
        match self.0.as_slice() {
            [] => Some(""),
            [Part::Text(text)] => Some(text),
            _ => None,
        }
    }

    /// The names of its variables.
    pub fn variables(&self) -> impl Iterator<Item = &str> {
        self.0.iter().filter_map(|part| match part {
            Part::Variable { name, .. } => Some(name.as_str()),
            Part::Text(_) => None,
        })
    }
}

fn push_text(parts: &mut Vec<Part>, text: &str) {
    match parts.last_mut() {
        _ if text.is_empty() => {}
        Some(Part::Text(last)) => last.push_str(text),
        Some(Part::Variable { .. }) | None => parts.push(Part::Text(text.to_owned())),
    }
}

/// What stands between `${` and `}`; `None` if that is ordinary text.
fn variable(inside: &str, dialect: Dialect) -> Result<Option<Part>, TemplateError> {
    if let Some(name) = inside.strip_prefix("ENV:") {
        return named(name, None).map(Some).ok_or(TemplateError::Name);
    }
    if dialect == Dialect::Hotcell {
        return Ok(None);
    }
    if let Some(name) = inside.strip_prefix("env:") {
        return named(name, None).map(Some).ok_or(TemplateError::Name);
    }
    for kind in [
        "input:",
        "command:",
        "config:",
        "workspaceFolder",
        "userHome",
    ] {
        if inside.starts_with(kind) {
            return Err(TemplateError::Foreign { kind });
        }
    }
    let (name, default) = match inside.split_once(":-") {
        Some((name, default)) => (name, Some(default.to_owned())),
        None => (inside, None),
    };
    Ok(named(name, default))
}

fn named(name: &str, default: Option<String>) -> Option<Part> {
    let is_name = !name.is_empty()
        && name.len() <= 256
        && !name.starts_with(|c: char| c.is_ascii_digit())
        && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_');
    is_name.then(|| Part::Variable {
        name: name.to_owned(),
        default,
    })
}

impl fmt::Debug for Template {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Template(…)")
    }
}

impl Resolved {
    pub(crate) fn expose(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Resolved {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Resolved(…)")
    }
}

/// Removes the secrets of one server from what that server says.
#[derive(Clone, Default)]
pub(crate) struct Redactor(std::sync::Arc<Vec<String>>);

impl Redactor {
    /// One that removes these values, and for `Bearer TOKEN` the token alone too.
    pub(crate) fn new<'a>(secrets: impl Iterator<Item = &'a Resolved>) -> Self {
        let mut values: Vec<String> = Vec::new();
        for secret in secrets {
            let text = secret.expose();
            let last = text.rsplit(' ').next();
            values.extend(std::iter::once(text).chain(last).map(str::to_owned));
        }
        values.retain(|value| value.len() >= SECRET_BYTES_MIN);
        // The longest first: one may contain another.
        values.sort_by_key(|value| std::cmp::Reverse(value.len()));
        values.dedup();
        Self(std::sync::Arc::new(values))
    }

    pub(crate) fn redact(&self, text: &str) -> String {
        let mut text = text.to_owned();
        for secret in self.0.iter() {
            if text.contains(secret.as_str()) {
                text = text.replace(secret.as_str(), "[redacted]");
            }
        }
        text
    }
}

impl fmt::Debug for Redactor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Redactor({} secrets)", self.0.len())
    }
}

/// The environment of this process.
pub(crate) fn process_environment(name: &str) -> Option<String> {
    std::env::var(name).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn resolved(template: Result<Template, TemplateError>) -> String {
        let environment = |name: &str| (name == "TOKEN").then(|| "s3cret".to_owned());
        match template.map(|template| template.resolve(&environment)) {
            Ok(Ok(resolved)) => resolved.expose().to_owned(),
            Ok(Err(missing)) => format!("missing {missing}"),
            Err(error) => error.to_string(),
        }
    }

    #[test]
    fn variables_are_filled_in_and_other_text_is_kept() {
        assert_eq!(
            resolved(Template::parse("Bearer ${ENV:TOKEN}!")),
            "Bearer s3cret!"
        );
        assert_eq!(
            resolved(Template::parse("${ENV:TOKEN}${ENV:TOKEN}")),
            "s3crets3cret"
        );
        assert_eq!(
            resolved(Template::parse("${TOKEN} $TOKEN ${")),
            "${TOKEN} $TOKEN ${"
        );
        assert_eq!(
            resolved(Template::parse("${ENV:NOT_SET}")),
            "missing NOT_SET"
        );
        assert_eq!(resolved(Template::parse("")), "");
    }

    #[test]
    fn a_malformed_variable_is_an_error() {
        assert_eq!(resolved(Template::parse("${ENV:TOKEN")), "`${` without `}`");
        let error = "`${ENV:NAME}` needs the name of an environment variable";
        assert_eq!(resolved(Template::parse("${ENV:}")), error);
        assert_eq!(resolved(Template::parse("${ENV:a b}")), error);
    }

    #[test]
    fn forms_of_other_programs_are_known_in_their_files_alone() {
        assert_eq!(
            resolved(Template::parse_discovered("${env:TOKEN}")),
            "s3cret"
        );
        assert_eq!(resolved(Template::parse_discovered("${TOKEN}")), "s3cret");
        assert_eq!(resolved(Template::parse_discovered("${NOT_SET:-x}")), "x");
        assert_eq!(
            resolved(Template::parse_discovered("a ${b c} ${x")),
            "a ${b c} ${x"
        );
        let foreign = resolved(Template::parse_discovered("${input:key}"));
        assert_eq!(
            foreign,
            "`${input:…}` means something only to the program whose file this is"
        );
    }

    #[test]
    fn no_debug_text_shows_a_value() {
        let template = Template::literal("s3cret");
        let resolved = template.resolve(&|_| None).unwrap();
        let redactor = Redactor::new([&resolved].into_iter());
        let shown = format!("{template:?} {resolved:?} {redactor:?}");
        assert!(!shown.contains("s3cret"), "{shown}");
    }

    #[test]
    fn secrets_are_removed_from_what_a_server_says() {
        let secrets = ["Bearer abcdefgh", "short"]
            .map(|text| Template::literal(text).resolve(&|_| None).unwrap());
        let redactor = Redactor::new(secrets.iter());
        assert_eq!(
            redactor.redact("no token abcdefgh in short"),
            "no token [redacted] in short"
        );
    }
}
