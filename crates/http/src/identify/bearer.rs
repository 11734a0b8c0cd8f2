//! The bearer token of a request: exactly one, in the header, and not too long.

use hotcell_auth::Failure;
use http::HeaderValue;
use http::header::AUTHORIZATION;
use http::request::Parts;

/// The only supported scheme.
const SCHEME: &str = "Bearer";

/// The query parameter in which RFC 6750 lets clients send a token. It is refused here, because
/// URLs are logged.
const QUERY_PARAMETER: &str = "access_token";

/// The token of a request. Two headers are refused: a proxy in front of this server may have
/// checked the other one.
pub(super) fn token(parts: &Parts, bytes_max: usize) -> Result<&str, Failure> {
    if has_token_in_query(parts) {
        return Err(Failure::InQuery);
    }
    let mut values = parts.headers.get_all(AUTHORIZATION).iter();
    match (values.next(), values.next()) {
        (None, _) => Err(Failure::Missing),
        (Some(value), None) => of_value(value, bytes_max),
        (Some(_), Some(_)) => Err(Failure::Malformed),
    }
}

fn of_value(value: &HeaderValue, bytes_max: usize) -> Result<&str, Failure> {
    if value.len() > bytes_max {
        return Err(Failure::TooLong);
    }
    let value = value.to_str().map_err(|_| Failure::Malformed)?;
    let (scheme, token) = value.split_once(' ').ok_or(Failure::Malformed)?;
    let token = token.trim_start_matches(' ');
    let is_legal = |byte: u8| byte.is_ascii_alphanumeric() || b"-._~+/=".contains(&byte);
    let is_token = !token.is_empty() && token.bytes().all(is_legal);
    if scheme.eq_ignore_ascii_case(SCHEME) && is_token {
        Ok(token)
    } else {
        Err(Failure::Malformed)
    }
}

fn has_token_in_query(parts: &Parts) -> bool {
    let query = parts.uri.query().unwrap_or_default();
    let name = |pair: &str| pair.split('=').next().unwrap_or_default().to_owned();
    query
        .split('&')
        .any(|pair| name(pair).eq_ignore_ascii_case(QUERY_PARAMETER))
}

#[cfg(test)]
mod tests {
    use http::Request;

    use super::*;

    fn read(uri: &str, values: &[&[u8]]) -> Result<String, Failure> {
        let mut request = Request::builder().uri(uri);
        for value in values {
            let value = HeaderValue::from_bytes(value).expect("a header's value");
            request = request.header("authorization", value);
        }
        let (parts, ()) = request.body(()).expect("a request").into_parts();
        token(&parts, 64).map(str::to_owned)
    }

    #[test]
    fn one_header_with_one_token_is_read() {
        for value in [
            "Bearer abc.DEF-1_2~+/=",
            "bearer abc.DEF-1_2~+/=",
            "BEARER   abc.DEF-1_2~+/=",
        ] {
            assert_eq!(
                read("/mcp", &[value.as_bytes()]).as_deref(),
                Ok("abc.DEF-1_2~+/=")
            );
        }
    }

    #[test]
    fn everything_else_is_told_apart() {
        let long = format!("Bearer {}", "x".repeat(64));
        let cases: [(&[&[u8]], Failure); 11] = [
            (&[], Failure::Missing),
            (&[b"Bearer a", b"Bearer a"], Failure::Malformed),
            (&[b"Bearer a", b"Basic b"], Failure::Malformed),
            (&[b"Bearer a, Bearer b"], Failure::Malformed),
            (&[b"Bearer"], Failure::Malformed),
            (&[b"Bearer "], Failure::Malformed),
            (&[b"Bearer\ta"], Failure::Malformed),
            (&[b"Basic YTpi"], Failure::Malformed),
            (&[b"Bearer a b"], Failure::Malformed),
            (&[b"Bearer \xff"], Failure::Malformed),
            (&[long.as_bytes()], Failure::TooLong),
        ];
        for (values, failure) in cases {
            assert_eq!(read("/mcp", values), Err(failure), "{values:?}");
        }
    }

    #[test]
    fn a_token_in_the_url_is_refused_even_beside_a_header() {
        for uri in [
            "/mcp?access_token=abc",
            "/mcp?a=1&Access_Token=abc",
            "/mcp?access_token",
        ] {
            assert_eq!(read(uri, &[b"Bearer abc"]), Err(Failure::InQuery), "{uri}");
        }
        assert!(read("/mcp?path=access_token", &[b"Bearer abc"]).is_ok());
    }
}
