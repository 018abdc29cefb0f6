//! [`IncludeCache`]: outputs of included templates, so that the same include with the same data is not executed twice.
//!
//! Charts keep their labels, names and selectors in templates, and each file includes them several times with the same data. The
//! output of such a template depends on its data alone, as long as it modifies nothing and calls no function with changing results.
//! An execution is watched for both; see [`changes`](crate::changes). A cached output costs the same budget as executing it.

use std::{
    cell::{Cell, RefCell},
    collections::HashMap,
    fmt,
};

use crate::{
    ast::Tree,
    budget::Spent,
    changes::{self, NEVER, Time},
    string::Str,
    value::Value,
};

/// Outputs kept per template.
const MAX_PER_TEMPLATE: usize = 8;
/// Bytes of output added until all are dropped.
const MAX_BYTES: usize = 1 << 20;

/// Outputs of the templates of one set, shared by the executions of one render on one thread.
#[derive(Default)]
pub struct IncludeCache {
    /// By the template's address, oldest first.
    outputs: RefCell<HashMap<usize, Vec<Output>>>,
    bytes: Cell<usize>,
}

struct Output {
    text: Str,
    data: Value,
    /// When its execution started.
    start: Time,
    cost: Cost,
}

/// What an execution took.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Cost {
    pub(crate) steps: u64,
    pub(crate) memory: usize,
    /// How deeply templates were nested in it.
    pub(crate) depth: usize,
}

impl Cost {
    /// The difference between two states of a budget.
    pub(crate) fn between(before: Spent, after: Spent, depth: usize) -> Self {
        Self {
            steps: after.steps.saturating_sub(before.steps),
            memory: after.memory.saturating_sub(before.memory),
            depth,
        }
    }
}

impl IncludeCache {
    /// The output of a template for equal data.
    pub(crate) fn get(&self, tree: &Tree, data: &Value) -> Option<(Str, Cost)> {
        self.remove_stale();
        let outputs = self.outputs.borrow();
        let known = outputs.get(&address(tree))?;
        let output = known.iter().rev().find(|known| known.data.looks_equal(data))?;
        Some((output.text.clone(), output.cost))
    }

    /// Adds the output of an execution that started at `start`.
    pub(crate) fn add(&self, tree: &Tree, data: Value, text: Str, start: Time, cost: Cost) {
        if text.len() > MAX_BYTES {
            return;
        }
        self.remove_stale();
        let mut outputs = self.outputs.borrow_mut();
        if self.bytes.get() + text.len() > MAX_BYTES {
            outputs.clear();
            self.bytes.set(0);
        }
        self.bytes.set(self.bytes.get() + text.len());
        let known = outputs.entry(address(tree)).or_default();
        if known.len() == MAX_PER_TEMPLATE {
            known.remove(0);
        }
        known.push(Output {
            text,
            data,
            start,
            cost,
        });
    }

    /// Removes the outputs of executions that may have read a map that was modified since.
    fn remove_stale(&self) {
        let oldest = changes::take_oldest();
        if oldest == NEVER {
            return;
        }
        for known in self.outputs.borrow_mut().values_mut() {
            known.retain(|output| output.start <= oldest);
        }
    }
}

fn address(tree: &Tree) -> usize {
    std::ptr::from_ref(tree).addr()
}

impl fmt::Debug for IncludeCache {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("IncludeCache")
            .field("bytes", &self.bytes.get())
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    };

    use super::*;
    use crate::{
        budget::{Budget, Limits},
        exec::Options,
        function::{Call, Error, Functions},
        set::Set,
        value::Map,
    };

    /// Templates with the functions `include`, `set`, `dict` (of one entry), `count`, which counts its calls, and `draw`, which
    /// returns another number each time.
    struct Trial {
        set: Set,
        calls: Arc<AtomicU64>,
        drawn: Arc<AtomicU64>,
    }

    impl Trial {
        fn new(templates: &str) -> Self {
            let (calls, drawn) = (Arc::<AtomicU64>::default(), Arc::<AtomicU64>::default());
            let mut functions = Functions::default();
            functions.add(
                "include",
                |call: &mut Call, name: Str, data: Value| -> Result<Str, Error> { call.execute(&name, data) },
            );
            functions.add("set", |map: Map, key: Str, value: Value| -> Map {
                map.insert(key, value);
                map
            });
            functions.add("dict", |key: Str, value: Value| -> Map {
                [(key, value)].into_iter().collect()
            });
            let counted = calls.clone();
            functions.add("count", move || counted.fetch_add(1, Ordering::Relaxed) as i64);
            let source = drawn.clone();
            functions.add("draw", move || source.fetch_add(1, Ordering::Relaxed) as i64);
            let mut set = Set::new("main", functions);
            set.parse("file", templates).unwrap();
            Self { set, calls, drawn }
        }

        /// The output of two executions of the file, and the number of calls of `count`.
        fn run(&self, dot: &Map) -> (String, u64) {
            let cache = IncludeCache::default();
            let budget = Budget::new(Limits::default());
            let host_changes = || self.drawn.load(Ordering::Relaxed);
            let options = Options {
                include_cache: Some(&cache),
                host_changes: Some(&host_changes),
                budget: Some(&budget),
                ..Options::default()
            };
            let mut text = String::new();
            for file in ["one", "two"] {
                dot.insert_volatile("file", file);
                let out = self.set.execute("file", Value::Map(dot.clone()), &options);
                text.push_str(&String::from_utf8(out.unwrap()).unwrap());
            }
            self.check_budget(dot, budget.spent());
            (text, self.calls.load(Ordering::Relaxed))
        }

        /// Without a cache the same is spent.
        fn check_budget(&self, dot: &Map, spent: Spent) {
            let calls = self.calls.load(Ordering::Relaxed);
            let budget = Budget::new(Limits::default());
            let options = Options {
                budget: Some(&budget),
                ..Options::default()
            };
            for _ in ["one", "two"] {
                let out = self.set.execute("file", Value::Map(dot.clone()), &options);
                out.unwrap();
            }
            self.calls.store(calls, Ordering::Relaxed);
            assert_eq!(budget.spent(), spent);
        }
    }

    fn dot() -> Map {
        let values: Map = [("a", 1)]
            .into_iter()
            .map(|(key, n)| (key, Value::Int(n)))
            .collect();
        [("values", values)].into_iter().collect()
    }

    fn check(templates: &str, text: &str, calls: u64) {
        assert_eq!(
            Trial::new(templates).run(&dot()),
            (text.to_owned(), calls),
            "{templates}"
        );
    }

    #[test]
    fn a_template_is_executed_once_for_equal_data() {
        check(
            r#"{{define "t"}}{{count}}{{.values.a}}{{end}}{{include "t" .}}{{include "t" .}}{{template "t" .}};"#,
            "010101;010101;",
            1,
        );
        check(
            r#"{{define "t"}}{{count}}{{.x.values.a}}{{end}}{{include "t" (dict "x" .)}}{{include "t" (dict "x" .)}};"#,
            "0101;0101;",
            1,
        );
        check(
            r#"{{define "t"}}{{count}}{{.y}}{{end}}{{include "t" (dict "y" 1)}}{{include "t" (dict "y" 2)}};"#,
            "0112;0112;",
            2,
        );
    }

    #[test]
    fn long_strings_are_equal_only_if_they_are_the_same() {
        let text = |length| Value::String("x".repeat(length).into());
        assert!(text(256).looks_equal(&text(256)));
        assert!(!text(257).looks_equal(&text(257)));
        let long = text(257);
        assert!(long.looks_equal(&long.clone()));
    }

    #[test]
    fn outputs_that_may_change_are_not_cached() {
        check(
            r#"{{define "t"}}{{count}}{{.values.a}}{{end}}{{include "t" .}}{{$_ := set .values "a" 2}}{{include "t" .}};"#,
            "0112;1222;",
            3,
        );
        check(
            r#"{{define "t"}}{{count}}{{$_ := set .values "a" 2}}{{end}}{{include "t" .}}{{include "t" .}};"#,
            "01;23;",
            4,
        );
        check(
            r#"{{define "t"}}{{draw}}{{end}}{{include "t" .}}{{include "t" .}};"#,
            "01;23;",
            0,
        );
        check(
            r#"{{define "t"}}{{.file}}{{end}}{{include "t" .}};"#,
            "one;two;",
            0,
        );
        check(
            r#"{{define "t"}}{{range $k, $v := .}}{{if eq $k "file"}}{{$v}}{{end}}{{end}}{{end}}{{include "t" .}};"#,
            "one;two;",
            0,
        );
    }

    #[test]
    fn a_template_may_modify_maps_that_it_creates() {
        check(
            r#"{{define "t"}}{{count}}{{$d := dict "a" 1}}{{$_ := set $d "a" .values.a}}{{$d.a}}{{end}}{{include "t" .}}{{include "t" .}};"#,
            "0101;0101;",
            1,
        );
    }
}
