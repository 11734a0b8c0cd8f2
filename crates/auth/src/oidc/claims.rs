//! Checks the claims of a token whose signature is valid.

use hotcell_domain::{Caller, Name, Principal};
use serde::Deserialize;
use sha2::{Digest, Sha256};

use super::settings::{ADMIN_SCOPE, OidcSettings};
use crate::Failure;
use crate::token::hex;

/// Tolerated difference between the issuer's clock and ours.
const LEEWAY_S: u64 = 60;

/// The highest age of a token, whatever its `exp` says: a token cannot be revoked, so it must be
/// short-lived.
const TOKEN_AGE_S_MAX: u64 = 24 * 60 * 60;

/// The longest subject.
const SUBJECT_BYTES_MAX: usize = 1024;

/// Bytes of the hash in a principal: enough to avoid collisions.
const PRINCIPAL_BYTES: usize = 16;

#[derive(Debug, Deserialize)]
struct Claims {
    iss: String,
    sub: String,
    aud: OneOrMore,
    exp: f64,
    nbf: Option<f64>,
    iat: Option<f64>,
    scope: Option<OneOrMore>,
    scp: Option<OneOrMore>,
    preferred_username: Option<String>,
    email: Option<String>,
}

#[derive(Debug, Deserialize)]
#[serde(untagged)]
enum OneOrMore {
    One(String),
    More(Vec<String>),
}

/// The subject of a token.
#[derive(Debug, Clone)]
pub(super) struct Subject {
    pub(super) caller: Caller,
    /// A readable name, only for logs: the issuer may let users choose it.
    pub(super) display: Option<Name>,
    /// When the token expires.
    pub(super) ends_unix_s: u64,
}

/// Parses signed claims, and checks that they are for this server and valid now.
pub(super) fn check(
    claims: &[u8],
    settings: &OidcSettings,
    now_unix_s: u64,
) -> Result<Subject, Failure> {
    let claims: Claims = serde_json::from_slice(claims).map_err(|_| Failure::Malformed)?;
    if claims.iss != settings.issuer.as_str() {
        return Err(Failure::Issuer);
    }
    if !claims
        .aud
        .any(|audience| settings.audiences.iter().any(|ours| ours == audience))
    {
        return Err(Failure::Audience);
    }
    let ends_unix_s = claims.check_time(now_unix_s)?;
    if claims.sub.is_empty() || claims.sub.len() > SUBJECT_BYTES_MAX {
        return Err(Failure::Malformed);
    }
    if !settings
        .required_scopes
        .iter()
        .all(|scope| claims.has_scope(scope))
    {
        return Err(Failure::Scope);
    }
    let display = claims.preferred_username.as_ref().or(claims.email.as_ref());
    Ok(Subject {
        caller: Caller {
            principal: principal(&claims.iss, &claims.sub),
            client: None,
            client_version: None,
            is_admin: claims.has_scope(ADMIN_SCOPE),
            trace: None,
        },
        display: display.and_then(|name| Name::parse(name).ok()),
        ends_unix_s,
    })
}

impl Claims {
    /// Returns when the token expires, if it is valid now.
    fn check_time(&self, now_unix_s: u64) -> Result<u64, Failure> {
        let ends = seconds(self.exp)?.saturating_add(LEEWAY_S);
        if ends <= now_unix_s {
            return Err(Failure::Expired);
        }
        let latest = now_unix_s.saturating_add(LEEWAY_S);
        for begin in [self.nbf, self.iat].into_iter().flatten() {
            if seconds(begin)? > latest {
                return Err(Failure::NotYetValid);
            }
        }
        let Some(issued) = self.iat else {
            return Ok(ends);
        };
        let oldest = seconds(issued)?.saturating_add(TOKEN_AGE_S_MAX);
        if oldest <= now_unix_s {
            return Err(Failure::Expired);
        }
        Ok(ends.min(oldest))
    }

    fn has_scope(&self, scope: &str) -> bool {
        let has = |scopes: &OneOrMore| scopes.any(|text| text.split(' ').any(|one| one == scope));
        [&self.scope, &self.scp].into_iter().flatten().any(has)
    }
}

impl OneOrMore {
    fn any(&self, is_it: impl Fn(&str) -> bool) -> bool {
        match self {
            Self::One(text) => is_it(text),
            Self::More(texts) => texts.iter().any(|text| is_it(text)),
        }
    }
}

/// Converts a time to whole seconds. Issuers may send fractions.
fn seconds(time: f64) -> Result<u64, Failure> {
    const FAR_FUTURE: f64 = 1e11;
    if !(0.0..=FAR_FUTURE).contains(&time) {
        return Err(Failure::Malformed);
    }
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "it was just bounded"
    )]
    Ok(time as u64)
}

/// A subject is unique only at its issuer, and may contain any text: so both are hashed.
fn principal(issuer: &str, subject: &str) -> Principal {
    let mut hash = Sha256::new();
    // An issuer is a URL, which contains no NUL.
    for part in [issuer.as_bytes(), &[0], subject.as_bytes()] {
        hash.update(part);
    }
    let hash = hex(&hash.finalize()[..PRINCIPAL_BYTES]);
    let name = Name::parse(&format!("oidc:{hash}"));
    Principal::new(name.expect("it is short and printable"))
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::oidc::settings::{IssuerUrl, USE_SCOPE};

    const NOW: u64 = 1_800_000_000;

    fn settings() -> OidcSettings {
        OidcSettings {
            issuer: IssuerUrl::parse("https://id.example").unwrap(),
            config_url: None,
            audiences: vec!["https://cells.example/mcp".to_owned()],
            required_scopes: vec![USE_SCOPE.to_owned()],
        }
    }

    /// Checks valid claims with this change applied.
    fn checked(change: &Value) -> Result<Subject, Failure> {
        let mut claims = json!({
            "iss": "https://id.example",
            "sub": "alice",
            "aud": "https://cells.example/mcp",
            "exp": NOW + 600,
            "iat": NOW - 10,
            "scope": "openid hotcell:use",
        });
        for (name, value) in change.as_object().unwrap() {
            claims[name] = value.clone();
        }
        check(claims.to_string().as_bytes(), &settings(), NOW)
    }

    #[test]
    fn a_good_token_is_its_subjects_until_it_ends() {
        let subject = checked(&json!({ "preferred_username": "Alice" })).unwrap();
        assert!(subject.caller.principal.as_str().starts_with("oidc:"));
        assert!(!subject.caller.is_admin);
        assert_eq!(subject.display.unwrap().as_str(), "Alice");
        assert_eq!(subject.ends_unix_s, NOW + 600 + LEEWAY_S);
    }

    #[test]
    fn audiences_and_scopes_come_in_every_form_that_issuers_use() {
        for change in [
            json!({ "aud": ["other", "https://cells.example/mcp"] }),
            json!({ "scope": null, "scp": "hotcell:use" }),
            json!({ "scope": null, "scp": ["a", "hotcell:use"] }),
            json!({ "exp": 1_800_000_000.5 }),
            json!({ "exp": NOW - LEEWAY_S + 1 }),
            json!({ "nbf": NOW + LEEWAY_S }),
        ] {
            assert!(checked(&change).is_ok(), "{change}");
        }
        let admin = checked(&json!({ "scope": "hotcell:use hotcell:admin" })).unwrap();
        assert!(admin.caller.is_admin);
    }

    #[test]
    fn each_wrong_claim_is_refused_for_its_reason() {
        for (change, failure) in [
            (json!({ "iss": "https://id.example/" }), Failure::Issuer),
            (json!({ "iss": "https://evil.example" }), Failure::Issuer),
            (json!({ "aud": "https://cells.example" }), Failure::Audience),
            (json!({ "aud": [] }), Failure::Audience),
            (json!({ "exp": NOW - LEEWAY_S }), Failure::Expired),
            (
                json!({ "iat": NOW - TOKEN_AGE_S_MAX, "exp": NOW + 9_999 }),
                Failure::Expired,
            ),
            (json!({ "nbf": NOW + LEEWAY_S + 1 }), Failure::NotYetValid),
            (json!({ "iat": NOW + LEEWAY_S + 1 }), Failure::NotYetValid),
            (json!({ "scope": "openid" }), Failure::Scope),
            (json!({ "scope": "hotcell:user" }), Failure::Scope),
            (json!({ "scope": null }), Failure::Scope),
            (json!({ "exp": "tomorrow" }), Failure::Malformed),
            (json!({ "exp": null }), Failure::Malformed),
            (json!({ "exp": -1 }), Failure::Malformed),
            (json!({ "exp": 1e300 }), Failure::Malformed),
            (json!({ "sub": "" }), Failure::Malformed),
            (
                json!({ "sub": "x".repeat(SUBJECT_BYTES_MAX + 1) }),
                Failure::Malformed,
            ),
            (json!({ "aud": 7 }), Failure::Malformed),
        ] {
            assert_eq!(checked(&change).unwrap_err(), failure, "{change}");
        }
    }

    #[test]
    fn a_principal_is_an_issuer_and_a_subject_together() {
        let of = |issuer, subject| principal(issuer, subject);
        assert_eq!(of("https://a", "x"), of("https://a", "x"));
        assert_ne!(of("https://a", "x"), of("https://b", "x"));
        assert_ne!(of("https://a", "x"), of("https://a", "y"));
        assert_ne!(of("https://a", "bx"), of("https://ab", "x"));
    }
}
