//! PEM as Go's `encoding/pem` writes and parses it.

use base64::{Engine, prelude::BASE64_STANDARD};

/// The contents of a block.
pub(super) struct Block {
    pub(super) label: String,
    pub(super) content: Vec<u8>,
}

/// Writes a block with 64 characters per line.
pub(super) fn encode(label: &str, content: &[u8]) -> String {
    const LINE: usize = 64;
    let encoded = BASE64_STANDARD.encode(content);
    let mut text = format!("-----BEGIN {label}-----\n");
    let mut rest = encoded.as_str();
    while !rest.is_empty() {
        let (line, behind) = rest.split_at(rest.len().min(LINE));
        text.push_str(line);
        text.push('\n');
        rest = behind;
    }
    text + "-----END " + label + "-----\n"
}

/// The first complete block in a text, ignoring everything around it.
pub(super) fn decode(text: &[u8]) -> Option<Block> {
    let text = String::from_utf8_lossy(text);
    let mut rest: &str = &text;
    loop {
        let begin = if rest.starts_with("-----BEGIN ") {
            0
        } else {
            rest.find("\n-----BEGIN ")? + 1
        };
        let (line, body) = rest[begin..].split_once('\n')?;
        rest = body;
        let label = line
            .trim_end()
            .strip_prefix("-----BEGIN ")
            .and_then(|line| line.strip_suffix("-----"));
        if let Some(block) = label.and_then(|label| block(label, body)) {
            return Some(block);
        }
    }
}

fn block(label: &str, body: &str) -> Option<Block> {
    let end = format!("-----END {label}-----");
    let at = if body.starts_with(&end) {
        0
    } else {
        body.find(&format!("\n{end}"))?
    };
    let headers = body[..at]
        .lines()
        .take_while(|line| line.contains(':'))
        .map(|line| line.len() + 1)
        .sum::<usize>();
    let encoded: String = body
        .get(headers..at)
        .unwrap_or_default()
        .chars()
        .filter(|c| !c.is_ascii_whitespace())
        .collect();
    let content = BASE64_STANDARD.decode(encoded).ok()?;
    Some(Block {
        label: label.to_owned(),
        content,
    })
}
