//! Turns a kubeconfig that somebody wrote into a Secret into a client's configuration.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use http::Uri;
use http::uri::Scheme;
use kube::config::{AuthInfo, Cluster, Config};
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject as _;
use secrecy::ExposeSecret as _;

use super::address;
use super::current_context::{CurrentContext, parse};
use super::error::{MINIFY_HINT, shown};
use super::{Error, Limits};

/// The longest accepted server address; the paths of requests are added to it.
const LONGEST_SERVER: usize = 2048;

/// The current context of a kubeconfig that somebody else wrote.
///
/// No program is run and no file is opened for it, now or later: exec plugins, auth providers and paths are refused
/// if the context uses them. Only a client made by [`super::client`] checks what names resolve to; a client made from
/// the configuration in another way does not.
///
/// # Errors
///
/// The error says what is wrong, in which field, and what to do, without quoting anything secret.
pub fn untrusted(text: &[u8], limits: &Limits) -> Result<Config, Error> {
    if text.len() > limits.size {
        return Err(Error::TooLarge {
            size: text.len(),
            most: limits.size,
        });
    }
    let current = CurrentContext::of(parse(text)?)?;
    let server = server(&current, limits)?;
    let mut config = Config::new(server);
    config.default_retry = false;
    config.connect_timeout = Some(limits.connect_timeout);
    config.auth_info = credentials(&current)?;
    if let Some(namespace) = current.context.namespace.clone().filter(|name| !name.is_empty()) {
        config.default_namespace = namespace;
    }
    let of = current.of_cluster();
    let Cluster {
        server: _,
        insecure_skip_tls_verify,
        certificate_authority,
        certificate_authority_data,
        proxy_url,
        disable_compression: _,
        tls_server_name,
        extensions: _,
        other: _,
    } = current.cluster;
    if is_set(certificate_authority.as_ref()) {
        return Err(path_in("certificate-authority", of));
    }
    if is_set(proxy_url.as_ref()) {
        return Err(Error::NotAllowed {
            field: "proxy-url",
            of,
            instead: "proxies are not supported here; write an address that can be reached without one",
        });
    }
    if insecure_skip_tls_verify == Some(true) {
        if !limits.unverified_tls {
            return Err(Error::NotAllowed {
                field: "insecure-skip-tls-verify",
                of,
                instead: "write the authority of the server's certificate into certificate-authority-data",
            });
        }
        config.accept_invalid_certs = true;
    }
    if let Some(name) = tls_server_name.filter(|name| !name.is_empty()) {
        if rustls::pki_types::ServerName::try_from(name.as_str()).is_err() {
            return Err(Error::Field {
                field: "tls-server-name",
                of,
                why: "it is not a host name",
            });
        }
        config.tls_server_name = Some(name);
    }
    if let Some(data) = certificate_authority_data.filter(|data| !data.is_empty()) {
        config.root_cert = Some(certificates(&data, "certificate-authority-data", &of)?);
    }
    Ok(config)
}

fn server(current: &CurrentContext, limits: &Limits) -> Result<Uri, Error> {
    let unusable = |why| Error::Server {
        cluster: shown(&current.context.cluster),
        why,
    };
    let text = current.cluster.server.as_deref().unwrap_or_default();
    if text.is_empty() {
        return Err(unusable("it is missing; write https://HOST:PORT"));
    }
    if text.len() > LONGEST_SERVER {
        return Err(unusable("it is too long; write https://HOST:PORT"));
    }
    let uri: Uri = text
        .parse()
        .map_err(|_| unusable("it is not a URL; write https://HOST:PORT"))?;
    let authority = uri
        .authority()
        .ok_or_else(|| unusable("it has no host; write https://HOST:PORT"))?;
    if authority.as_str().contains('@') {
        return Err(unusable(
            "it contains a user name or password; write those into the user",
        ));
    }
    if uri.query().is_some() {
        return Err(unusable(
            "it has a query; remove what begins with the question mark",
        ));
    }
    match uri.scheme() {
        Some(scheme) if *scheme == Scheme::HTTPS => {}
        Some(scheme) if *scheme == Scheme::HTTP && limits.plain_http => {}
        Some(scheme) if *scheme == Scheme::HTTP => {
            return Err(unusable(
                "without TLS, anybody on the network path can read the credentials; write https://",
            ));
        }
        _ => return Err(unusable("it has an unknown scheme; write https://HOST:PORT")),
    }
    let host = authority.host();
    address::judge_host(host, limits).map_err(|kind| Error::Address {
        cluster: shown(&current.context.cluster),
        host: shown(host),
        kind,
    })?;
    Ok(uri)
}

/// The inline credentials of the user.
fn credentials(current: &CurrentContext) -> Result<AuthInfo, Error> {
    let of = current.of_user();
    // Destructured field by field, so that a field that kube learns to read is reviewed before it has an effect here.
    let AuthInfo {
        username,
        password,
        token,
        token_file,
        client_certificate,
        client_certificate_data,
        client_key,
        client_key_data,
        impersonate,
        impersonate_uid,
        impersonate_groups,
        impersonate_user_extra,
        extensions: _,
        auth_provider,
        exec,
        other: _,
    } = current.user.clone();
    if exec.is_some() {
        return Err(Error::NotAllowed {
            field: "exec",
            of,
            instead: "exec plugins are not run here; write a token or a client certificate, as `kco cluster join` does",
        });
    }
    if auth_provider.is_some() {
        return Err(Error::NotAllowed {
            field: "auth-provider",
            of,
            instead: "auth providers are not supported here; write a token or a client certificate, as `kco cluster join` does",
        });
    }
    let paths = [
        ("tokenFile", &token_file),
        ("client-certificate", &client_certificate),
        ("client-key", &client_key),
    ];
    if let Some((field, _)) = paths.into_iter().find(|(_, path)| is_set(path.as_ref())) {
        return Err(path_in(field, of));
    }
    let token = token.filter(|token| !token.expose_secret().is_empty());
    if let Some(token) = &token
        && !token.expose_secret().bytes().all(|byte| byte.is_ascii_graphic())
    {
        return Err(Error::Field {
            field: "token",
            of,
            why: "it contains a space, a line break or another character that is not allowed in a token",
        });
    }
    let certificate = client_certificate_data.filter(|data| !data.is_empty());
    let key = client_key_data.filter(|data| !data.expose_secret().is_empty());
    if let Some(data) = &certificate {
        certificates(data, "client-certificate-data", &of)?;
    }
    match (&certificate, &key) {
        (Some(_), None) => {
            return Err(Error::Field {
                field: "client-key-data",
                of,
                why: "it is missing beside client-certificate-data",
            });
        }
        (None, Some(_)) => {
            return Err(Error::Field {
                field: "client-certificate-data",
                of,
                why: "it is missing beside client-key-data",
            });
        }
        (None, None) => {}
        (Some(_), Some(key)) if STANDARD.decode(key.expose_secret()).is_ok() => {}
        (Some(_), Some(_)) => {
            return Err(Error::Field {
                field: "client-key-data",
                of,
                why: "it is not base64",
            });
        }
    }
    Ok(AuthInfo {
        username,
        password,
        token,
        client_certificate_data: certificate,
        client_key_data: key,
        impersonate,
        impersonate_uid,
        impersonate_groups,
        impersonate_user_extra,
        ..AuthInfo::default()
    })
}

/// The certificates of a base64-encoded PEM text.
fn certificates(data: &str, field: &'static str, of: &str) -> Result<Vec<Vec<u8>>, Error> {
    let wrong = |why| Error::Field {
        field,
        of: of.to_owned(),
        why,
    };
    let pem = STANDARD.decode(data).map_err(|_| wrong("it is not base64"))?;
    let found: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&pem)
        .map(|certificate| certificate.map(|certificate| certificate.to_vec()))
        .collect();
    match found {
        Ok(found) if !found.is_empty() => Ok(found),
        _ => Err(wrong("it contains no certificate in PEM format")),
    }
}

fn path_in(field: &'static str, of: String) -> Error {
    Error::NotAllowed {
        field,
        of,
        instead: MINIFY_HINT,
    }
}

fn is_set(text: Option<&String>) -> bool {
    text.is_some_and(|text| !text.is_empty())
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use proptest::prelude::*;
    use serde_json::{Value, json};

    use super::*;
    use crate::kubeconfig::RefusedAddress;

    /// A certificate of an authority, as PEM.
    const CA: &str = include_str!("testdata/ca.pem");

    fn pem() -> String {
        STANDARD.encode(CA)
    }

    /// One context with a server, an authority and a token.
    fn usable() -> Value {
        json!({
            "apiVersion": "v1", "kind": "Config", "current-context": "far",
            "contexts": [{"name": "far", "context": {"cluster": "far", "user": "operator", "namespace": "shop"}}],
            "clusters": [{"name": "far", "cluster": {
                "server": "https://198.18.0.10:6443", "certificate-authority-data": pem(),
            }}],
            "users": [{"name": "operator", "user": {"token": "s3cr3t"}}],
        })
    }

    fn read(kubeconfig: &Value) -> Result<Config, Error> {
        untrusted(kubeconfig.to_string().as_bytes(), &Limits::default())
    }

    fn with(change: impl Fn(&mut Value)) -> Value {
        let mut kubeconfig = usable();
        change(&mut kubeconfig);
        kubeconfig
    }

    fn with_cluster(field: &str, value: &Value) -> Value {
        with(|all| all["clusters"][0]["cluster"][field] = value.clone())
    }

    fn with_user(field: &str, value: &Value) -> Value {
        with(|all| all["users"][0]["user"][field] = value.clone())
    }

    #[track_caller]
    fn refused(kubeconfig: &Value, words: &str) {
        let error = read(kubeconfig).unwrap_err().to_string();
        assert!(error.contains(words), "{error}");
        assert!(!error.contains("s3cr3t"), "{error}");
    }

    #[test]
    fn a_kubeconfig_that_holds_everything_itself_is_taken() {
        let config = read(&usable()).unwrap();
        assert_eq!(config.cluster_url.to_string(), "https://198.18.0.10:6443/");
        assert_eq!(config.default_namespace, "shop");
        assert_eq!(config.root_cert.map(|all| all.len()), Some(1));
        assert_eq!(config.auth_info.token.unwrap().expose_secret(), "s3cr3t");
        assert!(!config.accept_invalid_certs && config.proxy_url.is_none());
        assert_eq!(config.connect_timeout, Some(Limits::default().connect_timeout));
    }

    #[test]
    fn a_yaml_kubeconfig_is_read_as_kubectl_writes_it() {
        let text = format!(
            "apiVersion: v1\nclusters:\n- cluster:\n    certificate-authority-data: {}\n    server: https://api.example/k8s/c1\n  \
             name: far\ncontexts:\n- context:\n    cluster: far\n    user: u\n  name: far\ncurrent-context: far\nkind: Config\n\
             preferences: {{}}\nusers:\n- name: u\n  user:\n    token: t\n",
            pem()
        );
        let config = untrusted(text.as_bytes(), &Limits::default()).unwrap();
        assert_eq!(config.cluster_url.path(), "/k8s/c1");
        assert_eq!(config.default_namespace, "default");
    }

    #[test]
    fn nothing_is_run_or_opened() {
        refused(
            &with_user("exec", &json!({"command": "/bin/sh", "args": ["-c", "s3cr3t"]})),
            "`exec` of user \"operator\"",
        );
        refused(
            &with_user(
                "auth-provider",
                &json!({"name": "gcp", "config": {"cmd-path": "/bin/sh"}}),
            ),
            "`auth-provider` of user \"operator\"",
        );
        for field in ["tokenFile", "client-certificate", "client-key"] {
            refused(
                &with_user(
                    field,
                    &json!("/var/run/secrets/kubernetes.io/serviceaccount/token"),
                ),
                &format!("`{field}` of user \"operator\""),
            );
        }
        refused(
            &with_cluster("certificate-authority", &json!("/etc/ssl/ca.pem")),
            "`certificate-authority` of cluster \"far\"",
        );
        refused(
            &with_cluster("proxy-url", &json!("http://169.254.169.254:3128")),
            "`proxy-url` of cluster \"far\"",
        );
    }

    #[test]
    fn what_a_context_does_not_use_is_of_no_concern() {
        let kubeconfig = with(|all| {
            let other = json!({"name": "other", "user": {"exec": {"command": "sh"}}});
            all["users"].as_array_mut().unwrap().push(other);
        });
        assert!(read(&kubeconfig).is_ok());
    }

    #[test]
    fn the_connection_is_not_weakened_unless_it_is_allowed() {
        let unverified = with_cluster("insecure-skip-tls-verify", &json!(true));
        refused(&unverified, "`insecure-skip-tls-verify` of cluster \"far\"");
        let plain = with_cluster("server", &json!("http://198.18.0.10:8080"));
        refused(&plain, "without TLS");
        let limits = Limits {
            unverified_tls: true,
            plain_http: true,
            ..Limits::default()
        };
        let allowed = |kubeconfig: &Value| untrusted(kubeconfig.to_string().as_bytes(), &limits);
        assert!(allowed(&unverified).unwrap().accept_invalid_certs);
        assert_eq!(allowed(&plain).unwrap().cluster_url.scheme_str(), Some("http"));
    }

    #[test]
    fn addresses_of_our_own_and_of_metadata_are_refused() {
        for (server, kind) in [
            ("https://127.0.0.1:6443", RefusedAddress::Loopback),
            ("https://localhost:6443", RefusedAddress::Loopback),
            ("https://[::ffff:127.0.0.1]:6443", RefusedAddress::Loopback),
            ("https://169.254.169.254", RefusedAddress::LinkLocal),
            ("https://[fe80::1]:6443", RefusedAddress::LinkLocal),
        ] {
            let error = read(&with_cluster("server", &json!(server))).unwrap_err();
            assert!(
                matches!(&error, Error::Address { kind: found, .. } if *found == kind),
                "{error}"
            );
        }
    }

    #[test]
    fn an_unusable_server_says_what_to_write() {
        for (server, words) in [
            ("", "it is missing"),
            ("198.18.0.10 6443", "it is not a URL"),
            ("/k8s/c1", "it has no host"),
            ("ftp://far", "unknown scheme"),
            ("far:6443", "unknown scheme"),
            ("https://me:s3cr3t@far", "user name or password"),
            ("https://far?a=b", "it has a query"),
        ] {
            refused(&with_cluster("server", &json!(server)), words);
        }
        let long = format!("https://far/{}", "a".repeat(LONGEST_SERVER));
        refused(&with_cluster("server", &json!(long)), "too long");
    }

    #[test]
    fn names_lead_to_exactly_one_entry() {
        refused(
            &with(|all| all["current-context"] = json!(null)),
            "no current-context",
        );
        refused(
            &with(|all| all["current-context"] = json!("gone")),
            "no context \"gone\"",
        );
        refused(
            &with(|all| all["contexts"][0]["context"]["cluster"] = json!("gone")),
            "no cluster \"gone\", which context \"far\" names",
        );
        refused(
            &with(|all| all["contexts"][0]["context"]["user"] = json!("gone")),
            "no user \"gone\"",
        );
        for (list, one) in [
            ("contexts", "context"),
            ("clusters", "cluster"),
            ("users", "user"),
        ] {
            let twice = with(|all| {
                let again = all[list][0].clone();
                all[list].as_array_mut().unwrap().push(again);
            });
            refused(&twice, &format!("two {one}s with the name"));
        }
    }

    #[test]
    fn a_name_in_a_message_is_cut_and_escaped() {
        let name = format!("\u{1b}[2J{}", "x".repeat(5000));
        let error = read(&with(|all| all["current-context"] = json!(name)))
            .unwrap_err()
            .to_string();
        assert!(error.len() < 300 && !error.contains('\u{1b}'), "{error}");
    }

    #[test]
    fn certificates_keys_and_tokens_are_what_they_should_be() {
        let cluster = |data: &str| with_cluster("certificate-authority-data", &json!(data));
        refused(&cluster("s3cr3t!"), "it is not base64");
        refused(&cluster(&STANDARD.encode("s3cr3t")), "no certificate");
        refused(
            &with_user("client-certificate-data", &json!(pem())),
            "`client-key-data` of user \"operator\" is not usable: it is missing",
        );
        refused(
            &with_user("client-key-data", &json!(STANDARD.encode("s3cr3t"))),
            "`client-certificate-data` of user \"operator\" is not usable: it is missing",
        );
        // kube panics on a token that is not valid in a header.
        refused(&with_user("token", &json!("s3cr3t\n")), "`token` of user");
        refused(
            &with_cluster("tls-server-name", &json!("no host")),
            "tls-server-name",
        );
    }

    #[test]
    fn what_is_no_kubeconfig_is_not_quoted() {
        let check = |text: &str| {
            let error = untrusted(text.as_bytes(), &Limits::default()).unwrap_err();
            assert!(!error.to_string().contains("s3cr3t"), "{error}");
            assert!(std::error::Error::source(&error).is_none(), "{error}");
        };
        check("s3cr3t");
        check("token: s3cr3t\n  - s3cr3t: [");
        check("users: s3cr3t");
        check("users: [{name: u, user: {token: [s3cr3t]}}]");
        check("current-context: a\ncurrent-context: s3cr3t");
        let error = untrusted(&[0xff, 0xfe, 0x00], &Limits::default()).unwrap_err();
        assert!(matches!(error, Error::Unreadable { .. }), "{error}");
        let error = untrusted(&vec![b' '; (1 << 20) + 1], &Limits::default()).unwrap_err();
        assert!(matches!(error, Error::TooLarge { .. }), "{error}");
    }

    #[test]
    fn a_document_that_grows_by_its_anchors_is_refused() {
        let mut text = "a0: &a0 [x, x, x, x, x, x, x, x, x]\n".to_owned();
        for level in 1..12 {
            let items = vec![format!("*a{}", level - 1); 9].join(", ");
            text = format!("{text}a{level}: &a{level} [{items}]\n");
        }
        let error = untrusted(text.as_bytes(), &Limits::default()).unwrap_err();
        assert!(matches!(error, Error::Unreadable { .. }), "{error}");
    }

    /// Values for fields of a kubeconfig.
    fn any_value() -> impl Strategy<Value = Value> {
        prop_oneof![
            Just(Value::Null),
            any::<bool>().prop_map(Value::from),
            any::<u32>().prop_map(Value::from),
            ".{0,40}".prop_map(Value::from),
            Just(json!({"command": "true", "name": "oidc"})),
            Just(json!("/etc/passwd")),
            any::<[u8; 4]>().prop_map(|octets| json!(format!("https://{}:6443", Ipv4Addr::from(octets)))),
            Just(json!(pem())),
            Just(json!(["a"])),
            Just(json!({})),
        ]
    }

    const CLUSTER_FIELDS: [&str; 7] = [
        "server",
        "insecure-skip-tls-verify",
        "certificate-authority",
        "certificate-authority-data",
        "proxy-url",
        "tls-server-name",
        "extensions",
    ];

    const USER_FIELDS: [&str; 12] = [
        "username",
        "password",
        "token",
        "tokenFile",
        "client-certificate",
        "client-certificate-data",
        "client-key",
        "client-key-data",
        "as",
        "as-groups",
        "auth-provider",
        "exec",
    ];

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(512))]

        #[test]
        fn whatever_is_written_nothing_is_run_opened_or_reached_that_must_not_be(
            cluster in proptest::collection::btree_map(0..CLUSTER_FIELDS.len(), any_value(), 0..4),
            user in proptest::collection::btree_map(0..USER_FIELDS.len(), any_value(), 0..4),
        ) {
            let mut kubeconfig = usable();
            for (field, value) in cluster {
                kubeconfig["clusters"][0]["cluster"][CLUSTER_FIELDS[field]] = value;
            }
            for (field, value) in user {
                kubeconfig["users"][0]["user"][USER_FIELDS[field]] = value;
            }
            if let Ok(config) = read(&kubeconfig) {
                prop_assert!(config.auth_info.exec.is_none() && config.auth_info.auth_provider.is_none());
                let paths = [&config.auth_info.token_file, &config.auth_info.client_certificate, &config.auth_info.client_key];
                prop_assert!(paths.iter().all(|path| path.is_none()));
                prop_assert!(config.root_cert_file.is_none() && config.proxy_url.is_none() && !config.accept_invalid_certs);
                prop_assert_eq!(config.cluster_url.scheme_str(), Some("https"));
                let host = config.cluster_url.host().unwrap();
                prop_assert!(address::judge_host(host, &Limits::default()).is_ok(), "{}", host);
            }
        }

        #[test]
        fn no_bytes_make_it_panic(text in proptest::collection::vec(any::<u8>(), 0..400)) {
            let _ = untrusted(&text, &Limits::default());
        }

        #[test]
        fn no_piece_of_a_kubeconfig_makes_it_panic(from in 0..1200usize, cut in 0..400usize) {
            let text = usable().to_string();
            let from = from.min(text.len());
            let until = (from + cut).min(text.len());
            let rest = format!("{}{}", &text[..from], &text[until..]);
            let _ = untrusted(rest.as_bytes(), &Limits::default());
        }
    }
}
