//! Logins that a Docker credential helper stores.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::fs;
use std::io::{BufRead as _, BufReader, Write as _};
use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::Command;
use std::thread;

/// A server with one chart, for users who log in as `robot` with `s3cret`.
fn server() -> String {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("../charts/tests/signatures/web-1.2.3.tgz");
    let file = fs::read(file).unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let host = listener.local_addr().unwrap().to_string();
    thread::spawn(move || {
        for mut stream in listener.incoming().flatten() {
            let lines = BufReader::new(&stream).lines().map_while(Result::ok);
            let head: Vec<String> = lines.take_while(|line| !line.is_empty()).collect();
            let login = "authorization: basic cm9ib3q6cznjcmv0";
            let is_known = head.iter().any(|line| line.to_lowercase() == login);
            let (status, body) = if is_known {
                ("200 OK", &file[..])
            } else {
                ("401 Unauthorized\r\nWWW-Authenticate: Basic", &[][..])
            };
            let length = body.len();
            let head = format!("HTTP/1.1 {status}\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n");
            let _ = stream.write_all(&[head.as_bytes(), body].concat());
        }
    });
    host
}

/// What `kco template` prints to standard error, or none if it rendered the chart.
fn template(host: &str, config: &str, helper: &str) -> Option<String> {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("config.json"), config).unwrap();
    let program = folder.path().join("docker-credential-trial");
    fs::write(&program, format!("#!/bin/sh\n{helper}\n")).unwrap();
    fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();
    let path = format!("{}:{}", folder.path().display(), std::env::var("PATH").unwrap());
    let output = Command::new(env!("CARGO_BIN_EXE_kco"))
        .args(["template", &format!("http://{host}/web-1.2.3.tgz")])
        .env("DOCKER_CONFIG", folder.path())
        .env("HELM_REGISTRY_CONFIG", folder.path().join("none.json"))
        .env("PATH", path)
        .output()
        .unwrap();
    let printed = String::from_utf8_lossy(&output.stdout);
    (!printed.contains("kind: ConfigMap")).then(|| String::from_utf8(output.stderr).unwrap())
}

#[test]
fn a_helper_is_asked_for_the_login_of_its_host() {
    let host = server();
    let keeps = format!(
        r#"[ "$1 $(cat)" = "get {host}" ] && echo '{{"ServerURL":"{host}","Username":"robot","Secret":"s3cret"}}'"#
    );
    for config in [
        format!(r#"{{"credHelpers": {{"{host}": "trial"}}}}"#),
        // The way Docker Desktop writes it.
        format!(r#"{{"auths": {{"{host}": {{}}}}, "credsStore": "trial"}}"#),
    ] {
        assert_eq!(template(&host, &config, &keeps), None, "{config}");
    }
}

#[test]
fn a_helper_without_the_login_or_with_an_error_is_reported() {
    let host = server();
    let config = r#"{"credsStore": "trial"}"#;
    let nothing = "cat > /dev/null; echo 'credentials not found in native keychain'; exit 1";
    let said = template(&host, config, nothing).unwrap();
    assert!(said.contains("answered 401"), "{said}");
    let said = template(
        &host,
        config,
        "cat > /dev/null; echo s3cret; echo s3cret >&2; exit 1",
    )
    .unwrap();
    assert!(said.contains("docker-credential-trial: it failed"), "{said}");
    assert!(!said.contains("s3cret"), "{said}");
    let said = template(&host, r#"{"credsStore": "absent"}"#, "").unwrap();
    assert!(
        said.contains("docker-credential-absent: it cannot be run"),
        "{said}"
    );
}
