//! URLs as maps: sprig's `url.go`.

use gotemplate::function::Error;
use gotemplate::string::Str;
use gotemplate::value::{Map, Value};

use super::NIL_DEREFERENCE;
use gostd::url::{Url, User};

/// `scheme host hostname path query opaque fragment userinfo`, all of them strings.
pub(super) fn parse(text: Str) -> Result<Map, Error> {
    let url = Url::parse(&text).map_err(|error| Error::new(format!("unable to parse url: {error}")))?;
    let user = url.user.as_ref().map(User::to_bytes).unwrap_or_default();
    let hostname = url.hostname().to_vec();
    let parts = [
        ("scheme", url.scheme),
        ("host", url.host),
        ("hostname", hostname),
        ("path", url.path),
        ("query", url.query),
        ("opaque", url.opaque),
        ("fragment", url.fragment),
        ("userinfo", user),
    ];
    Ok(parts
        .into_iter()
        .map(|(name, part)| (name, Str::from(part)))
        .collect())
}

/// The URL of such a map; missing parts are left out.
pub(super) fn join(parts: Map) -> Result<Str, Error> {
    let mut url = Url {
        scheme: part(&parts, "scheme")?,
        host: part(&parts, "host")?,
        path: part(&parts, "path")?,
        query: part(&parts, "query")?,
        opaque: part(&parts, "opaque")?,
        fragment: part(&parts, "fragment")?,
        user: None,
    };
    let user = part(&parts, "userinfo")?;
    if !user.is_empty() {
        let text = [b"proto://", user.as_slice(), b"@host"].concat();
        let parsed = Url::parse(&text)
            .map_err(|error| Error::new(format!("unable to parse userinfo in dict: {error}")))?;
        url.user = parsed.user;
    }
    Ok(url.to_bytes().into())
}

fn part(parts: &Map, key: &str) -> Result<Vec<u8>, Error> {
    match parts.get(key) {
        None => Ok(Vec::new()),
        Some(Value::String(text)) => Ok(text.to_vec()),
        Some(Value::Nil) => Err(Error::new(NIL_DEREFERENCE)),
        Some(other) => Err(Error::new(format!(
            "unable to parse {key} key, must be of type string, but {} found",
            other.kind()
        ))),
    }
}
