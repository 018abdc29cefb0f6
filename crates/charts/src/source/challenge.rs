//! Parses a registry's authentication challenge (`WWW-Authenticate`) and the answer of its token service (the
//! distribution project's token specification).

use std::collections::BTreeMap;

use reqwest::header::{HeaderMap, WWW_AUTHENTICATE};
use serde::Deserialize;
use url::Url;

use super::Password;

/// What a registry requires.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Challenge {
    /// User name and password.
    Basic,
    /// A token from the service at `realm`.
    Bearer {
        realm: String,
        service: Option<String>,
        scope: Option<String>,
    },
}

impl Challenge {
    /// The strongest of the challenges in an answer that we can meet.
    pub(super) fn of(headers: &HeaderMap) -> Option<Self> {
        let texts = headers.get_all(WWW_AUTHENTICATE).iter();
        let mut found: Vec<_> = texts
            .filter_map(|text| text.to_str().ok())
            .flat_map(challenges)
            .collect();
        let bearer = found
            .iter()
            .position(|(scheme, parameters)| scheme == "bearer" && parameters.contains_key("realm"));
        if let Some(position) = bearer {
            let (_, mut parameters) = found.swap_remove(position);
            return Some(Self::Bearer {
                realm: parameters.remove("realm")?,
                service: parameters.remove("service"),
                scope: parameters.remove("scope"),
            });
        }
        let is_basic = found.iter().any(|(scheme, _)| scheme == "basic");
        is_basic.then_some(Self::Basic)
    }
}

/// The address of the token service, with the request in its query.
pub(super) fn token_url(realm: &Url, service: Option<&str>, scope: &str) -> Url {
    let mut url = realm.clone();
    let mut query = url.query_pairs_mut();
    if let Some(service) = service {
        query.append_pair("service", service);
    }
    if !scope.is_empty() {
        query.append_pair("scope", scope);
    }
    drop(query);
    url
}

/// The request of a client with an identity token.
pub(super) fn token_form(service: Option<&str>, scope: &str, identity: &Password) -> String {
    url::form_urlencoded::Serializer::new(String::new())
        .append_pair("grant_type", "refresh_token")
        .append_pair("client_id", "krateo-helm-client")
        .append_pair("service", service.unwrap_or_default())
        .append_pair("scope", scope)
        .append_pair("refresh_token", identity.expose())
        .finish()
}

/// The token in the answer of a token service.
pub(super) fn token(body: &[u8]) -> Option<Password> {
    #[derive(Deserialize)]
    struct TokenResponse {
        token: Option<String>,
        access_token: Option<String>,
    }
    let response: TokenResponse = serde_json::from_slice(body).ok()?;
    let mut tokens = response.token.into_iter().chain(response.access_token);
    tokens.find(|token| !token.is_empty()).map(Password::new)
}

type Parsed = (String, BTreeMap<String, String>);

/// The challenges of one header: schemes, each followed by parameters, all separated by commas.
fn challenges(text: &str) -> Vec<Parsed> {
    let mut found: Vec<Parsed> = Vec::new();
    let mut rest = text;
    loop {
        rest = rest.trim_start_matches([' ', '\t', ',']);
        let end = rest.find([' ', '\t', ',', '=']).unwrap_or(rest.len());
        let (word, behind) = rest.split_at(end);
        if word.is_empty() {
            return found;
        }
        let name = word.to_ascii_lowercase();
        if let Some(value) = behind.trim_start().strip_prefix('=') {
            let (value, behind) = parameter(value.trim_start());
            if let Some((_, parameters)) = found.last_mut() {
                parameters.insert(name, value);
            }
            rest = behind;
        } else {
            found.push((name, BTreeMap::new()));
            rest = behind;
        }
    }
}

/// A value with or without quotes, and the text after it.
fn parameter(text: &str) -> (String, &str) {
    let Some(quoted) = text.strip_prefix('"') else {
        let end = text.find([' ', '\t', ',']).unwrap_or(text.len());
        return (text[..end].to_owned(), &text[end..]);
    };
    let mut value = String::new();
    let mut chars = quoted.char_indices();
    while let Some((position, char)) = chars.next() {
        match char {
            '"' => return (value, &quoted[position + 1..]),
            '\\' => value.extend(chars.next().map(|(_, escaped)| escaped)),
            char => value.push(char),
        }
    }
    (value, "")
}

#[cfg(test)]
mod tests {
    use reqwest::header::HeaderValue;

    use super::*;

    fn challenge(texts: &[&'static str]) -> Option<Challenge> {
        let headers = texts
            .iter()
            .map(|text| (WWW_AUTHENTICATE, HeaderValue::from_static(text)));
        Challenge::of(&headers.collect())
    }

    fn bearer(realm: &str, service: Option<&str>, scope: Option<&str>) -> Challenge {
        Challenge::Bearer {
            realm: realm.to_owned(),
            service: service.map(str::to_owned),
            scope: scope.map(str::to_owned),
        }
    }

    #[test]
    fn a_challenge_is_read_however_it_is_spelled() {
        assert_eq!(challenge(&["Basic realm=\"r\""]), Some(Challenge::Basic));
        assert_eq!(challenge(&["BASIC"]), Some(Challenge::Basic));
        let scope = "repository:a/b:pull,push";
        for text in [
            r#"Bearer realm="https://auth/token",service="reg",scope="repository:a/b:pull,push""#,
            r#"bearer Realm = "https://auth/token" , SERVICE=reg, scope="repository:a\/b:pull,push""#,
            r#"Basic realm="x", Bearer realm="https://auth/token",service="reg",scope="repository:a/b:pull,push",error="x""#,
        ] {
            assert_eq!(
                challenge(&[text]),
                Some(bearer("https://auth/token", Some("reg"), Some(scope))),
                "{text}"
            );
        }
        assert_eq!(
            challenge(&["Basic", r#"Bearer realm="https://auth""#]),
            Some(bearer("https://auth", None, None))
        );
        for text in [
            "",
            "Negotiate",
            "Bearer",
            "Bearer service=\"s\"",
            ",,,",
            "Bearer realm",
        ] {
            assert_eq!(challenge(&[text]), None, "{text}");
        }
        assert_eq!(
            challenge(&["Bearer realm=\"https://open"]),
            Some(bearer("https://open", None, None))
        );
    }

    #[test]
    fn a_token_has_one_of_two_names() {
        let found = |text: &str| token(text.as_bytes()).map(|token| token.expose().to_owned());
        assert_eq!(
            found(r#"{"token": "a", "access_token": "b"}"#).as_deref(),
            Some("a")
        );
        assert_eq!(
            found(r#"{"token": "", "access_token": "b"}"#).as_deref(),
            Some("b")
        );
        assert_eq!(found(r#"{"expires_in": 60}"#), None);
        assert_eq!(found("<html>"), None);
    }
}
