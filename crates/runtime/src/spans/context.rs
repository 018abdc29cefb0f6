//! The identity of a span in a trace, and how one process passes it to another: the `traceparent` header of W3C's Trace
//! Context.

use std::fmt;
use std::str::FromStr;

use axum::http::{HeaderMap, HeaderName};
use data_encoding::HEXLOWER;

/// The header that says which span of the caller a request belongs to.
pub const TRACEPARENT: HeaderName = HeaderName::from_static("traceparent");

/// The only one of the flags that we use.
const SAMPLED: u8 = 1;

/// The identity of a span in a trace.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TraceContext {
    pub(crate) trace: [u8; 16],
    pub(crate) span: [u8; 8],
    /// Whether the process that began the trace records it.
    pub(crate) is_sampled: bool,
}

/// A text that is not a valid value of the header.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("not a traceparent of version 00")]
pub struct Malformed;

impl TraceContext {
    /// The span that a caller names; none unless the header is there exactly once and valid.
    pub fn of_caller(headers: &HeaderMap) -> Option<Self> {
        let mut said = headers.get_all(TRACEPARENT).iter();
        let only = said.next().filter(|_| said.next().is_none())?;
        only.to_str().ok()?.parse().ok()
    }
}

/// `00-<trace>-<span>-<flags>`: 55 characters, lower case, and neither trace nor span is all zeros. Later versions may
/// give another meaning to longer values, so they are not read.
impl FromStr for TraceContext {
    type Err = Malformed;

    fn from_str(text: &str) -> Result<Self, Malformed> {
        let mut parts = text.split('-');
        let mut part = || parts.next().ok_or(Malformed);
        let version = part()?;
        let (trace, span, [flags]) = (bytes(part()?)?, bytes(part()?)?, bytes(part()?)?);
        if version != "00" || parts.next().is_some() || trace == [0; 16] || span == [0; 8] {
            return Err(Malformed);
        }
        Ok(Self {
            trace,
            span,
            is_sampled: flags & SAMPLED != 0,
        })
    }
}

fn bytes<const N: usize>(text: &str) -> Result<[u8; N], Malformed> {
    let mut bytes = [0; N];
    // Checked before anything is decoded, because the caller controls the length.
    if text.len() != 2 * N {
        return Err(Malformed);
    }
    match HEXLOWER.decode_mut(text.as_bytes(), &mut bytes) {
        Ok(_) => Ok(bytes),
        Err(_) => Err(Malformed),
    }
}

impl fmt::Display for TraceContext {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (trace, span) = (HEXLOWER.encode(&self.trace), HEXLOWER.encode(&self.span));
        write!(f, "00-{trace}-{span}-{:02x}", u8::from(self.is_sampled))
    }
}

#[cfg(test)]
mod tests {
    use axum::http::HeaderValue;

    use super::*;

    /// The example in the recommendation.
    const EXAMPLE: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";

    #[test]
    fn the_header_is_read_and_written_as_the_recommendation_has_it() {
        let context: TraceContext = EXAMPLE.parse().unwrap();
        assert_eq!(context.trace[..2], [0x4b, 0xf9]);
        assert_eq!(context.span[6..], [0x02, 0xb7]);
        assert!(context.is_sampled);
        assert_eq!(context.to_string(), EXAMPLE);
        let unsampled = EXAMPLE.replace("-01", "-00");
        let context: TraceContext = unsampled.parse().unwrap();
        assert!(!context.is_sampled);
        assert_eq!(context.to_string(), unsampled);
        // Flags that we do not know are not passed on.
        let random = EXAMPLE.replace("-01", "-03").parse::<TraceContext>().unwrap();
        assert_eq!(random.to_string(), EXAMPLE);
    }

    #[test]
    fn a_malformed_header_is_ignored() {
        let zeros = |many: usize| "0".repeat(many);
        for text in [
            "",
            "00",
            "---",
            &EXAMPLE.to_uppercase(),
            &EXAMPLE.replace("00-4b", "ff-4b"),
            &EXAMPLE.replace("00-4b", "01-4b"),
            &EXAMPLE.replace('4', "g"),
            &EXAMPLE.replace("4bf92f3577b34da6a3ce929d0e0e4736", &zeros(32)),
            &EXAMPLE.replace("00f067aa0ba902b7", &zeros(16)),
            &EXAMPLE[..54],
            &format!("{EXAMPLE}-"),
            &format!("{EXAMPLE}-00"),
            &format!(" {EXAMPLE}"),
            &format!("{EXAMPLE}0"),
            &EXAMPLE.replace("-01", "-1"),
            &EXAMPLE.replace("4b", "é"),
        ] {
            assert_eq!(text.parse::<TraceContext>(), Err(Malformed), "{text}");
        }
    }

    #[test]
    fn a_caller_says_it_once_or_not_at_all() {
        let mut headers = HeaderMap::new();
        assert_eq!(TraceContext::of_caller(&headers), None);
        headers.insert(TRACEPARENT, HeaderValue::from_static(EXAMPLE));
        assert_eq!(TraceContext::of_caller(&headers), EXAMPLE.parse().ok());
        headers.append(TRACEPARENT, HeaderValue::from_static(EXAMPLE));
        assert_eq!(TraceContext::of_caller(&headers), None);
        headers.insert(TRACEPARENT, HeaderValue::from_bytes(b"\xff").unwrap());
        assert_eq!(TraceContext::of_caller(&headers), None);
    }
}
