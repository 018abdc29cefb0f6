//! Times as Go's `encoding/json` writes them in release records and chart files.

/// For `#[serde(with = …)]`: RFC 3339, where an absent field, `null`, `""` (Helm 3) and the year 1 (Go's zero time)
/// all mean none.
pub(crate) mod optional {
    use jiff::{Timestamp, civil};
    use serde::{Deserialize, Deserializer, Serializer, de::Error};

    #[expect(clippy::ref_option, reason = "serde calls it with a reference")]
    pub(crate) fn serialize<S: Serializer>(
        time: &Option<Timestamp>,
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        match time {
            Some(time) => serializer.collect_str(time),
            None => serializer.serialize_none(),
        }
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(
        deserializer: D,
    ) -> Result<Option<Timestamp>, D::Error> {
        let text = Option::<String>::deserialize(deserializer)?.unwrap_or_default();
        if text.is_empty() {
            return Ok(None);
        }
        let time: Timestamp = text.parse().map_err(D::Error::custom)?;
        let year_one = civil::date(1, 1, 1)
            .to_zoned(jiff::tz::TimeZone::UTC)
            .map_err(D::Error::custom)?
            .timestamp();
        Ok((time != year_one).then_some(time))
    }
}
