//! One text with Helm's template functions, outside of a chart: used for the templates of a controller's own objects.

use gotemplate::exec::{self, MissingKey};
use gotemplate::parse;
use gotemplate::set::Set;
use gotemplate::value::CycleGuard;
use jiff::Timestamp;
use serde_json::{Map, Value};

use crate::context::Context;
use crate::{functions, values};

/// A parsed text.
#[derive(Debug, Clone)]
pub struct TextTemplate {
    name: String,
    set: Set,
}

/// The text is not a template, or it fails on its variables.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// Its syntax, or an unknown function.
    #[error(transparent)]
    Parse(#[from] parse::Error),
    /// One of its actions.
    #[error(transparent)]
    Execute(#[from] exec::Error),
    /// Its result is not text.
    #[error("the result is not UTF-8")]
    NotText,
}

impl TextTemplate {
    /// Parses a text; `name` is used in error messages.
    ///
    /// # Errors
    /// [`Error::Parse`].
    pub fn parse(name: &str, text: &str) -> Result<Self, Error> {
        let mut set = Set::new(name, functions::all().clone());
        set.parse(name, text)?;
        Ok(Self {
            name: name.to_owned(),
            set,
        })
    }

    /// The text with these variables, `{{ .name }}` for each. A missing variable is an error. Equal variables give
    /// equal texts: the clock is fixed, and random bytes are all zero.
    ///
    /// # Errors
    /// [`Error::Execute`], [`Error::NotText`].
    pub fn render(&self, variables: &Map<String, Value>) -> Result<String, Error> {
        let _guard = CycleGuard::new();
        let context = Context::new(Timestamp::UNIX_EPOCH, |bytes: &mut [u8]| bytes.fill(0));
        let options = exec::Options {
            missing_key: MissingKey::Error,
            host: &context,
            ..exec::Options::default()
        };
        let dot = gotemplate::value::Value::Map(values::to_map(variables));
        let text = self.set.execute(&self.name, dot, &options)?;
        String::from_utf8(text).map_err(|_| Error::NotText)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn render(text: &str) -> Result<String, Error> {
        let Value::Object(variables) = json!({"name": "web", "env": {"A": "1"}, "port": 8080}) else {
            unreachable!()
        };
        TextTemplate::parse("t.yaml", text)?.render(&variables)
    }

    #[test]
    fn variables_and_helms_functions_are_there() {
        assert_eq!(render("{{ .name | quote }} {{ .port }}").unwrap(), "\"web\" 8080");
        assert_eq!(
            render("{{ range $k, $v := .env }}{{ $k }}={{ $v }}{{ end }}").unwrap(),
            "A=1"
        );
    }

    #[test]
    fn a_mistyped_variable_or_function_is_an_error_that_names_the_template() {
        for text in ["{{ .nmae }}", "{{ nope }}"] {
            let error = render(text).unwrap_err().to_string();
            assert!(error.contains("t.yaml"), "{error}");
        }
    }
}
