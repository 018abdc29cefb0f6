//! The compositions of this process as last seen: by the watch, or in the answers to our own writes.
//!
//! A pass reads from here instead of from the API server. The watch may lag behind our own last write, so the newer of
//! the two is kept.

use std::borrow::Cow;
use std::collections::{BTreeMap, HashMap, HashSet};
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use api::{Composition, CompositionDefinition, finalizers};
use cluster::{Item, trimmed};
use composition::is_governed;
use kube::core::{ApiResource, DynamicObject, DynamicResourceScope, ObjectMeta};
use kube::runtime::watcher::Event;
use kube::{Resource, ResourceExt as _};
use serde::de::Error as _;
use serde::{Deserialize, Deserializer};
use serde_json::Value;
use serde_json::value::RawValue;

use runtime::queue::{Grouped, Priority};
use tokio::time::Instant;

/// A composition's namespace and name.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Key {
    pub(crate) namespace: String,
    pub(crate) name: String,
}

/// The compositions of a namespace take turns with those of others.
impl Grouped for Key {
    fn group(&self) -> &str {
        &self.namespace
    }
}

impl Key {
    pub(crate) fn of(object: &DynamicObject) -> Self {
        Self {
            namespace: object.namespace().unwrap_or_default(),
            name: object.name_any(),
        }
    }

    pub(crate) fn of_composition(composition: &Composition) -> Self {
        Self {
            namespace: composition.namespace.clone(),
            name: composition.name.clone(),
        }
    }
}

impl std::fmt::Display for Key {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}/{}", self.namespace, self.name)
    }
}

/// What an event of the watch means for the queue.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum News {
    /// Reconcile it, with this priority.
    Look(Key, Priority),
    /// It was there before this process saw it: reconcile it, unless it seems to be in order.
    Listed(Key),
    /// It is gone, or belongs to another process now: forget it.
    Gone(Key),
}

/// How many bytes of JSON are kept of a composition, without its metadata. A larger one is read when a pass needs it:
/// metadata alone tells whether there is something to do.
const KEPT: usize = 16 << 10;

/// How many bytes of labels, annotations and finalizers are kept of a composition. If it has more, only those that this
/// product gives a meaning to are kept, up to the limit.
const KEPT_METADATA: usize = 4 << 10;

/// A composition as last seen.
#[derive(Debug, Clone)]
pub(crate) struct CachedComposition {
    /// The fields that every object has, without `managedFields` and `ownerReferences`.
    head: Arc<DynamicObject>,
    /// The others as JSON text: parsed values take ten times the memory, and most compositions are at rest. None when
    /// they are not kept.
    data: Option<Arc<str>>,
    /// The digest that [`told`] computes; it includes labels and annotations that are not kept.
    pub(crate) told: u64,
    /// When the watch last reported a change that needs a pass.
    changed: Option<Instant>,
}

/// For how long a change counts as recent: longer than it takes another replica to take over the shards of one that
/// died, when nobody handles changes.
const RECENTLY: Duration = Duration::from_mins(5);

impl CachedComposition {
    /// True when the watch has reported a change recently, which may have come while no replica held its shard.
    pub(crate) fn has_changed_recently(&self) -> bool {
        self.changed.is_some_and(|changed| changed.elapsed() < RECENTLY)
    }

    /// Its metadata, as far as it is kept.
    pub(crate) fn metadata(&self) -> &ObjectMeta {
        &self.head.metadata
    }

    /// The object, parsed on each call, and whether it is whole: if only part of it is kept, a pass has to read it.
    pub(crate) fn object(&self) -> (DynamicObject, bool) {
        let mut object = (*self.head).clone();
        let data = self
            .data
            .as_deref()
            .and_then(|text| serde_json::from_str(text).ok());
        let is_whole = data.is_some();
        object.data = data.unwrap_or_default();
        (object, is_whole)
    }

    fn of(item: Item<Trimmed>) -> Self {
        match item {
            Item::Read(Trimmed(cached)) => cached,
            Item::Unreadable(unreadable) => Self::of_object(DynamicObject {
                types: unreadable.types,
                metadata: unreadable.metadata,
                data: Value::Null,
            }),
        }
    }

    fn of_object(mut object: DynamicObject) -> Self {
        let told = told(object.labels(), object.annotations());
        let metadata = &mut object.metadata;
        // Nothing here reads them, and they can be a large part of an object.
        metadata.managed_fields = None;
        metadata.owner_references = None;
        let has_room = size(metadata) <= KEPT_METADATA;
        if !has_room {
            keep_ours(metadata);
        }
        let data = has_room.then(|| small(&object.data)).flatten();
        object.data = Value::Null;
        Self {
            head: Arc::new(object),
            data,
            told,
            changed: None,
        }
    }
}

/// The size of the labels, annotations and finalizers in bytes.
fn size(metadata: &ObjectMeta) -> usize {
    let entries = metadata.labels.iter().chain(&metadata.annotations).flatten();
    let entries = entries.map(|(name, value)| name.len() + value.len());
    let finalizers = metadata.finalizers.iter().flatten().map(String::len);
    entries.chain(finalizers).sum()
}

/// Keeps only the labels, annotations and finalizers that a pass needs before it reads the composition.
fn keep_ours(metadata: &mut ObjectMeta) {
    let mut room = KEPT_METADATA;
    let mut is_kept = |name: &str, value: &str| {
        let left = room.checked_sub(name.len() + value.len());
        let is_kept = is_ours(name) && left.is_some();
        if is_kept {
            room = left.unwrap_or_default();
        }
        is_kept
    };
    for entries in [&mut metadata.labels, &mut metadata.annotations]
        .into_iter()
        .flatten()
    {
        entries.retain(|name, value| is_kept(name, value));
    }
    if let Some(held) = &mut metadata.finalizers {
        let was_held = held.iter().any(|finalizer| finalizer == finalizers::COMPOSITION);
        *held = Vec::from_iter(was_held.then(|| finalizers::COMPOSITION.to_owned()));
    }
}

/// A digest of the labels and annotations that this product gives a meaning to.
pub(crate) fn told(labels: &BTreeMap<String, String>, annotations: &BTreeMap<String, String>) -> u64 {
    let mut hasher = DefaultHasher::new();
    for entries in [labels, annotations] {
        ours(entries).collect::<Vec<_>>().hash(&mut hasher);
    }
    hasher.finish()
}

/// A composition that is trimmed to the kept size while it is parsed: a page of a list stays in memory until all of it
/// is read, and parsed values take ten times the memory of their text.
#[derive(Debug, Clone)]
pub(crate) struct Trimmed(CachedComposition);

impl<'de> Deserialize<'de> for Trimmed {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let raw = Box::<RawValue>::deserialize(deserializer)?;
        let text = trimmed(&raw, KEPT).unwrap_or(raw);
        serde_json::from_str(text.get())
            .map(|object| Self(CachedComposition::of_object(object)))
            .map_err(|_| D::Error::custom("it is nested too deeply, or not an object"))
    }
}

impl Resource for Trimmed {
    type DynamicType = ApiResource;
    type Scope = DynamicResourceScope;

    fn kind(kind: &ApiResource) -> Cow<'_, str> {
        DynamicObject::kind(kind)
    }

    fn group(kind: &ApiResource) -> Cow<'_, str> {
        DynamicObject::group(kind)
    }

    fn version(kind: &ApiResource) -> Cow<'_, str> {
        DynamicObject::version(kind)
    }

    fn plural(kind: &ApiResource) -> Cow<'_, str> {
        DynamicObject::plural(kind)
    }

    fn meta(&self) -> &ObjectMeta {
        self.0.head.meta()
    }

    fn meta_mut(&mut self) -> &mut ObjectMeta {
        Arc::make_mut(&mut self.0.head).meta_mut()
    }
}

/// The JSON text of an object that is small enough to keep. One without a spec is not kept: the spec may have been
/// lost, as in the answer to a write of an object that is nested too deeply.
fn small(data: &Value) -> Option<Arc<str>> {
    data.get("spec")?;
    let mut room = Room(Vec::new());
    serde_json::to_writer(&mut room, data).ok()?;
    String::from_utf8(room.0).ok().map(Arc::from)
}

/// Keeps what is written, and fails when it is too much.
struct Room(Vec<u8>);

impl std::io::Write for Room {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        if self.0.len() + bytes.len() > KEPT {
            return Err(std::io::ErrorKind::StorageFull.into());
        }
        self.0.extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

/// The compositions, by key.
#[derive(Default)]
pub(crate) struct Compositions {
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    cached: HashMap<Key, CachedComposition>,
    /// The compositions seen so far in the list that is being read.
    listed: HashSet<Key>,
}

impl Compositions {
    /// The composition as last seen.
    pub(crate) fn get(&self, key: &Key) -> Option<CachedComposition> {
        self.lock().cached.get(key).cloned()
    }

    /// The compositions for which `is_so` returns true; it may look only at metadata.
    pub(crate) fn of(&self, is_so: impl Fn(&DynamicObject) -> bool) -> Vec<Key> {
        let state = self.lock();
        let found = state.cached.iter().filter(|(_, cached)| is_so(&cached.head));
        found.map(|(key, _)| key.clone()).collect()
    }

    /// The compositions that name this definition and, if the definition is one of their type, those that name none.
    pub(crate) fn governed_by(&self, definition: &CompositionDefinition, is_of_type: bool) -> Vec<Key> {
        self.of(|object| is_governed(object, definition, is_of_type))
    }

    /// Stores an event of the watch, and returns what there is to do about it.
    pub(crate) fn saw(&self, event: Event<Item<Trimmed>>) -> Vec<News> {
        let mut state = self.lock();
        match event {
            Event::Init => {
                state.listed.clear();
                Vec::new()
            }
            Event::InitApply(item) => {
                let cached = CachedComposition::of(item);
                state.listed.insert(Key::of(&cached.head));
                state.keep(cached, News::Listed).into_iter().collect()
            }
            Event::InitDone => {
                let listed = std::mem::take(&mut state.listed);
                let gone: Vec<Key> = state
                    .cached
                    .keys()
                    .filter(|key| !listed.contains(key))
                    .cloned()
                    .collect();
                gone.into_iter()
                    .map(|key| {
                        state.cached.remove(&key);
                        News::Gone(key)
                    })
                    .collect()
            }
            Event::Apply(item) => {
                let created = |key| News::Look(key, Priority::Low);
                state
                    .keep(CachedComposition::of(item), created)
                    .into_iter()
                    .collect()
            }
            Event::Delete(item) => {
                let key = Key::of(&CachedComposition::of(item).head);
                state.cached.remove(&key);
                vec![News::Gone(key)]
            }
        }
    }

    /// Stores the answer to one of our own writes. It causes no pass, since the writer already knows.
    pub(crate) fn wrote(&self, object: DynamicObject) {
        let mut state = self.lock();
        let key = Key::of(&object);
        // Without an entry, the composition has been forgotten in the meantime.
        if let Some(cached) = state.cached.get_mut(&key)
            && is_newer(&object, &cached.head)
        {
            *cached = CachedComposition::of_object(object);
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    /// `first` is the news about a composition that was not cached.
    fn keep(&mut self, mut new: CachedComposition, first: impl FnOnce(Key) -> News) -> Option<News> {
        let key = Key::of(&new.head);
        let news = match self.cached.get(&key) {
            None => Some(first(key.clone())),
            Some(cached) if !is_newer(&new.head, &cached.head) => return None,
            Some(cached) => {
                let priority = what_changed(cached, &new);
                new.changed = priority.map(|_| Instant::now()).or(cached.changed);
                priority.map(|priority| News::Look(key.clone(), priority))
            }
        };
        self.cached.insert(key, new);
        news
    }
}

/// True when `object` is a later state than `known`. Resource versions of one type are increasing numbers, which
/// Kubernetes guarantees from 1.35 on and did before; another object of the same name is always newer.
fn is_newer(object: &DynamicObject, known: &DynamicObject) -> bool {
    if object.metadata.uid != known.metadata.uid {
        return true;
    }
    let number = |object: &DynamicObject| object.resource_version()?.parse::<u64>().ok();
    match (number(object), number(known)) {
        (Some(object), Some(known)) => object > known,
        _ => object.resource_version() != known.resource_version(),
    }
}

/// The priority of a change between two states of a composition; none for a change that does not matter, such as one of
/// the status.
fn what_changed(old: &CachedComposition, new: &CachedComposition) -> Option<Priority> {
    let (was, is) = (old.metadata(), new.metadata());
    if was.uid != is.uid || was.generation != is.generation {
        return Some(Priority::High);
    }
    if was.deletion_timestamp.is_none() && is.deletion_timestamp.is_some() {
        return Some(Priority::High);
    }
    (old.told != new.told).then_some(Priority::Normal)
}

/// The labels or annotations that this product gives a meaning to, such as pauses.
fn ours(entries: &BTreeMap<String, String>) -> impl Iterator<Item = (&String, &String)> {
    entries.iter().filter(|(name, _)| is_ours(name))
}

fn is_ours(name: &str) -> bool {
    name.starts_with("krateo.io/")
}

#[cfg(test)]
mod tests {
    use api::CompositionDefinitionSpec;
    use api::definition::ChartSource;
    use serde_json::json;

    use super::*;

    fn object(version: u64, change: serde_json::Value) -> DynamicObject {
        let mut object = json!({
            "apiVersion": "composition.krateo.io/v1-0-0",
            "kind": "Web",
            "metadata": {
                "name": "web", "namespace": "team", "uid": "1", "generation": 1,
                "resourceVersion": version.to_string(), "managedFields": [{"manager": "kubectl"}],
            },
        });
        if let (Some(metadata), serde_json::Value::Object(change)) =
            (object["metadata"].as_object_mut(), change)
        {
            metadata.extend(change);
        }
        serde_json::from_value(object).unwrap()
    }

    fn item(version: u64, change: serde_json::Value) -> Item<Trimmed> {
        read(&object(version, change))
    }

    /// The object as a watch reads it.
    fn read(object: &DynamicObject) -> Item<Trimmed> {
        serde_json::from_str(&json!(object).to_string()).unwrap()
    }

    fn key() -> Key {
        Key::of(&object(1, json!({})))
    }

    fn look(priority: Priority) -> Vec<News> {
        vec![News::Look(key(), priority)]
    }

    /// Checks the priority of a watch event with this change to the default object.
    fn check(change: serde_json::Value, expected: Option<Priority>) {
        let compositions = Compositions::default();
        assert_eq!(
            compositions.saw(Event::Apply(item(1, json!({})))),
            look(Priority::Low)
        );
        let news = compositions.saw(Event::Apply(item(2, change)));
        assert_eq!(news, expected.map(look).unwrap_or_default());
    }

    #[test]
    fn a_changed_spec_or_a_deletion_is_urgent_and_a_changed_status_is_ignored() {
        check(json!({}), None);
        check(json!({"generation": 2}), Some(Priority::High));
        check(
            json!({"deletionTimestamp": "2026-01-01T00:00:00Z"}),
            Some(Priority::High),
        );
        check(
            json!({"annotations": {"krateo.io/paused": "true"}}),
            Some(Priority::Normal),
        );
        check(
            json!({"labels": {"krateo.io/release-name": "other"}}),
            Some(Priority::Normal),
        );
        check(
            json!({"labels": {"team": "a"}, "annotations": {"note": "b"}}),
            None,
        );
        check(json!({"finalizers": ["somebody.else/s"]}), None);
    }

    #[tokio::test(start_paused = true)]
    async fn a_change_is_recent_for_minutes_or_until_a_pass_has_written() {
        let compositions = Compositions::default();
        let is_recent = || compositions.get(&key()).unwrap().has_changed_recently();
        compositions.saw(Event::InitApply(item(1, json!({}))));
        assert!(!is_recent());
        compositions.saw(Event::Apply(item(2, json!({"generation": 2}))));
        // Another replica writes the status.
        compositions.saw(Event::Apply(item(3, json!({"generation": 2}))));
        assert!(is_recent());
        tokio::time::advance(RECENTLY).await;
        assert!(!is_recent());
        compositions.saw(Event::Apply(item(
            4,
            json!({"annotations": {"krateo.io/paused": "true"}}),
        )));
        assert!(is_recent());
        compositions.wrote(object(5, json!({"annotations": {"krateo.io/paused": "true"}})));
        assert!(!is_recent());
    }

    #[test]
    fn a_definition_governs_what_names_it_and_what_names_none_of_its_type() {
        let compositions = Compositions::default();
        let labels = |namespace: &str| {
            json!({"labels": {
                "krateo.io/composition-definition-namespace": namespace,
                "krateo.io/composition-definition-name": "web",
            }})
        };
        let spec = CompositionDefinitionSpec {
            chart: ChartSource::default(),
        };
        let mut definition = CompositionDefinition::new("web", spec);
        definition.metadata.namespace = Some("team".to_owned());
        let check = |version: u64, change: serde_json::Value, of_type: bool, other: bool| {
            compositions.saw(Event::Apply(item(version, change)));
            let governed = |is_of_type| !compositions.governed_by(&definition, is_of_type).is_empty();
            assert_eq!((governed(true), governed(false)), (of_type, other));
        };
        check(1, json!({}), true, false);
        check(2, labels("team"), true, true);
        check(3, labels("other"), false, false);
    }

    #[test]
    fn an_older_state_does_not_replace_what_we_wrote() {
        let compositions = Compositions::default();
        compositions.saw(Event::Apply(item(1, json!({}))));
        compositions.wrote(object(5, json!({"finalizers": ["ours"]})));
        assert!(compositions.saw(Event::Apply(item(4, json!({})))).is_empty());
        let cached = compositions.get(&key()).unwrap();
        assert_eq!(cached.head.finalizers(), ["ours"]);
        assert!(cached.metadata().managed_fields.is_none());
    }

    /// The object, with a string of that length in its spec.
    fn with_spec(version: u64, length: usize) -> DynamicObject {
        let mut object = object(version, json!({}));
        object.data["spec"] = json!({"text": "x".repeat(length)});
        object
    }

    #[test]
    fn only_metadata_is_kept_of_a_large_composition() {
        let compositions = Compositions::default();
        let is_whole = |object: DynamicObject| {
            compositions.saw(Event::Apply(read(&object)));
            let cached = compositions.get(&key()).unwrap();
            let (object, is_whole) = cached.object();
            assert_eq!(object.data.get("spec").is_some(), is_whole);
            is_whole
        };
        let is_kept_whole = || compositions.get(&key()).unwrap().object().1;
        assert!(is_whole(with_spec(1, KEPT - 100)));
        assert!(!is_whole(with_spec(2, KEPT)));
        assert!(is_whole(with_spec(3, 1)));
        compositions.wrote(with_spec(4, KEPT));
        assert!(!is_kept_whole());
        // The answer to a write of an object that is nested too deeply.
        compositions.wrote(object(5, json!({})));
        assert!(!is_kept_whole());
    }

    #[test]
    fn a_kept_composition_is_what_was_read() {
        let compositions = Compositions::default();
        let mut written = object(1, json!({"labels": {"team": "a"}}));
        written.data = json!({
            "spec": {"replicas": 3, "share": 0.1, "large": 18_446_744_073_709_551_615_u64, "text": "\u{0}é\"", "none": null},
            "status": {"conditions": [{"type": "Ready", "status": "True"}], "managed": []},
            "other": [],
        });
        for wrote in [false, true] {
            if wrote {
                written.metadata.resource_version = Some("2".to_owned());
                written.data["spec"]["replicas"] = json!(4);
                compositions.wrote(written.clone());
            } else {
                compositions.saw(Event::Apply(read(&written)));
            }
            let (kept, is_whole) = compositions.get(&key()).unwrap().object();
            assert!(is_whole);
            assert_eq!((&kept.data, kept.labels()), (&written.data, written.labels()));
        }
    }

    #[test]
    fn little_is_kept_of_compositions_with_much_metadata() {
        let compositions = Compositions::default();
        let entries = |prefix: &str| -> BTreeMap<String, String> {
            (0..1_250)
                .map(|number| (format!("{prefix}{number}"), "x".repeat(100)))
                .collect()
        };
        let written = |number: usize, note: &str| {
            let mut annotations = entries("krateo.io/note-");
            annotations.insert("krateo.io/zz".to_owned(), note.repeat(200));
            let mut labels = entries("example.org/");
            labels.insert("krateo.io/release-name".to_owned(), "web".to_owned());
            let mut object = object(1, json!({"labels": labels, "annotations": annotations}));
            object.metadata.name = Some(number.to_string());
            object.metadata.finalizers = Some(vec![
                "example.org/a".repeat(1_000),
                finalizers::COMPOSITION.to_owned(),
            ]);
            object.data["spec"] = json!({});
            object
        };
        for number in 0..100 {
            compositions.saw(Event::Apply(read(&written(number, "a"))));
        }
        let kept: usize = compositions
            .lock()
            .cached
            .values()
            .map(|cached| json!(cached.object().0).to_string().len())
            .sum();
        assert!(kept < 100 * 2 * KEPT_METADATA, "{kept} bytes are kept");

        let key = Key::of(&written(7, "a"));
        let cached = compositions.get(&key).unwrap();
        let (kept, is_whole) = cached.object();
        assert!(!is_whole);
        assert_eq!(kept.labels()["krateo.io/release-name"], "web");
        assert_eq!(kept.finalizers(), [finalizers::COMPOSITION]);
        // A change of one of our annotations is news even if that annotation is not kept.
        assert!(!kept.annotations().contains_key("krateo.io/zz"));
        // The same digest as a pass computes that reads the whole object.
        let whole = written(7, "a");
        let kind = ApiResource {
            group: "composition.krateo.io".to_owned(),
            version: "v1-0-0".to_owned(),
            api_version: "composition.krateo.io/v1-0-0".to_owned(),
            kind: "Web".to_owned(),
            plural: "webs".to_owned(),
        };
        let whole = Composition::read(whole, &kind).unwrap();
        assert_eq!(told(&whole.labels, &whole.annotations), cached.told);
        let kept = Composition::read(kept, &kind).unwrap();
        assert_ne!(told(&kept.labels, &kept.annotations), cached.told);
        let mut changed = written(7, "b");
        changed.metadata.resource_version = Some("2".to_owned());
        assert_eq!(
            compositions.saw(Event::Apply(read(&changed))),
            [News::Look(key, Priority::Normal)]
        );
        changed.metadata.resource_version = Some("3".to_owned());
        changed.metadata.owner_references = Some(Vec::new());
        assert!(compositions.saw(Event::Apply(read(&changed))).is_empty());
    }

    #[test]
    fn an_unreadable_composition_is_known_and_does_not_break_the_list() {
        let compositions = Compositions::default();
        let deep = format!("{}{}", "[".repeat(9_999), "]".repeat(9_999));
        let text = json!(object(1, json!({}))).to_string();
        let text = text.replacen('{', &format!("{{\"spec\":{deep},"), 1);
        let item: Item<Trimmed> = serde_json::from_str(&text).unwrap();
        compositions.saw(Event::Init);
        assert_eq!(
            compositions.saw(Event::InitApply(item.clone())),
            [News::Listed(key())]
        );
        assert!(compositions.saw(Event::InitDone).is_empty(), "it is not gone");
        let cached = compositions.get(&key()).unwrap();
        assert!(!cached.object().1);
        assert_eq!(cached.metadata().uid.as_deref(), Some("1"));
        assert_eq!(compositions.saw(Event::Delete(item)), [News::Gone(key())]);
    }

    #[test]
    fn what_changed_between_two_lists_is_news_and_what_did_not_is_not() {
        let compositions = Compositions::default();
        let list = |item: Item<Trimmed>| {
            compositions.saw(Event::Init);
            let news = compositions.saw(Event::InitApply(item));
            compositions.saw(Event::InitDone);
            news
        };
        assert_eq!(list(item(1, json!({}))), [News::Listed(key())]);
        assert!(list(item(1, json!({}))).is_empty());
        assert_eq!(list(item(2, json!({"generation": 2}))), look(Priority::High));
    }

    #[test]
    fn a_composition_missing_from_a_new_list_is_gone() {
        let compositions = Compositions::default();
        compositions.saw(Event::Apply(item(1, json!({}))));
        compositions.saw(Event::Init);
        assert_eq!(compositions.saw(Event::InitDone), [News::Gone(key())]);
        assert!(compositions.get(&key()).is_none());
        compositions.wrote(object(9, json!({})));
        assert!(compositions.get(&key()).is_none());
    }

    #[test]
    fn another_object_of_the_same_name_is_new() {
        check(json!({"uid": "2", "resourceVersion": "1"}), Some(Priority::High));
    }
}
