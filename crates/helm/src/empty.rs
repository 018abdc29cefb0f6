//! Empty values as Go's `encoding/json` writes and reads them.

use serde::Deserialize;

#[expect(
    clippy::trivially_copy_pass_by_ref,
    reason = "serde calls it with a reference"
)]
pub(crate) fn is_zero(number: &i64) -> bool {
    *number == 0
}

/// Go writes nil maps, slices and pointers as `null` and reads them back as empty.
pub(crate) fn null_as_default<'de, D, T>(deserializer: D) -> Result<T, D::Error>
where
    D: serde::Deserializer<'de>,
    T: Deserialize<'de> + Default,
{
    Ok(Option::deserialize(deserializer)?.unwrap_or_default())
}
