//! A hostile template ends in an error, and leaves nothing behind.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod oracle;

use std::{cell::Cell, rc::Rc, thread, time::Duration};

use gotemplate::{
    exec::{Budget, Error, Limit, Limits, Options},
    format,
    function::{self, Call, Functions},
    set::Set,
    string::Str,
    types,
    value::{CycleGuard, List, Map, Object, TooDeep, Value},
};

fn execute(text: &str, limits: Limits) -> Result<Vec<u8>, Error> {
    let mut set = Set::new("main", oracle::functions());
    set.parse("test", text).unwrap();
    set.execute(
        "test",
        Value::map(),
        &Options {
            limits,
            ..Options::default()
        },
    )
}

fn check(text: &str, limits: Limits, expected: Limit) {
    let error = execute(text, limits).unwrap_err();
    assert_eq!(error.limit(), Some(expected), "{text}: {error}");
}

#[test]
fn templates_that_call_themselves_are_stopped_by_depth_or_stack() {
    let depth = Limits {
        depth: 20,
        ..Limits::default()
    };
    let stack = Limits {
        stack: 300_000,
        ..Limits::default()
    };
    for text in [
        r#"{{ define "t" }}{{ template "t" }}{{ end }}{{ template "t" }}"#,
        r#"{{ define "t" }}{{ include "t" . }}{{ end }}{{ include "t" . }}"#,
        r#"{{ $t := "{{ tpl . . }}" }}{{ tpl $t $t }}"#,
    ] {
        check(text, depth, Limit::Depth(20));
        check(text, stack, Limit::Stack(300_000));
    }
}

/// Like the error of Helm's `tpl`: an error of the host that wraps the cause.
#[derive(Debug, thiserror::Error)]
#[error("in the host's words: {0}")]
struct Wrapped(#[source] function::Error);

#[test]
fn a_limit_is_found_behind_the_error_of_a_function() {
    let mut functions = Functions::default();
    functions.add("run", |call: &mut Call, text: Str| {
        call.execute_text(&text, Value::Nil)
            .map_err(|error| function::Error::from_error(Wrapped(error)))
    });
    let mut set = Set::new("main", functions);
    set.parse("test", r#"{{ run "{{ range 1000 }}{{ end }}" }}"#)
        .unwrap();
    let limits = Limits {
        steps: 100,
        ..Limits::default()
    };
    let options = Options {
        limits,
        ..Options::default()
    };
    let error = set.execute("test", Value::Nil, &options).unwrap_err();
    assert_eq!(error.limit(), Some(Limit::Steps(100)), "{error}");
}

#[test]
fn output_is_stopped_while_it_grows() {
    let limits = Limits {
        output: 10_000,
        ..Limits::default()
    };
    check(
        "{{ range 1000000 }}0123456789{{ end }}",
        limits,
        Limit::Output(10_000),
    );
    let nested = r#"{{ define "t" }}{{ range 1000000 }}0123456789{{ end }}{{ end }}{{ include "t" . }}"#;
    check(nested, limits, Limit::Output(10_000));
    check(r#"{{ printf "%20000d" 1 }}"#, limits, Limit::Output(10_000));
}

#[test]
fn steps_are_counted_in_empty_loops_too() {
    let limits = Limits {
        steps: 10_000,
        ..Limits::default()
    };
    check(
        "{{ range 9223372036854775807 }}{{ end }}",
        limits,
        Limit::Steps(10_000),
    );
    check(
        "{{ range 1000 }}{{ range 1000 }}{{ $x := 1 }}{{ end }}{{ end }}",
        limits,
        Limit::Steps(10_000),
    );
}

#[test]
fn what_functions_create_is_counted() {
    let limits = Limits {
        memory: 1 << 20,
        ..Limits::default()
    };
    let expected = Limit::Memory(1 << 20);
    check(
        "{{ $x := print 1 }}{{ range 40 }}{{ $x = print $x $x }}{{ end }}",
        limits,
        expected,
    );
    check(
        "{{ $x := print 1 }}{{ range 40 }}{{ $x = any (print $x $x) }}{{ end }}",
        limits,
        expected,
    );
    check(
        "{{ $x := list }}{{ range 100000 }}{{ $x = list $x 1 2 3 4 5 6 7 8 9 }}{{ end }}",
        limits,
        expected,
    );
    let held = r#"{{ $x := repeat 1000 "x" }}{{ range 100000 }}{{ $y := any $x }}{{ end }}"#;
    assert!(execute(held, limits).is_ok());
}

#[test]
fn long_texts_and_large_maps_take_more_steps_than_short_ones() {
    let limits = Limits {
        steps: 1000,
        ..Limits::default()
    };
    let texts = |length: usize| {
        format!("{{{{ $x := repeat {length} \"x\" }}}}{{{{ range 20 }}}}{{{{ $y := any $x }}}}{{{{ end }}}}")
    };
    assert!(execute(&texts(100), limits).is_ok());
    check(&texts(10_000), limits, Limit::Steps(1000));
    check(
        r#"{{ $x := repeat 10000 "x" }}{{ range 20 }}{{ $y := eq $x "y" }}{{ end }}"#,
        limits,
        Limit::Steps(1000),
    );

    let entries = (0..1000).map(|i| (format!("{i}"), Value::Int(i)));
    let data = Value::Map(entries.collect());
    let mut set = Set::new("main", oracle::functions());
    set.parse("test", "{{ range 20 }}{{ range $ }}{{ break }}{{ end }}{{ end }}")
        .unwrap();
    let options = Options {
        limits,
        ..Options::default()
    };
    let error = set.execute("test", data, &options).unwrap_err();
    assert_eq!(error.limit(), Some(Limit::Steps(1000)));
}

#[test]
fn executions_share_a_budget() {
    let mut set = Set::new("main", oracle::functions());
    set.parse("test", "0123456789{{ range 100 }}{{ $x := list 1 2 3 }}{{ end }}")
        .unwrap();
    let budget = |limits| Budget::new(limits);
    let until_it_fails = |budget: &Budget<'_>| {
        let options = Options {
            budget: Some(budget),
            ..Options::default()
        };
        let fails = |times: &usize| match set.execute("test", Value::Nil, &options) {
            Ok(_) => false,
            Err(error) => {
                assert_eq!(error.context().unwrap().location.line, 1, "{times}: {error}");
                true
            }
        };
        (0..100).find(fails)
    };
    let one = budget(Limits::default());
    let options = Options {
        budget: Some(&one),
        ..Options::default()
    };
    set.execute("test", Value::Nil, &options).unwrap();
    let spent = one.spent();
    assert_eq!(spent.output, 10);
    assert!((300..1000).contains(&spent.steps), "{spent:?}");
    assert!(spent.memory >= 100 * 3 * size_of::<Value>(), "{spent:?}");
    for limits in [
        Limits {
            steps: 5 * spent.steps,
            ..Limits::default()
        },
        Limits {
            memory: 5 * spent.memory,
            ..Limits::default()
        },
        Limits {
            output: 5 * spent.output,
            ..Limits::default()
        },
    ] {
        assert_eq!(until_it_fails(&budget(limits)), Some(5), "{limits:?}");
    }
}

#[test]
fn time_is_over_when_the_caller_says_so() {
    let asked = Cell::new(0);
    let is_over = || {
        asked.set(asked.get() + 1);
        asked.get() > 10
    };
    let allowed = Duration::from_secs(10);
    let budget = Budget::new(Limits::default()).until(allowed, &is_over);
    let mut set = Set::new("main", oracle::functions());
    set.parse("test", "\n\n{{ range 1000000 }}\n{{ end }}").unwrap();
    let options = Options {
        budget: Some(&budget),
        ..Options::default()
    };
    let error = set.execute("test", Value::Nil, &options).unwrap_err();
    assert_eq!(error.limit(), Some(Limit::Time(allowed)));
    assert!(budget.spent().steps < 50_000, "{budget:?}");
    let location = &error.context().unwrap().location;
    assert!((3..=4).contains(&location.line), "{location}");
}

#[test]
fn a_function_cannot_swallow_an_exceeded_limit() {
    let mut functions = oracle::functions();
    functions.add("take", |call: &mut Call, bytes: i64| {
        call.take_memory(bytes as usize).is_ok()
    });
    functions.add("check", |call: &mut Call, bytes: i64| {
        call.check_memory(bytes as usize).is_ok()
    });
    functions.add("work", |call: &mut Call, steps: i64| {
        call.take_steps(steps as u64).is_ok()
    });
    let limits = Limits {
        memory: 1000,
        steps: 1000,
        ..Limits::default()
    };
    for (call, expected) in [
        ("take 1001", Limit::Memory(1000)),
        ("check 1001", Limit::Memory(1000)),
        ("work 1001", Limit::Steps(1000)),
    ] {
        let mut set = Set::new("main", functions.clone());
        set.parse(
            "test",
            format!("{{{{ if {call} }}}}{{{{ end }}}}\n{{{{ print 1 }}}}"),
        )
        .unwrap();
        let options = Options {
            limits,
            ..Options::default()
        };
        let error = set.execute("test", Value::Nil, &options).unwrap_err();
        assert_eq!(error.limit(), Some(expected), "{call}");
    }
}

#[test]
fn a_value_is_weighed_with_all_that_is_in_it() {
    let text = |text: &str| Value::from(text);
    let map: Map = [
        ("key", Value::list([text("abc"), text("de")])),
        ("b", Value::Int(1)),
    ]
    .into_iter()
    .collect();
    let weight = Value::Map(map.clone()).weight(usize::MAX);
    assert_eq!(
        (weight.values, weight.bytes, weight.depth),
        (5, 3 + 1 + 3 + 2, 1 + 1 + 2 + 2)
    );
    let frozen = Value::Map(Map::frozen(map.freeze()));
    assert_eq!(frozen.weight(usize::MAX), weight);
    assert_eq!(frozen.own_weight(usize::MAX).values, 1);
    // Lists that hold the same list twice, level upon level.
    let mut list = Value::list([]);
    for _ in 0..100 {
        list = Value::list([list.clone(), list]);
    }
    assert!(list.weight(10_000).text() > 10_000);
}

#[test]
fn nesting_in_the_text_is_stopped_by_the_parser() {
    let deep = |open: &str, close: &str| format!("{}{}", open.repeat(100_000), close.repeat(100_000));
    for text in [
        format!("{{{{ {} }}}}", deep("(", ")")),
        deep("{{ if true }}", "{{ end }}"),
        format!(
            "{{{{ if false }}}}{}{{{{ end }}}}",
            "{{ else if false }}".repeat(100_000)
        ),
        deep(r#"{{ block "x" . }}"#, "{{ end }}"),
    ] {
        let error = Set::new("main", oracle::functions())
            .parse("test", text)
            .unwrap_err();
        assert!(
            error.message.starts_with("max ") && error.message.ends_with(" depth exceeded"),
            "{error}"
        );
    }
}

#[test]
fn a_map_that_contains_itself_is_an_error_and_is_freed() {
    let alive = Rc::new(());
    {
        let _guard = CycleGuard::new();
        let map = Map::new();
        map.insert("witness", Value::object(Witness(alive.clone())));
        let data = Value::Map(map);
        let mut set = Set::new("main", oracle::functions());
        set.parse(
            "test",
            r#"{{ $_ := set . "self" . }}{{ $_ := set . "list" (list .) }}{{ .self.self.list | len }}"#,
        )
        .unwrap();
        assert_eq!(
            set.execute("test", data.clone(), &Options::default()).unwrap(),
            b"1"
        );
        set.parse("print", "{{ . }}").unwrap();
        let error = set
            .execute("print", data.clone(), &Options::default())
            .unwrap_err();
        assert!(
            error
                .to_string()
                .ends_with("value is nested too deeply, does it contain itself?"),
            "{error}"
        );
        assert_eq!(data.deep_copy().unwrap_err(), TooDeep);
        assert_eq!(Rc::strong_count(&alive), 2);
    }
    assert_eq!(Rc::strong_count(&alive), 1);
}

struct Witness(#[expect(dead_code, reason = "is only held")] Rc<()>);

impl Object for Witness {
    fn ty(&self) -> &'static types::Type {
        static WITNESS: types::Type = types::Type::structure("Witness");
        &WITNESS
    }

    fn as_any(&self) -> &dyn std::any::Any {
        self
    }
}

#[test]
fn values_nested_a_million_deep_are_dropped_without_recursion() {
    let mut list = Value::Nil;
    for _ in 0..1_000_000 {
        // The list is held twice, so that neither reference is the only one.
        list = Value::list([list.clone(), list]);
    }
    drop(list);
    let mut map = Value::Nil;
    for _ in 0..1_000_000 {
        map = Value::Map([("a", map.clone()), ("b", map)].into_iter().collect());
    }
    drop(map);
    let text = "{{ $x := list }}{{ range 100000 }}{{ $x = list $x }}{{ end }}{{ len $x }}";
    assert_eq!(execute(text, Limits::default()).unwrap(), b"1");
}

#[test]
fn values_that_grow_exponentially_are_an_error() {
    let text = "{{ $x := list 1 }}{{ range 64 }}{{ $x = list $x $x }}{{ end }}{{ $x }}";
    let error = execute(text, Limits::default()).unwrap_err();
    assert!(
        error.to_string().ends_with("text is too long to be printed"),
        "{error}"
    );
    let double = || {
        let mut list = Value::from(List::nil(&types::LIST));
        for _ in 0..64 {
            list = Value::list([list.clone(), list]);
        }
        list
    };
    assert!(double().deep_equal(&double()).is_err());
    assert!(double().deep_copy().is_err());
    assert!(gotemplate::json::to_json(&double()).is_err());
    assert!(gotemplate::json::marshal(&double(), gotemplate::json::Layout::default()).is_err());
    assert!(format::to_string(&double()).is_err());
}

#[test]
fn a_set_is_shared_between_threads() {
    let mut set = Set::new("main", oracle::functions());
    set.parse("test", r#"{{ range $i := 100 }}{{ tpl "{{ . }}," $i }}{{ end }}"#)
        .unwrap();
    let expected: Vec<u8> = (0..100).flat_map(|i| format!("{i},").into_bytes()).collect();
    thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                assert_eq!(
                    set.execute("test", Value::Nil, &Options::default()).unwrap(),
                    expected
                );
            });
        }
    });
}
