//! Charts are fetched through the proxies of the environment.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::io::{BufRead as _, BufReader, Write as _};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::process::Command;
use std::sync::mpsc;
use std::thread;

/// A proxy on this machine that has one file for every address, and tells what it was asked.
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

fn template(url: &str, variables: &[(&str, &str)]) -> bool {
    let mut kco = Command::new(env!("CARGO_BIN_EXE_kco"));
    for name in [
        "HTTP_PROXY",
        "http_proxy",
        "ALL_PROXY",
        "all_proxy",
        "NO_PROXY",
        "no_proxy",
    ] {
        kco.env_remove(name);
    }
    let output = kco
        .args(["template", url])
        .envs(variables.iter().copied())
        .output()
        .unwrap();
    String::from_utf8_lossy(&output.stdout).contains("kind: ConfigMap")
}

#[test]
fn a_chart_is_fetched_through_the_proxy_of_the_environment() {
    let (proxy, asked) = proxy();
    // No such host can be found without the proxy.
    let url = "http://charts.invalid/web-1.2.3.tgz";
    assert!(template(url, &[("HTTP_PROXY", &proxy)]));
    assert_eq!(asked.recv().unwrap(), format!("GET {url} HTTP/1.1"));
}

#[test]
fn this_machine_is_asked_without_a_proxy() {
    let (server, asked) = proxy();
    let url = format!("{server}/web-1.2.3.tgz");
    // Nobody listens where the proxy should be.
    assert!(template(&url, &[("HTTP_PROXY", "http://127.0.0.1:1")]));
    assert_eq!(asked.recv().unwrap(), "GET /web-1.2.3.tgz HTTP/1.1");
}
