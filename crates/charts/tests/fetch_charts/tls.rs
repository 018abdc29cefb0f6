//! TLS: private authorities, client certificates, and the errors when they are missing.

use std::sync::Arc;

use axum::response::{IntoResponse, Redirect};
use charts::source::{Access, CaBundle, ChartRef, ClientCert, Error, Password, Trust, fetch};
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair};
use rustls::RootCertStore;
use rustls::pki_types::PrivateKeyDer;
use rustls::server::WebPkiClientVerifier;
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;

use super::server::{Server, registry};
use super::{CHART, chart_layer, fetched, limits, told};

type Authority = CertifiedIssuer<'static, KeyPair>;

fn authority() -> Authority {
    let mut params = CertificateParams::new(Vec::new()).unwrap();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap()
}

/// A certificate for this machine and its key.
fn leaf(authority: &Authority) -> (rcgen::Certificate, KeyPair) {
    let key = KeyPair::generate().unwrap();
    let params = CertificateParams::new(["127.0.0.1".to_owned()]).unwrap();
    (params.signed_by(&key, authority).unwrap(), key)
}

struct TlsListener {
    tcp: TcpListener,
    acceptor: TlsAcceptor,
}

impl axum::serve::Listener for TlsListener {
    type Io = TlsStream<TcpStream>;
    type Addr = std::net::SocketAddr;

    async fn accept(&mut self) -> (Self::Io, Self::Addr) {
        loop {
            let (stream, address) = self.tcp.accept().await.unwrap();
            if let Ok(stream) = self.acceptor.accept(stream).await {
                return (stream, address);
            }
        }
    }

    fn local_addr(&self) -> std::io::Result<Self::Addr> {
        self.tcp.local_addr()
    }
}

/// A server with a certificate of `authority`, which requires one of `clients` if given.
async fn server(
    authority: &Authority,
    clients: Option<&Authority>,
    then: impl Fn(&axum::extract::Request) -> axum::response::Response + Send + Sync + 'static,
) -> Server {
    let _ = rustls::crypto::ring::default_provider().install_default();
    let (cert, key) = leaf(authority);
    let builder = rustls::ServerConfig::builder();
    let builder = match clients {
        Some(clients) => {
            let mut roots = RootCertStore::empty();
            roots.add(clients.der().clone()).unwrap();
            builder.with_client_cert_verifier(WebPkiClientVerifier::builder(Arc::new(roots)).build().unwrap())
        }
        None => builder.with_no_client_auth(),
    };
    let key = PrivateKeyDer::try_from(key.serialize_der()).unwrap();
    let config = builder.with_single_cert(vec![cert.der().clone()], key).unwrap();
    let tcp = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = tcp.local_addr().unwrap().port();
    let acceptor = TlsAcceptor::from(Arc::new(config));
    Server::on(TlsListener { tcp, acceptor }, port, [], then)
}

fn trusting(authority: &Authority) -> Trust {
    Trust {
        ca_bundle: Some(CaBundle::parse(authority.pem().as_bytes()).unwrap()),
        client_cert: None,
    }
}

fn showing(trust: Trust, authority: &Authority) -> Access {
    let (cert, key) = leaf(authority);
    let client_cert = ClientCert::parse(cert.pem().as_bytes(), &Password::new(key.serialize_pem())).unwrap();
    Access {
        trust: Trust {
            client_cert: Some(client_cert),
            ..trust
        },
        ..Access::default()
    }
}

fn only(trust: Trust) -> Access {
    Access {
        trust,
        ..Access::default()
    }
}

#[tokio::test]
async fn an_authority_of_ones_own_is_trusted_when_it_is_named() {
    let ours = authority();
    let server = server(&ours, None, |_| CHART.into_response()).await;
    let url = server.url("https", "/web.tgz");
    assert_eq!(
        fetched(&url, "", "", &only(trusting(&ours))).await.unwrap().bytes,
        CHART
    );

    for access in [Access::default(), only(trusting(&authority()))] {
        let failure = fetched(&url, "", "", &access).await.unwrap_err();
        assert!(matches!(failure, Error::Untrusted { .. }), "{}", told(&failure));
        assert_eq!(
            failure.to_string(),
            format!(
                "{} shows a certificate that is not trusted here: name its authority in caBundleRef, or set insecureSkipVerifyTLS",
                server.host()
            )
        );
        assert!(!failure.is_transient());
    }
    let chart = ChartRef::parse(&url, None, None)
        .unwrap()
        .with_insecure_skip_verify(true);
    assert_eq!(
        fetch(&chart, &Access::default(), limits()).await.unwrap().bytes,
        CHART
    );
}

#[tokio::test]
async fn a_client_certificate_is_shown_to_those_who_ask() {
    let ours = authority();
    let server = server(&ours, Some(&ours), registry(chart_layer())).await;
    let repository = server.url("https", "/v2/charts/web/blobs/none.tgz");
    let failure = fetched(&repository, "", "", &only(trusting(&ours)))
        .await
        .unwrap_err();
    // Under load the alert can get lost, when the connection is already closed.
    if !matches!(failure, Error::Unreachable { .. }) {
        assert_eq!(
            failure.to_string(),
            format!(
                "{} refuses the connection because it requires a client certificate that it accepts: set clientCertRef",
                server.host()
            )
        );
        assert!(!failure.is_transient());
    }
    // With one, the request itself is answered.
    let failure = fetched(&repository, "", "", &showing(trusting(&ours), &ours))
        .await
        .unwrap_err();
    assert!(
        matches!(failure, Error::Answered { status: 404, .. }),
        "{}",
        told(&failure)
    );
}

#[tokio::test]
async fn a_client_certificate_is_shown_to_no_other_host() {
    let ours = authority();
    // The other host would accept any certificate of ours, but works without.
    let other = server(&ours, None, |_| CHART.into_response()).await;
    let strict = server(&ours, Some(&ours), |_| CHART.into_response()).await;
    let (open, closed) = (other.url("https", "/web.tgz"), strict.url("https", "/web.tgz"));
    let first = server(&ours, Some(&ours), move |request| match request.uri().path() {
        "/open.tgz" => Redirect::temporary(&open).into_response(),
        _ => Redirect::temporary(&closed).into_response(),
    })
    .await;
    let access = showing(trusting(&ours), &ours);
    let archive = fetched(&first.url("https", "/open.tgz"), "", "", &access)
        .await
        .unwrap();
    assert_eq!(archive.bytes, CHART);
    assert!(
        fetched(&first.url("https", "/closed.tgz"), "", "", &access)
            .await
            .is_err()
    );
    assert_eq!(strict.seen(), []);
}

#[tokio::test]
async fn tls_is_not_left_on_the_way() {
    let ours = authority();
    let plain = Server::answering(|_| CHART.into_response()).await;
    let target = plain.url("http", "/web.tgz?signature=s3cret");
    let realm = format!("Bearer realm=\"{}\"", plain.url("http", "/token"));
    let first = server(&ours, None, move |request| {
        if request.uri().path().starts_with("/v2/") {
            let challenge = [(axum::http::header::WWW_AUTHENTICATE, realm.clone())];
            (axum::http::StatusCode::UNAUTHORIZED, challenge).into_response()
        } else {
            Redirect::temporary(&target).into_response()
        }
    })
    .await;
    let access = only(trusting(&ours));
    let failure = fetched(&first.url("https", "/web.tgz"), "", "", &access)
        .await
        .unwrap_err();
    assert_eq!(
        told(&failure),
        format!(
            "{} redirects from /web.tgz to {}, which does not use TLS: it has to redirect to https, or the url has to begin with http",
            first.host(),
            plain.url("http", "/web.tgz")
        )
    );
    let failure = fetched(&first.url("oci", "/charts/web"), "", "1.2.3", &access)
        .await
        .unwrap_err();
    assert!(
        matches!(&failure, Error::InsecureRealm { realm, .. } if *realm == plain.url("http", "/token")),
        "{}",
        told(&failure)
    );
    let text = super::index(&plain.url("http", "/web-1.2.3.tgz"), &super::digest(CHART));
    let listing = server(&ours, None, move |_| text.clone().into_response()).await;
    let failure = fetched(&listing.url("https", ""), "web", "1.2.3", &access)
        .await
        .unwrap_err();
    assert!(
        matches!(&failure, Error::InsecureArchive { archive, .. } if *archive == plain.url("http", "/web-1.2.3.tgz")),
        "{}",
        told(&failure)
    );
    assert_eq!(plain.seen(), []);
}

#[tokio::test]
async fn what_is_no_pem_is_refused() {
    assert_eq!(
        CaBundle::parse(b"text").unwrap_err().to_string(),
        "it contains no certificate: expected lines from -----BEGIN CERTIFICATE----- to its END"
    );
    let (cert, _) = leaf(&authority());
    assert_eq!(
        ClientCert::parse(cert.pem().as_bytes(), &Password::new("s3cret"))
            .unwrap_err()
            .to_string(),
        "it contains no certificate with its private key: expected PEM blocks of both"
    );
}
