//! Charts in OCI registries, as Helm pushes them: a manifest whose layer is the archive.

use helm::semver::Version;

use super::access::Verify;
use super::cosign;
use super::error::{Purpose, Request};
use super::http::Http;
use super::reference::{Image, Tag, is_digest, tag_of};
use super::registry::{self, Descriptor, Manifest, Registry};
use super::versions::{self, VersionReq};
use super::{Access, ChartRef, Error, Limits, Resolved, provenance};

/// The layer type that Helm writes, and the one that early versions of it wrote.
const CHART_LAYERS: [&str; 2] = [
    "application/vnd.cncf.helm.chart.content.v1.tar+gzip",
    "application/tar+gzip",
];
const PROVENANCE_LAYER: &str = "application/vnd.cncf.helm.chart.provenance.v1.prov";
/// The most signatures that are checked.
const MAX_SIGNATURES: usize = 64;

/// A chart in a registry.
#[derive(Debug)]
pub(super) struct Source<'a> {
    image: &'a Image,
    registry: Registry,
}

/// The artifact that a reference resolves to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Artifact {
    /// `None` when only the blob with the pinned digest is left.
    manifest: Option<Manifest>,
    layer: Descriptor,
    /// The current digest of the tag, if it is no longer the pinned one.
    replaced_by: Option<String>,
}

impl<'a> Source<'a> {
    pub(super) fn new(
        chart: &ChartRef,
        image: &'a Image,
        access: &Access,
        limits: Limits,
    ) -> Result<Self, Error> {
        let plain_http = chart.plain_http()
            || (image.loopback && !registry::wants_tls(&access.trust, chart.insecure_skip_verify()));
        let root = registry::root(&image.registry, &image.repository, plain_http).ok_or_else(|| {
            let reason = "the host does not answer as an OCI registry does; check the url";
            request(image, &image.to_string(), false).not_a_chart(reason.to_owned())
        })?;
        let http = Http::new(&root, &access.trust, chart.insecure_skip_verify(), limits)?;
        let http = http.watched_by(access.watcher);
        let login = access.login(&image.registry, &image.repository)?;
        Ok(Self {
            image,
            registry: Registry::new(http, root, &image.repository, login),
        })
    }

    /// Finds the wanted tag, and its current artifact.
    pub(super) async fn resolve(&self, pinned: Option<&str>) -> Result<(Resolved, Artifact), Error> {
        let (reference, version) = match &self.image.tag {
            Tag::Exact(tag) => (tag.clone(), Some(version(tag))),
            Tag::Choice(req) => {
                let tag = self.choose(req).await?;
                let version = version(&tag);
                (tag, Some(version))
            }
            Tag::Digest { digest, tag } => (digest.clone(), tag.as_deref().map(version)),
        };
        let request = self.request(&reference);
        let manifest = self.registry.manifest(&reference, &request).await?;
        let manifest = manifest.ok_or_else(|| request.answered(404, None))?;
        let outer = manifest.digest.clone();
        let manifest = self.unwrapped(manifest, &request).await?;
        let layer = chart_layer(&manifest).map_err(|reason| request.not_a_chart(reason))?;
        let found = Artifact {
            layer: layer.clone(),
            manifest: Some(manifest),
            replaced_by: None,
        };
        let artifact = match pinned {
            Some(pinned) if pinned != outer && !found.has(pinned) => {
                if matches!(self.image.tag, Tag::Digest { .. }) {
                    return Err(request.pinned(pinned, &outer));
                }
                self.left(pinned, outer, &request).await?
            }
            _ => found,
        };
        let resolved = Resolved {
            version,
            digest: Some(artifact.layer.digest.clone()),
            manifest_digest: artifact.manifest.as_ref().map(|manifest| manifest.digest.clone()),
            found_at: self.image.at(&reference),
            signed_by: None,
            archive: None,
            validators: None,
        };
        Ok((resolved, artifact))
    }

    /// What the registry still has for a pinned digest whose tag was moved: the manifest, or only the archive. It is
    /// exactly what was requested, so it can be used.
    async fn left(&self, pinned: &str, replaced_by: String, request: &Request) -> Result<Artifact, Error> {
        tracing::warn!(
            host = request.host,
            path = request.path,
            pinned,
            found = replaced_by,
            "a chart was published again with other content; the one with the pinned digest is asked for"
        );
        let manifest = self.registry.manifest(pinned, request).await?;
        let layer = match &manifest {
            Some(manifest) => chart_layer(manifest)
                .map_err(|reason| request.not_a_chart(reason))?
                .clone(),
            None => Descriptor::of_blob(pinned),
        };
        Ok(Artifact {
            manifest,
            layer,
            replaced_by: Some(replaced_by),
        })
    }

    pub(super) async fn download(
        &self,
        resolved: &Resolved,
        artifact: &Artifact,
        limits: Limits,
    ) -> Result<Vec<u8>, Error> {
        let request = self.request_at(resolved);
        let limit = limits.of_archive();
        let bytes = self.registry.blob(&artifact.layer, limit, &request).await;
        match (bytes, &artifact.replaced_by) {
            (Err(Error::Answered { status: 404, .. }), Some(actual)) => {
                Err(request.pinned(&artifact.layer.digest, actual))
            }
            (bytes, _) => bytes,
        }
    }

    /// Verifies who signed the chart.
    pub(super) async fn verify(
        &self,
        resolved: &Resolved,
        artifact: &Artifact,
        by: &Verify,
        now: u64,
    ) -> Result<String, Error> {
        let request = self.request_at(resolved);
        // Signatures are found by the manifest. If it is gone, so are they.
        let Some(manifest) = &artifact.manifest else {
            let actual = artifact.replaced_by.as_deref().unwrap_or_default();
            return Err(request.pinned(&artifact.layer.digest, actual));
        };
        match by {
            Verify::Provenance(keyring) => {
                let signed = self.provenance_of(manifest, &request).await?.ok_or_else(|| {
                    request.unsigned(
                        "make it with helm package --sign, then push it with its .prov file beside it",
                    )
                })?;
                let file = resolved
                    .version
                    .as_deref()
                    .map(|version| self.image.file(version));
                keyring
                    .verify(&signed, file.as_deref(), &artifact.layer.digest, now)
                    .map_err(|reason| request.bad_signature(reason))
            }
            Verify::Cosign(key) => {
                self.verify_cosign(&manifest.digest, key, &request).await?;
                Ok("the cosign key".to_owned())
            }
        }
    }

    /// The provenance file of the chart, if it has one.
    pub(super) async fn provenance(
        &self,
        resolved: &Resolved,
        artifact: &Artifact,
    ) -> Result<Option<Vec<u8>>, Error> {
        match &artifact.manifest {
            Some(manifest) => self.provenance_of(manifest, &self.request_at(resolved)).await,
            None => Ok(None),
        }
    }

    async fn provenance_of(&self, manifest: &Manifest, request: &Request) -> Result<Option<Vec<u8>>, Error> {
        let mut layers = manifest.layers.iter();
        match layers.find(|layer| layer.media_type == PROVENANCE_LAYER) {
            Some(layer) => Ok(Some(self.registry.blob(layer, provenance::LIMIT, request).await?)),
            None => Ok(None),
        }
    }

    /// Tries the signatures that cosign stored until one by this key is valid: under a tag made from the digest of
    /// what was signed, or, with cosign 3, in bundles that refer to it.
    async fn verify_cosign(
        &self,
        digest: &str,
        key: &cosign::CosignKey,
        request: &Request,
    ) -> Result<(), Error> {
        let tag = format!("{}.sig", digest.replace(':', "-"));
        let tagged = self.registry.manifest(&tag, request).await?;
        let mut refused = tagged.is_some().then(|| "none has cosign's format".to_owned());
        for layer in tagged
            .iter()
            .flat_map(|tagged| &tagged.layers)
            .take(MAX_SIGNATURES)
        {
            let Some(signature) = layer.annotations.get(cosign::SIGNATURE) else {
                continue;
            };
            if layer.media_type != cosign::PAYLOAD {
                continue;
            }
            let payload = self.registry.blob(layer, cosign::LIMIT, request).await?;
            match key.verify(&payload, signature, digest) {
                Ok(()) => return Ok(()),
                Err(reason) => refused = Some(reason),
            }
        }
        for bundle in self.bundles(digest, request).await? {
            let bundle = self.registry.blob(&bundle, cosign::LIMIT, request).await?;
            match key.verify_bundle(&bundle, digest) {
                Ok(()) => return Ok(()),
                Err(reason) => refused = Some(reason),
            }
        }
        Err(match refused {
            Some(reason) => request.bad_signature(reason),
            None => request
                .unsigned("sign it with cosign sign --key, with signatures kept beside it in the registry"),
        })
    }

    /// The bundles that refer to a manifest.
    async fn bundles(&self, digest: &str, request: &Request) -> Result<Vec<Descriptor>, Error> {
        let referrers = self.registry.referrers(digest, request).await?;
        let mut bundles = Vec::new();
        // Their types in the list are optional, so the layer of each is looked at.
        for referrer in referrers.iter().take(MAX_SIGNATURES) {
            let manifest = self.registry.manifest(&referrer.digest, request).await?;
            let layers = manifest.into_iter().flat_map(|manifest| manifest.layers);
            bundles.extend(layers.filter(|layer| layer.media_type.starts_with(cosign::BUNDLE)));
        }
        Ok(bundles)
    }

    /// Lists the tags and picks the wanted one. As in Helm, only tags that are exact versions count.
    async fn choose(&self, req: &VersionReq) -> Result<String, Error> {
        let mut request = self.request("tags");
        request.path.clone_from(&self.image.repository);
        request.missing = "there is no such chart; check url and repo";
        let tags = self.registry.tags(&request).await?;
        let versions: Vec<String> = tags
            .iter()
            .map(|tag| version(tag))
            .filter(|version| Version::parse_strict(version).is_ok())
            .collect();
        let versions: Vec<&str> = versions.iter().map(String::as_str).collect();
        match req.choose(&versions) {
            Some(position) => Ok(tag_of(versions[position])),
            None => Err(Error::NoSuchTag {
                host: self.image.registry.clone(),
                chart: self.image.repository.clone(),
                version: req.shown(),
                newest: versions::newest(&versions),
            }),
        }
    }

    /// The manifest in an index. Charts have no platform, so an index is accepted only if it has a single manifest.
    async fn unwrapped(&self, manifest: Manifest, request: &Request) -> Result<Manifest, Error> {
        match manifest.manifests.as_slice() {
            [] => Ok(manifest),
            [only] => {
                let inner = self.registry.manifest(&only.digest, request).await?;
                inner.ok_or_else(|| request.answered(404, None))
            }
            _ => Err(request.not_a_chart("it is an index of several images".to_owned())),
        }
    }

    fn request(&self, reference: &str) -> Request {
        request(self.image, reference, self.registry.is_authenticated())
    }

    fn request_at(&self, resolved: &Resolved) -> Request {
        let reference = match (&resolved.version, &resolved.manifest_digest) {
            (Some(version), _) => tag_of(version),
            (None, Some(digest)) => digest.clone(),
            (None, None) => String::new(),
        };
        self.request(&reference)
    }
}

impl Artifact {
    fn has(&self, digest: &str) -> bool {
        let manifest = self.manifest.as_ref().map(|manifest| manifest.digest.as_str());
        manifest == Some(digest) || self.layer.digest == digest
    }
}

fn request(image: &Image, reference: &str, authenticated: bool) -> Request {
    let separator = if is_digest(reference) { '@' } else { ':' };
    Request {
        host: image.registry.clone(),
        path: format!("{}{separator}{reference}", image.repository),
        missing: "there is no such chart or no such tag; check url, repo and version",
        authenticated,
        purpose: Purpose::Fetch,
    }
}

fn version(tag: &str) -> String {
    tag.replace('_', "+")
}

/// The layer with the archive: one with a media type of Helm, or the only one.
fn chart_layer(manifest: &Manifest) -> Result<&Descriptor, String> {
    let of_type = |media_type: &str| {
        manifest
            .layers
            .iter()
            .find(|layer| layer.media_type == media_type)
    };
    if let Some(layer) = CHART_LAYERS.into_iter().find_map(of_type) {
        return Ok(layer);
    }
    match manifest.layers.as_slice() {
        [only] => Ok(only),
        layers => {
            let found: Vec<_> = layers.iter().map(|layer| layer.media_type.as_str()).collect();
            Err(format!(
                "its layers are [{}]; push it with helm push",
                found.join(", ")
            ))
        }
    }
}
