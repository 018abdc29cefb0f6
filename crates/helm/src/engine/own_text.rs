//! Finds documents whose kind the values chose, not the chart.
//!
//! A chart prints what its user passes to it: a value that contains a line break, a list of `extraObjects`, a text for
//! `tpl`. So whoever sets values may make a document of any kind. Which documents are the chart's own cannot be told
//! from the output, nor from the templates alone, so the chart is executed a second time, with marks in its own text:
//! around each word that is the kind or `apiVersion` of a document in question, and behind each separator. The marks
//! contain characters that nobody can guess, and travel through `include`, `printf`, `toYaml` and the like; all other
//! functions lose them. A document is the chart's own if it is printed again without a difference besides marks, begins
//! where the chart prints a separator or a file begins, and all characters of its kind and `apiVersion` are marked.
//!
//! What is the chart's own: the texts of its templates, constants in them, its files, and values that are equal to the
//! chart's default at the same place.

use std::{
    cell::RefCell,
    collections::{BTreeMap, HashMap, HashSet},
};

use gotemplate::{
    marks::Marks,
    string::Str,
    value::{List, Map as GoMap, Value as GoValue},
};
use memchr::memmem;
use serde_json::Value;

use super::scope;
use crate::{line::HelmLine, manifest, yaml};

/// A document of a rendering: the full path of its template, and its text as rendered.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Document<'d> {
    /// The full path of its template.
    pub path: &'d str,
    /// Its text.
    pub text: &'d str,
}

/// The first of the syllables of Hangul, in which marks are written: every format prints them as they are.
const SYLLABLES: u32 = 0xac00;
/// How many there are.
const SYLLABLES_COUNT: u64 = 11_172;
/// How many of them are drawn for the marks of one execution: 2^67 possibilities.
const SYLLABLES_OF_A_NONCE: usize = 5;
/// The syllable that ends a marked word.
const END: u32 = SYLLABLES + 11_171;
/// The syllable behind a separator.
const SEPARATOR: u32 = SYLLABLES + 11_170;
/// The syllable at the end of a text of the chart that it may pass to `tpl`.
const TEXT: u32 = SYLLABLES + 11_169;
/// How many different words may be marked; each has a syllable of its own.
const MOST_WORDS: usize = 11_000;
/// The longest word that is looked for: longer ones are no kinds.
const LONGEST_WORD: usize = 253;
/// How many kinds and versions are looked for. Documents with others are not the chart's own.
const MOST_KINDS: usize = 64;
/// The shortest part of a word that is marked.
const SHORTEST_PART: usize = 2;

/// The marks of one execution.
pub(super) struct OwnText {
    nonce: String,
    /// Kinds and versions, longest first.
    words: Vec<String>,
    /// What was marked, by the syllable that it got.
    marked: RefCell<Marked>,
    /// Texts of the chart that it may execute.
    own_texts: RefCell<HashSet<Str>>,
}

#[derive(Default)]
struct Marked {
    syllables: HashMap<Vec<u8>, char>,
    words: Vec<Vec<u8>>,
}

impl OwnText {
    /// Marks for the kinds and versions of `documents`; `draw` returns random numbers below its argument.
    pub(super) fn new<'d>(
        documents: impl Iterator<Item = Document<'d>>,
        mut draw: impl FnMut(u64) -> u64,
    ) -> Self {
        let mut words = HashSet::new();
        for document in documents {
            if let Ok(object) = yaml::parse_typed(document.text.as_bytes()) {
                collect_words(&object, &mut words);
            }
        }
        let mut words: Vec<String> = words.into_iter().collect();
        words.sort_by(|a, b| b.len().cmp(&a.len()).then_with(|| a.cmp(b)));
        words.truncate(MOST_KINDS);
        let syllable = |_| char::from_u32(SYLLABLES + draw(SYLLABLES_COUNT) as u32);
        Self {
            nonce: (0..SYLLABLES_OF_A_NONCE).filter_map(syllable).collect(),
            words,
            marked: RefCell::default(),
            own_texts: RefCell::default(),
        }
    }

    /// Marks the values that are equal to the chart's default at the same place.
    pub(super) fn mark_defaults(&self, values: &GoMap, defaults: &GoMap) {
        for (key, value) in values.entries() {
            match (&value, defaults.get(&key)) {
                (GoValue::Map(table), Some(GoValue::Map(default))) => self.mark_defaults(table, &default),
                (_, Some(default)) if value.deep_equal(&default) == Ok(true) => {
                    if let Some(marked) = self.marked_value(&value) {
                        values.insert(key, marked);
                    }
                }
                _ => {}
            }
        }
    }

    /// The value with marks in its texts; none if nothing in it is marked.
    fn marked_value(&self, value: &GoValue) -> Option<GoValue> {
        match value {
            GoValue::String(text) if is_template(text) => Some(GoValue::String(self.marked_text(text))),
            GoValue::String(text) => self.marked(text).map(GoValue::String),
            GoValue::Bytes(text) => Some(GoValue::bytes(self.marked_text(text))),
            GoValue::List(list) => {
                let items: Vec<Option<GoValue>> = list.iter().map(|item| self.marked_value(item)).collect();
                items.iter().any(Option::is_some).then(|| {
                    let items = items.into_iter().zip(list.iter());
                    let items = items.map(|(marked, item)| marked.unwrap_or_else(|| item.clone()));
                    GoValue::List(List::with_type(list.ty(), items.collect()))
                })
            }
            GoValue::Map(map) => {
                let entries = map.entries();
                let marked: Vec<Option<GoValue>> = entries
                    .iter()
                    .map(|(_, value)| self.marked_value(value))
                    .collect();
                marked.iter().any(Option::is_some).then(|| {
                    let entries = entries.into_iter().zip(marked);
                    let entries = entries.map(|((key, value), marked)| (key, marked.unwrap_or(value)));
                    GoValue::Map(GoMap::from_entries(map.ty(), entries.collect()))
                })
            }
            _ => None,
        }
    }

    /// A text that the chart may execute, with a mark at its end: a comment.
    fn marked_text(&self, text: &Str) -> Str {
        self.own_texts.borrow_mut().insert(text.clone());
        let marked = self.marked(text).unwrap_or_else(|| text.clone());
        let (content, end) = marked.split_at(marked.trim_ascii_end().len());
        [content, self.comment(TEXT).as_bytes(), end].concat().into()
    }

    fn mark(&self, syllable: u32) -> String {
        format!("{}{}", self.nonce, char::from_u32(syllable).unwrap_or_default())
    }

    /// Marks the files of the charts.
    pub(super) fn mark_files(&self, templates: &BTreeMap<String, scope::Template<'_>>) {
        let mut done: Vec<GoMap> = Vec::new();
        for template in templates.values() {
            if done.iter().any(|dot| dot.is_same(&template.dot)) {
                continue;
            }
            done.push(template.dot.clone());
            let Some(files) = template.dot.get(scope::FILES) else {
                continue;
            };
            if let Some(marked) = self.marked_value(&files) {
                template.dot.insert(scope::FILES, marked);
            }
        }
    }

    /// Which of the documents are the chart's own, according to the marked output of their files.
    pub(super) fn own<'d>(
        &self,
        documents: impl Iterator<Item = Document<'d>>,
        files: &BTreeMap<String, String>,
        helm: HelmLine,
    ) -> Vec<bool> {
        let mut known: HashMap<&str, HashMap<String, bool>> = HashMap::new();
        documents
            .map(|document| {
                let of_file = known.entry(document.path).or_insert_with(|| {
                    let text = files.get(document.path);
                    text.map(|text| self.documents(text, helm)).unwrap_or_default()
                });
                of_file.get(document.text).is_some_and(|is_own| *is_own)
            })
            .collect()
    }

    /// The documents of a marked file without their marks, and whether they are the chart's own. Of equal documents,
    /// all must be.
    fn documents(&self, marked: &str, helm: HelmLine) -> HashMap<String, bool> {
        let mut documents = HashMap::new();
        let separator = self.comment(SEPARATOR);
        let separator = separator.trim_start();
        for piece in manifest::split_as(helm, marked) {
            let start = piece.as_ptr().addr() - marked.as_ptr().addr();
            let is_separated = marked[..start].trim().is_empty() || piece.starts_with(separator);
            let text = self.unmarked_text(piece);
            let text = match helm {
                HelmLine::Three => text.trim(),
                HelmLine::Four => text.trim_start(),
            };
            let is_own = is_separated && self.is_own_document(piece, text);
            *documents.entry(text.to_owned()).or_insert(true) &= is_own;
        }
        documents
    }

    /// Whether a document is the chart's own, given with its marks and without them.
    ///
    /// The two texts may be read differently, because a mark stands where a quote or a line break would have another
    /// meaning; then the document is not. Neither is one with aliases, which take a kind from elsewhere, or with a key twice.
    fn is_own_document(&self, marked: &str, text: &str) -> bool {
        let marked = yaml::parse_typed(marked.as_bytes());
        let plain = yaml::parse_strict(text.as_bytes());
        let (Ok(marked), Ok(plain)) = (marked, plain) else {
            return false;
        };
        let marked = self.with_unmarked(&marked, false);
        !yaml::has_alias(text.as_bytes())
            && self.with_unmarked(&marked, true) == plain
            && self.is_own_object(&marked, false)
    }

    /// The value with unmarked keys, and with unmarked texts if `values`.
    fn with_unmarked(&self, value: &Value, values: bool) -> Value {
        match value {
            Value::String(text) if values => Value::String(self.unmarked_text(text)),
            Value::Array(items) => items
                .iter()
                .map(|item| self.with_unmarked(item, values))
                .collect(),
            Value::Object(fields) => fields
                .iter()
                .map(|(key, value)| (self.unmarked_text(key), self.with_unmarked(value, values)))
                .collect(),
            _ => value.clone(),
        }
    }

    /// Whether the kind and version of the object are the chart's own, and those of its items if it is a list. An item of
    /// a list may omit what the list says.
    fn is_own_object(&self, object: &Value, is_item: bool) -> bool {
        let is_own = |field: &str| match object.get(field) {
            None => is_item,
            Some(value) => value.as_str().is_some_and(|text| self.is_own_word(text)),
        };
        if !is_own("kind") || !is_own("apiVersion") {
            return false;
        }
        let kind = object["kind"].as_str().unwrap_or_default();
        let is_list = self.unmarked_text(kind).ends_with("List");
        match (is_list, &object["items"]) {
            (true, Value::Array(items)) => items.iter().all(|item| self.is_own_object(item, true)),
            _ => true,
        }
    }

    /// Whether all characters of a word are within marks, around what was marked.
    fn is_own_word(&self, word: &str) -> bool {
        let marked = self.marked.borrow();
        let mut rest = word;
        while !rest.is_empty() {
            let part = rest.strip_prefix(&*self.nonce).and_then(|rest| {
                let syllable = rest.chars().next()?;
                let number = (syllable as u32).checked_sub(SYLLABLES)?;
                let own = std::str::from_utf8(marked.words.get(number as usize)?).ok()?;
                let behind = rest.strip_prefix(syllable)?.strip_prefix(own)?;
                behind
                    .strip_prefix(&*self.nonce)?
                    .strip_prefix(char::from_u32(END)?)
            });
            match part {
                Some(behind) => rest = behind,
                None => return false,
            }
        }
        !word.is_empty()
    }

    fn unmarked_text(&self, text: &str) -> String {
        match self.unmarked(text.as_bytes()) {
            Some(text) => text.lossy().into_owned(),
            None => text.to_owned(),
        }
    }

    /// A mark as a comment.
    fn comment(&self, syllable: u32) -> String {
        format!(" #{}", self.mark(syllable))
    }

    /// Where kinds and versions, or parts of one at either end, are in a text.
    fn found(&self, text: &[u8]) -> Vec<(usize, usize)> {
        if (SHORTEST_PART..=LONGEST_WORD).contains(&text.len())
            && self
                .words
                .iter()
                .any(|word| memmem::find(word.as_bytes(), text).is_some())
        {
            return vec![(0, text.len())];
        }
        let mut found: Vec<(usize, usize)> = Vec::new();
        let mut add = |start: usize, end: usize| {
            if found.iter().all(|(from, to)| end <= *from || start >= *to) {
                found.push((start, end));
            }
        };
        let ends_at = |at: usize| text.get(at).is_none_or(|byte| !continues_word(*byte));
        let begins_at = |at: usize| at == 0 || !continues_word(text[at - 1]);
        for word in &self.words {
            for start in memmem::find_iter(text, word.as_bytes()) {
                let end = start + word.len();
                if begins_at(start) && ends_at(end) {
                    add(start, end);
                }
            }
        }
        // The parts of words that are continued by another node of the template.
        for word in self.words.iter().map(String::as_bytes) {
            let lengths = || (SHORTEST_PART..word.len().min(text.len() + 1)).rev();
            if let Some(length) = lengths().find(|length| text.ends_with(&word[..*length]))
                && begins_at(text.len() - length)
            {
                add(text.len() - length, text.len());
            }
            if let Some(length) = lengths().find(|length| text.starts_with(&word[word.len() - length..]))
                && ends_at(length)
            {
                add(0, length);
            }
        }
        found.sort_unstable();
        found
    }

    fn syllable(&self, word: &[u8]) -> Option<char> {
        let mut marked = self.marked.borrow_mut();
        if let Some(syllable) = marked.syllables.get(word) {
            return Some(*syllable);
        }
        if marked.words.len() == MOST_WORDS {
            return None;
        }
        let syllable = char::from_u32(SYLLABLES + marked.words.len() as u32)?;
        marked.words.push(word.to_vec());
        marked.syllables.insert(word.to_vec(), syllable);
        Some(syllable)
    }
}

/// Whether a kind or version could go on with this byte.
fn continues_word(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"_.-/".contains(&byte)
}

/// Whether a text may be meant for `tpl`; it is no number or the like, which marks would turn into a text.
fn is_template(text: &[u8]) -> bool {
    memmem::find(text, b"{{").is_some() || text.contains(&b'\n')
}

/// The kinds and versions of an object, and of its items if it is a list. Whoever sets values may choose them, so they are no
/// more than words, and none of the keys that are looked at.
fn collect_words(object: &Value, words: &mut HashSet<String>) {
    for field in ["kind", "apiVersion"] {
        if let Some(word) = object[field].as_str()
            && (SHORTEST_PART..=LONGEST_WORD).contains(&word.len())
            && word.bytes().all(continues_word)
            && !["kind", "apiVersion", "items"].contains(&word)
        {
            words.insert(word.to_owned());
        }
    }
    if object["kind"].as_str().is_some_and(|kind| kind.ends_with("List"))
        && let Some(items) = object["items"].as_array()
    {
        for item in items {
            collect_words(item, words);
        }
    }
}

impl Marks for OwnText {
    fn marked(&self, own: &[u8]) -> Option<Str> {
        let mut inserted: Vec<(usize, String)> = Vec::new();
        for (start, end) in self.found(own) {
            let syllable = self.syllable(&own[start..end])?;
            inserted.push((start, format!("{}{syllable}", self.nonce)));
            inserted.push((end, format!("{}{}", self.nonce, char::from_u32(END)?)));
        }
        if own.starts_with(b"---") {
            inserted.push((3, self.comment(SEPARATOR)));
        }
        for newline in memmem::find_iter(own, b"\n---") {
            inserted.push((newline + 4, self.comment(SEPARATOR)));
        }
        if inserted.is_empty() {
            return None;
        }
        // Marks at the same place stay in this order: one ends before the next begins.
        inserted.sort_by_key(|(at, _)| *at);
        let mut text = Vec::with_capacity(own.len() + inserted.len() * 20);
        let mut copied = 0;
        for (at, mark) in inserted {
            text.extend_from_slice(&own[copied..at]);
            text.extend_from_slice(mark.as_bytes());
            copied = at;
        }
        text.extend_from_slice(&own[copied..]);
        Some(text.into())
    }

    fn unmarked(&self, text: &[u8]) -> Option<Str> {
        let nonce = self.nonce.as_bytes();
        let mut found = memmem::find_iter(text, nonce).peekable();
        found.peek()?;
        let comments = [SEPARATOR, TEXT].map(char::from_u32);
        let mut plain = Vec::with_capacity(text.len());
        let mut copied = 0;
        for at in found {
            // The syllables of one mark may look like the beginning of another.
            if at < copied {
                continue;
            }
            plain.extend_from_slice(&text[copied..at]);
            let behind = &text[at + nonce.len()..];
            let syllable = std::str::from_utf8(&behind[..behind.len().min(3)]).ok();
            let syllable = syllable.and_then(|text| text.chars().next());
            if syllable.is_some() && comments.contains(&syllable) {
                let comment = plain.strip_suffix(b" #").or_else(|| plain.strip_suffix(b"#"));
                plain.truncate(comment.unwrap_or(&plain).len());
            }
            copied = at + nonce.len() + syllable.map_or(0, char::len_utf8);
        }
        plain.extend_from_slice(&text[copied..]);
        Some(plain.into())
    }

    fn carries(&self, function: &[u8], argument: usize) -> bool {
        CARRYING
            .iter()
            .any(|(names, arguments)| names.contains(&function) && arguments.contain(argument))
    }

    fn makes_keys(&self, function: &[u8]) -> bool {
        function.starts_with(b"from") || function.starts_with(b"mustFrom")
    }

    fn is_own(&self, text: &[u8]) -> bool {
        text.trim_ascii_end().ends_with(self.mark(TEXT).as_bytes())
            && self
                .unmarked(text)
                .is_some_and(|plain| self.own_texts.borrow().contains(&plain))
    }
}

/// Arguments of a function.
enum Arguments {
    All,
    From(usize),
    Only(usize),
    AllBut(usize),
    /// The values of alternating keys and values.
    Odd,
}

impl Arguments {
    fn contain(&self, argument: usize) -> bool {
        match self {
            Self::All => true,
            Self::From(first) => argument >= *first,
            Self::Only(only) => argument == *only,
            Self::AllBut(key) => argument != *key,
            Self::Odd => argument % 2 == 1,
        }
    }
}

/// The functions whose results contain characters of these arguments, unchanged and in their order. Names, keys and
/// texts to search for are never among them.
const CARRYING: &[(&[&[u8]], Arguments)] = &[
    (&[b"include", b"tpl"], Arguments::From(1)),
    (
        &[b"print", b"printf", b"println", b"cat", b"join"],
        Arguments::All,
    ),
    (&[b"default", b"coalesce", b"ternary"], Arguments::All),
    (&[b"required"], Arguments::From(1)),
    (
        &[b"quote", b"squote", b"toString", b"toStrings", b"trim"],
        Arguments::All,
    ),
    (
        &[
            b"indent",
            b"nindent",
            b"trimAll",
            b"trimall",
            b"trimPrefix",
            b"trimSuffix",
        ],
        Arguments::From(1),
    ),
    (&[b"replace"], Arguments::From(1)),
    (
        &[b"regexReplaceAll", b"mustRegexReplaceAll"],
        Arguments::AllBut(0),
    ),
    (
        &[b"regexReplaceAllLiteral", b"mustRegexReplaceAllLiteral"],
        Arguments::AllBut(0),
    ),
    (
        &[
            b"toYaml",
            b"mustToYaml",
            b"toYamlPretty",
            b"toJson",
            b"mustToJson",
        ],
        Arguments::All,
    ),
    (
        &[
            b"toPrettyJson",
            b"mustToPrettyJson",
            b"toRawJson",
            b"mustToRawJson",
        ],
        Arguments::All,
    ),
    (&[b"fromYaml", b"fromYamlArray"], Arguments::All),
    (
        &[b"list", b"tuple", b"append", b"push", b"mustAppend", b"mustPush"],
        Arguments::All,
    ),
    (
        &[b"prepend", b"mustPrepend", b"concat", b"reverse", b"mustReverse"],
        Arguments::All,
    ),
    (&[b"first", b"mustFirst", b"last", b"mustLast"], Arguments::All),
    (
        &[b"rest", b"mustRest", b"initial", b"mustInitial"],
        Arguments::All,
    ),
    (
        &[b"merge", b"mustMerge", b"mergeOverwrite", b"mustMergeOverwrite"],
        Arguments::All,
    ),
    (
        &[b"deepCopy", b"mustDeepCopy", b"values", b"keys"],
        Arguments::All,
    ),
    (&[b"dict"], Arguments::Odd),
    (&[b"set"], Arguments::AllBut(1)),
    (
        &[b"get", b"unset", b"pick", b"omit", b"index", b"hasKey"],
        Arguments::Only(0),
    ),
    (&[b"pluck"], Arguments::From(1)),
    (&[b"kindIs", b"typeIs", b"typeIsLike"], Arguments::From(1)),
    (&[b"kindOf", b"typeOf", b"not", b"empty"], Arguments::All),
];
