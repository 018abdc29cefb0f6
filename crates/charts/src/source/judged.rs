//! Judges hosts that are not the one that was asked for: redirects, indexes and challenges name them, so whoever answers
//! decides where we connect to.

use std::collections::BTreeSet;
use std::io;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};

use cluster::address::{self, RefusedAddress};
use futures::future::{BoxFuture, FutureExt as _};
use reqwest::dns::{Addrs, Name, Resolve, Resolving};
use url::Url;

use super::Error;
use super::address::{host, is_link_local};

/// Resolves a name.
pub(super) type Lookup = fn(String) -> BoxFuture<'static, io::Result<Vec<SocketAddr>>>;

/// Resolves names as this machine does.
pub(super) fn lookup(name: String) -> BoxFuture<'static, io::Result<Vec<SocketAddr>>> {
    async move { Ok(tokio::net::lookup_host((name, 0)).await?.collect()) }.boxed()
}

/// The hosts of a fetch, and the resolver of its connections: only then it is known what a name resolves to.
///
/// Names of proxies are resolved as well, but not judged: this machine's configuration names them. What lies behind a
/// proxy is resolved there.
#[derive(Debug, Clone)]
pub(super) struct Judged {
    url: Url,
    lookup: Lookup,
    others: Arc<Mutex<BTreeSet<String>>>,
}

impl Judged {
    /// For a fetch that begins at `url`; its host is not judged.
    pub(super) fn new(url: &Url, lookup: Lookup) -> Self {
        Self {
            url: url.clone(),
            lookup,
            others: Arc::default(),
        }
    }

    /// Refuses a link-local address, and remembers a name, so that it is judged when it is resolved.
    pub(super) fn check(&self, url: &Url) -> Result<(), Error> {
        let Some(name) = url.host_str().filter(|name| self.url.host_str() != Some(*name)) else {
            return Ok(());
        };
        if is_link_local(name) {
            return Err(Error::LinkLocal {
                host: host(&self.url),
                to: name.to_owned(),
            });
        }
        let mut others = self.others.lock().unwrap_or_else(PoisonError::into_inner);
        others.insert(name.to_owned());
        Ok(())
    }

    fn is_other(&self, name: &str) -> bool {
        let others = self.others.lock().unwrap_or_else(PoisonError::into_inner);
        others.contains(name)
    }
}

impl Resolve for Judged {
    fn resolve(&self, name: Name) -> Resolving {
        let this = self.clone();
        let name = name.as_str().to_owned();
        Box::pin(async move {
            let addresses = (this.lookup)(name.clone()).await?;
            // One is enough: honest names have none.
            let link_local = |at: &&SocketAddr| address::kind(at.ip()) == Some(RefusedAddress::LinkLocal);
            if this.is_other(&name)
                && let Some(at) = addresses.iter().find(link_local)
            {
                let to = format!("{name} ({})", at.ip());
                let host = host(&this.url);
                return Err(LinkLocal { host, to }.into());
            }
            Ok(Box::new(addresses.into_iter()) as Addrs)
        })
    }
}

/// A name resolves to a link-local address; below the HTTP client's own error.
#[derive(Debug, Clone, thiserror::Error)]
#[error("{host} leads to {to}")]
pub(super) struct LinkLocal {
    host: String,
    to: String,
}

impl From<LinkLocal> for Error {
    fn from(LinkLocal { host, to }: LinkLocal) -> Self {
        Self::LinkLocal { host, to }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The answers of a name server.
    const NAMES: Lookup = |name| {
        let address = match name.as_str() {
            "metadata.example" | "own.example" => "169.254.169.254",
            "mapped.example" => "::ffff:169.254.169.254",
            "translated.example" => "64:ff9b::a9fe:a9fe",
            "link.example" => "fe80::1",
            _ => "10.0.0.7",
        };
        let other = SocketAddr::from(([192, 0, 2, 1], 0));
        std::future::ready(Ok(vec![other, SocketAddr::new(address.parse().unwrap(), 0)])).boxed()
    };

    async fn reached(from: &str, to: &str) -> Result<usize, String> {
        let judged = Judged::new(&Url::parse(from).unwrap(), NAMES);
        let to = Url::parse(to).unwrap();
        judged.check(&to).map_err(|refused| refused.to_string())?;
        let found = judged.resolve(to.host_str().unwrap().parse().unwrap()).await;
        found.map(Iterator::count).map_err(|refused| refused.to_string())
    }

    #[tokio::test]
    async fn no_name_or_address_that_somebody_else_names_leads_to_the_link() {
        let from = "https://charts.example/web";
        for to in [
            "https://169.254.169.254/latest",
            "https://2852039166/latest",
            "https://[fe80::1]/",
            "https://[::ffff:169.254.169.254]/",
            "https://[64:ff9b::a9fe:a9fe]/",
            "https://metadata.example/latest",
            "https://METADATA.example/latest",
            "https://mapped.example/",
            "https://translated.example/",
            "https://link.example/",
        ] {
            let refused = reached(from, to).await.unwrap_err();
            assert!(refused.starts_with("charts.example leads to "), "{to}: {refused}");
        }
        // Private ranges are where many registries are; what the user names is theirs to know.
        for (from, to) in [
            (from, "https://registry.example/"),
            (from, "https://10.0.0.7/"),
            (from, "https://[fd12::7]/"),
            ("https://own.example/charts", "http://own.example:5000/web.tgz"),
        ] {
            assert_eq!(reached(from, to).await, Ok(2), "{to}");
        }
    }
}
