//! Validates an init request before the node is locked: a fault that is found later is final.

use std::mem::take;
use std::net::IpAddr;

use attest::{Bytes, Salt};
use bootstrap_proto::proto::{InitRequest, KubernetesComponent};
use zeroize::Zeroizing;

use crate::components::{self, Component};
use crate::endpoint::is_endpoint;
use crate::init::Refusal;

/// The longest name of a cluster.
const LONGEST_NAME: usize = 63;

/// A valid request.
pub struct Request {
    /// Contains the master secret.
    pub kms_uri: Zeroizing<String>,
    /// Must be the URI of the storage "none".
    pub storage_uri: String,
    /// The secret whose hash is in the node's metadata.
    pub init_secret: Zeroizing<Vec<u8>>,
    /// Chosen by the caller.
    pub measurement_salt: Salt,
    /// A DNS label.
    pub cluster_name: String,
    /// Such as `v1.36.3`.
    pub version: String,
    /// Names and addresses.
    pub sans: Vec<String>,
    /// Empty, or one range per address family.
    pub service_cidr: String,
    /// Empty, or one range per address family.
    pub pod_cidr: String,
    /// Empty, or `host:port`.
    pub endpoint: String,
    /// The components to install first.
    pub components: Vec<Component>,
    /// Send the log while it is being written.
    pub stream_log: bool,
}

impl std::fmt::Debug for Request {
    /// Without the secrets.
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter
            .debug_struct("Request")
            .field("cluster_name", &self.cluster_name)
            .field("version", &self.version)
            .finish_non_exhaustive()
    }
}

impl Request {
    /// The init secret, which is checked before anything else in the request.
    pub fn secret(request: &mut InitRequest) -> Zeroizing<Vec<u8>> {
        Zeroizing::new(std::mem::take(&mut request.init_secret))
    }

    /// Validates every field except the secrets.
    pub fn read(mut request: InitRequest) -> Result<Self, Refusal> {
        let kms_uri = Zeroizing::new(std::mem::take(&mut request.kms_uri));
        let init_secret = Self::secret(&mut request);
        let wrong = |field, reason| Refusal::Field { field, reason };
        let salt = <[u8; 32]>::try_from(request.measurement_salt.as_slice());
        let measurement_salt = salt.map_err(|_| wrong("measurement_salt", "is not 32 bytes"))?;
        let name = &request.cluster_name;
        if name.len() > LONGEST_NAME || !is_label(name) {
            let reason = "is not lower-case letters, digits and dashes, at most 63";
            return Err(wrong("cluster_name", reason));
        }
        if !is_version(&request.kubernetes_version) {
            return Err(wrong("kubernetes_version", "is not v1.<minor>.<patch>"));
        }
        let is_name = |san: &String| san.parse::<IpAddr>().is_ok() || is_endpoint(&format!("{san}:1"));
        if !request.apiserver_cert_sans.iter().all(is_name) {
            return Err(wrong(
                "apiserver_cert_sans",
                "contains something that is neither a name nor an address",
            ));
        }
        for (field, range) in [
            ("service_cidr", &request.service_cidr),
            ("pod_cidr", &request.pod_cidr),
        ] {
            if !range.is_empty() && !range.split(',').all(is_range) {
                return Err(wrong(
                    field,
                    "is not address/length, or two of them separated by a comma",
                ));
            }
        }
        if overlap(&request.service_cidr, &request.pod_cidr) {
            return Err(wrong("pod_cidr", "overlaps with the address range of Services"));
        }
        let endpoint = &request.control_plane_endpoint;
        if !endpoint.is_empty() && !is_endpoint(endpoint) {
            return Err(wrong("control_plane_endpoint", "is not host:port"));
        }
        Ok(Self {
            kms_uri,
            storage_uri: take(&mut request.storage_uri),
            init_secret,
            measurement_salt: Bytes(measurement_salt),
            cluster_name: take(&mut request.cluster_name),
            version: take(&mut request.kubernetes_version),
            sans: take(&mut request.apiserver_cert_sans),
            service_cidr: take(&mut request.service_cidr),
            pod_cidr: take(&mut request.pod_cidr),
            endpoint: take(&mut request.control_plane_endpoint),
            components: read_components(&request.kubernetes_components)?,
            stream_log: request.stream_log,
        })
    }
}

/// Parses the components of a request or a ticket.
pub fn read_components(components: &[KubernetesComponent]) -> Result<Vec<Component>, components::Invalid> {
    let read = |component: &KubernetesComponent| {
        let KubernetesComponent {
            url,
            hash,
            install_path,
            extract,
        } = component;
        Component::new(url, hash, install_path, *extract)
    };
    components.iter().map(read).collect()
}

fn is_label(text: &str) -> bool {
    let is_letter = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
    !text.is_empty() && !text.starts_with('-') && !text.ends_with('-') && text.bytes().all(is_letter)
}

fn is_version(text: &str) -> bool {
    let is_number =
        |part: &str| !part.is_empty() && part.len() < 4 && part.bytes().all(|byte| byte.is_ascii_digit());
    let parts: Vec<&str> = text.strip_prefix("v1.").unwrap_or_default().split('.').collect();
    matches!(parts.as_slice(), [minor, patch] if is_number(minor) && is_number(patch))
}

fn is_range(text: &str) -> bool {
    range(text).is_some()
}

/// A range as the bits of its address, the number of bits of its family, and the length of its prefix.
fn range(text: &str) -> Option<(u128, u8, u8)> {
    let (address, length) = text.split_once('/')?;
    let length: u8 = length.parse().ok()?;
    let (bits, width) = match address.parse().ok()? {
        IpAddr::V4(address) => (address.to_bits().into(), 32),
        IpAddr::V6(address) => (address.to_bits(), 128),
    };
    (length <= width).then_some((bits, width, length))
}

/// True if a range of one list overlaps a range of the other.
fn overlap(one: &str, other: &str) -> bool {
    let ranges = |list: &str| -> Vec<_> { list.split(',').filter_map(range).collect() };
    let others = ranges(other);
    ranges(one).into_iter().any(|(bits, width, length)| {
        others.iter().any(|(other, width_of_other, length_of_other)| {
            let outside = u32::from(width - length.min(*length_of_other));
            let network = |bits: u128| bits.checked_shr(outside).unwrap_or_default();
            width == *width_of_other && network(bits) == network(*other)
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request() -> InitRequest {
        let mut request = InitRequest::default();
        "kms://cluster-kms?key=secret".clone_into(&mut request.kms_uri);
        "storage://no-store".clone_into(&mut request.storage_uri);
        "v1.36.3".clone_into(&mut request.kubernetes_version);
        request.init_secret = b"secret".to_vec();
        "test-1".clone_into(&mut request.cluster_name);
        request.apiserver_cert_sans = vec!["198.18.0.2".to_owned(), "api.example.org".to_owned()];
        request.measurement_salt = vec![1; 32];
        "198.19.0.0/16".clone_into(&mut request.service_cidr);
        "198.18.64.0/22,fd00::/64".clone_into(&mut request.pod_cidr);
        "198.18.0.2:6443".clone_into(&mut request.control_plane_endpoint);
        request
    }

    #[test]
    fn a_request_is_read_and_its_secrets_are_not_printed() {
        let read = Request::read(request()).unwrap();
        assert_eq!(read.measurement_salt, Bytes([1; 32]));
        assert!(!format!("{read:?}").contains("secret"));
    }

    #[test]
    fn an_invalid_request_is_refused_with_the_name_of_the_field() {
        let set = |field: fn(&mut InitRequest) -> &mut String, value: &'static str| (field, value);
        let texts = [
            ("cluster_name", set(|request| &mut request.cluster_name, "")),
            ("cluster_name", set(|request| &mut request.cluster_name, "a\nb")),
            (
                "kubernetes_version",
                set(|request| &mut request.kubernetes_version, "1.36.3"),
            ),
            (
                "kubernetes_version",
                set(|request| &mut request.kubernetes_version, "v1.36"),
            ),
            (
                "apiserver_cert_sans",
                set(|request| &mut request.apiserver_cert_sans[0], "a b"),
            ),
            (
                "service_cidr",
                set(|request| &mut request.service_cidr, "198.19.0.0/33"),
            ),
            ("pod_cidr", set(|request| &mut request.pod_cidr, "198.18.64.0")),
            (
                "control_plane_endpoint",
                set(|request| &mut request.control_plane_endpoint, "host"),
            ),
            (
                "control_plane_endpoint",
                set(|request| &mut request.control_plane_endpoint, "a b:1"),
            ),
        ];
        for (expected, (field, value)) in texts {
            let mut request = request();
            value.clone_into(field(&mut request));
            let refused = Request::read(request).unwrap_err();
            assert!(
                matches!(refused, Refusal::Field { field, .. } if field == expected),
                "{expected}: {refused}"
            );
        }
        for (services, pods, expected) in [
            ("198.19.0.0/16", "198.19.64.0/22", true),
            ("198.19.64.0/22", "198.19.0.0/16", true),
            ("0.0.0.0/0", "198.19.0.0/16", true),
            ("198.19.0.0/16,fd00::/108", "198.18.0.0/16,fd00::/64", true),
            ("198.19.0.0/16,fd00::/108", "198.18.0.0/16,fd00:0:0:1::/64", false),
            ("::/0", "198.18.0.0/16", false),
            ("", "198.18.0.0/16", false),
        ] {
            assert_eq!(overlap(services, pods), expected, "{services} {pods}");
        }
        let mut request = request();
        request.measurement_salt.pop();
        let refused = Request::read(request.clone()).unwrap_err();
        assert!(
            matches!(
                refused,
                Refusal::Field {
                    field: "measurement_salt",
                    ..
                }
            ),
            "{refused}"
        );
        request.measurement_salt.push(1);
        request.kubernetes_components = vec![KubernetesComponent::default()];
        assert!(matches!(Request::read(request), Err(Refusal::Component(_))));
    }
}
