//! Addresses of API servers, as users and join services write them.

/// True for `host:port`.
pub fn is_endpoint(text: &str) -> bool {
    text.rsplit_once(':')
        .is_some_and(|(host, port)| is_host(host) && port.parse::<u16>().is_ok_and(|port| port != 0))
}

/// A host name, an IPv4 address, or an IPv6 address in brackets.
fn is_host(host: &str) -> bool {
    if let Some(address) = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')) {
        return address.parse::<std::net::Ipv6Addr>().is_ok();
    }
    let is_letter = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-';
    let is_label = |label: &str| {
        !label.is_empty() && !label.starts_with('-') && !label.ends_with('-') && label.bytes().all(is_letter)
    };
    host.len() <= 253 && host.split('.').all(is_label)
}
