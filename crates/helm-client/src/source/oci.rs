//! Charts in OCI registries, the way Helm pushes them: a manifest whose layer is the archive.

use futures::StreamExt as _;
use oci_client::Reference;
use oci_client::client::{Client, ClientConfig, ClientProtocol};
use oci_client::errors::{DigestError, OciDistributionError, OciErrorCode};
use oci_client::manifest::{OciDescriptor, OciImageManifest};
use oci_client::secrets::RegistryAuth;

use super::error::Request;
use super::reference::Image;
use super::{Archive, ChartRef, Credentials, Error, Limits, retry};

/// The layer that Helm writes, and the one that early versions of it wrote.
const CHART_LAYERS: [&str; 2] = [
    "application/vnd.cncf.helm.chart.content.v1.tar+gzip",
    "application/tar+gzip",
];

pub(super) async fn fetch(
    chart: &ChartRef,
    image: &Image,
    credentials: Option<&Credentials>,
    limits: Limits,
) -> Result<Archive, Error> {
    let request = Request {
        host: image.registry.clone(),
        path: format!("{}:{}", image.repository, image.tag),
        missing: "there is no such chart or no such tag; check url, repo and version",
        authenticated: credentials.is_some(),
    };
    let reference = Reference::with_tag(
        image.registry.clone(),
        image.repository.clone(),
        image.tag.clone(),
    );
    let auth = credentials.map_or(RegistryAuth::Anonymous, |credentials| {
        RegistryAuth::Basic(
            credentials.username.clone(),
            credentials.password.expose().to_owned(),
        )
    });
    // A client remembers credentials and tokens by host. With one of its own, no fetch can use another's.
    let client = client(chart, image).map_err(|failure| request.classify(failure))?;
    let pull = || async { pull(&client, &reference, &auth, &request, limits.bytes).await };
    let bytes = retry::until_settled(limits, pull).await?;
    Ok(Archive::new(bytes, image.to_string()))
}

fn client(chart: &ChartRef, image: &Image) -> Result<Client, OciDistributionError> {
    super::http::install_tls();
    let plain_http = chart.plain_http() || image.loopback;
    let protocol = if plain_http {
        ClientProtocol::Http
    } else {
        ClientProtocol::Https
    };
    Client::try_from(ClientConfig {
        protocol,
        accept_invalid_certificates: chart.insecure_skip_verify(),
        connect_timeout: Some(super::http::CONNECT_TIMEOUT),
        read_timeout: Some(super::http::READ_TIMEOUT),
        // Charts know no platform; an index around one is accepted when it leaves no choice.
        platform_resolver: Some(Box::new(|entries| match entries {
            [only] => Some(only.digest.clone()),
            _ => None,
        })),
        user_agent: super::http::USER_AGENT,
        ..ClientConfig::default()
    })
}

async fn pull(
    client: &Client,
    reference: &Reference,
    auth: &RegistryAuth,
    request: &Request,
    limit: u64,
) -> Result<Vec<u8>, Error> {
    // Asked for on its own, because the client takes a token service that is down for one that says no.
    let operation = oci_client::RegistryOperation::Pull;
    client
        .auth(reference, auth, operation)
        .await
        .map_err(|failure| request.classify(failure))?;
    let (manifest, _) = client
        .pull_image_manifest(reference, auth)
        .await
        .map_err(|failure| request.classify(failure))?;
    let layer = chart_layer(&manifest).map_err(|reason| request.not_a_chart(reason))?;
    if u64::try_from(layer.size).is_ok_and(|size| size > limit) {
        return Err(request.too_large(limit));
    }
    // The addresses that a layer may name beside its registry are not asked: they can be of any host.
    let layer = OciDescriptor {
        urls: None,
        ..layer.clone()
    };
    let mut blob = client
        .pull_blob_stream(reference, &layer)
        .await
        .map_err(|failure| request.classify(failure))?;
    let mut bytes = Vec::new();
    // The stream ends in an error unless the bytes have the digest of the layer.
    while let Some(chunk) = blob.next().await {
        let chunk = chunk.map_err(|failure| request.classify(OciDistributionError::IoError(failure)))?;
        if (bytes.len() + chunk.len()) as u64 > limit {
            return Err(request.too_large(limit));
        }
        bytes.extend_from_slice(&chunk);
    }
    Ok(bytes)
}

/// The layer that holds the archive: one of Helm's media types, or the only one there is.
fn chart_layer(manifest: &OciImageManifest) -> Result<&OciDescriptor, String> {
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

impl Request {
    /// What a failure of the registry client means to the user.
    fn classify(&self, failure: OciDistributionError) -> Error {
        use OciDistributionError as Failure;
        match failure {
            Failure::UnauthorizedError { .. } | Failure::AuthenticationFailure(_) => self.answered(401),
            Failure::RegistryError { envelope, .. } => {
                self.answered(envelope.errors.first().map_or(400, |error| status(&error.code)))
            }
            Failure::ServerError { code, .. } => self.answered(code),
            Failure::RequestError(failure) => self.failed(failure),
            Failure::IoError(failure) => self.interrupted(failure),
            Failure::DigestError(DigestError::VerificationError { expected, actual }) => {
                self.digest(expected, actual)
            }
            Failure::ImageManifestNotFoundError(_) | Failure::ImageIndexParsingNoPlatformResolverError => {
                self.not_a_chart("it is an index of several images".to_owned())
            }
            // The texts of these quote what the registry sent, which is no business of an event.
            Failure::DigestError(_)
            | Failure::ConfigConversionError(_)
            | Failure::GenericError(_)
            | Failure::HeaderValueError(_)
            | Failure::IncompatibleLayerMediaTypeError(_)
            | Failure::JsonError(_)
            | Failure::ManifestEncodingError(_)
            | Failure::ManifestParsingError(_)
            | Failure::PushNoDataError
            | Failure::PushLayerNoDataError
            | Failure::PullNoLayersError
            | Failure::RegistryNoDigestError
            | Failure::RegistryNoLocationError
            | Failure::RegistryTokenDecodeError(_)
            | Failure::SpecViolationError(_)
            | Failure::UrlParseError(_)
            | Failure::UnsupportedMediaTypeError(_)
            | Failure::UnsupportedSchemaVersionError(_)
            | Failure::VersionedParsingError(_) => {
                self.not_a_chart("the host does not answer as an OCI registry does; check the url".to_owned())
            }
        }
    }

    /// A blob that broke off, or whose digest at its end is another one.
    fn interrupted(&self, failure: std::io::Error) -> Error {
        let digests = failure
            .get_ref()
            .and_then(|inner| inner.downcast_ref::<DigestError>());
        match digests {
            Some(DigestError::VerificationError { expected, actual }) => {
                self.digest(expected.clone(), actual.clone())
            }
            _ => match failure
                .into_inner()
                .map(<dyn std::error::Error + Send + Sync>::downcast::<reqwest::Error>)
            {
                Some(Ok(failure)) => self.failed(*failure),
                Some(Err(failure)) => self.broken(failure),
                None => self.broken("the download broke off".into()),
            },
        }
    }
}

/// The HTTP status that goes with an error code of the distribution specification. The client keeps only the code.
fn status(code: &OciErrorCode) -> u16 {
    match code {
        OciErrorCode::Unauthorized => 401,
        OciErrorCode::Denied => 403,
        OciErrorCode::BlobUnknown
        | OciErrorCode::ManifestBlobUnknown
        | OciErrorCode::ManifestUnknown
        | OciErrorCode::NameUnknown
        | OciErrorCode::NotFound => 404,
        OciErrorCode::Toomanyrequests => 429,
        OciErrorCode::BlobUploadInvalid
        | OciErrorCode::BlobUploadUnknown
        | OciErrorCode::DigestInvalid
        | OciErrorCode::ManifestInvalid
        | OciErrorCode::ManifestUnverified
        | OciErrorCode::NameInvalid
        | OciErrorCode::SizeInvalid
        | OciErrorCode::TagInvalid
        | OciErrorCode::Unsupported
        | OciErrorCode::Other(_) => 400,
    }
}
