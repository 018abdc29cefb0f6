//! [`Set`]: templates that can call each other by name.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, PoisonError},
};

use crate::{
    ast::{Source, Tree},
    function::Functions,
    hash::ByName,
    lex::Delimiters,
    parse,
    string::Str,
};

/// A text and its trees.
type Parsed = (Str, Vec<Arc<Tree>>);

/// Templates that can call each other by name: Go's `Template` with all its associated ones.
///
/// Parsed once, executed many times, on many threads at once. A clone is cheap, and templates added to it do not
/// change the original.
///
/// ```
/// use gotemplate::{exec::Options, function::Functions, set::Set, value::Value};
///
/// let mut set = Set::new("main", Functions::default());
/// set.parse("greet", r#"Hello, {{ .name }}!{{ template "sign" }}"#)?;
/// set.parse("parts", r#"{{ define "sign" }} Bye.{{ end }}"#)?;
/// let data = Value::Map([("name", "World")].into_iter().collect());
/// assert_eq!(set.execute("greet", data, &Options::default())?, b"Hello, World! Bye.");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug)]
pub struct Set {
    name: Str,
    functions: Functions,
    left: Str,
    right: Str,
    trees: Arc<ByName<Arc<Tree>>>,
    texts: Arc<Mutex<Texts>>,
}

/// Texts that were parsed while templates were executed.
#[derive(Debug, Default)]
struct Texts {
    parsed: HashMap<Str, Arc<[Arc<Tree>]>>,
    bytes: usize,
}

/// How many bytes of parsed texts are cached. Their trees take several times as much memory, at worst 64 times.
const MAX_TEXTS: usize = 256 << 10;

/// The trees of a file under another name. None if the text contains the old or the new name, as that might be the
/// name of a definition in it.
fn renamed(trees: &[Arc<Tree>], name: &Str) -> Option<Vec<Arc<Tree>>> {
    let source = &trees.first()?.source;
    if [&source.name, name]
        .iter()
        .any(|name| memchr::memmem::find(&source.text, name).is_some())
    {
        return None;
    }
    let renamed = Arc::new(Source {
        name: name.clone(),
        text: source.text.clone(),
    });
    let tree = |tree: &Arc<Tree>| {
        let is_file = tree.name == source.name;
        Arc::new(Tree {
            name: if is_file { name } else { &tree.name }.clone(),
            source: renamed.clone(),
            root: tree.root.clone(),
        })
    };
    Some(trees.iter().map(tree).collect())
}

impl Set {
    /// An empty set. The name is that of Go's root template: it appears in messages (`gotpl`) and is used for texts
    /// without a name.
    pub fn new(name: &str, functions: Functions) -> Self {
        Self {
            name: name.into(),
            functions,
            left: "{{".into(),
            right: "}}".into(),
            trees: Arc::default(),
            texts: Arc::default(),
        }
    }

    /// Sets other delimiters than `{{` and `}}`; an empty one means the default.
    pub fn with_delimiters(mut self, left: &str, right: &str) -> Self {
        self.left = if left.is_empty() { "{{" } else { left }.into();
        self.right = if right.is_empty() { "}}" } else { right }.into();
        self.texts = Arc::default();
        self
    }

    /// Shares the cache of texts parsed during executions with another set of the same name and functions.
    #[must_use]
    pub fn remembering_with(mut self, other: &Set) -> Self {
        self.texts = other.texts.clone();
        self
    }

    /// The name of the set.
    pub fn name(&self) -> &Str {
        &self.name
    }

    /// The functions that templates are parsed with.
    pub fn functions(&self) -> &Functions {
        &self.functions
    }

    /// Parses a text under a name, and adds the templates it defines. A template of the same name is replaced, unless
    /// the new one is empty.
    pub fn parse(&mut self, name: &str, text: impl AsRef<[u8]>) -> Result<(), parse::Error> {
        let text = text.as_ref().into();
        self.add(parse::parse(
            &name.into(),
            &text,
            self.delimiters(),
            &self.functions,
        )?);
        Ok(())
    }

    /// Parses texts under their names, in order, as [`parse`](Self::parse) does. Equal texts under different names,
    /// such as a library in several subcharts, share their trees.
    pub fn parse_all<'n>(
        &mut self,
        texts: impl IntoIterator<Item = (&'n str, Str)>,
    ) -> Result<(), parse::Error> {
        // By length: few texts have the same length, and comparing those is cheaper than hashing all.
        let mut known: HashMap<usize, Vec<Parsed>> = HashMap::new();
        for (name, text) in texts {
            let name = Str::from(name);
            let as_long = known.entry(text.len()).or_default();
            let same = as_long.iter().find(|(other, _)| *other == text);
            if let Some(trees) = same.and_then(|(_, trees)| renamed(trees, &name)) {
                self.add(trees);
                continue;
            }
            let trees = parse::parse(&name, &text, self.delimiters(), &self.functions)?;
            as_long.push((text, trees.clone()));
            self.add(trees);
        }
        Ok(())
    }

    fn add(&mut self, parsed: Vec<Arc<Tree>>) {
        let trees = Arc::make_mut(&mut self.trees);
        for tree in parsed {
            if !(tree.is_empty() && trees.contains_key(&tree.name)) {
                trees.insert(tree.name.clone(), tree);
            }
        }
    }

    fn delimiters(&self) -> Delimiters<'_> {
        Delimiters {
            left: &self.left,
            right: &self.right,
        }
    }

    /// The template of that name.
    pub fn tree(&self, name: impl AsRef<[u8]>) -> Option<&Tree> {
        self.trees.get(name.as_ref()).map(|tree| &**tree)
    }

    /// All templates, in no particular order.
    pub fn trees(&self) -> impl Iterator<Item = &Tree> {
        self.trees.values().map(|tree| &**tree)
    }

    /// The trees of a text under the name of the set; the last one is that of the text itself. Parsed once for all
    /// executions and clones.
    pub(crate) fn parse_text(&self, text: &Str) -> Result<Arc<[Arc<Tree>]>, parse::Error> {
        if let Some(known) = self
            .texts
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .parsed
            .get(text)
        {
            return Ok(known.clone());
        }
        let trees: Arc<[Arc<Tree>]> =
            parse::parse(&self.name, text, self.delimiters(), &self.functions)?.into();
        let mut texts = self.texts.lock().unwrap_or_else(PoisonError::into_inner);
        if texts.bytes + text.len() > MAX_TEXTS {
            *texts = Texts::default();
        }
        if text.len() <= MAX_TEXTS {
            texts.bytes += text.len();
            texts.parsed.insert(text.clone(), trees.clone());
        }
        Ok(trees)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{exec::Options, value::Value};

    const LIBRARY: &str = r#"{{ define "lib.a" }}{{ .x.y.z }}{{ end }}{{ include "q" . }} text"#;

    fn functions() -> Functions {
        let mut functions = Functions::default();
        functions.add("include", |name: Str, _: Value| name);
        functions
    }

    #[test]
    fn equal_texts_are_parsed_once_and_know_their_own_names() {
        let mut set = Set::new("main", functions());
        set.parse_all([("one.tpl", LIBRARY.into()), ("two.tpl", LIBRARY.into())])
            .unwrap();
        let (one, two) = (set.tree("one.tpl").unwrap(), set.tree("two.tpl").unwrap());
        assert!(Arc::ptr_eq(&one.root, &two.root));
        assert_eq!(one.source.name, "one.tpl");
        // The later definition wins, as without sharing.
        assert_eq!(set.tree("lib.a").unwrap().source.name, "two.tpl");
        let error = set
            .execute("lib.a", Value::Int(1), &Options::default())
            .unwrap_err();
        assert_eq!(
            error.to_string(),
            r#"template: two.tpl:1:25: executing "lib.a" at <.x.y.z>: can't evaluate field x in type int"#
        );
    }

    #[test]
    fn a_text_that_contains_the_name_of_a_file_is_parsed_again() {
        let text = Str::from(r#"{{ define "b" }}defined{{ end }}"#);
        let mut set = Set::new("main", Functions::default());
        set.parse_all([("a", text.clone()), ("b", text)]).unwrap();
        let out = set.execute("b", Value::Nil, &Options::default()).unwrap();
        assert_eq!(out, b"defined");
        assert!(set.tree("a").unwrap().is_empty());
    }
}
