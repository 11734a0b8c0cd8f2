//! A small issuer: it signs whatever a test likes, and counts who asks for its keys.

#![expect(clippy::unwrap_used, reason = "a test may fail here")]

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use hotcell_auth::{IssuerUrl, Oidc, OidcSettings, USE_SCOPE};
use ring::rand::SystemRandom;
use ring::signature::{
    ECDSA_P256_SHA256_FIXED_SIGNING, ECDSA_P384_SHA384_FIXED_SIGNING, EcdsaKeyPair, Ed25519KeyPair,
    KeyPair,
};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

/// What our tokens are for.
pub(crate) const AUDIENCE: &str = "https://cells.example/mcp";

/// An issuer that listens.
pub(crate) struct Issuer {
    pub url: String,
    shared: Arc<Shared>,
}

#[derive(Default)]
struct Shared {
    url: Mutex<String>,
    keys: Mutex<Vec<Value>>,
    is_down: Mutex<bool>,
    fetches: AtomicUsize,
}

impl Issuer {
    pub(crate) async fn start(keys: &[&Signer]) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let shared = Arc::new(Shared::default());
        url.clone_into(&mut shared.url.lock().unwrap());
        let issuer = Self {
            url,
            shared: Arc::clone(&shared),
        };
        issuer.has(keys);
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let shared = Arc::clone(&shared);
                tokio::spawn(async move { shared.answer(stream).await });
            }
        });
        issuer
    }

    /// From now on these are its keys.
    pub(crate) fn has(&self, keys: &[&Signer]) {
        *self.shared.keys.lock().unwrap() = keys.iter().map(|key| key.jwk()).collect();
    }

    pub(crate) fn goes_down(&self) {
        *self.shared.is_down.lock().unwrap() = true;
    }

    /// How often its keys were asked for.
    pub(crate) fn fetches(&self) -> usize {
        self.shared.fetches.load(Ordering::SeqCst)
    }

    pub(crate) fn oidc(&self) -> Oidc {
        let settings = OidcSettings {
            issuer: IssuerUrl::parse(&self.url).unwrap(),
            config_url: None,
            audiences: vec![AUDIENCE.to_owned()],
            required_scopes: vec![USE_SCOPE.to_owned()],
        };
        Oidc::new(settings).unwrap()
    }

    /// Claims that are good.
    pub(crate) fn claims(&self) -> Value {
        let now = std::time::SystemTime::UNIX_EPOCH
            .elapsed()
            .unwrap()
            .as_secs();
        json!({ "iss": self.url, "sub": "alice", "aud": AUDIENCE, "iat": now, "exp": now + 300, "scope": "hotcell:use" })
    }
}

impl Shared {
    async fn answer(&self, mut stream: TcpStream) {
        let mut head = Vec::new();
        while !head.ends_with(b"\r\n\r\n") {
            let Ok(byte) = stream.read_u8().await else {
                return;
            };
            head.push(byte);
        }
        if *self.is_down.lock().unwrap() {
            return;
        }
        let url = self.url.lock().unwrap().clone();
        let body = if head.starts_with(b"GET /keys ") {
            self.fetches.fetch_add(1, Ordering::SeqCst);
            json!({ "keys": *self.keys.lock().unwrap() })
        } else {
            json!({ "issuer": url, "jwks_uri": format!("{url}/keys") })
        };
        let body = body.to_string();
        let answer = format!(
            "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nConnection: close\r\nContent-Length: {}\r\n\r\n{body}",
            body.len()
        );
        let _ = stream.write_all(answer.as_bytes()).await;
    }
}

/// A private key.
pub(crate) struct Signer {
    pub id: &'static str,
    pair: Pair,
}

enum Pair {
    P256(EcdsaKeyPair),
    P384(EcdsaKeyPair),
    Ed25519(Ed25519KeyPair),
}

impl Signer {
    pub(crate) fn p256(id: &'static str) -> Self {
        let algorithm = &ECDSA_P256_SHA256_FIXED_SIGNING;
        let random = SystemRandom::new();
        let key = EcdsaKeyPair::generate_pkcs8(algorithm, &random).unwrap();
        let pair = EcdsaKeyPair::from_pkcs8(algorithm, key.as_ref(), &random).unwrap();
        Self {
            id,
            pair: Pair::P256(pair),
        }
    }

    pub(crate) fn p384(id: &'static str) -> Self {
        let algorithm = &ECDSA_P384_SHA384_FIXED_SIGNING;
        let random = SystemRandom::new();
        let key = EcdsaKeyPair::generate_pkcs8(algorithm, &random).unwrap();
        let pair = EcdsaKeyPair::from_pkcs8(algorithm, key.as_ref(), &random).unwrap();
        Self {
            id,
            pair: Pair::P384(pair),
        }
    }

    pub(crate) fn ed25519(id: &'static str) -> Self {
        let key = Ed25519KeyPair::generate_pkcs8(&SystemRandom::new()).unwrap();
        let pair = Ed25519KeyPair::from_pkcs8(key.as_ref()).unwrap();
        Self {
            id,
            pair: Pair::Ed25519(pair),
        }
    }

    pub(crate) fn algorithm(&self) -> &'static str {
        match self.pair {
            Pair::P256(_) => "ES256",
            Pair::P384(_) => "ES384",
            Pair::Ed25519(_) => "EdDSA",
        }
    }

    pub(crate) fn public_key(&self) -> Vec<u8> {
        match &self.pair {
            Pair::P256(pair) | Pair::P384(pair) => pair.public_key().as_ref().to_vec(),
            Pair::Ed25519(pair) => pair.public_key().as_ref().to_vec(),
        }
    }

    fn jwk(&self) -> Value {
        let key = self.public_key();
        let half = key.len() / 2 + 1;
        let (kind, curve, x, y) = match self.pair {
            Pair::P256(_) => ("EC", "P-256", &key[1..half], Some(&key[half..])),
            Pair::P384(_) => ("EC", "P-384", &key[1..half], Some(&key[half..])),
            Pair::Ed25519(_) => ("OKP", "Ed25519", &key[..], None),
        };
        json!({ "kty": kind, "crv": curve, "kid": self.id, "use": "sig", "x": encoded(x), "y": y.map(encoded) })
    }

    /// A token with this header and these claims.
    pub(crate) fn sign(&self, header: &Value, claims: &Value) -> String {
        let message = message(header, claims);
        let signature = match &self.pair {
            Pair::P256(pair) | Pair::P384(pair) => {
                let signed = pair.sign(&SystemRandom::new(), message.as_bytes());
                signed.unwrap().as_ref().to_vec()
            }
            Pair::Ed25519(pair) => pair.sign(message.as_bytes()).as_ref().to_vec(),
        };
        format!("{message}.{}", encoded(&signature))
    }

    /// The header of an honest token.
    pub(crate) fn header(&self) -> Value {
        json!({ "alg": self.algorithm(), "kid": self.id, "typ": "at+jwt" })
    }

    pub(crate) fn token(&self, claims: &Value) -> String {
        self.sign(&self.header(), claims)
    }
}

/// What is signed of a token.
pub(crate) fn message(header: &Value, claims: &Value) -> String {
    let part = |value: &Value| encoded(value.to_string().as_bytes());
    format!("{}.{}", part(header), part(claims))
}

pub(crate) fn encoded(bytes: &[u8]) -> String {
    URL_SAFE_NO_PAD.encode(bytes)
}
