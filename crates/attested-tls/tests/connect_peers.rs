//! Connections over loopback between genuine peers, and with forged ones: each of those is refused for its own reason.
#![expect(clippy::unwrap_used, reason = "a socket or file that fails is a failed test")]

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use attest::double::TestDouble;
use attest::soft_tpm::{ClusterRegister, Policy, SoftTpmValidator};
use attest::{
    CLUSTER_REGISTER, Digest, IssueError, Issuer, LIFETIME_SECONDS, Nonce, Refused, Variant, sha256,
};
use attested_tls::soft_tpm::{AttestationKey, Endorser, RegisterFile, SoftTpm};
use attested_tls::{Client, Error, Server};
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use rustls::time_provider::{DefaultTimeProvider, TimeProvider};
use rustls::{ClientConfig, DigitallySignedStruct, ServerConfig, SignatureScheme};
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};

const ENDORSER: [u8; 32] = [1; 32];

/// A new platform, endorsed with this seed.
fn platform(folder: &Path, name: &str, endorser: [u8; 32]) -> Arc<SoftTpm> {
    let registers = RegisterFile::open(&folder.join(format!("{name}.registers"))).unwrap();
    let endorser = Endorser::from_seed(&endorser);
    let key = AttestationKey::create(&folder.join(format!("{name}.key")), &endorser).unwrap();
    Arc::new(SoftTpm::new(registers, key))
}

fn validator(cluster_register: ClusterRegister) -> Arc<SoftTpmValidator> {
    Arc::new(SoftTpmValidator::new(Policy {
        endorsers: vec![Endorser::from_seed(&ENDORSER).public_key()],
        registers: BTreeMap::new(),
        cluster_register,
    }))
}

/// A genuine server and client that both attest themselves and verify each other.
struct Peers {
    _folder: tempfile::TempDir,
    server_platform: Arc<SoftTpm>,
    client_platform: Arc<SoftTpm>,
    server: Server,
    client: Client,
}

fn peers() -> Peers {
    let folder = tempfile::tempdir().unwrap();
    let server_platform = platform(folder.path(), "server", ENDORSER);
    let client_platform = platform(folder.path(), "client", ENDORSER);
    Peers {
        server: Server::new(server_platform.clone()).with_clients(validator(ClusterRegister::Zero)),
        client: Client::new(validator(ClusterRegister::Any)).with_issuer(client_platform.clone()),
        _folder: folder,
        server_platform,
        client_platform,
    }
}

async fn sockets() -> (TcpStream, TcpStream) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let connecting = TcpStream::connect(listener.local_addr().unwrap());
    let (connected, accepted) = tokio::join!(connecting, listener.accept());
    (connected.unwrap(), accepted.unwrap().0)
}

/// Connects; the server sends four bytes and reads them back. Returns the result of each side.
async fn exchange(server: &Server, client: &Client) -> (Result<(), Error>, Result<(), Error>) {
    let (near, far) = sockets().await;
    let accept = async {
        let mut stream = server.accept(far).await?;
        stream.write_all(b"ping").await?;
        let mut bytes = [0; 4];
        stream.read_exact(&mut bytes).await?;
        assert_eq!(&bytes, b"ping");
        Ok(())
    };
    tokio::join!(accept, talk(client, near))
}

async fn talk(client: &Client, near: impl AsyncRead + AsyncWrite + Unpin) -> Result<(), Error> {
    let mut stream = client.connect(near).await?;
    // A server's refusal arrives with the first read.
    let mut bytes = [0; 4];
    stream.read_exact(&mut bytes).await?;
    stream.write_all(&bytes).await?;
    stream.flush().await?;
    Ok(())
}

/// The server is refused for this reason, and receives no byte.
async fn assert_server_refused(server: &Server, client: &Client, reason: &Refused) {
    let (accepted, connected) = exchange(server, client).await;
    assert!(
        matches!(&connected, Err(Error::Refused(refused)) if refused == reason),
        "{connected:?}"
    );
    assert!(accepted.is_err());
}

/// The client is refused for this reason: the server reads nothing from it.
async fn assert_client_refused(server: &Server, client: &Client, reason: &Refused) {
    let (accepted, connected) = exchange(server, client).await;
    assert!(
        matches!(&accepted, Err(Error::Refused(refused)) if refused == reason),
        "{accepted:?}"
    );
    assert!(matches!(connected, Err(Error::RefusedByPeer)), "{connected:?}");
}

/// Behaves like `platform`, except for what a test changes.
struct Forger<F>(Arc<SoftTpm>, F);

impl<F> std::fmt::Debug for Forger<F> {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str("Forger")
    }
}

impl<F: Fn(&SoftTpm, Digest, Nonce) -> Result<Vec<u8>, IssueError> + Send + Sync> Issuer for Forger<F> {
    fn variant(&self) -> Variant {
        Variant::SoftTpm
    }

    fn issue(&self, user_data: Digest, nonce: Nonce) -> Result<Vec<u8>, IssueError> {
        (self.1)(&self.0, user_data, nonce)
    }
}

fn forger<F>(platform: &Arc<SoftTpm>, issue: F) -> Arc<Forger<F>>
where
    F: Fn(&SoftTpm, Digest, Nonce) -> Result<Vec<u8>, IssueError> + Send + Sync,
{
    Arc::new(Forger(platform.clone(), issue))
}

/// A clock that is off by some seconds.
#[derive(Debug)]
struct Off(i64);

impl TimeProvider for Off {
    fn current_time(&self) -> Option<UnixTime> {
        let now = DefaultTimeProvider.current_time()?.as_secs();
        Some(UnixTime::since_unix_epoch(Duration::from_secs(
            now.checked_add_signed(self.0)?,
        )))
    }
}

#[tokio::test]
async fn attested_peers_talk_as_often_as_they_like() {
    let peers = peers();
    for _ in 0..3 {
        let (accepted, connected) = exchange(&peers.server, &peers.client).await;
        connected.unwrap();
        accepted.unwrap();
    }
}

#[tokio::test]
async fn a_server_may_ask_no_client_who_it_is() {
    let peers = peers();
    let server = Server::new(peers.server_platform.clone());
    let client = Client::new(validator(ClusterRegister::Zero));
    let (accepted, connected) = exchange(&server, &client).await;
    connected.unwrap();
    accepted.unwrap();
}

#[tokio::test]
async fn a_certificate_is_of_one_connection_and_tls_is_1_3() {
    let peers = peers();
    let mut keys = Vec::new();
    for _ in 0..2 {
        let (near, far) = sockets().await;
        let (accepted, connected) = tokio::join!(peers.server.accept(far), peers.client.connect(near));
        let (accepted, connected) = (accepted.unwrap(), connected.unwrap());
        let (_, connection) = connected.get_ref();
        assert_eq!(
            connection.protocol_version(),
            Some(rustls::ProtocolVersion::TLSv1_3)
        );
        assert_eq!(connection.alpn_protocol(), Some(b"h2".as_slice()));
        keys.push(connection.peer_certificates().unwrap()[0].clone());
        keys.push(accepted.get_ref().1.peer_certificates().unwrap()[0].clone());
    }
    for (index, key) in keys.iter().enumerate() {
        assert!(!keys[..index].contains(key));
    }
}

#[tokio::test]
async fn a_document_for_another_nonce_is_refused_on_both_sides() {
    let peers = peers();
    let stale = |platform: &SoftTpm, user_data, _| platform.issue(user_data, Nonce([7; 32]));
    let server =
        Server::new(forger(&peers.server_platform, stale)).with_clients(validator(ClusterRegister::Zero));
    assert_server_refused(&server, &peers.client, &Refused::StaleNonce).await;
    let client = peers
        .client
        .clone()
        .with_issuer(forger(&peers.client_platform, stale));
    assert_client_refused(&peers.server, &client, &Refused::StaleNonce).await;
}

#[tokio::test]
async fn the_document_of_another_key_is_refused_on_both_sides() {
    let peers = peers();
    let swapped = |platform: &SoftTpm, _, nonce| platform.issue(sha256(&[b"another key"]), nonce);
    let server = Server::new(forger(&peers.server_platform, swapped));
    assert_server_refused(&server, &peers.client, &Refused::KeyNotBound).await;
    let client = peers
        .client
        .clone()
        .with_issuer(forger(&peers.client_platform, swapped));
    assert_client_refused(&peers.server, &client, &Refused::KeyNotBound).await;
}

#[tokio::test]
async fn a_document_of_another_variant_is_refused_on_both_sides() {
    let peers = peers();
    let reason = Refused::WrongVariant {
        expected: Variant::SoftTpm,
        found: Variant::TestDouble,
    };
    assert_server_refused(&Server::new(Arc::new(TestDouble)), &peers.client, &reason).await;
    let client = peers.client.clone().with_issuer(Arc::new(TestDouble));
    assert_client_refused(&peers.server, &client, &reason).await;
}

#[tokio::test]
async fn test_doubles_accept_each_other() {
    let server = Server::new(Arc::new(TestDouble)).with_clients(Arc::new(TestDouble));
    let client = Client::new(Arc::new(TestDouble)).with_issuer(Arc::new(TestDouble));
    let (accepted, connected) = exchange(&server, &client).await;
    connected.unwrap();
    accepted.unwrap();
}

#[tokio::test]
async fn a_key_that_is_not_endorsed_is_refused_on_both_sides() {
    let peers = peers();
    let folder = tempfile::tempdir().unwrap();
    let stranger = platform(folder.path(), "stranger", [2; 32]);
    let is_unendorsed =
        |result: &Result<(), Error>| matches!(result, Err(Error::Refused(Refused::UnendorsedKey { .. })));
    let (_, connected) = exchange(&Server::new(stranger.clone()), &peers.client).await;
    assert!(is_unendorsed(&connected), "{connected:?}");
    let client = peers.client.clone().with_issuer(stranger);
    let (accepted, connected) = exchange(&peers.server, &client).await;
    assert!(is_unendorsed(&accepted), "{accepted:?}");
    assert!(matches!(connected, Err(Error::RefusedByPeer)), "{connected:?}");
}

#[tokio::test]
async fn a_node_whose_register_15_is_set_cannot_join_and_is_not_initialised() {
    let peers = peers();
    peers
        .client_platform
        .measure(CLUSTER_REGISTER, sha256(&[b"a cluster"]))
        .unwrap();
    let found = peers.client_platform.registers().value(CLUSTER_REGISTER).unwrap();
    let reason = Refused::AlreadyBootstrapped { found };
    assert_client_refused(&peers.server, &peers.client, &reason).await;
    let client = Client::new(validator(ClusterRegister::Zero));
    assert_server_refused(&Server::new(peers.client_platform.clone()), &client, &reason).await;
}

#[tokio::test]
async fn a_certificate_that_has_expired_is_refused_on_both_sides() {
    let peers = peers();
    let late = Arc::new(Off(-2 * LIFETIME_SECONDS));
    let is_expired =
        |result: &Result<(), Error>| matches!(result, Err(Error::Refused(Refused::Expired { .. })));
    let server = Server::new(peers.server_platform.clone()).with_clock(late.clone());
    let (_, connected) = exchange(&server, &peers.client).await;
    assert!(is_expired(&connected), "{connected:?}");
    // The client's clock is so little behind that it accepts the server, whose clock is behind by half of that.
    let client = peers
        .client
        .clone()
        .with_clock(Arc::new(Off(-LIFETIME_SECONDS - 60)));
    let server = peers.server.clone().with_clock(Arc::new(Rushing {
        first: -LIFETIME_SECONDS / 2,
        asked: AtomicBool::new(false),
    }));
    let (accepted, connected) = exchange(&server, &client).await;
    assert!(is_expired(&accepted), "{accepted:?}");
    assert!(matches!(connected, Err(Error::RefusedByPeer)), "{connected:?}");
}

/// A clock that is behind when a certificate is created, and right when one is verified.
#[derive(Debug)]
struct Rushing {
    first: i64,
    asked: AtomicBool,
}

impl TimeProvider for Rushing {
    fn current_time(&self) -> Option<UnixTime> {
        let off = if self.asked.swap(true, Ordering::Relaxed) {
            0
        } else {
            self.first
        };
        Off(off).current_time()
    }
}

#[tokio::test]
async fn a_certificate_of_the_future_is_refused() {
    let peers = peers();
    let server = Server::new(peers.server_platform.clone()).with_clock(Arc::new(Off(2 * LIFETIME_SECONDS)));
    let (_, connected) = exchange(&server, &peers.client).await;
    assert!(
        matches!(connected, Err(Error::Refused(Refused::NotYetValid { .. }))),
        "{connected:?}"
    );
}

#[tokio::test]
async fn a_client_without_a_certificate_is_refused() {
    let peers = peers();
    let client = Client::new(validator(ClusterRegister::Any));
    let (accepted, connected) = exchange(&peers.server, &client).await;
    assert!(
        matches!(accepted, Err(Error::NoClientCertificate)),
        "{accepted:?}"
    );
    assert!(matches!(connected, Err(Error::RefusedByPeer)), "{connected:?}");
}

#[tokio::test]
async fn a_node_that_cannot_attest_itself_says_why() {
    let peers = peers();
    let broken = |_: &SoftTpm, _, _| {
        Err(IssueError {
            reason: "the registers are gone".to_owned(),
        })
    };
    let client = peers
        .client
        .clone()
        .with_issuer(forger(&peers.client_platform, broken));
    let (accepted, connected) = exchange(&peers.server, &client).await;
    assert!(matches!(connected, Err(Error::Issue(_))), "{connected:?}");
    assert!(accepted.is_err());
    let server = Server::new(forger(&peers.server_platform, broken));
    let (accepted, connected) = exchange(&server, &peers.client).await;
    assert!(matches!(accepted, Err(Error::Issue(_))), "{accepted:?}");
    assert!(connected.is_err());
}

/// The TLS code of an attacker: accepts any server, and presents whatever it is given.
#[derive(Debug)]
struct Anybody;

impl ServerCertVerifier for Anybody {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        Ok(HandshakeSignatureValid::assertion())
    }

    fn verify_tls13_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        Ok(HandshakeSignatureValid::assertion())
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        vec![SignatureScheme::ECDSA_NISTP256_SHA256, SignatureScheme::ED25519]
    }
}

fn provider() -> Arc<rustls::crypto::CryptoProvider> {
    Arc::new(rustls::crypto::ring::default_provider())
}

fn anybody() -> rustls::ConfigBuilder<ClientConfig, rustls::client::WantsClientCert> {
    ClientConfig::builder_with_provider(provider())
        .with_protocol_versions(&[&rustls::version::TLS13])
        .unwrap()
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(Anybody))
}

/// The server's result for a client with this configuration.
async fn accept(server: &Server, configuration: ClientConfig, name: &str) -> Result<(), Error> {
    let (near, far) = sockets().await;
    let name = ServerName::try_from(name.to_owned()).unwrap();
    let connector = tokio_rustls::TlsConnector::from(Arc::new(configuration));
    let (accepted, _) = tokio::join!(server.accept(far), connector.connect(name, near));
    accepted.map(drop)
}

fn name() -> String {
    Nonce([5; 32]).to_server_name()
}

#[tokio::test]
async fn a_client_that_presents_a_certificate_without_a_document_is_refused() {
    let peers = peers();
    let (chain, key) = plain_certificate();
    let configuration = anybody().with_client_auth_cert(chain, key).unwrap();
    let accepted = accept(&peers.server, configuration, &name()).await;
    let expected = Variant::SoftTpm;
    assert!(
        matches!(accepted, Err(Error::Refused(Refused::MissingExtension { expected: found })) if found == expected),
        "{accepted:?}"
    );
}

fn plain_certificate() -> (Vec<CertificateDer<'static>>, PrivateKeyDer<'static>) {
    let key = rcgen::KeyPair::generate().unwrap();
    let mut parameters = rcgen::CertificateParams::new(vec!["localhost".to_owned()]).unwrap();
    let now = DefaultTimeProvider.current_time().unwrap().as_secs();
    let now = time::OffsetDateTime::from_unix_timestamp(now.cast_signed()).unwrap();
    parameters.not_before = now - time::Duration::hours(1);
    parameters.not_after = now + time::Duration::hours(1);
    let certificate = parameters.self_signed(&key).unwrap();
    (
        vec![certificate.der().clone()],
        PrivateKeyDer::Pkcs8(key.serialize_der().into()),
    )
}

#[tokio::test]
async fn a_server_that_presents_a_certificate_without_a_document_is_refused() {
    let peers = peers();
    let (chain, key) = plain_certificate();
    let connected = connect_to(&peers.client, chain, key).await;
    assert!(
        matches!(connected, Err(Error::Refused(Refused::MissingExtension { .. }))),
        "{connected:?}"
    );
}

/// The client's result for a server with this certificate.
async fn connect_to(
    client: &Client,
    chain: Vec<CertificateDer<'static>>,
    key: PrivateKeyDer<'static>,
) -> Result<(), Error> {
    let (near, far) = sockets().await;
    let mut configuration = ServerConfig::builder_with_provider(provider())
        .with_protocol_versions(&[&rustls::version::TLS13])
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(chain, key)
        .unwrap();
    configuration.alpn_protocols = vec![b"h2".to_vec()];
    let acceptor = tokio_rustls::TlsAcceptor::from(Arc::new(configuration));
    let (_, connected) = tokio::join!(acceptor.accept(far), client.connect(near));
    connected.map(drop)
}

/// Always presents the same certificate, with its own key or another one.
#[derive(Debug)]
struct Same(Arc<rustls::sign::CertifiedKey>);

impl rustls::client::ResolvesClientCert for Same {
    fn resolve(&self, _: &[&[u8]], _: &[SignatureScheme]) -> Option<Arc<rustls::sign::CertifiedKey>> {
        Some(self.0.clone())
    }

    fn has_certs(&self) -> bool {
        true
    }
}

/// Attests itself with certificates that it creates itself, and keeps the last one with its key.
#[derive(Debug)]
struct Keeping {
    platform: Arc<SoftTpm>,
    kept: Mutex<Option<Arc<rustls::sign::CertifiedKey>>>,
}

impl rustls::client::ResolvesClientCert for Keeping {
    fn resolve(
        &self,
        authorities: &[&[u8]],
        _: &[SignatureScheme],
    ) -> Option<Arc<rustls::sign::CertifiedKey>> {
        let nonce = authorities.iter().find_map(|name| Nonce::from_authority(name))?;
        let certified = certified(&self.platform, nonce, None);
        *self.kept.lock().unwrap() = Some(certified.clone());
        Some(certified)
    }

    fn has_certs(&self) -> bool {
        true
    }
}

/// A genuine certificate for this nonce, with its own key or with the given one.
fn certified(
    platform: &SoftTpm,
    nonce: Nonce,
    other: Option<&rcgen::KeyPair>,
) -> Arc<rustls::sign::CertifiedKey> {
    use rcgen::PublicKeyData as _;
    let key = rcgen::KeyPair::generate().unwrap();
    let document = platform
        .issue(sha256(&[&key.subject_public_key_info()]), nonce)
        .unwrap();
    let now = DefaultTimeProvider.current_time().unwrap().as_secs();
    let now = time::OffsetDateTime::from_unix_timestamp(now.cast_signed()).unwrap();
    let mut parameters = rcgen::CertificateParams::default();
    parameters.not_before = now - time::Duration::hours(1);
    parameters.not_after = now + time::Duration::hours(1);
    let oid = Variant::SoftTpm.oid();
    parameters.custom_extensions = vec![rcgen::CustomExtension::from_oid_content(&oid, document)];
    let certificate = parameters.self_signed(&key).unwrap();
    let held = PrivateKeyDer::Pkcs8(other.unwrap_or(&key).serialize_der().into());
    let held = provider().key_provider.load_private_key(held).unwrap();
    Arc::new(rustls::sign::CertifiedKey::new(
        vec![certificate.der().clone()],
        held,
    ))
}

#[tokio::test]
async fn a_certificate_is_accepted_once_even_with_its_key() {
    let peers = peers();
    let keeping = Arc::new(Keeping {
        platform: peers.client_platform.clone(),
        kept: Mutex::new(None),
    });
    let mut configuration = anybody().with_client_cert_resolver(keeping.clone());
    configuration.alpn_protocols = vec![b"h2".to_vec()];
    accept(&peers.server, configuration, &name()).await.unwrap();
    let kept = keeping.kept.lock().unwrap().clone().unwrap();
    let again = anybody().with_client_cert_resolver(Arc::new(Same(kept)));
    let accepted = accept(&peers.server, again, &name()).await;
    assert!(
        matches!(accepted, Err(Error::Refused(Refused::Replayed))),
        "{accepted:?}"
    );
}

/// Presents the genuine certificate of this connection without having its private key.
#[derive(Debug)]
struct WithoutItsKey(Arc<SoftTpm>);

impl rustls::client::ResolvesClientCert for WithoutItsKey {
    fn resolve(
        &self,
        authorities: &[&[u8]],
        _: &[SignatureScheme],
    ) -> Option<Arc<rustls::sign::CertifiedKey>> {
        let nonce = authorities.iter().find_map(|name| Nonce::from_authority(name))?;
        Some(certified(
            &self.0,
            nonce,
            Some(&rcgen::KeyPair::generate().unwrap()),
        ))
    }

    fn has_certs(&self) -> bool {
        true
    }
}

#[tokio::test]
async fn a_peer_without_the_private_key_of_its_certificate_is_refused() {
    let peers = peers();
    let configuration =
        anybody().with_client_cert_resolver(Arc::new(WithoutItsKey(peers.client_platform.clone())));
    let accepted = accept(&peers.server, configuration, &name()).await;
    let Err(Error::Handshake(error)) = &accepted else {
        panic!("{accepted:?}");
    };
    let error = error.get_ref().unwrap().downcast_ref::<rustls::Error>();
    assert_eq!(
        error,
        Some(&rustls::Error::InvalidCertificate(
            rustls::CertificateError::BadSignature
        ))
    );
}

#[tokio::test]
async fn a_client_of_another_protocol_is_refused() {
    let peers = peers();
    let accepted = accept(&peers.server, anybody().with_no_client_auth(), "localhost").await;
    assert!(matches!(accepted, Err(Error::NoNonce)), "{accepted:?}");
}

#[tokio::test]
async fn no_ticket_is_given_and_an_offer_to_resume_is_refused() {
    let peers = peers();
    // A server that issues tickets under the name that the client resumes later.
    let (chain, key) = plain_certificate();
    let mut giving = ServerConfig::builder_with_provider(provider())
        .with_protocol_versions(&[&rustls::version::TLS13])
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(chain, key)
        .unwrap();
    giving.max_early_data_size = 1024;
    let acceptor = tokio_rustls::TlsAcceptor::from(Arc::new(giving));
    let mut configuration = anybody().with_no_client_auth();
    configuration.enable_early_data = true;
    let configuration = Arc::new(configuration);
    let connector = tokio_rustls::TlsConnector::from(configuration.clone());
    let server_name = ServerName::try_from(name()).unwrap();
    let (near, far) = sockets().await;
    let (accepted, connected) = tokio::join!(acceptor.accept(far), connector.connect(server_name, near));
    let (mut accepted, mut connected) = (accepted.unwrap(), connected.unwrap());
    accepted.write_all(b"ping").await.unwrap();
    accepted.shutdown().await.unwrap();
    let mut bytes = Vec::new();
    connected.read_to_end(&mut bytes).await.unwrap();
    assert_eq!(connected.get_ref().1.tls13_tickets_received(), 2);

    let accepted = accept(&peers.server, ClientConfig::clone(&configuration), &name()).await;
    assert!(matches!(accepted, Err(Error::ResumptionOffered)), "{accepted:?}");

    // Our own server issues none.
    let server = Server::new(peers.server_platform.clone());
    let (near, far) = sockets().await;
    let (accepted, connected) = tokio::join!(server.accept(far), peers.client.connect(near));
    let (mut accepted, mut connected) = (accepted.unwrap(), connected.unwrap());
    accepted.shutdown().await.unwrap();
    connected.read_to_end(&mut bytes).await.unwrap();
    assert_eq!(connected.get_ref().1.tls13_tickets_received(), 0);
}

/// The paused clock advances once everything waits, so the test does not take 30 seconds.
#[tokio::test(start_paused = true)]
async fn a_silent_peer_is_given_up() {
    let peers = peers();
    let (near, far) = tokio::io::duplex(1024);
    let accepted = peers.server.accept(far).await.map(drop);
    assert!(matches!(accepted, Err(Error::TimedOut)), "{accepted:?}");
    drop(near);
    let (near, _far) = tokio::io::duplex(1024);
    let connected = peers.client.connect(near).await.map(drop);
    assert!(matches!(connected, Err(Error::TimedOut)), "{connected:?}");
}
