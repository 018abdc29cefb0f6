//! An error and its causes in one line.

use std::error::Error;

use api::message::shortened;

/// `could not apply Deployment.apps shop/web: spec.replicas: must not be negative`: an error and all its causes,
/// for conditions, events, answers and log fields. A cause that its parent already quotes is not repeated, and what is
/// longer than any message is cut off.
pub fn chain(error: &dyn Error) -> String {
    let mut text = shortened(error);
    let mut next = error.source();
    while let Some(cause) = next {
        let said = shortened(cause);
        if !text.contains(&said) {
            text = shortened(format_args!("{text}: {said}"));
        }
        next = cause.source();
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, thiserror::Error)]
    #[error("{text}")]
    struct Step {
        text: &'static str,
        source: Option<Box<Step>>,
    }

    fn step(text: &'static str, source: Option<Step>) -> Step {
        Step {
            text,
            source: source.map(Box::new),
        }
    }

    #[test]
    fn causes_follow_unless_they_are_quoted_already() {
        let error = step(
            "could not install",
            Some(step("no answer: reset", Some(step("reset", None)))),
        );
        assert_eq!(chain(&error), "could not install: no answer: reset");
    }

    #[test]
    fn a_message_has_a_longest_length_however_much_it_quotes() {
        let quoted: &str = "n".repeat(1 << 20).leak();
        let said = chain(&step("could not read the chart", Some(step(quoted, None))));
        assert_eq!(said.len(), api::message::LONGEST);
        assert!(said.starts_with("could not read the chart: nnn") && said.ends_with("n…"));
    }
}
