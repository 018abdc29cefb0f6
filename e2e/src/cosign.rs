//! Writes signatures in cosign's formats beside an artifact in a registry, as `cosign sign --key` does (cosign's
//! `specs/BUNDLE_SPEC.md`), also with `--new-bundle-format=false` (`specs/SIGNATURE_SPEC.md`). cosign itself is built
//! from more than five hundred modules, and the formats are only JSON texts, a signature and a tag.

use anyhow::{Context as _, Result, anyhow};
use base64::prelude::{BASE64_STANDARD, Engine as _};
use reqwest::header::{ACCEPT, CONTENT_TYPE, LOCATION};
use reqwest::{Client, Response};
use ring::rand::SystemRandom;
use ring::signature::{ECDSA_P256_SHA256_ASN1_SIGNING, EcdsaKeyPair, KeyPair as _};
use serde_json::{Value, json};

use crate::chart::sha256;
use crate::layout::Layout;

const MANIFEST: &str = "application/vnd.oci.image.manifest.v1+json";
const CONFIG: &str = "application/vnd.oci.image.config.v1+json";
const PAYLOAD: &str = "application/vnd.dev.cosign.simplesigning.v1+json";
const SIGNATURE: &str = "dev.cosignproject.cosign/signature";
const INDEX: &str = "application/vnd.oci.image.index.v1+json";
const BUNDLE: &str = "application/vnd.dev.sigstore.bundle.v0.3+json";
const STATEMENT: &str = "application/vnd.in-toto+json";

/// A key pair as `cosign generate-key-pair` makes it.
pub struct CosignKey {
    pair: EcdsaKeyPair,
    random: SystemRandom,
}

/// What cosign puts behind the tag of a signature.
pub struct Signed {
    /// The text that is signed.
    pub payload: String,
    /// The signature over it, in base64.
    pub signature: String,
}

impl CosignKey {
    /// A new key.
    ///
    /// # Errors
    /// When this machine has no random numbers.
    pub fn generate() -> Result<Self> {
        let random = SystemRandom::new();
        let algorithm = &ECDSA_P256_SHA256_ASN1_SIGNING;
        let private = EcdsaKeyPair::generate_pkcs8(algorithm, &random)
            .map_err(|_| anyhow!("could not generate a key"))?;
        let pair = EcdsaKeyPair::from_pkcs8(algorithm, private.as_ref(), &random)
            .map_err(|_| anyhow!("could not read the key that was just made"))?;
        Ok(Self { pair, random })
    }

    /// `cosign.pub`.
    pub fn public_key(&self) -> String {
        // SubjectPublicKeyInfo of a point of P-256, up to the point.
        const HEAD: [u8; 26] = [
            0x30, 0x59, 0x30, 0x13, 0x06, 0x07, 0x2a, 0x86, 0x48, 0xce, 0x3d, 0x02, 0x01, 0x06, 0x08, 0x2a,
            0x86, 0x48, 0xce, 0x3d, 0x03, 0x01, 0x07, 0x03, 0x42, 0x00,
        ];
        let der = BASE64_STANDARD.encode([&HEAD, self.pair.public_key().as_ref()].concat());
        format!("-----BEGIN PUBLIC KEY-----\n{der}\n-----END PUBLIC KEY-----\n")
    }

    /// Signs the manifest with this digest.
    ///
    /// # Errors
    /// When this machine has no random numbers.
    pub fn sign(&self, reference: &str, manifest: &str) -> Result<Signed> {
        let payload = json!({
            "critical": {
                "identity": {"docker-reference": reference},
                "image": {"docker-manifest-digest": manifest},
                "type": "cosign container image signature",
            },
            "optional": null,
        })
        .to_string();
        Ok(Signed {
            signature: self.signature(payload.as_bytes())?,
            payload,
        })
    }

    /// Signs the statement of this predicate about the manifest with this digest: a bundle, without the entry of a
    /// transparency log.
    ///
    /// # Errors
    /// When this machine has no random numbers.
    pub fn bundle(&self, predicate: &str, manifest: &str) -> Result<Value> {
        let digest = manifest.trim_start_matches("sha256:");
        let statement = json!({
            "_type": "https://in-toto.io/Statement/v1",
            "subject": [{"digest": {"sha256": digest}}],
            "predicateType": predicate,
            "predicate": {},
        })
        .to_string();
        let signed = format!(
            "DSSEv1 {} {STATEMENT} {} {statement}",
            STATEMENT.len(),
            statement.len()
        );
        Ok(json!({
            "mediaType": BUNDLE,
            "verificationMaterial": {"publicKey": {"hint": "e2e"}},
            "dsseEnvelope": {
                "payload": BASE64_STANDARD.encode(statement),
                "payloadType": STATEMENT,
                "signatures": [{"sig": self.signature(signed.as_bytes())?}],
            },
        }))
    }

    fn signature(&self, text: &[u8]) -> Result<String> {
        let signature = self.pair.sign(&self.random, text);
        let signature = signature.map_err(|_| anyhow!("could not sign"))?;
        Ok(BASE64_STANDARD.encode(signature))
    }
}

/// A repository of a registry with plain HTTP and without a login.
pub struct Repository {
    root: String,
    client: Client,
}

impl Repository {
    /// `host:port` and the path.
    pub fn new(registry: &str, path: &str) -> Self {
        // A client needs a TLS provider; other code may have chosen one before.
        let _ = rustls::crypto::ring::default_provider().install_default();
        Self {
            root: format!("http://{registry}/v2/{path}"),
            client: Client::new(),
        }
    }

    /// The digest of the manifest behind a tag.
    ///
    /// # Errors
    /// When the registry has none.
    pub fn digest(&self, tag: &str) -> Result<String> {
        run(async {
            let get = self
                .client
                .get(format!("{}/manifests/{tag}", self.root))
                .header(ACCEPT, MANIFEST);
            Ok(sha256(&checked(get.send().await?).await?.bytes().await?))
        })
    }

    /// Stores a signature under the tag derived from the digest of the signed artifact.
    ///
    /// # Errors
    /// When the registry does not take it.
    pub fn put_signature(&self, manifest: &str, signed: &Signed) -> Result<()> {
        run(async {
            let config = self.put_blob(b"{}", CONFIG).await?;
            let mut layer = self.put_blob(signed.payload.as_bytes(), PAYLOAD).await?;
            layer["annotations"] = json!({SIGNATURE: signed.signature});
            let artifact = json!({
                "schemaVersion": 2, "mediaType": MANIFEST, "config": config, "layers": [layer],
            });
            let tag = format!("{}.sig", manifest.replace(':', "-"));
            self.put_manifest(&tag, MANIFEST, &artifact).await
        })
    }

    /// Adds a bundle to the list of artifacts that refer to a manifest. The list is stored under a tag if a registry
    /// does not maintain it itself, as ours does not.
    ///
    /// # Errors
    /// When the registry does not take it.
    pub fn put_bundle(&self, manifest: &str, bundle: &Value) -> Result<()> {
        run(async {
            let config = self.put_blob(b"{}", "application/vnd.oci.empty.v1+json").await?;
            let layer = self.put_blob(bundle.to_string().as_bytes(), BUNDLE).await?;
            let artifact = json!({
                "schemaVersion": 2, "mediaType": MANIFEST, "artifactType": BUNDLE, "config": config, "layers": [layer],
                "subject": {"mediaType": MANIFEST, "digest": manifest},
            });
            let digest = sha256(artifact.to_string().as_bytes());
            self.put_manifest(&digest, MANIFEST, &artifact).await?;
            let size = artifact.to_string().len();
            let index = json!({
                "schemaVersion": 2, "mediaType": INDEX, "manifests": [
                    {"mediaType": MANIFEST, "digest": digest, "size": size, "artifactType": BUNDLE},
                ],
            });
            self.put_manifest(&manifest.replace(':', "-"), INDEX, &index)
                .await
        })
    }

    /// Uploads everything in a layout, byte for byte.
    ///
    /// # Errors
    /// When the registry does not take it.
    pub fn put_layout(&self, layout: &Layout) -> Result<()> {
        run(async {
            let root = layout.root();
            if root["mediaType"] == INDEX {
                let index: Value = serde_json::from_slice(layout.blob(root)?)?;
                for manifest in index["manifests"].as_array().into_iter().flatten() {
                    let digest = manifest["digest"].as_str().context("a manifest has no digest")?;
                    self.put_manifest_of(layout, manifest, digest).await?;
                }
                return self.put(layout.tag(), INDEX, layout.blob(root)?.to_vec()).await;
            }
            self.put_manifest_of(layout, root, layout.tag()).await
        })
    }

    async fn put_manifest_of(&self, layout: &Layout, descriptor: &Value, reference: &str) -> Result<()> {
        let content = layout.blob(descriptor)?;
        let manifest: Value = serde_json::from_slice(content)?;
        let layers = manifest["layers"].as_array().into_iter().flatten();
        for blob in layers.chain([&manifest["config"]]) {
            let media_type = blob["mediaType"].as_str().context("a blob has no type")?;
            self.put_blob(layout.blob(blob)?, media_type).await?;
        }
        self.put(reference, MANIFEST, content.to_vec()).await
    }

    async fn put_manifest(&self, reference: &str, media_type: &str, manifest: &Value) -> Result<()> {
        self.put(reference, media_type, manifest.to_string().into_bytes())
            .await
    }

    async fn put(&self, reference: &str, media_type: &str, manifest: Vec<u8>) -> Result<()> {
        let put = self
            .client
            .put(format!("{}/manifests/{reference}", self.root))
            .header(CONTENT_TYPE, media_type)
            .body(manifest);
        checked(put.send().await?).await.map(drop)
    }

    /// Uploads a blob and gives its descriptor.
    async fn put_blob(&self, content: &[u8], media_type: &str) -> Result<Value> {
        let start = self.client.post(format!("{}/blobs/uploads/", self.root));
        let started = checked(start.send().await?).await?;
        let location = started
            .headers()
            .get(LOCATION)
            .context("the registry names no place for a blob")?;
        let mut place = started.url().join(location.to_str()?)?;
        let digest = sha256(content);
        place.query_pairs_mut().append_pair("digest", &digest);
        checked(self.client.put(place).body(content.to_vec()).send().await?).await?;
        Ok(json!({"mediaType": media_type, "digest": digest, "size": content.len()}))
    }
}

async fn checked(response: Response) -> Result<Response> {
    let status = response.status();
    if status.is_success() {
        return Ok(response);
    }
    let url = response.url().clone();
    let said = response.text().await?;
    Err(anyhow!("{url} answered {status}: {said}"))
}

fn run<T>(work: impl Future<Output = Result<T>>) -> Result<T> {
    tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?
        .block_on(work)
}
