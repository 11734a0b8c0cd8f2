//! Short names that the operator gives to images.

use std::collections::BTreeMap;
use std::fmt;

use crate::{ImageError, ImageRef};

/// The longest alias.
pub const IMAGE_ALIAS_BYTES_MAX: usize = 64;

/// The most aliases that one server knows.
pub const IMAGE_ALIASES_MAX: usize = 256;

/// Images by alias. No alias refers to another alias.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ImageAliases(BTreeMap<String, ImageRef>);

/// Why an alias is invalid.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ImageAliasError {
    /// It has another meaning, or could be a reference.
    #[error(
        "an alias is 1 to {IMAGE_ALIAS_BYTES_MAX} lower-case letters, digits and single dashes, and not `host`"
    )]
    Name,
    /// The value is not a valid image.
    #[error(transparent)]
    Image(#[from] ImageError),
    /// The value is another alias, or the alias itself.
    #[error("an alias must stand for an image, and `{0}` is an alias")]
    Chain(String),
    /// There are too many.
    #[error("there can be at most {IMAGE_ALIASES_MAX} aliases")]
    TooMany,
}

/// An image as a person or a model names it: by alias or by reference.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ImageName {
    text: String,
    image: ImageRef,
}

impl ImageName {
    /// Parses a name. Whether it is an alias is decided when it is resolved.
    pub fn parse(text: &str) -> Result<Self, ImageError> {
        Ok(Self {
            text: text.to_owned(),
            image: ImageRef::parse(text)?,
        })
    }
}

impl fmt::Display for ImageName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl ImageAliases {
    /// Parses the operator's table. The error names the invalid alias.
    pub fn parse<'a>(
        table: impl IntoIterator<Item = (&'a str, &'a str)>,
    ) -> Result<Self, (String, ImageAliasError)> {
        let table: BTreeMap<&str, &str> = table.into_iter().collect();
        let read = |(name, image): (&&str, &&str)| {
            let image = parse_entry(name, image, &table);
            let image = image.map_err(|error| ((*name).to_owned(), error))?;
            Ok(((*name).to_owned(), image))
        };
        table.iter().map(read).collect::<Result<_, _>>().map(Self)
    }

    /// Resolves a name to an image.
    pub fn resolve(&self, name: &ImageName) -> ImageRef {
        let known = self.0.get(&name.text);
        known.unwrap_or(&name.image).clone()
    }

    /// The aliases and their images, sorted by name.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &ImageRef)> {
        self.0.iter().map(|(name, image)| (name.as_str(), image))
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

fn parse_entry(
    name: &str,
    image: &str,
    table: &BTreeMap<&str, &str>,
) -> Result<ImageRef, ImageAliasError> {
    if table.len() > IMAGE_ALIASES_MAX {
        return Err(ImageAliasError::TooMany);
    }
    if !is_alias(name) {
        return Err(ImageAliasError::Name);
    }
    if table.contains_key(image) {
        return Err(ImageAliasError::Chain(image.to_owned()));
    }
    Ok(ImageRef::parse(image)?)
}

/// Whether a name can be an alias: one component without registry, tag or digest. A name with any
/// of these always means the image itself.
fn is_alias(name: &str) -> bool {
    let is_word = |word: &str| {
        let legal = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
        !word.is_empty() && word.bytes().all(legal)
    };
    name.len() <= IMAGE_ALIAS_BYTES_MAX && name != "host" && name.split('-').all(is_word)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn resolved(aliases: &ImageAliases, name: &str) -> String {
        let name = ImageName::parse(name).expect("a name");
        aliases.resolve(&name).to_string()
    }

    fn refusal(name: &str, image: &str) -> ImageAliasError {
        let table = [(name, image), ("py", "python:3.12-slim")];
        let (which, error) = ImageAliases::parse(table).expect_err("it is refused");
        assert_eq!(which, name);
        error
    }

    #[test]
    fn an_alias_stands_for_its_image_and_other_names_for_themselves() {
        let table = [
            ("py", "python:3.12-slim"),
            ("me", "host"),
            ("python", "python:3.13"),
        ];
        let aliases = ImageAliases::parse(table).expect("a table");
        for (name, image) in [
            ("py", "docker.io/library/python:3.12-slim"),
            ("me", "host"),
            ("python", "docker.io/library/python:3.13"),
            // A name with a tag or a registry means that image.
            ("python:latest", "docker.io/library/python:latest"),
            ("docker.io/library/py", "docker.io/library/py:latest"),
            ("host", "host"),
            ("node", "docker.io/library/node:latest"),
        ] {
            assert_eq!(resolved(&aliases, name), image, "{name}");
        }
    }

    #[test]
    fn an_alias_cannot_hide_what_is_no_alias() {
        let long = "a".repeat(IMAGE_ALIAS_BYTES_MAX + 1);
        for name in [
            "host", "", "a b", "a:b", "a/b", "a@b", "a.b", "A", "-a", "a-", "a--b", "ä", "a\0",
            &long,
        ] {
            assert_eq!(refusal(name, "node"), ImageAliasError::Name, "{name}");
        }
    }

    #[test]
    fn an_alias_stands_for_an_image_and_not_for_an_alias() {
        assert_eq!(refusal("x", "py"), ImageAliasError::Chain("py".to_owned()));
        assert_eq!(refusal("x", "x"), ImageAliasError::Chain("x".to_owned()));
        assert!(matches!(refusal("x", "a b"), ImageAliasError::Image(_)));
    }

    #[test]
    fn aliases_are_bounded() {
        let names: Vec<String> = (0..=IMAGE_ALIASES_MAX)
            .map(|number| format!("a{number}"))
            .collect();
        let table = |count| names[..count].iter().map(|name| (name.as_str(), "node"));
        assert!(ImageAliases::parse(table(IMAGE_ALIASES_MAX)).is_ok());
        let refused = ImageAliases::parse(table(IMAGE_ALIASES_MAX + 1));
        assert_eq!(refused.expect_err("too many").1, ImageAliasError::TooMany);
    }
}
