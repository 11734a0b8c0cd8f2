//! Authentication at a registry.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use reqwest::header::{HeaderValue, WWW_AUTHENTICATE};
use reqwest::{Response, Url};
use serde::Deserialize;

use super::{Login, Registry, client};
use crate::ImageError;
use crate::bounds::TOKEN_BYTES_MAX;

/// A parsed `WWW-Authenticate` header.
#[derive(Debug, PartialEq, Eq)]
enum Challenge {
    Basic,
    Bearer {
        realm: String,
        service: Option<String>,
    },
}

#[derive(Deserialize)]
struct Token {
    token: Option<String>,
    access_token: Option<String>,
}

impl Registry {
    /// The header that answers a registry's challenge. A challenge of another host, to which the
    /// registry redirected us, is not answered: that host would choose where the credentials go.
    pub(super) async fn authorize(&self, response: &Response) -> Result<HeaderValue, ImageError> {
        if !client::is_same_origin(response.url(), &self.origin) {
            return Err(ImageError::invalid(
                "a registry's challenge",
                "it came from another host, to which the registry redirects",
            ));
        }
        let challenge = response
            .headers()
            .get_all(WWW_AUTHENTICATE)
            .iter()
            .find_map(|value| Challenge::parse(value.to_str().ok()?));
        let value = match (challenge, &self.login) {
            (Some(Challenge::Basic), Some(Login::Password { user, password })) => {
                basic(user, password)
            }
            (Some(Challenge::Bearer { realm, service }), _) => {
                let token = self.token(&realm, service.as_deref()).await?;
                format!("Bearer {token}")
            }
            (Some(Challenge::Basic) | None, _) => return Err(self.denied()),
        };
        let mut value = HeaderValue::from_str(&value).map_err(|_| self.denied())?;
        value.set_sensitive(true);
        Ok(value)
    }

    async fn token(&self, realm: &str, service: Option<&str>) -> Result<String, ImageError> {
        let url = self.realm(realm)?;
        let scope = format!("repository:{}:pull", self.reference.repository());
        let mut fields = vec![("scope", scope.as_str())];
        fields.extend(service.map(|service| ("service", service)));
        let request = match &self.login {
            Some(Login::Token(token)) => {
                fields.extend([("grant_type", "refresh_token"), ("client_id", "hotcell")]);
                fields.push(("refresh_token", token));
                let form = Url::parse_with_params("x:/", &fields).map_err(|_| self.denied())?;
                let form = form.query().unwrap_or_default().to_owned();
                let kind = "application/x-www-form-urlencoded";
                // The credentials are in the body, which a redirect would forward.
                let http = client::staying(&self.bounds)?;
                http.post(url).header("content-type", kind).body(form)
            }
            login => {
                let mut url = url;
                url.query_pairs_mut().extend_pairs(fields);
                let request = self.http.get(url);
                match login {
                    Some(Login::Password { user, password }) => {
                        request.header("authorization", basic(user, password))
                    }
                    _ => request,
                }
            }
        };
        let response = self.within(request.send()).await?;
        match response.status().as_u16() {
            200 => {}
            status if status >= 500 || status == 429 => {
                let registry = self.reference.registry().to_owned();
                return Err(ImageError::Status { registry, status });
            }
            _ => return Err(self.denied()),
        }
        let body = self.body(response, "a token", TOKEN_BYTES_MAX).await?;
        let token: Option<Token> = serde_json::from_slice(&body).ok();
        token
            .and_then(|token| token.token.or(token.access_token))
            .ok_or_else(|| ImageError::invalid("a token", "the registry sent none"))
    }

    /// The token URL: the one that the registry names, if both use TLS; otherwise only on the
    /// registry's own origin.
    fn realm(&self, realm: &str) -> Result<Url, ImageError> {
        let refused = |reason| ImageError::invalid("a registry's challenge", reason);
        let url = Url::parse(realm).map_err(|_| refused("its realm is no address"))?;
        if client::is_same_origin(&url, &self.origin) {
            return Ok(url);
        }
        match (self.origin.scheme(), url.scheme()) {
            ("https", "https") => Ok(url),
            ("https", _) => Err(refused("its realm is no address with TLS")),
            _ => Err(refused(
                "its realm is another host, which a registry without TLS may not name",
            )),
        }
    }
}

fn basic(user: &str, password: &str) -> String {
    format!("Basic {}", STANDARD.encode(format!("{user}:{password}")))
}

impl Challenge {
    fn parse(text: &str) -> Option<Self> {
        let (scheme, rest) = text.trim().split_once(' ').unwrap_or((text.trim(), ""));
        if scheme.eq_ignore_ascii_case("basic") {
            return Some(Self::Basic);
        }
        if !scheme.eq_ignore_ascii_case("bearer") {
            return None;
        }
        let field = |name| parameters(rest).find(|(key, _)| *key == name);
        Some(Self::Bearer {
            realm: field("realm")?.1,
            service: field("service").map(|(_, value)| value),
        })
    }
}

/// Parses `key="value"` pairs; a comma inside quotes belongs to the value.
fn parameters(text: &str) -> impl Iterator<Item = (&str, String)> {
    let mut rest = text;
    std::iter::from_fn(move || {
        let (key, after) = rest.split_once('=')?;
        let key = key.trim_start_matches([',', ' ']).trim();
        let (value, after) = match after.strip_prefix('"') {
            Some(quoted) => quoted.split_once('"')?,
            None => after.split_once(',').unwrap_or((after, "")),
        };
        rest = after;
        Some((key, value.trim().to_owned()))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn challenges_are_read_as_registries_write_them() {
        let hub = r#"Bearer realm="https://auth.docker.io/token",service="registry.docker.io",scope="repository:a/b:pull,push""#;
        assert_eq!(
            Challenge::parse(hub),
            Some(Challenge::Bearer {
                realm: "https://auth.docker.io/token".into(),
                service: Some("registry.docker.io".into()),
            })
        );
        assert_eq!(
            Challenge::parse("Basic realm=\"x\""),
            Some(Challenge::Basic)
        );
        let bare = Some(Challenge::Bearer {
            realm: "http://a".into(),
            service: None,
        });
        assert_eq!(Challenge::parse("bearer realm=http://a"), bare);
        for text in ["", "Bearer", "Bearer x", "Negotiate", "Bearer realm=\"a"] {
            assert_eq!(Challenge::parse(text), None, "{text}");
        }
    }
}
