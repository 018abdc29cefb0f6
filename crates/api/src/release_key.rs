//! Where the key for the release records of a type is stored.
//!
//! There is one per group and kind, shared by the controllers of all its versions. core-provider generates it, and
//! only those controllers and core-provider read it.

/// In the Secret's data: the key that records are signed with.
pub const KEY: &str = "key";

/// In the Secret's data: the previous key, with which records may still be signed.
pub const PREVIOUS: &str = "previous";

/// How many random bytes a key has.
pub const LENGTH: usize = 32;

/// The environment variable that tells a controller where its key is: `<namespace>/<name>` of the Secret.
pub const VARIABLE: &str = "COMPOSITION_CONTROLLER_RELEASE_KEY_SECRET";

/// The suffix of the name of every such Secret, and of no other in the platform's namespace: admission policies rely
/// on it.
pub const SUFFIX: &str = "-release-key";

/// Name of the Secret for a type, in the platform's namespace. Plurals and groups are DNS names, and so is this.
pub fn secret_name(plural: &str, group: &str) -> String {
    format!("{plural}.{group}{SUFFIX}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_longest_plural_still_makes_a_name() {
        // A plural is one DNS label, so at most 63 characters; names of Secrets have up to 253.
        let name = secret_name(&"x".repeat(63), crate::COMPOSITION_GROUP);
        assert!(name.len() <= 253, "{}", name.len());
        assert_eq!(
            secret_name("webs", crate::COMPOSITION_GROUP),
            "webs.composition.krateo.io-release-key"
        );
    }
}
