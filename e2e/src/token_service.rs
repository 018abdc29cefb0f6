//! A token service, as registries refer to: it takes a password and issues a signed token with its holder's rights.

use std::path::Path;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use anyhow::{Context as _, Result, anyhow};
use base64::prelude::{BASE64_STANDARD, BASE64_URL_SAFE_NO_PAD, Engine as _};
use local_cluster::registry::Access;
use ring::rand::SystemRandom;
use ring::signature::{ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair, KeyPair as _};
use serde_json::{Value, json};

use crate::http_server::{Answer, Asked, HttpServer};

const ISSUER: &str = "e2e-token-service";
const SERVICE: &str = "e2e-registry";
const KEY: &str = "e2e";

/// How long a token is valid.
const VALID: Duration = Duration::from_mins(5);

/// The service; it ends with this value.
pub struct TokenService {
    server: HttpServer,
    public_key: Value,
}

impl TokenService {
    /// A service that gives tokens to one user.
    ///
    /// # Errors
    /// When it cannot be started.
    pub fn start(username: &str, password: &str) -> Result<Self> {
        let random = SystemRandom::new();
        let private = EcdsaKeyPair::generate_pkcs8(&ECDSA_P256_SHA256_FIXED_SIGNING, &random)
            .map_err(|_| anyhow!("could not generate a key"))?;
        let key = EcdsaKeyPair::from_pkcs8(&ECDSA_P256_SHA256_FIXED_SIGNING, private.as_ref(), &random)
            .map_err(|_| anyhow!("could not read the key that was just made"))?;
        let public_key = public_key(&key)?;
        let known = format!(
            "Basic {}",
            BASE64_STANDARD.encode(format!("{username}:{password}"))
        );
        let server = HttpServer::start(move |asked| match &asked.authorization {
            Some(authorization) if *authorization == known => match token(&key, &random, asked) {
                Ok(token) => Answer::Content(
                    json!({"token": token, "expires_in": VALID.as_secs()})
                        .to_string()
                        .into(),
                ),
                Err(_) => Answer::Status(500),
            },
            _ => Answer::AskPassword,
        })?;
        Ok(Self { server, public_key })
    }

    /// The settings by which a registry trusts this service; `folder` gets the file with its key.
    ///
    /// # Errors
    /// When the file cannot be written.
    pub fn access(&self, folder: &Path) -> Result<Access> {
        let keys = folder.join("token-keys.json");
        std::fs::write(&keys, json!({"keys": [self.public_key]}).to_string())?;
        Ok(Access::Token {
            realm: self.server.url("/token"),
            service: SERVICE.to_owned(),
            issuer: ISSUER.to_owned(),
            keys,
        })
    }

    /// `127.0.0.1:port`.
    pub fn host(&self) -> String {
        self.server.host()
    }

    /// Who requested tokens.
    pub fn asked(&self) -> Vec<Asked> {
        self.server.asked()
    }
}

/// As a JSON Web Key: the point of the curve without its first byte, in halves.
fn public_key(key: &EcdsaKeyPair) -> Result<Value> {
    let point = key.public_key().as_ref();
    let (x, y) = point
        .get(1..)
        .and_then(|halves| halves.split_at_checked(32))
        .context("a point has 65 bytes")?;
    let encode = |half: &[u8]| BASE64_URL_SAFE_NO_PAD.encode(half);
    Ok(json!({
        "kty": "EC", "crv": "P-256", "kid": KEY, "alg": "ES256", "use": "sig", "x": encode(x), "y": encode(y),
    }))
}

/// A JSON Web Token for the scope in the query, as in the registry's documentation of token authentication.
fn token(key: &EcdsaKeyPair, random: &SystemRandom, asked: &Asked) -> Result<String> {
    let now = SystemTime::now().duration_since(UNIX_EPOCH)?.as_secs();
    let claims = json!({
        "iss": ISSUER,
        "sub": "e2e",
        "aud": SERVICE,
        "iat": now,
        "nbf": now.saturating_sub(60),
        "exp": now + VALID.as_secs(),
        "jti": now.to_string(),
        "access": access(&asked.query),
    });
    let header = json!({"typ": "JWT", "alg": "ES256", "kid": KEY});
    let encode = |part: &Value| BASE64_URL_SAFE_NO_PAD.encode(part.to_string());
    let signed = format!("{}.{}", encode(&header), encode(&claims));
    let signature = key
        .sign(random, signed.as_bytes())
        .map_err(|_| anyhow!("could not sign"))?;
    Ok(format!("{signed}.{}", BASE64_URL_SAFE_NO_PAD.encode(signature)))
}

/// `scope=repository:charts/web:pull,push`, once or several times.
fn access(query: &str) -> Vec<Value> {
    url::form_urlencoded::parse(query.as_bytes())
        .filter(|(name, _)| name == "scope")
        .flat_map(|(_, scopes)| scopes.split(' ').map(str::to_owned).collect::<Vec<_>>())
        .filter_map(|scope| {
            let (kind, rest) = scope.split_once(':')?;
            let (name, actions) = rest.rsplit_once(':')?;
            Some(json!({"type": kind, "name": name, "actions": actions.split(',').collect::<Vec<_>>()}))
        })
        .collect()
}
