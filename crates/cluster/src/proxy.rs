//! Chooses the proxy for an API server from environment variables and a kubeconfig's `proxy-url`, as client-go does.
//!
//! kube reads the variables too, but compares `NO_PROXY` with the address of the proxy, and refuses lists that Go
//! accepts.

use std::env;
use std::net::IpAddr;

use http::Uri;
use hyper_util::client::proxy::matcher::Matcher;

/// The environment variables that name proxies.
#[derive(Debug, Default)]
pub(crate) struct Variables {
    https: Option<String>,
    http: Option<String>,
    no: Option<String>,
}

/// A proxy that cannot be used. Its address is not quoted: it may contain a password.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "{of} is not a proxy address: expected is http://host:port, https://host:port or socks5://host:port, with \
     user:password@ before the host if need be"
)]
pub(crate) struct InvalidProxy {
    of: &'static str,
}

impl Variables {
    /// The variables of this process.
    pub(crate) fn of_process() -> Self {
        let either = |names: [&str; 2]| {
            let mut found = names.into_iter().filter_map(|name| env::var(name).ok());
            found.find(|value| !value.is_empty())
        };
        Self {
            https: either(["HTTPS_PROXY", "https_proxy"]),
            http: either(["HTTP_PROXY", "http_proxy"]),
            no: either(["NO_PROXY", "no_proxy"]),
        }
    }
}

/// The proxy for a server, with its credentials in the address.
///
/// A proxy from the kubeconfig is used for every server. The variables do not apply to this machine, nor to hosts in
/// `NO_PROXY`.
pub(crate) fn proxy(
    server: &Uri,
    named: Option<&str>,
    variables: &Variables,
) -> Result<Option<Uri>, InvalidProxy> {
    if let Some(named) = named.filter(|named| !named.is_empty()) {
        let found = named.parse().ok().as_ref().and_then(usable);
        return found.map(Some).ok_or(InvalidProxy {
            of: "proxy-url of the kubeconfig's cluster",
        });
    }
    let (variable, of) = match server.scheme_str() {
        Some("http") => (&variables.http, "HTTP_PROXY"),
        _ => (&variables.https, "HTTPS_PROXY"),
    };
    let Some(address) = variable else {
        return Ok(None);
    };
    if is_this_machine(server) || is_listed(server, variables.no.as_deref().unwrap_or_default()) {
        return Ok(None);
    }
    // As in Go, the scheme may be left out.
    let parsed = if address.contains("://") {
        address.parse()
    } else {
        format!("http://{address}").parse()
    };
    let parsed = parsed.ok().as_ref().and_then(usable);
    parsed.map(Some).ok_or(InvalidProxy { of })
}

/// The address in the form that kube accepts.
fn usable(address: &Uri) -> Option<Uri> {
    let scheme = match address.scheme_str()? {
        scheme @ ("http" | "https" | "socks5") => scheme,
        // In both, the proxy resolves names.
        "socks5h" => "socks5",
        _ => return None,
    }
    .to_owned();
    let authority = address.authority()?.clone();
    let built = Uri::builder().scheme(scheme.as_str()).authority(authority);
    built.path_and_query("/").build().ok()
}

fn is_this_machine(server: &Uri) -> bool {
    let host = server.host().unwrap_or_default();
    let address = host.trim_start_matches('[').trim_end_matches(']');
    host == "localhost"
        || address
            .parse::<IpAddr>()
            .is_ok_and(|address| address.is_loopback())
}

/// Whether a `NO_PROXY` list contains this server.
fn is_listed(server: &Uri, list: &str) -> bool {
    let port = server.port_u16().unwrap_or(match server.scheme_str() {
        Some("http") => 80,
        _ => 443,
    });
    let entries: Vec<&str> = list
        .split(',')
        .filter_map(|entry| of_port(entry.trim(), port))
        // Go accepts a leading star for all names below one; the matcher only knows the leading dot.
        .map(|entry| {
            entry
                .strip_prefix('*')
                .filter(|rest| rest.starts_with('.'))
                .unwrap_or(entry)
        })
        .collect();
    // The matcher takes a star to mean names only.
    if entries.contains(&"*") {
        return true;
    }
    let all = Matcher::builder()
        .all("http://proxy")
        .no(entries.join(","))
        .build();
    all.intercept(server).is_none()
}

/// An entry without its port; `None` if the port is a different one.
fn of_port(entry: &str, port: u16) -> Option<&str> {
    match entry.rsplit_once(':') {
        Some((host, only)) if !host.contains(':') || host.ends_with(']') => {
            let host = host.trim_start_matches('[').trim_end_matches(']');
            (only.parse() == Ok(port)).then_some(host)
        }
        _ => Some(entry.trim_start_matches('[').trim_end_matches(']')),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SERVER: &str = "https://api.example.com:6443";

    fn variables(https: &str, no: &str) -> Variables {
        Variables {
            https: Some(https.to_owned()).filter(|text| !text.is_empty()),
            http: None,
            no: Some(no.to_owned()),
        }
    }

    fn found(server: &str, named: Option<&str>, variables: &Variables) -> String {
        let server = server.parse().unwrap();
        match proxy(&server, named, variables) {
            Ok(Some(found)) => found.to_string(),
            Ok(None) => "none".to_owned(),
            Err(refused) => refused.of.to_owned(),
        }
    }

    #[test]
    fn the_list_is_compared_with_the_server() {
        let proxy = "http://127.0.0.1:3128";
        for (server, list, direct) in [
            (SERVER, "", false),
            // The proxy's own address does not matter for the server.
            (SERVER, "127.0.0.1,localhost", false),
            (SERVER, "*", true),
            (SERVER, "example.com", true),
            (SERVER, ".example.com", true),
            (SERVER, "*.example.com", true),
            (SERVER, "other.com, api.example.com ,", true),
            (SERVER, "ample.com", false),
            (SERVER, "api.example.com:6443", true),
            (SERVER, "api.example.com:443", false),
            ("https://api.example.com", "api.example.com:443", true),
            ("https://10.1.2.3:6443", "*", true),
            ("https://10.1.2.3:6443", "10.0.0.0/8", true),
            ("https://10.1.2.3:6443", "10.1.2.3", true),
            ("https://10.1.2.3:6443", "10.1.2.3:6443", true),
            ("https://10.1.2.3:6443", "10.1.2.4,192.168.0.0/16", false),
            ("https://[fd00::1]:6443", "fd00::/8", true),
            ("https://[fd00::1]:6443", "fd00::1", true),
            ("https://[fd00::1]:6443", "[fd00::1]:6443", true),
            ("https://[fd00::1]:6443", "fd00::2,::", false),
            ("https://127.0.0.1:6443", "", true),
            ("https://[::1]:6443", "", true),
            ("https://localhost:6443", "", true),
        ] {
            let expected = if direct { "none" } else { "http://127.0.0.1:3128/" };
            assert_eq!(
                found(server, None, &variables(proxy, list)),
                expected,
                "{server} {list}"
            );
        }
    }

    #[test]
    fn a_proxy_of_the_kubeconfig_is_used_for_every_server() {
        let all = variables("http://other:3128", "*");
        let named = |address| found("https://127.0.0.1:6443", Some(address), &all);
        assert_eq!(named("http://near:3128"), "http://near:3128/");
        assert_eq!(named("socks5://near:1080"), "socks5://near:1080/");
        assert_eq!(named("ftp://near"), "proxy-url of the kubeconfig's cluster");
        assert_eq!(named("near:3128"), "proxy-url of the kubeconfig's cluster");
        assert_eq!(named(""), "none");
    }

    #[test]
    fn variables_are_read_as_go_reads_them() {
        let found = |address| found(SERVER, None, &variables(address, ""));
        assert_eq!(found(""), "none");
        assert_eq!(found("proxy.example.com:3128"), "http://proxy.example.com:3128/");
        assert_eq!(
            found("http://me:s3cret@proxy:3128"),
            "http://me:s3cret@proxy:3128/"
        );
        assert_eq!(found("https://proxy:3129/ignored"), "https://proxy:3129/");
        assert_eq!(found("socks5h://proxy:1080"), "socks5://proxy:1080/");
        for address in ["ftp://proxy", "not a proxy"] {
            assert_eq!(found(address), "HTTPS_PROXY", "{address}");
        }
        let plain = Variables {
            http: Some("http://plain:3128".to_owned()),
            ..variables("http://tls:3128", "")
        };
        assert_eq!(
            super::tests::found("http://10.0.0.1:8080", None, &plain),
            "http://plain:3128/"
        );
    }
}
