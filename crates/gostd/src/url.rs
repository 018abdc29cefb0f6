//! Go's `net/url`: parses and assembles URLs, with its own rules for what must be escaped.

use std::net::Ipv6Addr;

/// The parts of a URL, unescaped.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Url {
    /// In lower case, without the colon.
    pub scheme: Vec<u8>,
    /// The rest of a URL without slashes after the scheme: `mailto:a@b`.
    pub opaque: Vec<u8>,
    /// The text before `@`.
    pub user: Option<User>,
    /// Host and port.
    pub host: Vec<u8>,
    /// The path, including a leading slash.
    pub path: Vec<u8>,
    /// The query without `?`, still escaped.
    pub query: Vec<u8>,
    /// The fragment without `#`.
    pub fragment: Vec<u8>,
}

/// User name and password.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct User {
    name: Vec<u8>,
    password: Option<Vec<u8>>,
}

/// Why a text is not a URL, in Go's words.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("parse {quoted}: {problem}")]
pub struct Error {
    quoted: String,
    problem: String,
}

impl Url {
    /// `url.Parse`.
    pub fn parse(text: &[u8]) -> Result<Self, Error> {
        let (before, fragment) = cut(text, b'#');
        let fail = |text: &[u8], problem: String| Error {
            quoted: quote(text),
            problem,
        };
        let mut url = parse(before).map_err(|problem| fail(before, problem))?;
        url.fragment =
            unescape(fragment.unwrap_or_default(), Part::Fragment).map_err(|problem| fail(text, problem))?;
        Ok(url)
    }

    /// The host without port and brackets.
    pub fn hostname(&self) -> &[u8] {
        let mut host = self.host.as_slice();
        if let Some(colon) = host.iter().rposition(|byte| *byte == b':')
            && is_optional_port(&host[colon..])
        {
            host = &host[..colon];
        }
        match host {
            [b'[', inner @ .., b']'] => inner,
            _ => host,
        }
    }

    /// `URL.String` of a URL built from parts, which has no original notation to keep.
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut out = Vec::new();
        if !self.scheme.is_empty() {
            out.extend_from_slice(&self.scheme);
            out.push(b':');
        }
        if self.opaque.is_empty() {
            self.write_hierarchy(&mut out);
        } else {
            out.extend_from_slice(&self.opaque);
        }
        if !self.query.is_empty() {
            out.push(b'?');
            out.extend_from_slice(&self.query);
        }
        if !self.fragment.is_empty() {
            out.push(b'#');
            escape_into(&mut out, &self.fragment, Part::Fragment);
        }
        out
    }

    fn write_hierarchy(&self, out: &mut Vec<u8>) {
        let named = !self.host.is_empty() || self.user.is_some();
        if named || (!self.scheme.is_empty() && !self.path.is_empty()) {
            out.extend_from_slice(b"//");
        }
        if let Some(user) = &self.user {
            out.extend_from_slice(&user.to_bytes());
            out.push(b'@');
        }
        escape_into(out, &self.host, Part::Host);
        let mut path = Vec::new();
        if self.path == b"*" {
            path.push(b'*');
        } else {
            escape_into(&mut path, &self.path, Part::Path);
        }
        if !path.is_empty() && path[0] != b'/' && !self.host.is_empty() {
            out.push(b'/');
        }
        // `a:b` would be parsed as a scheme.
        if out.is_empty() && cut(&path, b'/').0.contains(&b':') {
            out.extend_from_slice(b"./");
        }
        out.extend_from_slice(&path);
    }
}

impl User {
    /// `Userinfo.String`.
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut out = Vec::new();
        escape_into(&mut out, &self.name, Part::User);
        if let Some(password) = &self.password {
            out.push(b':');
            escape_into(&mut out, password, Part::User);
        }
        out
    }
}

/// The text before the first `separator`, and the text after it.
fn cut(text: &[u8], separator: u8) -> (&[u8], Option<&[u8]>) {
    match text.iter().position(|byte| *byte == separator) {
        Some(at) => (&text[..at], Some(&text[at + 1..])),
        None => (text, None),
    }
}

fn parse(text: &[u8]) -> Result<Url, String> {
    if text.iter().any(u8::is_ascii_control) {
        return Err("net/url: invalid control character in URL".to_owned());
    }
    let mut url = Url::default();
    if text == b"*" {
        url.path = b"*".to_vec();
        return Ok(url);
    }
    let (scheme, rest) = split_scheme(text)?;
    url.scheme = scheme.to_ascii_lowercase();
    let (rest, query) = cut(rest, b'?');
    url.query = query.unwrap_or_default().to_vec();
    if !rest.starts_with(b"/") {
        if !url.scheme.is_empty() {
            url.opaque = rest.to_vec();
            return Ok(url);
        }
        if cut(rest, b'/').0.contains(&b':') {
            return Err("first path segment in URL cannot contain colon".to_owned());
        }
    }
    let mut path = rest;
    if rest.starts_with(b"//") && (!url.scheme.is_empty() || !rest.starts_with(b"///")) {
        let authority = &rest[2..];
        let slash = authority
            .iter()
            .position(|byte| *byte == b'/')
            .unwrap_or(authority.len());
        (url.user, url.host) = parse_authority(&url.scheme, &authority[..slash])?;
        path = &authority[slash..];
    }
    url.path = unescape(path, Part::Path)?;
    Ok(url)
}

fn parse_authority(scheme: &[u8], authority: &[u8]) -> Result<(Option<User>, Vec<u8>), String> {
    let Some(at) = authority.iter().rposition(|byte| *byte == b'@') else {
        return Ok((None, parse_host(scheme, authority)?));
    };
    let host = parse_host(scheme, &authority[at + 1..])?;
    let user = &authority[..at];
    if !user
        .iter()
        .all(|byte| byte.is_ascii_alphanumeric() || b"-._:~!$&'()*+,;=%@".contains(byte))
    {
        return Err("net/url: invalid userinfo".to_owned());
    }
    let (name, password) = cut(user, b':');
    let name = unescape(name, Part::User)?;
    let password = password
        .map(|password| unescape(password, Part::User))
        .transpose()?;
    Ok((Some(User { name, password }), host))
}

fn parse_host(scheme: &[u8], host: &[u8]) -> Result<Vec<u8>, String> {
    match host.iter().rposition(|byte| *byte == b'[') {
        Some(0) => return parse_ip_literal(host),
        Some(_) => return Err("invalid IP-literal".to_owned()),
        None => {}
    }
    let first = host.iter().position(|byte| *byte == b':');
    let last = host.iter().rposition(|byte| *byte == b':');
    // Databases list several hosts with ports; web servers do not.
    let strict = scheme == b"http" || scheme == b"https";
    if let Some(colon) = if strict { first } else { last } {
        check_port(&host[colon..])?;
    }
    unescape(host, Part::Host)
}

fn parse_ip_literal(host: &[u8]) -> Result<Vec<u8>, String> {
    let Some(close) = host.iter().rposition(|byte| *byte == b']') else {
        return Err("missing ']' in host".to_owned());
    };
    check_port(&host[close + 1..])?;
    let address = &host[1..close];
    let zone = address
        .windows(3)
        .position(|window| window == b"%25")
        .unwrap_or(address.len());
    let mut unescaped = unescape(&address[..zone], Part::Host)?;
    unescaped.extend(unescape(&address[zone..], Part::Zone)?);
    check_ipv6(&unescaped)?;
    Ok([b"[", unescaped.as_slice(), b"]", &host[close + 1..]].concat())
}

fn check_port(colon_port: &[u8]) -> Result<(), String> {
    if is_optional_port(colon_port) {
        return Ok(());
    }
    Err(format!("invalid port {} after host", quote(colon_port)))
}

fn check_ipv6(address: &[u8]) -> Result<(), String> {
    let text = String::from_utf8_lossy(address);
    let (ip, zone) = text
        .split_once('%')
        .map_or((&*text, None), |(ip, zone)| (ip, Some(zone)));
    if zone.is_none() && ip.parse::<std::net::Ipv4Addr>().is_ok() {
        return Err("invalid IP-literal".to_owned());
    }
    if zone != Some("") && ip.parse::<Ipv6Addr>().is_ok() {
        return Ok(());
    }
    Err(format!(
        "invalid host: ParseAddr({}): {}",
        quote(address),
        ip_problem(&text)
    ))
}

/// The most common messages of `netip.ParseAddr` for a text that is not an IPv6 address.
fn ip_problem(text: &str) -> String {
    if text.ends_with('%') {
        return "zone must be a non-empty string".to_owned();
    }
    match text.chars().find(|c| matches!(c, '.' | ':' | '%')) {
        Some('.') => {
            let bad = text.chars().find(|c| !c.is_ascii_digit() && *c != '.');
            match bad {
                Some(_) => "unexpected character (at ".to_owned() + &quote(text.as_bytes()) + ")",
                None => "IPv4 address too short".to_owned(),
            }
        }
        Some(':') => {
            "each colon-separated field must have at least one digit (at ".to_owned()
                + &quote(text.as_bytes())
                + ")"
        }
        Some('%') => "missing IPv6 address".to_owned(),
        _ => "unable to parse IP".to_owned(),
    }
}

/// Go's `%q`.
fn quote(text: &[u8]) -> String {
    String::from_utf8_lossy(&crate::quote::quote(text)).into_owned()
}

fn split_scheme(text: &[u8]) -> Result<(&[u8], &[u8]), String> {
    for (index, byte) in text.iter().enumerate() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' => {}
            b'0'..=b'9' | b'+' | b'-' | b'.' if index > 0 => {}
            b':' if index == 0 => return Err("missing protocol scheme".to_owned()),
            b':' => return Ok((&text[..index], &text[index + 1..])),
            _ => break,
        }
    }
    Ok((b"", text))
}

fn is_optional_port(text: &[u8]) -> bool {
    match text {
        [] => true,
        [b':', digits @ ..] => digits.iter().all(u8::is_ascii_digit),
        _ => false,
    }
}

/// The part of the URL that a text is in, which determines the allowed characters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Part {
    Path,
    Host,
    Zone,
    User,
    Fragment,
}

impl Part {
    fn may_contain(self, byte: u8) -> bool {
        if byte.is_ascii_alphanumeric() || b"-_.~".contains(&byte) {
            return true;
        }
        match self {
            Self::Path => b"$&+,/:;=@".contains(&byte),
            Self::Host | Self::Zone => b"!$&'()*+,;=:[]<>\"".contains(&byte),
            Self::User => b"$&+,;=".contains(&byte),
            Self::Fragment => b"$&+,/:;=?@!()*".contains(&byte),
        }
    }
}

fn escape_into(out: &mut Vec<u8>, text: &[u8], part: Part) {
    const HEX: &[u8; 16] = b"0123456789ABCDEF";
    for &byte in text {
        if part.may_contain(byte) {
            out.push(byte);
        } else {
            out.extend([b'%', HEX[usize::from(byte >> 4)], HEX[usize::from(byte & 15)]]);
        }
    }
}

fn unescape(text: &[u8], part: Part) -> Result<Vec<u8>, String> {
    let hosted = part == Part::Host || part == Part::Zone;
    let mut out = Vec::with_capacity(text.len());
    let mut rest = text;
    while let Some(&byte) = rest.first() {
        if byte != b'%' {
            if hosted && byte < 0x80 && !part.may_contain(byte) {
                return Err(format!("invalid character {} in host name", quote(&rest[..1])));
            }
            out.push(byte);
            rest = &rest[1..];
            continue;
        }
        let escape = &rest[..rest.len().min(3)];
        let digit = |index: usize| char::from(*escape.get(index)?).to_digit(16);
        let value = match (digit(1), digit(2)) {
            (Some(high), Some(low)) => (high << 4 | low) as u8,
            _ => return Err(format!("invalid URL escape {}", quote(escape))),
        };
        // Hosts escape characters that are not ASCII; zones also a space, and the percent sign that starts them.
        let allowed = match part {
            Part::Host => value >= 0x80 || escape == b"%25",
            Part::Zone => escape == b"%25" || value == b' ' || Part::Host.may_contain(value),
            Part::Path | Part::User | Part::Fragment => true,
        };
        if !allowed {
            return Err(format!("invalid URL escape {}", quote(escape)));
        }
        out.push(value);
        rest = &rest[3..];
    }
    Ok(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Result<Url, String> {
        Url::parse(text.as_bytes()).map_err(|error| error.to_string())
    }

    #[test]
    fn urls_survive_being_taken_apart() {
        for text in [
            "http://user:pa%20ss@example.com:8080/a%20b?q=1#frag",
            "mailto:a@b.c",
            "/just/a/path",
            "https://[fe80::1]:80/",
            "postgres://a:1,b:2/db",
            "//host/path",
            "",
        ] {
            assert_eq!(String::from_utf8(parse(text).unwrap().to_bytes()).unwrap(), text);
        }
    }

    #[test]
    fn invalid_urls_are_reported_in_gos_words() {
        for (text, expected) in [
            (
                "http://a b.com/",
                r#"parse "http://a b.com/": invalid character " " in host name"#,
            ),
            (
                "http://a:x/",
                r#"parse "http://a:x/": invalid port ":x" after host"#,
            ),
            (
                "http://a:1:2/",
                r#"parse "http://a:1:2/": invalid port ":1:2" after host"#,
            ),
            (":a", r#"parse ":a": missing protocol scheme"#),
            (
                "1:a",
                r#"parse "1:a": first path segment in URL cannot contain colon"#,
            ),
            ("/%zz", r#"parse "/%zz": invalid URL escape "%zz""#),
            ("http://[::1", r#"parse "http://[::1": missing ']' in host"#),
            (
                "http://us er@h/",
                r#"parse "http://us er@h/": net/url: invalid userinfo"#,
            ),
        ] {
            assert_eq!(parse(text).unwrap_err(), expected);
        }
    }
}
