//! Charts are fetched and clusters are reached through the proxies in the environment.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::io::{self, BufRead as _, BufReader, Read, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::process::{Command, Output};
use std::sync::{Arc, mpsc};
use std::thread;

use rustls::{ServerConfig, ServerConnection, StreamOwned};

/// A proxy on this machine that answers every request with one file, and reports the requests.
fn proxy() -> (String, mpsc::Receiver<String>) {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("../charts/tests/signatures/web-1.2.3.tgz");
    let file = std::fs::read(file).unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = format!("http://{}", listener.local_addr().unwrap());
    let (tell, told) = mpsc::channel();
    thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let line = answer(&stream, &file);
            if tell.send(line).is_err() {
                return;
            }
        }
    });
    (address, told)
}

fn answer(mut stream: &TcpStream, file: &[u8]) -> String {
    let mut lines = BufReader::new(stream).lines().map_while(Result::ok);
    let first = lines.next().unwrap_or_default();
    lines.find(String::is_empty);
    let head = format!(
        "HTTP/1.1 200 OK\r\nContent-Length: {}\r\nConnection: close\r\n\r\n",
        file.len()
    );
    stream.write_all(head.as_bytes()).unwrap();
    stream.write_all(file).unwrap();
    first
}

fn kco(arguments: &[&str], variables: &[(&str, &str)]) -> Output {
    let mut kco = Command::new(env!("CARGO_BIN_EXE_kco"));
    for name in [
        "HTTPS_PROXY",
        "https_proxy",
        "HTTP_PROXY",
        "http_proxy",
        "ALL_PROXY",
        "all_proxy",
        "NO_PROXY",
        "no_proxy",
        "KUBERNETES_SERVICE_HOST",
    ] {
        kco.env_remove(name);
    }
    kco.args(arguments)
        .envs(variables.iter().copied())
        .output()
        .unwrap()
}

fn template(url: &str, variables: &[(&str, &str)]) -> bool {
    let output = kco(&["template", url], variables);
    String::from_utf8_lossy(&output.stdout).contains("kind: ConfigMap")
}

#[test]
fn a_chart_is_fetched_through_the_proxy_of_the_environment() {
    let (proxy, asked) = proxy();
    // This host cannot be resolved without the proxy.
    let url = "http://charts.invalid/web-1.2.3.tgz";
    assert!(template(url, &[("HTTP_PROXY", &proxy)]));
    assert_eq!(asked.recv().unwrap(), format!("GET {url} HTTP/1.1"));
}

#[test]
fn this_machine_is_asked_without_a_proxy() {
    let (server, asked) = proxy();
    let url = format!("{server}/web-1.2.3.tgz");
    // Nothing listens where the proxy should be.
    assert!(template(&url, &[("HTTP_PROXY", "http://127.0.0.1:1")]));
    assert_eq!(asked.recv().unwrap(), "GET /web-1.2.3.tgz HTTP/1.1");
}

#[test]
fn plain_http_needs_no_certificates() {
    let (server, asked) = proxy();
    let url = format!("{server}/web-1.2.3.tgz");
    // Like in an image without CA certificates.
    let folder = tempfile::tempdir().unwrap();
    let nowhere = folder.path().to_str().unwrap();
    assert!(template(
        &url,
        &[("SSL_CERT_FILE", "/dev/null"), ("SSL_CERT_DIR", nowhere)]
    ));
    assert_eq!(asked.recv().unwrap(), "GET /web-1.2.3.tgz HTTP/1.1");
}

/// An API server without releases that serves TLS on this machine, and its kubeconfig.
struct Cluster {
    address: SocketAddr,
    authority: String,
}

impl Cluster {
    fn start() -> Self {
        let key = rcgen::generate_simple_self_signed(["0.0.0.0".to_owned()]).unwrap();
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config = ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_no_client_auth()
            .with_single_cert(
                vec![key.cert.der().clone()],
                key.signing_key.serialize_der().try_into().unwrap(),
            )
            .unwrap();
        let config = Arc::new(config);
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let config = config.clone();
                thread::spawn(move || serve(stream, config));
            }
        });
        Self {
            address,
            authority: key.cert.pem(),
        }
    }

    /// A kubeconfig with an address of the server that leads to this machine, but is not recognized as local.
    fn kubeconfig(&self, folder: &Path, proxy: Option<&str>) -> String {
        let authority = folder.join("ca.crt");
        std::fs::write(&authority, &self.authority).unwrap();
        let mut cluster = serde_json::json!({
            "server": format!("https://0.0.0.0:{}", self.address.port()), "certificate-authority": authority,
        });
        if let Some(proxy) = proxy {
            cluster["proxy-url"] = proxy.into();
        }
        let kubeconfig = serde_json::json!({
            "apiVersion": "v1", "kind": "Config", "current-context": "c",
            "clusters": [{"name": "c", "cluster": cluster}],
            "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
            "users": [{"name": "u", "user": {"token": "t"}}],
        });
        let path = folder.join("kubeconfig");
        std::fs::write(&path, kubeconfig.to_string()).unwrap();
        path.to_str().unwrap().to_owned()
    }
}

fn serve(stream: TcpStream, config: Arc<ServerConfig>) {
    let mut stream = StreamOwned::new(ServerConnection::new(config).unwrap(), stream);
    let mut lines = BufReader::new(&mut stream).lines().map_while(Result::ok);
    let asked = lines.next().unwrap_or_default();
    lines.find(String::is_empty);
    let (status, body) = if asked.starts_with("GET /api/v1/namespaces/default/secrets?") {
        (
            "200 OK",
            r#"{"kind":"SecretList","apiVersion":"v1","metadata":{},"items":[]}"#,
        )
    } else {
        ("404 Not Found", "{}")
    };
    let answer = format!(
        "HTTP/1.1 {status}\r\nContent-Type: application/json\r\nContent-Length: {}\r\nConnection: close\r\n\r\n{body}",
        body.len()
    );
    let _ = stream.write_all(answer.as_bytes());
    stream.conn.send_close_notify();
    let _ = stream.flush();
}

/// A CONNECT proxy on this machine that reports the targets.
fn tunnel() -> (String, mpsc::Receiver<Vec<String>>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let (tell, told) = mpsc::channel();
    thread::spawn(move || {
        for near in listener.incoming().flatten() {
            // Byte by byte: what follows the header is for the server.
            let mut head = Vec::new();
            let mut byte = [0];
            while !head.ends_with(b"\r\n\r\n") && (&near).read_exact(&mut byte).is_ok() {
                head.push(byte[0]);
            }
            let head: Vec<String> = String::from_utf8(head)
                .unwrap()
                .lines()
                .map(str::to_owned)
                .collect();
            let target = head[0]
                .strip_prefix("CONNECT ")
                .unwrap()
                .split(' ')
                .next()
                .unwrap()
                .to_owned();
            let _ = tell.send(head);
            let far = TcpStream::connect(target).unwrap();
            (&near).write_all(b"HTTP/1.1 200 OK\r\n\r\n").unwrap();
            let (mut from_near, mut to_far) = (near.try_clone().unwrap(), far.try_clone().unwrap());
            thread::spawn(move || io::copy(&mut from_near, &mut to_far));
            thread::spawn(move || io::copy(&mut &far, &mut &near));
        }
    });
    (address, told)
}

/// `kco list`, which sends a request to the cluster.
fn list(kubeconfig: &str, variables: &[(&str, &str)]) -> Result<(), String> {
    let output = kco(&["list", "--kubeconfig", kubeconfig], variables);
    if output.status.success() {
        return Ok(());
    }
    Err(String::from_utf8_lossy(&output.stderr).into_owned())
}

#[test]
fn a_cluster_is_asked_through_the_proxy_of_the_environment() {
    let folder = tempfile::tempdir().unwrap();
    let cluster = Cluster::start();
    let kubeconfig = cluster.kubeconfig(folder.path(), None);
    let (proxy, asked) = tunnel();
    let with_password = format!("http://me:pass%40word@{proxy}");
    assert_eq!(list(&kubeconfig, &[("HTTPS_PROXY", &with_password)]), Ok(()));
    let head = asked.try_recv().unwrap();
    assert_eq!(
        head[0],
        format!("CONNECT 0.0.0.0:{} HTTP/1.1", cluster.address.port())
    );
    assert!(
        head.iter()
            .any(|line| line.eq_ignore_ascii_case("proxy-authorization: Basic bWU6cGFzc0B3b3Jk")),
        "{head:?}"
    );
    // The proxy's own address in the list does not exempt the cluster, and an empty entry is not an error.
    let variables = [
        ("HTTPS_PROXY", proxy.as_str()),
        ("NO_PROXY", "127.0.0.1,localhost,"),
    ];
    assert_eq!(list(&kubeconfig, &variables), Ok(()));
    assert!(asked.try_recv().is_ok());
}

#[test]
fn a_cluster_of_no_proxy_is_asked_directly() {
    let folder = tempfile::tempdir().unwrap();
    let cluster = Cluster::start();
    let kubeconfig = cluster.kubeconfig(folder.path(), None);
    // Nothing listens where the proxy should be.
    let nowhere = ("HTTPS_PROXY", "http://127.0.0.1:1");
    assert!(list(&kubeconfig, &[nowhere]).is_err());
    for listed in ["0.0.0.0", "10.0.0.0/8, 0.0.0.0/8", "*"] {
        assert_eq!(
            list(&kubeconfig, &[nowhere, ("NO_PROXY", listed)]),
            Ok(()),
            "{listed}"
        );
    }
}

#[test]
fn the_proxy_of_a_kubeconfig_goes_before_the_environment() {
    let folder = tempfile::tempdir().unwrap();
    let cluster = Cluster::start();
    let (proxy, asked) = tunnel();
    let kubeconfig = cluster.kubeconfig(folder.path(), Some(&format!("http://{proxy}")));
    let variables = [("HTTPS_PROXY", "http://127.0.0.1:1"), ("NO_PROXY", "*")];
    assert_eq!(list(&kubeconfig, &variables), Ok(()));
    assert!(asked.try_recv().is_ok());

    let kubeconfig = cluster.kubeconfig(folder.path(), Some("ftp://me:s3cret@proxy"));
    let refused = list(&kubeconfig, &[]).unwrap_err();
    assert!(
        refused.contains("proxy-url of the kubeconfig's cluster is not a proxy address"),
        "{refused}"
    );
    assert!(!refused.contains("s3cret"), "{refused}");
}
