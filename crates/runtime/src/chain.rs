//! An error and its causes in one line.

use std::error::Error;

/// `could not apply Deployment.apps shop/web: spec.replicas: must not be negative`: an error and all its causes,
/// for conditions, events and log fields. A cause that its parent already quotes is not repeated.
pub fn chain(error: &dyn Error) -> String {
    let mut text = error.to_string();
    let mut next = error.source();
    while let Some(cause) = next {
        let said = cause.to_string();
        if !text.contains(&said) {
            text = format!("{text}: {said}");
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
}
