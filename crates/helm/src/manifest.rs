//! Splits rendered files into documents, separates manifests from hooks, and sorts them (Helm's
//! `pkg/release/v1/util`).

use std::{borrow::Cow, collections::BTreeMap, fmt};

use memchr::memmem;

use crate::{
    chart::scalar_text,
    hook::{self, Hook, HookDeletePolicy, HookEvent, HookOutputLogPolicy},
    kind_order::KindOrder,
    line::HelmLine,
    yaml::{self, Glance},
};

/// One document of a release that is not a hook.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Manifest {
    /// The full path of its template, as in `# Source:`.
    pub path: String,
    /// Its text as rendered, without leading white space.
    pub text: String,
    /// The fields that Helm reads.
    pub head: Head,
}

/// The fields that Helm reads of a document.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Head {
    /// `apiVersion`.
    pub api_version: String,
    /// `kind`; empty for a document that only contains comments.
    pub kind: String,
    /// `metadata.name`.
    pub name: String,
    /// `metadata.namespace`; empty for the release's namespace.
    pub namespace: String,
    /// `metadata.annotations`, with numbers and booleans as text.
    pub annotations: BTreeMap<String, String>,
}

/// Why rendered files could not be split into documents.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A document is not YAML.
    #[error("YAML parse error on {path}")]
    Yaml {
        /// The template it came from.
        path: String,
        /// What is wrong with it.
        source: yaml::Error,
    },
    /// A document is YAML but not a Kubernetes object.
    #[error(
        "YAML parse error on {path}: error unmarshaling JSON: while decoding JSON: \
         json: cannot unmarshal {found} into Go {place} of type {wanted}"
    )]
    Head {
        /// The template it came from.
        path: String,
        /// The type found.
        found: &'static str,
        /// The field.
        place: &'static str,
        /// The type expected.
        wanted: &'static str,
    },
}

impl Error {
    /// The type that Helm decodes into is in another package in Helm 3.
    fn in_words_of(mut self, helm: HelmLine) -> Self {
        if let (Self::Head { wanted, .. }, HelmLine::Three) = (&mut self, helm)
            && *wanted == HEAD
        {
            *wanted = "releaseutil.SimpleHead";
        }
        self
    }
}

/// Helm 4's name for the type of a document's head.
const HEAD: &str = "util.SimpleHead";

/// The documents of rendered files.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Sorted {
    /// Documents to install, in install order.
    pub manifests: Vec<Manifest>,
    /// Hooks, in install order of their kinds.
    pub hooks: Vec<Hook>,
    /// The hooks with an unknown event, which Helm drops.
    pub dropped: Vec<Dropped>,
}

/// A document that is neither installed nor run, because it names an event that does not exist.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Dropped {
    /// The full path of its template.
    pub path: String,
    /// Its events as written.
    pub events: String,
}

/// Splits rendered files, by path, into documents and sorts them.
///
/// Files whose names start with an underscore and blank files are skipped. Within the order of kinds, documents are
/// sorted by the paths of their files and their positions in them.
///
/// # Errors
/// When a document is not a Kubernetes object.
pub fn sort<'f>(
    files: impl IntoIterator<Item = (&'f str, &'f str)>,
    order: KindOrder,
) -> Result<Sorted, Error> {
    sort_as(HelmLine::Four, files, order)
}

/// Like [`sort`], with documents split as a line of Helm splits them.
///
/// # Errors
/// When a document is not a Kubernetes object.
pub fn sort_as<'f>(
    helm: HelmLine,
    files: impl IntoIterator<Item = (&'f str, &'f str)>,
    order: KindOrder,
) -> Result<Sorted, Error> {
    let files: BTreeMap<&str, &str> = files.into_iter().collect();
    let mut sorted = Sorted::default();
    for (path, text) in files {
        let base = path.rsplit('/').next().unwrap_or(path);
        if base.starts_with('_') {
            continue;
        }
        for document in split_as(helm, text) {
            sorted
                .add(path, document)
                .map_err(|error| error.in_words_of(helm))?;
        }
    }
    sorted
        .manifests
        .sort_by(|a, b| order.compare(&a.head.kind, &b.head.kind));
    sorted.hooks.sort_by(|a, b| order.compare(&a.kind, &b.kind));
    Ok(sorted)
}

/// Splits a stream into documents at `---` in the first column; text after the dashes on the same line belongs to the
/// document below, which `---apiVersion: v1` relies on. Blank documents are dropped; a document of comments only is
/// kept.
///
/// Leading white space of documents is removed, trailing white space kept.
pub fn split(stream: &str) -> impl Iterator<Item = &str> {
    Separated {
        rest: Some(stream.trim_start()),
        at_start: true,
        separator: memmem::Finder::new("\n---"),
    }
    .map(str::trim_start)
    .filter(|document| !document.trim_end().is_empty())
}

/// Splits a stream as Helm 3 does: documents are trimmed at both ends, text after the dashes belongs to the document
/// below, and of separators on two lines in a row the second one is not recognised.
pub fn split_helm3(stream: &str) -> impl Iterator<Item = &str> {
    let stream = stream.trim();
    let separated = SeparatedHelm3 {
        rest: Some(stream.strip_prefix("---").map_or(stream, without_space)),
    };
    // Empty pieces are dropped before trimming: a piece of Unicode-only white space is kept.
    separated.filter(|document| !document.is_empty()).map(str::trim)
}

/// [`split`] or [`split_helm3`].
pub fn split_as(helm: HelmLine, stream: &str) -> Box<dyn Iterator<Item = &str> + '_> {
    match helm {
        HelmLine::Three => Box::new(split_helm3(stream)),
        HelmLine::Four => Box::new(split(stream)),
    }
}

/// `\s` of Go's regular expressions.
const SPACE: [char; 5] = [' ', '\t', '\n', '\r', '\u{c}'];

fn without_space(text: &str) -> &str {
    text.trim_start_matches(SPACE)
}

/// The pieces between separators, `(?:^|\s*\n)---\s*`; a separator at the start has been removed.
struct SeparatedHelm3<'s> {
    rest: Option<&'s str>,
}

impl<'s> Iterator for SeparatedHelm3<'s> {
    type Item = &'s str;

    fn next(&mut self) -> Option<&'s str> {
        let rest = self.rest?;
        let Some((piece, behind)) = rest.split_once("\n---") else {
            self.rest = None;
            return Some(rest);
        };
        self.rest = Some(without_space(behind));
        Some(piece.trim_end_matches(SPACE))
    }
}

/// The pieces between separators, `(?m)^---[ \t]*`.
struct Separated<'s> {
    rest: Option<&'s str>,
    at_start: bool,
    separator: memmem::Finder<'static>,
}

impl<'s> Iterator for Separated<'s> {
    type Item = &'s str;

    fn next(&mut self) -> Option<&'s str> {
        let rest = self.rest?;
        let separator = if self.at_start && rest.starts_with("---") {
            Some(0)
        } else {
            let newline = self.separator.find(rest.as_bytes());
            newline.map(|newline| newline + 1)
        };
        let Some(start) = separator else {
            self.rest = None;
            return Some(rest);
        };
        self.at_start = false;
        self.rest = Some(rest[start + 3..].trim_start_matches([' ', '\t']));
        Some(&rest[..start])
    }
}

/// Formats a document as Helm stores and prints it.
pub fn frame(path: &str, text: &str) -> String {
    Framed { path, text }.to_string()
}

/// A document whose `Display` is what Helm stores and prints.
#[derive(Clone, Copy, Debug)]
pub struct Framed<'d> {
    /// The full path of its template.
    pub path: &'d str,
    /// Its text.
    pub text: &'d str,
}

impl fmt::Display for Framed<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { path, text } = self;
        write!(f, "---\n# Source: {path}\n{text}\n")
    }
}

impl Sorted {
    fn add(&mut self, path: &str, text: &str) -> Result<(), Error> {
        let head = Head::read(path, text)?;
        let Some(events) = head.annotations.get(hook::HOOK) else {
            self.manifests.push(Manifest {
                path: path.to_owned(),
                text: text.to_owned(),
                head,
            });
            return Ok(());
        };
        match hook(path, text, &head, events) {
            Some(hook) => self.hooks.push(hook),
            None => self.dropped.push(Dropped {
                path: path.to_owned(),
                events: events.clone(),
            }),
        }
        Ok(())
    }
}

fn hook(path: &str, text: &str, head: &Head, events: &str) -> Option<Hook> {
    let words = |annotation: &str| -> Vec<String> {
        let value = head.annotations.get(annotation);
        value
            .into_iter()
            .flat_map(|value| value.split(','))
            .map(|word| word.trim().to_lowercase())
            .collect()
    };
    let events: Option<Vec<HookEvent>> = events
        .split(',')
        .map(|word| HookEvent::parse(&word.trim().to_lowercase()))
        .collect();
    let weight = head.annotations.get(hook::HOOK_WEIGHT);
    Some(Hook {
        name: head.name.clone(),
        kind: head.kind.clone(),
        path: path.to_owned(),
        manifest: text.to_owned(),
        events: events?,
        weight: weight.and_then(|weight| weight.parse().ok()).unwrap_or(0),
        delete_policies: words(hook::HOOK_DELETE_POLICY)
            .iter()
            .map(|word| HookDeletePolicy::from(word.as_str()))
            .collect(),
        output_log_policies: words(hook::HOOK_OUTPUT_LOG_POLICY)
            .iter()
            .map(|word| HookOutputLogPolicy::from(word.as_str()))
            .collect(),
        ..Hook::default()
    })
}

impl Head {
    /// Reads the fields of [`Head`] from a document.
    ///
    /// # Errors
    /// When the document is not YAML, or one of the fields Helm reads has the wrong type.
    pub fn read(path: &str, text: &str) -> Result<Self, Error> {
        let head = yaml::glance(text.as_bytes(), Self::of).map_err(|source| Error::Yaml {
            path: path.to_owned(),
            source,
        })?;
        head.map_err(|mismatch| mismatch.on(path))
    }

    fn of(document: &Glance<'_>) -> Result<Self, Mismatch> {
        let mut head = Self::default();
        for (key, value) in table(document, "value", HEAD)? {
            match &*lower(key) {
                "apiversion" => head.api_version = text(value, "struct field SimpleHead.apiVersion")?,
                "kind" => head.kind = text(value, "struct field SimpleHead.kind")?,
                "metadata" => head.read_metadata(value)?,
                _ => {}
            }
        }
        Ok(head)
    }

    fn read_metadata(&mut self, metadata: &Glance<'_>) -> Result<(), Mismatch> {
        const WANTED: &str = "struct { Name string \"json:\\\"name\\\"\"; Annotations map[string]string \"json:\\\"annotations\\\"\" }";
        for (key, value) in table(metadata, "struct field SimpleHead.metadata", WANTED)? {
            match &*lower(key) {
                "name" => self.name = text(value, "struct field .metadata.name")?,
                "annotations" => self.read_annotations(value)?,
                // Helm does not read the namespace, so it may have any type here.
                "namespace" => self.namespace = scalar_text(&value.scalar()).unwrap_or_default(),
                _ => {}
            }
        }
        Ok(())
    }

    fn read_annotations(&mut self, annotations: &Glance<'_>) -> Result<(), Mismatch> {
        const PLACE: &str = "struct field .metadata.annotations";
        for (key, value) in table(annotations, PLACE, "map[string]string")? {
            self.annotations.insert(key.to_owned(), text(value, PLACE)?);
        }
        Ok(())
    }
}

/// A field has another type than Helm expects.
struct Mismatch {
    found: &'static str,
    place: &'static str,
    wanted: &'static str,
}

impl Mismatch {
    fn new(found: &Glance<'_>, place: &'static str, wanted: &'static str) -> Self {
        let found = match found {
            Glance::Null => "null",
            Glance::Bool(_) => "bool",
            Glance::Number(_) => "number",
            Glance::String(_) => "string",
            Glance::Array => "array",
            Glance::Object(_) => "object",
        };
        Self { found, place, wanted }
    }

    fn on(self, path: &str) -> Error {
        Error::Head {
            path: path.to_owned(),
            found: self.found,
            place: self.place,
            wanted: self.wanted,
        }
    }
}

/// The fields by name; null has none.
fn table<'g>(
    value: &'g Glance<'_>,
    place: &'static str,
    wanted: &'static str,
) -> Result<impl Iterator<Item = (&'g str, &'g Glance<'g>)>, Mismatch> {
    match value {
        Glance::Null => Ok(Glance::sorted(&[])),
        Glance::Object(entries) => Ok(Glance::sorted(entries)),
        other => Err(Mismatch::new(other, place, wanted)),
    }
}

fn text(value: &Glance<'_>, place: &'static str) -> Result<String, Mismatch> {
    match value {
        Glance::Null => Ok(String::new()),
        other => scalar_text(&other.scalar()).ok_or_else(|| Mismatch::new(other, place, "string")),
    }
}

/// Field names are compared case-insensitively.
fn lower(name: &str) -> Cow<'_, str> {
    if name.bytes().all(|byte| byte.is_ascii_lowercase()) {
        name.into()
    } else {
        name.to_lowercase().into()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn documents(stream: &str) -> Vec<&str> {
        split(stream).collect()
    }

    #[test]
    fn streams_are_split_as_helm_4_splits_them() {
        assert_eq!(documents("a: 1\n---\nb: 2\n"), ["a: 1\n", "b: 2\n"]);
        assert_eq!(documents("\n\n--- \t\n a: 1  \n\n---\n\n---\n"), ["a: 1  \n\n"]);
        assert_eq!(
            documents("---apiVersion: v1\n---\t# c\nb: 2"),
            ["apiVersion: v1\n", "# c\nb: 2"]
        );
        assert_eq!(documents("---\n---\n---a"), ["a"]);
        assert_eq!(
            documents("a: |\n  x\n  ---\n  y\n---\nb"),
            ["a: |\n  x\n  ---\n  y\n", "b"]
        );
        assert_eq!(documents("# only a comment\n"), ["# only a comment\n"]);
        assert_eq!(documents("a---\nb: --- c\n----\nd"), ["a---\nb: --- c\n", "-\nd"]);
        assert_eq!(documents("a\n------\nb"), ["a\n", "---\nb"]);
        assert_eq!(documents(" \n\t"), [""; 0]);
    }

    #[test]
    fn streams_are_split_as_helm_3_splits_them() {
        let documents = |stream: &'static str| split_helm3(stream).collect::<Vec<_>>();
        assert_eq!(documents("a: 1\n---\nb: 2\n"), ["a: 1", "b: 2"]);
        assert_eq!(
            documents("\n---apiVersion: v1\n--- # c\nb"),
            ["apiVersion: v1", "# c\nb"]
        );
        assert_eq!(documents("a  \n\n---\n\n b: |\n  x \n"), ["a", "b: |\n  x"]);
        // The search continues at the end of a separator.
        assert_eq!(documents("a\n---\n---\nb"), ["a", "---\nb"]);
        assert_eq!(documents("---\n---\nb\n"), ["---\nb"]);
        assert_eq!(documents("# c\n---\n"), ["# c"]);
        assert_eq!(documents(" \n"), [""; 0]);
    }

    #[test]
    fn documents_are_sorted_by_kind_within_the_order_of_their_files() {
        let files = [
            (
                "c/templates/z.yaml",
                "kind: Service\nmetadata: {name: z}\n---\nkind: Namespace\n",
            ),
            (
                "c/templates/a.yaml",
                "kind: Widget\n---\nkind: Service\nmetadata: {name: a}\n---\n# nothing\n",
            ),
            ("c/templates/_p.yaml", "kind: Service\n"),
            ("c/templates/blank.yaml", " \n"),
        ];
        let sorted = sort(files, KindOrder::Install).unwrap();
        let found: Vec<_> = sorted
            .manifests
            .iter()
            .map(|m| format!("{} {}", m.head.kind, m.head.name))
            .collect();
        assert_eq!(found, ["Namespace ", "Service a", "Service z", " ", "Widget "]);
    }

    #[test]
    fn hooks_are_told_apart_by_annotation_and_unknown_ones_dropped() {
        let text = "kind: Job\nmetadata:\n  name: j\n  annotations:\n    helm.sh/hook: Pre-Install, test-success\n    \
                    helm.sh/hook-weight: 5\n    helm.sh/hook-delete-policy: hook-failed , Odd\n";
        let dropped = "kind: Job\nmetadata:\n  annotations: {helm.sh/hook: 'pre-install,never'}\n";
        let sorted = sort([("c/a", text), ("c/b", dropped)], KindOrder::Install).unwrap();
        let [hook] = &sorted.hooks[..] else {
            panic!("{sorted:?}")
        };
        assert_eq!(hook.events, [HookEvent::PreInstall, HookEvent::Test]);
        assert_eq!(
            (hook.weight, hook.name.as_str(), hook.path.as_str()),
            (5, "j", "c/a")
        );
        assert_eq!(
            hook.delete_policies,
            [
                HookDeletePolicy::HookFailed,
                HookDeletePolicy::Other("odd".to_owned())
            ]
        );
        assert_eq!(hook.manifest, text);
        assert!(sorted.manifests.is_empty());
        assert_eq!(
            sorted.dropped,
            [Dropped {
                path: "c/b".to_owned(),
                events: "pre-install,never".to_owned()
            }]
        );
    }

    #[test]
    fn documents_that_are_no_objects_are_refused() {
        let refused = |text: &str| sort([("c/a", text)], KindOrder::Install).unwrap_err().to_string();
        assert!(refused("a: [\n").starts_with("YAML parse error on c/a"));
        assert_eq!(
            refused("hello"),
            "YAML parse error on c/a: error unmarshaling JSON: while decoding JSON: \
             json: cannot unmarshal string into Go value of type util.SimpleHead"
        );
        assert!(
            refused("kind: []")
                .contains("cannot unmarshal array into Go struct field SimpleHead.kind of type string")
        );
        assert!(
            refused("metadata: {annotations: {a: {}}}")
                .contains("object into Go struct field .metadata.annotations")
        );
        assert!(
            sort(
                [("c/a", "metadata: {annotations: {a: ~}, namespace: []}")],
                KindOrder::Install
            )
            .is_ok()
        );
    }

    #[test]
    fn a_frame_names_the_source() {
        assert_eq!(
            frame("c/templates/a.yaml", "a: 1\n"),
            "---\n# Source: c/templates/a.yaml\na: 1\n\n"
        );
    }
}
