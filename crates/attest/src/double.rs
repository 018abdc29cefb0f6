//! A variant whose documents anybody can forge: for tests that are not about attestation.

use serde::{Deserialize, Serialize};

use crate::{Digest, IssueError, Issuer, Nonce, Refused, Validator, Variant};

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "PascalCase", deny_unknown_fields)]
struct Document {
    user_data: Digest,
    nonce: Digest,
}

/// Issues and accepts documents that contain their user data and prove nothing.
#[derive(Debug, Clone, Copy)]
pub struct TestDouble;

impl Issuer for TestDouble {
    fn variant(&self) -> Variant {
        Variant::TestDouble
    }

    fn issue(&self, user_data: Digest, nonce: Nonce) -> Result<Vec<u8>, IssueError> {
        let nonce = crate::Bytes(nonce.0);
        serde_json::to_vec(&Document { user_data, nonce }).map_err(|error| IssueError {
            reason: error.to_string(),
        })
    }
}

impl Validator for TestDouble {
    fn variant(&self) -> Variant {
        Variant::TestDouble
    }

    fn validate(&self, document: &[u8], nonce: Nonce) -> Result<Digest, Refused> {
        let document: Document = serde_json::from_slice(document).map_err(|_| Refused::UnreadableDocument)?;
        if document.nonce.0 == nonce.0 {
            Ok(document.user_data)
        } else {
            Err(Refused::StaleNonce)
        }
    }
}
