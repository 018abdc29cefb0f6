//! Signed charts: Helm's provenance next to an archive or in an artifact, cosign's signatures next to an artifact.

use axum::body::Bytes;
use axum::http::StatusCode;
use axum::response::IntoResponse;
use charts::source::{Access, CosignKey, Keyring, Verify};
use serde_json::json;

use super::server::{Artifacts, Server};
use super::{HELM_LAYER, fetched, told};

const PROVENANCE: &str = "application/vnd.cncf.helm.chart.provenance.v1.prov";
const PAYLOAD: &str = "application/vnd.dev.cosign.simplesigning.v1+json";
const ROBOT: &str = "Robot <robot@example.com> (CCEC0B0CD48CA36C496EB04DE4E095AB3647BA52)";

fn read(name: &str) -> Bytes {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/signatures");
    std::fs::read(format!("{folder}/{name}")).unwrap().into()
}

fn by_keyring() -> Access {
    Access {
        verify: Some(Verify::Provenance(Keyring::parse(&read("keyring.gpg")).unwrap())),
        ..Access::default()
    }
}

fn by_cosign() -> Access {
    Access {
        verify: Some(Verify::Cosign(CosignKey::parse(&read("ec.pub")).unwrap())),
        ..Access::default()
    }
}

async fn files(provenance: &'static str) -> Server {
    Server::answering(move |request| match request.uri().path() {
        "/web-1.2.3.tgz" | "/other-1.2.3.tgz" => read("web-1.2.3.tgz").into_response(),
        path if path.contains(".prov") && !provenance.is_empty() => read(provenance).into_response(),
        _ => StatusCode::NOT_FOUND.into_response(),
    })
    .await
}

#[tokio::test]
async fn an_archive_is_checked_by_the_provenance_beside_it() {
    let server = files("web-1.2.3.tgz.prov").await;
    let url = server.url("http", "/web-1.2.3.tgz?token=t");
    let archive = fetched(&url, "", "", &by_keyring()).await.unwrap();
    assert_eq!(archive.resolved.signed_by.as_deref(), Some(ROBOT));

    let failure = fetched(&server.url("http", "/other-1.2.3.tgz"), "", "", &by_keyring())
        .await
        .unwrap_err();
    assert_eq!(
        told(&failure),
        format!(
            "the signature of /other-1.2.3.tgz at {} is not accepted: it is for [web-1.2.3.tgz], not for other-1.2.3.tgz",
            server.host()
        )
    );
    assert!(!failure.is_transient());

    let server = files("other.prov").await;
    let failure = fetched(&server.url("http", "/web-1.2.3.tgz"), "", "", &by_keyring())
        .await
        .unwrap_err();
    assert_eq!(
        told(&failure),
        format!(
            "the signature of /web-1.2.3.tgz at {} is not accepted: no key of the keyring made it; it was made by key F454CE547228001049A61378E2B5D4D9C11241FE",
            server.host()
        )
    );
    let server = files("").await;
    let failure = fetched(&server.url("http", "/web-1.2.3.tgz"), "", "", &by_keyring())
        .await
        .unwrap_err();
    assert_eq!(
        told(&failure),
        format!(
            "/web-1.2.3.tgz at {} is not signed: make its provenance file with helm package --sign, and publish that beside it with .prov at the end",
            server.host()
        )
    );
    let failure = fetched(&server.url("http", "/web-1.2.3.tgz"), "", "", &by_cosign())
        .await
        .unwrap_err();
    assert_eq!(
        told(&failure),
        format!(
            "/web-1.2.3.tgz at {} is not signed: cosign signs what is in a registry; here, use keyringRef and a .prov file",
            server.host()
        )
    );
}

fn with_provenance(provenance: Option<&str>) -> Artifacts {
    let mut artifacts = Artifacts::default();
    let mut layers = vec![(HELM_LAYER, read("web-1.2.3.tgz"), json!(null))];
    layers.extend(provenance.map(|name| (PROVENANCE, read(name), json!(null))));
    artifacts.push("1.2.3", &layers);
    artifacts
}

#[tokio::test]
async fn an_artifact_is_checked_by_the_provenance_in_it() {
    let artifacts = with_provenance(Some("web-1.2.3.tgz.prov"));
    let server = Server::answering(move |request| artifacts.answer(request)).await;
    for version in ["1.2.3", "^1"] {
        let url = server.url("oci", "/charts/web");
        let archive = fetched(&url, "", version, &by_keyring()).await.unwrap();
        assert_eq!(archive.resolved.signed_by.as_deref(), Some(ROBOT));
    }
    let artifacts = with_provenance(None);
    let server = Server::answering(move |request| artifacts.answer(request)).await;
    let failure = fetched(&server.url("oci", "/charts/web"), "", "1.2.3", &by_keyring())
        .await
        .unwrap_err();
    assert_eq!(
        told(&failure),
        format!(
            "charts/web:1.2.3 at {} is not signed: make it with helm package --sign, then push it with its .prov file beside it",
            server.host()
        )
    );
    // If the check fails, the archive is not even downloaded.
    assert_eq!(server.asked("/blobs/"), 0);
}

/// A registry in which the chart has a cosign signature by `kind` over its real manifest, or one over another
/// manifest.
fn with_cosign(signature: &str) -> Artifacts {
    let mut artifacts = with_provenance(None);
    let manifest = artifacts.push("1.2.3", &[(HELM_LAYER, read("web-1.2.3.tgz"), json!(null))]);
    let annotations = json!({"dev.cosignproject.cosign/signature": signature});
    let tag = format!("{}.sig", manifest.replace(':', "-"));
    artifacts.push(&tag, &[(PAYLOAD, read("payload.json"), annotations)]);
    artifacts
}

#[tokio::test]
async fn an_artifact_is_checked_by_the_cosign_signature_beside_it() {
    let signature = String::from_utf8(read("ec.sig").into()).unwrap();
    // The signature is valid, but for the manifest of another artifact.
    let artifacts = with_cosign(&signature);
    let server = Server::answering(move |request| artifacts.answer(request)).await;
    let failure = fetched(&server.url("oci", "/charts/web"), "", "1.2.3", &by_cosign())
        .await
        .unwrap_err();
    let said = told(&failure);
    let expected = format!(
        "the signature of charts/web:1.2.3 at {} is not accepted: it is for sha256:1ebac99ec2a8ca5d6d8105de4a29e72fedfa8f8848973599a53eb745e59082e0, the chart's manifest is sha256:",
        server.host()
    );
    assert!(said.starts_with(&expected), "{said}");

    let artifacts = with_cosign("AAAA");
    let server = Server::answering(move |request| artifacts.answer(request)).await;
    let failure = fetched(&server.url("oci", "/charts/web"), "", "1.2.3", &by_cosign())
        .await
        .unwrap_err();
    assert_eq!(
        told(&failure),
        format!(
            "the signature of charts/web:1.2.3 at {} is not accepted: it is not by the given key",
            server.host()
        )
    );

    let artifacts = with_provenance(None);
    let server = Server::answering(move |request| artifacts.answer(request)).await;
    let failure = fetched(&server.url("oci", "/charts/web"), "", "1.2.3", &by_cosign())
        .await
        .unwrap_err();
    assert_eq!(
        told(&failure),
        format!(
            "charts/web:1.2.3 at {} is not signed: sign it with cosign sign --key, with signatures kept beside it in the registry",
            server.host()
        )
    );
}

#[tokio::test]
async fn a_chart_that_cosign_signed_is_accepted() {
    use base64::Engine as _;
    use ring::signature::{Ed25519KeyPair, KeyPair as _};

    // The test's own key signs the real manifest of the registry.
    let pair = Ed25519KeyPair::from_seed_unchecked(&[7; 32]).unwrap();
    let encode = |bytes: &[u8]| base64::engine::general_purpose::STANDARD.encode(bytes);
    let frame = [
        0x30, 0x2a, 0x30, 0x05, 0x06, 0x03, 0x2b, 0x65, 0x70, 0x03, 0x21, 0x00,
    ];
    let public = encode(&[&frame, pair.public_key().as_ref()].concat());
    let pem = format!("-----BEGIN PUBLIC KEY-----\n{public}\n-----END PUBLIC KEY-----\n");
    let mut artifacts = Artifacts::default();
    let manifest = artifacts.push("1.2.3", &[(HELM_LAYER, read("web-1.2.3.tgz"), json!(null))]);
    let payload = json!({"critical": {
        "image": {"docker-manifest-digest": manifest}, "type": "cosign container image signature",
    }})
    .to_string();
    let signature = encode(pair.sign(payload.as_bytes()).as_ref());
    let by_another = json!({"dev.cosignproject.cosign/signature": "AAAA"});
    let annotations = json!({"dev.cosignproject.cosign/signature": signature});
    let payload = Bytes::from(payload);
    artifacts.push(
        &format!("{}.sig", manifest.replace(':', "-")),
        &[
            (PAYLOAD, payload.clone(), by_another),
            (PAYLOAD, payload, annotations),
        ],
    );
    let server = Server::answering(move |request| artifacts.answer(request)).await;
    let access = Access {
        verify: Some(Verify::Cosign(CosignKey::parse(pem.as_bytes()).unwrap())),
        ..Access::default()
    };
    let archive = fetched(&server.url("oci", "/charts/web"), "", "1.2.3", &access)
        .await
        .unwrap();
    assert_eq!(archive.resolved.signed_by.as_deref(), Some("the cosign key"));
}
