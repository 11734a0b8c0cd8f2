//! An issuer of access tokens: serves its configuration and its only key, and signs one token.

use std::io::{BufRead, BufReader, Write};
use std::net::{TcpListener, TcpStream};
use std::time::{Duration, SystemTime};

use anyhow::{Context, Result, anyhow};
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use ring::rand::SystemRandom;
use ring::signature::{ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair, KeyPair};
use serde_json::{Value, json};

/// The token's audience.
pub(super) const AUDIENCE: &str = "hotcell-bench";

/// How long the token is valid: longer than any run.
const TOKEN_LIFETIME: Duration = Duration::from_hours(2);

/// An issuer that listens until this process ends.
pub(super) struct Issuer {
    pub(super) url: String,
    /// An access token with both scopes.
    pub(super) token: String,
}

impl Issuer {
    pub(super) fn start() -> Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0")?;
        let url = format!("http://{}", listener.local_addr()?);
        let random = SystemRandom::new();
        let algorithm = &ECDSA_P256_SHA256_FIXED_SIGNING;
        let failed = |_| anyhow!("make a key");
        let key = EcdsaKeyPair::generate_pkcs8(algorithm, &random).map_err(failed)?;
        let key = EcdsaKeyPair::from_pkcs8(algorithm, key.as_ref(), &random);
        let key = key.map_err(|error| anyhow!("read a key: {error}"))?;
        let token = token(&url, &key, &random)?;
        let (configuration, keys) = (
            json!({"issuer": url, "jwks_uri": format!("{url}/keys")}),
            json!({"keys": [public(&key)]}),
        );
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let _ = answer(&stream, &configuration, &keys);
            }
        });
        Ok(Self { url, token })
    }
}

fn token(url: &str, key: &EcdsaKeyPair, random: &SystemRandom) -> Result<String> {
    let now = SystemTime::UNIX_EPOCH.elapsed()?.as_secs();
    let header = json!({"alg": "ES256", "kid": "bench", "typ": "at+jwt"});
    let claims = json!({
        "iss": url,
        "sub": "bench",
        "aud": AUDIENCE,
        "iat": now,
        "exp": now + TOKEN_LIFETIME.as_secs(),
        "scope": "hotcell:use hotcell:admin",
    });
    let part = |value: &Value| encoded(value.to_string().as_bytes());
    let message = format!("{}.{}", part(&header), part(&claims));
    let signature = key.sign(random, message.as_bytes());
    let signature = signature.map_err(|_| anyhow!("sign a token"))?;
    Ok(format!("{message}.{}", encoded(signature.as_ref())))
}

fn public(key: &EcdsaKeyPair) -> Value {
    let (x, y) = key.public_key().as_ref()[1..].split_at(32);
    json!({
        "kty": "EC", "crv": "P-256", "kid": "bench", "use": "sig",
        "x": encoded(x), "y": encoded(y),
    })
}

fn encoded(bytes: &[u8]) -> String {
    URL_SAFE_NO_PAD.encode(bytes)
}

fn answer(stream: &TcpStream, configuration: &Value, keys: &Value) -> Result<()> {
    let mut lines = BufReader::new(stream).lines();
    let request = lines.next().context("a request")??;
    for line in lines {
        if line?.is_empty() {
            break;
        }
    }
    let body = if request.starts_with("GET /keys ") {
        keys
    } else {
        configuration
    };
    let body = body.to_string();
    let head = format!(
        "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nConnection: close\r\nContent-Length: {}\r\n\r\n",
        body.len()
    );
    let mut stream = stream;
    stream.write_all((head + &body).as_bytes())?;
    Ok(())
}
