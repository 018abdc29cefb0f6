//! The functions and data of `go/oracle`, implemented for this engine.

#![allow(dead_code, reason = "not every test uses everything")]
#![allow(clippy::unwrap_used, reason = "only tests use it")]

use std::{any::Any, sync::LazyLock};

use gotemplate::{
    exec::{MissingKey, Options},
    format,
    function::{Bytes, Call, Concrete, Error, Function, Functions, Int64, Receiver, Rest},
    json::{self, Numbers},
    set::Set,
    string::Str,
    types::{self, Type},
    value::{CycleGuard, List, Map, Object, Value},
};

/// One template to execute.
#[derive(Debug, Default, Clone)]
pub struct Case {
    pub data: String,
    pub missing_key: String,
}

impl Case {
    /// The output, or the text of the error.
    pub fn run(&self, text: &[u8]) -> Result<Vec<u8>, String> {
        let _guard = CycleGuard::new();
        let mut set = Set::new("main", functions());
        set.parse("test", text).map_err(|error| error.to_string())?;
        let data = match self.data.as_str() {
            "T" => Value::object(T {
                ptr: Value::object(U {
                    v: "p",
                    pointer: true,
                }),
            }),
            "" => Value::Nil,
            json => json::from_json(serde_json::from_str(json).unwrap(), Numbers::Float64),
        };
        let missing_key = match self.missing_key.as_str() {
            "default" => MissingKey::Invalid,
            "error" => MissingKey::Error,
            _ => MissingKey::Zero,
        };
        set.execute(
            "test",
            data,
            &Options {
                missing_key,
                ..Options::default()
            },
        )
        .map_err(|error| error.to_string())
    }
}

/// The printed parse tree, or the text of the error.
pub fn tree(text: &[u8]) -> Result<Vec<u8>, String> {
    let mut functions = functions();
    for name in include_str!("../go/oracle/helm.txt").lines() {
        functions.add(name, || "");
    }
    let mut set = Set::new("main", functions);
    set.parse("test", text).map_err(|error| error.to_string())?;
    Ok(set
        .tree("test")
        .map(|tree| tree.root.to_string())
        .unwrap_or_default()
        .into_bytes())
}

fn print(value: &Value) -> String {
    format::to_string(value).unwrap().to_string()
}

#[allow(clippy::too_many_lines, reason = "a long list, not a long story")]
pub fn functions() -> Functions {
    let mut f = Functions::default();
    f.add("include", |call: &mut Call, name: Str, data: Value| {
        call.execute(&name, data)
    });
    f.add("tpl", |call: &mut Call, text: Str, data: Value| {
        call.execute_text(&text, data)
    });
    f.add("dict", |pairs: Rest<Value>| {
        pairs
            .as_chunks::<2>()
            .0
            .iter()
            .map(|[key, value]| (print(key), value.clone()))
            .collect::<Map>()
    });
    f.add("set", |map: Map, key: Str, value: Value| {
        if map.is_nil() {
            return Err(Error::new("assignment to entry in nil map"));
        }
        map.insert(key, value);
        Ok(map)
    });
    f.add("hasKey", |map: Map, key: Str| map.contains_key(key));
    f.add("list", |items: Rest<Value>| items.into_iter().collect::<List>());
    f.add("strings", |items: Rest<Str>| List::strings(items));
    f.add("stringMap", |key: Str, value: Str| {
        let map = Map::with_type(&types::STRING_MAP);
        map.insert(key, value);
        map
    });
    f.add("ints", |items: Rest<i64>| items.into_vec());
    f.add("bytes", |text: Str| Bytes(text));
    f.add("int64", |n: i64| Int64(n));
    f.add("uint8", |n: i64| Concrete(Value::Uint8(n as u8)));
    f.add("uint64", |n: i64| Concrete(Value::Uint64(n as u64)));
    f.add("float64", |f: f64| f);
    f.add("float32", |f: f64| Concrete(Value::Float32(f as f32)));
    f.add("add", |items: Rest<Int64>| {
        Int64(items.iter().map(|n| n.0).fold(0, i64::wrapping_add))
    });
    f.add("isTrue", |b: bool| b);
    f.add("upper", |text: String| text.to_uppercase());
    f.add("repeat", |n: i64, text: String| match usize::try_from(n) {
        Ok(n) if n.saturating_mul(text.len()) < 1 << 20 => Ok(text.repeat(n)),
        Ok(_) => Err(Error::new("too long for a test")),
        Err(_) => Err(Error::new("strings: negative Repeat count")),
    });
    f.add("join", |separator: Str, items: Vec<Str>| {
        items
            .iter()
            .map(|item| &**item)
            .collect::<Vec<_>>()
            .join(&*separator)
            .into_str()
    });
    f.add("first", |items: List| {
        items
            .first()
            .cloned()
            .ok_or_else(|| Error::new("runtime error: index out of range [0] with length 0"))
    });
    f.add("none", || Value::Nil);
    f.add("nilMap", || Map::nil(&types::MAP));
    f.add("nilList", || List::nil(&types::LIST));
    f.add("values", || {
        let inner: Map = [("b", 1.5)].into_iter().collect();
        let map: Map = [("a", Value::from("A")), ("m", inner.into())]
            .into_iter()
            .collect();
        map.as_type(&VALUES)
    });
    f.add("fail", |message: String| Err::<Str, _>(Error::new(message)));
    f.add("any", |value: Value| value);
    f.add("typeOf", |value: Value| value.type_name());
    f.add("echo", |value: Value| value);
    f.add("makemap", |items: Rest<Str>| {
        let map = Map::with_type(&types::STRING_MAP);
        for [key, value] in items.as_chunks::<2>().0 {
            map.insert(key.clone(), value.clone());
        }
        map
    });
    f.add("mapOfThree", || Value::Map(ints([("three", 3)])));
    f.add("zeroArgs", || "zeroArgs");
    f.add("oneArg", |a: String| format!("oneArg={a}"));
    f.add("twoArgs", |a: String, b: String| format!("twoArgs={a}{b}"));
    f.add("dddArg", |a: i64, b: Rest<Str>| {
        format!("{a} {}\n", print(&Value::strings(b)))
    });
    f.add("die", || Err::<bool, _>(Error::new("die")));
    f.add("version", || {
        Concrete(Value::object(Version {
            text: "v1.29.3",
            major: 1,
            minor: 29,
            pointer: true,
        }))
    });
    f.add("struct", || {
        Concrete(Value::object(Version {
            text: "v1",
            major: 1,
            minor: 29,
            pointer: false,
        }))
    });
    f.add("holder", || Concrete(Value::object(Holder)));
    f.add("duration", |n: Int64| Concrete(Value::object(Duration(n.0))));
    f.add("func", || {
        Function::new(|n: i64, items: Rest<Str>| format!("{n} {}", print(&Value::strings(items))))
    });
    f
}

trait IntoStr {
    fn into_str(self) -> Str;
}

impl IntoStr for Vec<u8> {
    fn into_str(self) -> Str {
        self.into()
    }
}

static VALUES: Type = Type::map("oracle.Values", &types::INTERFACE)
    .defined_as(&types::MAP)
    .with_methods(&VALUES_METHODS);
static VALUES_METHODS: LazyLock<Functions> = LazyLock::new(|| {
    let mut methods = Functions::default();
    methods.add("Table", |this: Receiver, name: Str| match this.map().get(&name) {
        Some(Value::Map(map)) => Ok(map.as_type(&VALUES)),
        _ => Err(Error::new(format!("{name:?} is not a table"))),
    });
    methods.add("Len", |this: Receiver| this.map().len() as i64);
    methods
});

struct Version {
    text: &'static str,
    major: i64,
    minor: i64,
    pointer: bool,
}

static VERSION: Type = Type::structure("oracle.Version");
static VERSION_POINTER: Type = Type::pointer("*oracle.Version").with_methods(&VERSION_METHODS);
static VERSION_METHODS: LazyLock<Functions> = LazyLock::new(|| {
    let mut methods = Functions::default();
    methods.add("String", |this: Receiver| {
        this.object::<Version>()
            .map(|this| format!("version {}", this.text))
    });
    methods.add("Compare", |this: Receiver, major: i64| {
        this.object::<Version>().map(|this| this.major - major)
    });
    methods
});

impl Object for Version {
    fn ty(&self) -> &'static Type {
        if self.pointer { &VERSION_POINTER } else { &VERSION }
    }

    fn fields(&self) -> Vec<(&'static str, Value)> {
        vec![
            ("Text", self.text.into()),
            ("Major", Value::Int(self.major)),
            ("Minor", Value::Int64(self.minor)),
        ]
    }

    fn text(&self) -> Option<String> {
        self.pointer.then(|| format!("version {}", self.text))
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}

/// A field of a struct behind a pointer: Go finds methods with a pointer receiver on it.
struct Addressable(Version);

static ADDRESSABLE: Type = Type::structure("oracle.Version").with_methods(&ADDRESSABLE_METHODS);
static ADDRESSABLE_METHODS: LazyLock<Functions> = LazyLock::new(|| {
    let mut methods = Functions::default();
    methods.add("String", |this: Receiver| {
        this.object::<Addressable>()
            .map(|this| format!("version {}", this.0.text))
    });
    methods.add("Compare", |this: Receiver, major: i64| {
        this.object::<Addressable>().map(|this| this.0.major - major)
    });
    methods
});

impl Object for Addressable {
    fn ty(&self) -> &'static Type {
        &ADDRESSABLE
    }

    fn fields(&self) -> Vec<(&'static str, Value)> {
        self.0.fields()
    }

    fn printed(&self) -> Option<String> {
        Some(format!("version {}", self.0.text))
    }

    fn copied(&self) -> Option<Value> {
        let Version {
            text, major, minor, ..
        } = self.0;
        Some(Value::object(Version {
            text,
            major,
            minor,
            pointer: false,
        }))
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}

struct Holder;

static HOLDER: Type = Type::pointer("*oracle.Holder");

impl Object for Holder {
    fn ty(&self) -> &'static Type {
        &HOLDER
    }

    fn fields(&self) -> Vec<(&'static str, Value)> {
        let version = Version {
            text: "v2",
            major: 2,
            minor: 0,
            pointer: false,
        };
        vec![
            ("Version", Value::object(Addressable(version))),
            ("Any", Value::Nil),
        ]
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}

struct Duration(i64);

static DURATION: Type = Type::basic("oracle.Duration", &types::INT64);

impl Object for Duration {
    fn ty(&self) -> &'static Type {
        &DURATION
    }

    fn text(&self) -> Option<String> {
        Some(format!("{}ns", self.0))
    }

    fn underlying(&self) -> Option<Value> {
        Some(Value::Int64(self.0))
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}

static INT_MAP: Type = Type::map("map[string]int", &types::INT);
static INT_MAPS: Type = Type::slice("[]map[string]int", &INT_MAP);
static BOOLS: Type = Type::slice("[]bool", &types::BOOL);

fn ints<const N: usize>(entries: [(&str, i64); N]) -> Map {
    entries.into_iter().collect::<Map>().as_type(&INT_MAP)
}

fn int_list(items: &[i64]) -> Value {
    Value::List(List::with_type(
        &types::INTS,
        items.iter().copied().map(Value::Int).collect(),
    ))
}

struct T {
    ptr: Value,
}

static T_TYPE: Type = Type::pointer("*oracle.T").with_methods(&T_METHODS);
static T_METHODS: LazyLock<Functions> = LazyLock::new(|| {
    let mut methods = Functions::default();
    methods.add("Method0", |_: Receiver| "M0");
    methods.add("Method1", |_: Receiver, a: i64| a);
    methods.add("Method2", |_: Receiver, a: i64, b: String| {
        format!("Method2: {a} {b}")
    });
    methods.add("Method3", |_: Receiver, v: Value| {
        format!("Method3: {}", print(&v))
    });
    methods.add("MAdd", |_: Receiver, a: i64, b: Vec<i64>| {
        b.into_iter().map(|b| a + b).collect::<Vec<i64>>()
    });
    methods.add("GetU", |_: Receiver| {
        Concrete(Value::object(U {
            v: "v",
            pointer: true,
        }))
    });
    methods.add("MyError", |_: Receiver, fails: bool| {
        if fails {
            Err(Error::new("my error"))
        } else {
            Ok(false)
        }
    });
    methods
});

struct U {
    v: &'static str,
    pointer: bool,
}

static U_TYPE: Type = Type::structure("oracle.U");
static U_POINTER: Type = Type::pointer("*oracle.U").with_methods(&U_METHODS);
static U_METHODS: LazyLock<Functions> = LazyLock::new(|| {
    let mut methods = Functions::default();
    methods.add("TrueFalse", |_: Receiver, b: bool| if b { "true" } else { "" });
    methods
});

impl Object for U {
    fn ty(&self) -> &'static Type {
        if self.pointer { &U_POINTER } else { &U_TYPE }
    }

    fn fields(&self) -> Vec<(&'static str, Value)> {
        vec![("V", self.v.into())]
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}

impl Object for T {
    fn ty(&self) -> &'static Type {
        &T_TYPE
    }

    fn fields(&self) -> Vec<(&'static str, Value)> {
        let u = |v, pointer| Value::object(U { v, pointer });
        let joined = |items: Rest<String>| items.join("+");
        vec![
            ("True", true.into()),
            ("I", Value::Int(17)),
            ("U16", Value::Uint16(16)),
            ("X", "x".into()),
            ("S", "xyz".into()),
            ("FloatZero", 0.0.into()),
            ("U", u("v", true)),
            ("MSI", ints([("one", 1), ("two", 2), ("three", 3)]).into()),
            ("MSIone", ints([("one", 1)]).into()),
            ("MSIEmpty", ints([]).into()),
            (
                "SMSI",
                List::with_type(
                    &INT_MAPS,
                    vec![
                        ints([("one", 1), ("two", 2)]).into(),
                        ints([("eleven", 11), ("twelve", 12)]).into(),
                    ],
                )
                .into(),
            ),
            ("SI", int_list(&[3, 4, 5])),
            ("SICap", int_list(&[0; 5])),
            ("SIEmpty", int_list(&[])),
            (
                "SB",
                List::with_type(&BOOLS, vec![true.into(), false.into()]).into(),
            ),
            ("SS", Value::strings(["a", "b"])),
            ("Empty0", Value::Nil),
            ("Empty1", Value::Int(3)),
            ("Empty2", "empty2".into()),
            ("Empty3", int_list(&[7, 8])),
            ("NonEmptyInterface", u("ui", true)),
            ("NilInterface", Value::Nil),
            (
                "BinaryFunc",
                Function::new(|a: String, b: String| format!("[{a}={b}]")).into(),
            ),
            (
                "VariadicFunc",
                Function::new(move |items: Rest<String>| format!("<{}>", joined(items))).into(),
            ),
            (
                "VariadicFuncInt",
                Function::new(move |a: i64, items: Rest<String>| format!("{a}=<{}>", joined(items))).into(),
            ),
            (
                "NilOKFunc",
                Function::new(|value: Value| value.is_untyped_nil()).into(),
            ),
            ("ErrFunc", Function::new(|| Ok::<_, Error>("bla")).into()),
            ("Uthree", Value::Uint(3)),
            ("Ufour", Value::Uint(4)),
            ("NegOne", Value::Int(-1)),
            ("Three", Value::Int(3)),
            ("Map", Map::nil(&INT_MAP).into()),
            ("NonNilMap", ints([]).into()),
            ("V1", u("", false)),
            ("V2", u("", false)),
            ("Ptr", self.ptr.clone()),
            ("Iface1", Value::Int(1)),
            ("NilIface", Value::Nil),
        ]
    }

    fn is_interface(&self, field: &str) -> bool {
        field.starts_with("Empty") || field.ends_with("Interface") || field.starts_with("Iface")
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}
