//! [`Set`]: templates that know each other by name.

use std::{
    collections::HashMap,
    hash::{BuildHasherDefault, Hasher},
    sync::{Arc, Mutex, PoisonError},
};

use crate::{
    ast::Tree,
    exec::{self, Options},
    function::Functions,
    lex::Delimiters,
    parse,
    string::Str,
    value::Value,
};

/// Templates that know each other by name: Go's `Template` with all its associated ones.
///
/// Parsed once, executed many times, on many threads at once. A clone is cheap, and what is added to it does not change the original.
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
    trees: Arc<HashMap<Str, Arc<Tree>, BuildHasherDefault<NameHasher>>>,
    texts: Arc<Mutex<Texts>>,
}

/// Hashes names of templates, which are looked up for every `include`. Names come with the chart, as the work it causes does, so nothing
/// is lost to one who makes them collide.
#[derive(Debug, Default)]
struct NameHasher(u64);

impl Hasher for NameHasher {
    fn write(&mut self, bytes: &[u8]) {
        for chunk in bytes.chunks(8) {
            let mut word = [0; 8];
            word[..chunk.len()].copy_from_slice(chunk);
            self.write_u64(u64::from_le_bytes(word));
        }
    }

    fn write_u64(&mut self, n: u64) {
        self.0 = (self.0.rotate_left(5) ^ n).wrapping_mul(0x517c_c1b7_2722_0a95);
    }

    fn write_usize(&mut self, n: usize) {
        self.write_u64(n as u64);
    }

    fn write_u8(&mut self, n: u8) {
        self.write_u64(n.into());
    }

    fn finish(&self) -> u64 {
        // The table looks at the highest and the lowest bits.
        self.0 ^ self.0 >> 32
    }
}

/// Texts that were parsed while templates were executed.
#[derive(Debug, Default)]
struct Texts {
    parsed: HashMap<Str, Arc<[Arc<Tree>]>>,
    bytes: usize,
}

/// How many bytes of parsed texts are kept; trees take several times that.
const MAX_TEXTS: usize = 4 << 20;

impl Set {
    /// An empty set. The name is that of Go's root template: it stands in messages (`gotpl`) and is the name of texts without one.
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

    /// Other delimiters than `{{` and `}}`; an empty one leaves the default.
    pub fn with_delimiters(mut self, left: &str, right: &str) -> Self {
        self.left = if left.is_empty() { "{{" } else { left }.into();
        self.right = if right.is_empty() { "}}" } else { right }.into();
        self.texts = Arc::default();
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

    /// Parses a text under a name, and adds what it defines. A template of the same name is replaced, unless the new one is empty.
    pub fn parse(&mut self, name: &str, text: impl AsRef<[u8]>) -> Result<(), parse::Error> {
        let parsed = parse::parse(&name.into(), text.as_ref(), self.delimiters(), &self.functions)?;
        let trees = Arc::make_mut(&mut self.trees);
        for tree in parsed {
            if !(tree.is_empty() && trees.contains_key(&tree.name)) {
                trees.insert(tree.name.clone(), tree);
            }
        }
        Ok(())
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

    /// Executes the template of that name and returns its output.
    pub fn execute(&self, name: &str, data: Value, options: &Options<'_>) -> Result<Vec<u8>, exec::Error> {
        exec::execute(self, &name.into(), data, options)
    }

    /// The trees of a text under the name of the set; the last one is that of the text itself. Parsed once for all executions and clones.
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
