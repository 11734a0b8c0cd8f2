//! Names after which a secret follows.

/// Last words of names of secrets.
const WORDS: [&str; 19] = [
    "password",
    "passwd",
    "pwd",
    "pass",
    "passphrase",
    "secret",
    "secrets",
    "token",
    "apikey",
    "authorization",
    "cookie",
    "credential",
    "credentials",
    "auth",
    "jwt",
    "bearer",
    "pat",
    "sig",
    "passwords",
];

/// Suffixes of names without separators, such as `PGPASSWORD`.
const ENDS: [&str; 12] = [
    "password",
    "passwd",
    "passphrase",
    "secret",
    "token",
    "apikey",
    "accesskey",
    "privatekey",
    "secretkey",
    "accountkey",
    "authorization",
    "cookie",
];

/// Words that, before `key`, make it the name of a secret.
const BEFORE_KEY: [&str; 10] = [
    "api",
    "access",
    "private",
    "secret",
    "encryption",
    "signing",
    "account",
    "shared",
    "master",
    "auth",
];

/// Whether the value of this name is a secret.
pub(super) fn is_sensitive(name: &str) -> bool {
    let name = name.trim_matches(|c: char| !c.is_ascii_alphanumeric());
    if name.is_empty() || name.len() > 128 {
        return false;
    }
    let words = words(name);
    let joined: String = words.concat();
    match words.as_slice() {
        [.., before, last] if last == "key" => BEFORE_KEY.contains(&before.as_str()),
        [.., last] if WORDS.contains(&last.as_str()) => true,
        _ => ENDS.iter().any(|end| joined.ends_with(end)),
    }
}

/// Whether the value extends to the end of the line, as in a header.
pub(super) fn is_header(name: &str) -> bool {
    let name = name.to_ascii_lowercase();
    name.ends_with("authorization") || name.ends_with("cookie")
}

/// The words of `X-Api-Key`, `api_key`, `apiKey`, `API.KEY`, in lower case.
fn words(name: &str) -> Vec<String> {
    let mut words = vec![String::new()];
    let mut was_lower = false;
    for character in name.chars() {
        let is_part = character.is_ascii_alphanumeric();
        if !is_part || (was_lower && character.is_ascii_uppercase()) {
            words.push(String::new());
        }
        was_lower = character.is_ascii_lowercase();
        if is_part && let Some(word) = words.last_mut() {
            word.push(character.to_ascii_lowercase());
        }
    }
    words.retain(|word| !word.is_empty());
    words
}
