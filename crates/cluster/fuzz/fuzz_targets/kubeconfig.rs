//! Any bytes as the kubeconfig in a Secret: no program is run for it, no file opened, and no address of this machine
//! contacted.
#![no_main]

use std::net::IpAddr;
use std::sync::LazyLock;

use cluster::kubeconfig::{Limits, client, untrusted};
use libfuzzer_sys::fuzz_target;
use tokio::runtime::Runtime;

static RUNTIME: LazyLock<Runtime> = LazyLock::new(|| {
    let _ = rustls::crypto::ring::default_provider().install_default();
    tokio::runtime::Builder::new_current_thread()
        .build()
        .expect("a runtime without anything in it")
});

fuzz_target!(|text: &[u8]| {
    let limits = Limits::default();
    let config = match untrusted(text, &limits) {
        Ok(config) => config,
        Err(error) => {
            // It is written to an annotation.
            let message = error.to_string();
            assert!(message.len() < 2048 && !message.contains(char::is_control), "{message}");
            return;
        }
    };
    let user = &config.auth_info;
    assert!(user.exec.is_none() && user.auth_provider.is_none());
    let paths = [&user.token_file, &user.client_certificate, &user.client_key];
    assert!(paths.into_iter().all(Option::is_none));
    assert!(config.root_cert_file.is_none() && config.proxy_url.is_none() && !config.accept_invalid_certs);
    assert_eq!(config.cluster_url.scheme_str(), Some("https"));
    let host = config.cluster_url.host().unwrap_or_default();
    let bare = host.trim_start_matches('[').trim_end_matches(']');
    if let Ok(address) = bare.parse::<IpAddr>() {
        assert!(!address.is_loopback() && !address.is_unspecified(), "{address}");
    }
    assert_ne!(host.to_ascii_lowercase(), "localhost");
    let _inside = RUNTIME.enter();
    drop(client(config, &limits, "fuzz", |_| {}));
});
