//! The key that the records of a type's releases are authenticated with: where it is kept.
//!
//! One for each group and kind, shared by the controllers of all its versions. core-provider makes it, and only those
//! controllers and core-provider read it.

/// In the Secret's data: the key that records are signed with.
pub const KEY: &str = "key";

/// In the Secret's data: the key before that, by which records may still be signed.
pub const PREVIOUS: &str = "previous";

/// How many random bytes a key has.
pub const LENGTH: usize = 32;

/// The environment variable by which a controller learns where its key is: `<namespace>/<name>` of the Secret.
pub const VARIABLE: &str = "COMPOSITION_CONTROLLER_RELEASE_KEY_SECRET";

/// What the name of every such Secret ends with, and of no other in the platform's namespace: admission policies say so.
pub const SUFFIX: &str = "-release-key";

/// Name of the Secret for a type, in the platform's namespace. Plurals and groups are names of DNS, and so is this.
pub fn secret_name(plural: &str, group: &str) -> String {
    format!("{plural}.{group}{SUFFIX}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_longest_plural_still_makes_a_name() {
        // A plural is one label of DNS, and so at most 63 characters; names of Secrets have up to 253.
        let name = secret_name(&"x".repeat(63), crate::COMPOSITION_GROUP);
        assert!(name.len() <= 253, "{}", name.len());
        assert_eq!(
            secret_name("webs", crate::COMPOSITION_GROUP),
            "webs.composition.krateo.io-release-key"
        );
    }
}
