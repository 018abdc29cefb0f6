//! Evaluates expressions to everything that they can be.

use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

use gotemplate::ast::{Command, Expr, Pipe};
use gotemplate::exec::Options;
use gotemplate::set::Set;
use gotemplate::string::Str;
use gotemplate::value::Value as GoValue;
use serde_json::{Map, Value};

use super::charts;
use super::possible::{
    Alternative, Hole, MAX_ALTERNATIVES, MAX_TEXT, Possible, RELEASE_NAME, RELEASE_NAMESPACE, Shared, joined,
};
use super::walk::{Lookup, Scope, Walk, is_function};

/// The results of calls of one function with more combinations of arguments than this are treated as unknown.
const MAX_CALLS: usize = 64;

/// The cost of calling a pure function, in steps of the walk.
const STEPS_OF_A_CALL: usize = 10;

/// Longest path into values that is tracked.
const MAX_PATH: usize = 16;

/// Functions that give the same result for the same texts and numbers: the real function is called.
const PURE: [&str; 37] = [
    "print",
    "printf",
    "println",
    "quote",
    "squote",
    "lower",
    "upper",
    "title",
    "untitle",
    "trim",
    "trimAll",
    "trimall",
    "trimSuffix",
    "trimPrefix",
    "trunc",
    "replace",
    "cat",
    "nospace",
    "toString",
    "kebabcase",
    "camelcase",
    "snakecase",
    "plural",
    "substr",
    "indent",
    "nindent",
    "regexReplaceAll",
    "regexFind",
    "base",
    "dir",
    "ext",
    "int",
    "int64",
    "add",
    "sub",
    "abbrev",
    "initials",
];

impl<'c> Walk<'c> {
    pub(super) fn pipe(&mut self, pipe: &Pipe, scope: &mut Scope) -> Possible {
        if !self.goes_on() {
            return Possible::nothing();
        }
        let mut value = None;
        for command in &pipe.commands {
            value = Some(self.command(command, value, scope));
        }
        value.unwrap_or_default()
    }

    fn command(&mut self, command: &Command, piped: Option<Possible>, scope: &mut Scope) -> Possible {
        self.steps.spend(command.args.len());
        let Some((operand, rest)) = command.args.split_first() else {
            return Possible::nothing();
        };
        let mut arguments: Vec<Possible> = rest
            .iter()
            .map(|argument| self.expression(argument, scope))
            .collect();
        arguments.extend(piped);
        if let Expr::Function { name, .. } = operand {
            let value = self.call(&name.lossy(), &arguments).bounded(&mut self.holes);
            self.note_set(operand, rest, &value, scope);
            return value;
        }
        let value = self.expression(operand, scope);
        if arguments.is_empty() {
            return value;
        }
        self.method(&value, &arguments)
    }

    pub(super) fn expression(&mut self, expression: &Expr, scope: &mut Scope) -> Possible {
        match expression {
            Expr::Dot { .. } => scope.dot.clone(),
            Expr::Nil { .. } => Possible::nothing(),
            Expr::Bool { value, .. } => Possible::one(Alternative::Bool(*value)),
            Expr::Number(number) => match number.int {
                Some(int) => Possible::one(Alternative::Int(int)),
                None => Possible::text(&number.text.lossy()),
            },
            Expr::String { text, .. } => Possible::text(&text.lossy()),
            Expr::Field { names, .. } => {
                let dot = scope.dot.clone();
                self.fields(&dot, names)
            }
            Expr::Variable { variable, fields, .. } => {
                let name = variable.name.lossy();
                let value = match scope.get(&name) {
                    Some(value) => value.clone(),
                    None => Possible::hole(self.holes.because(&name)),
                };
                self.fields(&value, fields)
            }
            Expr::Function { name, .. } => self.call(&name.lossy(), &[]),
            Expr::Chain { node, fields, .. } => {
                let value = self.expression(node, scope);
                self.fields(&value, fields)
            }
            Expr::Pipe(pipe) => self.pipe(pipe, scope),
        }
    }

    fn fields(&mut self, of: &Possible, names: &[Str]) -> Possible {
        let mut value = of.clone();
        for name in names {
            value = self.field(&value, &name.lossy());
        }
        value
    }

    fn field(&mut self, of: &Possible, name: &str) -> Possible {
        let mut values = Vec::with_capacity(of.iter().len());
        for alternative in of.iter() {
            values.push(match alternative {
                Alternative::Map(map) => match map.get(name) {
                    Some(value) => value.clone(),
                    None if map.is_empty() => Possible::nothing(),
                    // A `set` elsewhere may have put it there.
                    None => self.unknown(&format!("the key {name}")),
                },
                Alternative::Root(chart) => self.of_root(*chart, name),
                Alternative::Values(chart, path) => self.deeper(*chart, path, name),
                Alternative::Metadata(chart) => self.of_metadata(*chart, name),
                Alternative::Release => match name {
                    "Namespace" => Possible::text(&RELEASE_NAMESPACE.to_string()),
                    "Name" => Possible::text(&RELEASE_NAME.to_string()),
                    "Service" => Possible::text("Helm"),
                    _ => self.unknown(&format!(".Release.{name}")),
                },
                Alternative::Hole(hole) => Possible::hole(*hole),
                Alternative::Text(_)
                | Alternative::Int(_)
                | Alternative::Bool(_)
                | Alternative::List(_)
                | Alternative::Files(_) => self.unknown(&format!("the field {name}")),
            });
        }
        Possible::any_of(&values).bounded(&mut self.holes)
    }

    fn of_root(&mut self, chart: usize, name: &str) -> Possible {
        match name {
            "Values" => Possible::one(Alternative::Values(chart, Rc::<[String]>::from([]).into())),
            "Chart" => Possible::one(Alternative::Metadata(chart)),
            "Release" => Possible::one(Alternative::Release),
            "Files" => Possible::one(Alternative::Files(chart)),
            _ => self.unknown(&format!(".{name}")),
        }
    }

    fn of_metadata(&mut self, chart: usize, name: &str) -> Possible {
        let node = &self.charts[chart];
        let metadata = node.chart.metadata();
        match name {
            "Name" => Possible::text(node.name()),
            "Version" => Possible::text(&metadata.version),
            "AppVersion" => Possible::text(&metadata.app_version),
            "Type" => Possible::text(&metadata.chart_type),
            _ => self.unknown(&format!(".Chart.{name}")),
        }
    }

    fn deeper(&mut self, chart: usize, path: &[String], key: &str) -> Possible {
        if path.len() >= MAX_PATH {
            return self.unknown(&format!(".Values.{}", path.join(".")));
        }
        let path: Rc<[String]> = path.iter().cloned().chain([key.to_owned()]).collect();
        Possible::one(Alternative::Values(chart, path.into()))
    }

    fn unknown(&mut self, reason: &str) -> Possible {
        Possible::hole(self.holes.because(reason))
    }

    /// Every text that a value can be printed as.
    pub(super) fn texts(&mut self, value: &Possible) -> BTreeSet<Rc<str>> {
        let mut texts = BTreeSet::new();
        for alternative in value.iter() {
            match alternative {
                Alternative::Text(text) if text.len() <= MAX_TEXT => {
                    texts.insert(text.clone());
                }
                Alternative::Int(int) => {
                    texts.insert(int.to_string().into());
                }
                Alternative::Bool(bool) => {
                    texts.insert(bool.to_string().into());
                }
                Alternative::Values(chart, path) => {
                    texts.extend(self.values_texts(*chart, path).iter().cloned());
                }
                Alternative::Text(_)
                | Alternative::Hole(_)
                | Alternative::Map(_)
                | Alternative::List(_)
                | Alternative::Root(_)
                | Alternative::Metadata(_)
                | Alternative::Release
                | Alternative::Files(_) => {
                    let hole = self.hole_of(alternative);
                    texts.insert(hole.as_char().to_string().into());
                }
            }
        }
        if texts.is_empty() {
            texts.insert("".into());
        }
        self.steps.spend(texts.len());
        texts
    }

    /// The defaults of a value, and a hole for what a user may set instead; or all texts that the schema allows.
    fn values_texts(&mut self, chart: usize, path: &Shared<[String]>) -> Rc<[Rc<str>]> {
        let key = (chart, path.clone());
        if let Some(cached) = self.memo.values_texts.get(&key) {
            return cached.clone();
        }
        let mut texts: Vec<Rc<str>> = Vec::new();
        if let Some(listed) = charts::listed(self.charts, chart, path) {
            texts.extend(listed.into_iter().map(Rc::from));
        } else {
            let defaults = self.defaults(chart, path).into_iter();
            let short = defaults.filter_map(|value| value.as_str().filter(|text| text.len() <= MAX_TEXT));
            texts.extend(short.map(Rc::from));
            let hole = self.hole_of(&Alternative::Values(chart, path.clone()));
            texts.push(hole.as_char().to_string().into());
        }
        let texts: Rc<[Rc<str>]> = texts.into();
        self.memo.values_texts.insert(key, texts.clone());
        texts
    }

    fn defaults(&mut self, chart: usize, path: &[String]) -> Vec<&'c Value> {
        let defaults = charts::defaults(self.charts, chart, path);
        self.steps.spend(defaults.visited);
        defaults.found
    }

    /// The hole for a value that is unknown.
    fn hole_of(&mut self, alternative: &Alternative) -> Hole {
        match alternative {
            Alternative::Hole(hole) => *hole,
            Alternative::Values(_, path) => self.holes.because(&format!(".Values.{}", path.join("."))),
            Alternative::Text(text) => match Hole::first_in(text) {
                Some(hole) => hole,
                None => self.holes.because("a long text"),
            },
            Alternative::Files(_) => self.holes.because("the chart's files"),
            Alternative::Map(map) => match map.values().find_map(some_source) {
                Some(source) => self.hole_of(&source),
                None => self.holes.because("a map"),
            },
            Alternative::List(items) => match items.iter().find_map(some_source) {
                Some(source) => self.hole_of(&source),
                None => self.holes.because("a list"),
            },
            Alternative::Int(_)
            | Alternative::Bool(_)
            | Alternative::Root(_)
            | Alternative::Metadata(_)
            | Alternative::Release => self.holes.because("what a function makes"),
        }
    }

    /// An unknown result; the reason is that of the first unknown argument.
    fn opaque(&mut self, function: &str, arguments: &[Possible]) -> Possible {
        let source = arguments.iter().find_map(some_source);
        let hole = match source {
            Some(source) => self.hole_of(&source),
            None => self.holes.because(&format!("the result of {function}")),
        };
        Possible::hole(hole)
    }

    /// Keys and elements that a `range` goes over.
    pub(super) fn elements(&mut self, value: &Possible) -> (Possible, Possible) {
        let (mut keys, mut elements) = (Vec::new(), Vec::new());
        for alternative in value.iter() {
            match alternative {
                Alternative::Map(map) => {
                    keys.extend(map.keys().map(|key| Possible::text(key)));
                    elements.extend(map.values().cloned());
                }
                Alternative::List(items) => {
                    elements.extend(items.iter().cloned());
                    keys.push(self.unknown("an index"));
                }
                Alternative::Values(chart, path) => {
                    elements.push(self.deeper(*chart, path, "*"));
                    keys.push(self.values_keys(*chart, path));
                }
                other => {
                    let hole = Possible::hole(self.hole_of(other));
                    keys.push(hole.clone());
                    elements.push(hole);
                }
            }
        }
        self.steps.spend(elements.len());
        (
            Possible::any_of(&keys).bounded(&mut self.holes),
            Possible::any_of(&elements).bounded(&mut self.holes),
        )
    }

    /// The default keys of a value, and a hole for other keys that a user may set.
    fn values_keys(&mut self, chart: usize, path: &Shared<[String]>) -> Possible {
        let key = (chart, path.clone());
        if let Some(cached) = self.memo.values_keys.get(&key) {
            return cached.clone();
        }
        let hole = self.hole_of(&Alternative::Values(chart, path.clone()));
        let mut names = BTreeSet::new();
        for default in self.defaults(chart, path) {
            names.extend(default.as_object().into_iter().flat_map(|map| map.keys()));
            self.steps.spend(default.as_object().map_or(0, Map::len));
            if names.len() > MAX_ALTERNATIVES {
                break;
            }
        }
        let names = names
            .into_iter()
            .map(|name| Alternative::Text(name.as_str().into()));
        let keys: Possible = names.chain([Alternative::Hole(hole)]).collect();
        self.memo.values_keys.insert(key, keys.clone());
        keys
    }

    /// A field that is called: in charts, `.Capabilities.APIVersions.Has` and the methods of `.Files`.
    fn method(&mut self, value: &Possible, arguments: &[Possible]) -> Possible {
        let mut all = vec![value.clone()];
        all.extend(arguments.iter().cloned());
        self.opaque("a method", &all)
    }

    fn call(&mut self, function: &str, arguments: &[Possible]) -> Possible {
        let last = || arguments.last().cloned().unwrap_or_default();
        match (function, arguments) {
            ("and" | "or" | "default" | "coalesce", all) => Possible::any_of(all),
            ("ternary", [yes, no, _]) => yes.clone().or(no),
            ("required", [_, value]) => value.clone(),
            ("fail", _) => Possible::nothing(),
            ("include", [name, dot]) => self.named(name, dot),
            ("tpl", [text, dot]) => self.text_templates(text, dot),
            ("lookup", [api_version, kind, _, name]) => self.lookup(api_version, kind, name),
            ("dict", pairs) => self.dict(pairs),
            ("list" | "tuple", items) => listed(items.iter().cloned()),
            ("get" | "index", [of, keys @ ..]) if !keys.is_empty() => {
                keys.iter().fold(of.clone(), |of, key| self.entry(&of, key))
            }
            ("dig", [keys @ .., fallback, of]) => {
                let found = keys.iter().fold(of.clone(), |of, key| self.entry(&of, key));
                found.or(fallback)
            }
            ("set", [map, key, value]) => self.with_key(map, key, value),
            (
                "merge" | "mustMerge" | "mergeOverwrite" | "mustMergeOverwrite" | "deepCopy" | "mustDeepCopy"
                | "pick" | "omit",
                maps,
            ) => merged(maps),
            ("first" | "mustFirst" | "last" | "mustLast", [items]) => self.elements(items).1,
            (
                "rest" | "initial" | "reverse" | "uniq" | "compact" | "mustUniq" | "mustCompact"
                | "sortAlpha",
                [items],
            ) => items.clone(),
            ("values", maps) => self.listed_elements(maps),
            ("concat", lists) => self.listed_elements(lists),
            ("append" | "prepend" | "mustAppend" | "push", [items, item]) => {
                let elements = self.elements(items).1.or(item);
                listed([elements])
            }
            (
                "toYaml" | "mustToYaml" | "toYamlPretty" | "toJson" | "mustToJson" | "toRawJson"
                | "mustToRawJson" | "toPrettyJson" | "mustToPrettyJson",
                [value],
            ) => self.written(value),
            ("fromYaml" | "fromJson", [_]) => self.opaque(function, arguments),
            ("quote" | "squote" | "toString", [value]) => self.quoted(function, value),
            // Unknown texts that are trimmed or indented keep their hole, and so its reason; maps and lists as YAML stay
            // what they are.
            ("indent" | "nindent" | "trim", _)
                if last().iter().any(|one| {
                    matches!(one, Alternative::Map(_) | Alternative::List(_)) || is_unknown(one)
                }) =>
            {
                last()
            }
            (name, all) if PURE.contains(&name) => self.called(name, all),
            (name, all) => self.opaque(name, all),
        }
    }

    /// A value as YAML or JSON: maps, lists and what the chart's values have stay what they are, because where their
    /// parts matter, the text is read again.
    fn written(&mut self, value: &Possible) -> Possible {
        let alternatives = value.iter().map(|alternative| match alternative {
            Alternative::Values(..) | Alternative::Map(_) | Alternative::List(_) => alternative.clone(),
            other => {
                let value = Possible::one(other.clone());
                let hole = some_source(&value).map(|source| self.hole_of(&source));
                Alternative::Hole(hole.unwrap_or_else(|| self.holes.because("the result of toYaml")))
            }
        });
        alternatives.collect::<Possible>().bounded(&mut self.holes)
    }

    /// A text in quotes. What the chart's values have stays what it is: quotes do not matter where it is read.
    fn quoted(&mut self, function: &str, value: &Possible) -> Possible {
        let (values, others): (Vec<_>, Vec<_>) = value
            .iter()
            .cloned()
            .partition(|alternative| matches!(alternative, Alternative::Values(..)));
        let values: Possible = values.into_iter().collect();
        let others: Possible = others.into_iter().collect();
        if others.iter().len() == 0 {
            return values;
        }
        self.called(function, &[others]).or(&values)
    }

    /// A text that stands for a value in a part of a document that is read as a whole.
    pub(super) fn standing_for(&mut self, value: &Possible) -> String {
        let mut alternatives = value.iter();
        match (alternatives.next(), alternatives.next()) {
            (None, _) => String::new(),
            (Some(Alternative::Text(text)), None) if text.len() <= MAX_TEXT => text.to_string(),
            (Some(Alternative::Int(int)), None) => int.to_string(),
            (Some(Alternative::Bool(bool)), None) => bool.to_string(),
            _ => {
                let hole = some_source(value).map(|source| self.hole_of(&source));
                let reason =
                    hole.map_or_else(|| "a value".to_owned(), |hole| self.holes.reason(hole).to_owned());
                let hole = self.holes.standing_for(value, &reason);
                hole.as_char().to_string()
            }
        }
    }

    /// The results of a pure function for each combination of the values of its arguments.
    fn called(&mut self, function: &str, arguments: &[Possible]) -> Possible {
        let key = (function.to_owned(), arguments.to_vec());
        if let Some(cached) = self.memo.called.get(&key) {
            return cached.clone();
        }
        let result = self.call_each(function, arguments);
        self.memo.called.insert(key, result.clone());
        result
    }

    fn call_each(&mut self, function: &str, arguments: &[Possible]) -> Possible {
        let mut combinations: Vec<Vec<GoValue>> = vec![Vec::new()];
        let mut with_holes = false;
        for argument in arguments {
            let mut next = Vec::new();
            for value in self.go_values(argument) {
                let Some(value) = value else {
                    with_holes = true;
                    continue;
                };
                for combination in &combinations {
                    let mut combination = combination.clone();
                    combination.push(value.clone());
                    next.push(combination);
                }
            }
            combinations = next;
            if combinations.len() > MAX_CALLS {
                return self.opaque(function, arguments);
            }
        }
        let mut result = Possible::nothing();
        for combination in combinations {
            let has_release = combination.iter().any(has_release);
            // What is left of the name of the release where it is gone is not known.
            let text = self
                .call_pure(function, combination)
                .map(|text| if has_release { unescaped(&text) } else { text })
                .filter(|text| !has_release || text.contains([RELEASE_NAME, RELEASE_NAMESPACE]));
            result = result.or(&match text {
                Some(text) => Possible::text(&text),
                None => self.opaque(function, arguments),
            });
        }
        if with_holes {
            result = result.or(&self.opaque(function, arguments));
        }
        result
    }

    /// The result of the real function.
    fn call_pure(&mut self, function: &str, arguments: Vec<GoValue>) -> Option<String> {
        let key = (function.to_owned(), arguments.len());
        self.steps.spend(STEPS_OF_A_CALL);
        if !self.memo.calls.contains_key(&key) {
            let mut words = vec![function.to_owned()];
            words.extend((0..arguments.len()).map(|i| format!("(index . {i})")));
            let mut set = Set::new("gotpl", helm::functions::all().clone());
            set.parse("call", format!("{{{{ {} }}}}", words.join(" "))).ok()?;
            self.memo.calls.insert(key.clone(), set);
        }
        let set = self.memo.calls.get(&key)?;
        let result = set
            .execute("call", GoValue::list(arguments), &Options::default())
            .ok()?;
        String::from_utf8(result).ok()
    }

    /// Each alternative as a value of the engine; `None` for unknown ones.
    fn go_values(&mut self, value: &Possible) -> Vec<Option<GoValue>> {
        let mut values = Vec::new();
        for alternative in value.iter() {
            match alternative {
                Alternative::Int(int) => values.push(Some(GoValue::Int(*int))),
                Alternative::Bool(bool) => values.push(Some(GoValue::from(*bool))),
                Alternative::Text(_) | Alternative::Values(..) => {
                    let texts = self.texts(&Possible::one(alternative.clone()));
                    values.extend(texts.into_iter().map(|text| {
                        let is_known = text.chars().all(|c| c == RELEASE_NAME || !Hole::is(c));
                        is_known.then(|| GoValue::from(&*text))
                    }));
                }
                _ => values.push(None),
            }
        }
        values
    }

    fn named(&mut self, names: &Possible, dot: &Possible) -> Possible {
        let mut printed = Possible::nothing();
        for name in self.texts(names) {
            printed = printed.or(&match Hole::first_in(&name) {
                Some(hole) => Possible::hole(hole),
                None => self.printed(&name, dot),
            });
        }
        printed.bounded(&mut self.holes)
    }

    fn text_templates(&mut self, texts: &Possible, dot: &Possible) -> Possible {
        let mut printed = Possible::nothing();
        for text in self.texts(texts) {
            printed = printed.or(&match Hole::first_in(&text) {
                Some(hole) => Possible::hole(hole),
                None if text.contains("{{") => self.printed_text(&text, dot),
                None => Possible::text(&text),
            });
        }
        printed.bounded(&mut self.holes)
    }

    fn lookup(&mut self, api_version: &Possible, kind: &Possible, name: &Possible) -> Possible {
        let lookup = Lookup {
            api_version: api_version.clone(),
            kind: kind.clone(),
            name: name.clone(),
            line: self.line,
            in_text: self.is_in_text(),
        };
        self.lookups.insert(lookup);
        self.unknown("what lookup finds in the cluster")
    }

    fn dict(&mut self, pairs: &[Possible]) -> Possible {
        let mut map = BTreeMap::new();
        for pair in pairs.chunks(2) {
            let [key, value] = pair else { continue };
            for key in self.texts(key) {
                if Hole::first_in(&key).is_none() {
                    map.insert(key.to_string(), value.clone());
                }
            }
        }
        Possible::one(Alternative::Map(Rc::new(map).into()))
    }

    fn entry(&mut self, of: &Possible, key: &Possible) -> Possible {
        let mut found = Vec::new();
        let mut is_any = false;
        for key in key.iter() {
            match key {
                Alternative::Text(key) if Hole::first_in(key).is_none() => found.push(self.field(of, key)),
                _ => is_any = true,
            }
        }
        if is_any {
            found.push(self.elements(of).1);
        }
        self.steps.spend(found.len());
        Possible::any_of(&found)
    }

    fn with_key(&mut self, maps: &Possible, key: &Possible, value: &Possible) -> Possible {
        let keys = self.texts(key);
        let keys: Vec<&str> = keys
            .iter()
            .map(|key| &**key)
            .filter(|key| Hole::first_in(key).is_none())
            .collect();
        self.steps.spend(maps.iter().len());
        maps.iter()
            .map(|alternative| match alternative {
                Alternative::Map(map) if keys.iter().all(|key| includes(map.get(*key), value)) => {
                    alternative.clone()
                }
                Alternative::Map(map) => {
                    let mut map = (**map).clone();
                    for key in &keys {
                        let known = map.entry((*key).to_owned()).or_default();
                        *known = std::mem::take(known).or(value);
                    }
                    Alternative::Map(Rc::new(map).into())
                }
                other => other.clone(),
            })
            .collect()
    }

    /// `set $map key value` changes the variable's value.
    fn note_set(&mut self, function: &Expr, arguments: &[Expr], value: &Possible, scope: &mut Scope) {
        if is_function(function, "set")
            && let Some(Expr::Variable { variable, fields, .. }) = arguments.first()
            && fields.is_empty()
        {
            scope.assign(&variable.name.lossy(), value, &mut self.holes);
        }
    }

    fn listed_elements(&mut self, of: &[Possible]) -> Possible {
        let mut elements = BTreeSet::new();
        for one in of {
            elements.insert(self.elements(one).1);
        }
        listed(elements)
    }
}

fn includes(known: Option<&Possible>, value: &Possible) -> bool {
    known.is_some_and(|known| known.includes(value))
}

fn listed(items: impl IntoIterator<Item = Possible>) -> Possible {
    let items: BTreeSet<Possible> = items.into_iter().collect();
    Possible::one(Alternative::List(Rc::new(items).into()))
}

/// The first unknown part of a value.
fn some_source(value: &Possible) -> Option<Alternative> {
    value.iter().find_map(|alternative| match alternative {
        Alternative::Hole(_) | Alternative::Values(..) => Some(alternative.clone()),
        Alternative::Text(text) => Hole::first_in(text).map(Alternative::Hole),
        Alternative::Map(map) => map.values().find_map(some_source),
        Alternative::List(items) => items.iter().find_map(some_source),
        _ => None,
    })
}

/// True for a text with the name or the namespace of the release in it.
fn has_release(value: &GoValue) -> bool {
    matches!(value, GoValue::String(text) if text.lossy().contains([RELEASE_NAME, RELEASE_NAMESPACE]))
}

/// Go quotes characters that cannot be printed, such as ours.
fn unescaped(text: &str) -> String {
    [RELEASE_NAME, RELEASE_NAMESPACE]
        .into_iter()
        .fold(text.to_owned(), |text, c| {
            text.replace(&format!("\\U{:08x}", u32::from(c)), &c.to_string())
        })
}

fn is_unknown(alternative: &Alternative) -> bool {
    some_source(&Possible::one(alternative.clone())).is_some()
}

/// One map with the keys of all; alternatives that are not maps made by `dict` are kept.
fn merged(maps: &[Possible]) -> Possible {
    let alternatives = maps.iter().flat_map(Possible::iter);
    joined(alternatives.filter(|alternative| {
        !matches!(
            alternative,
            Alternative::Text(_) | Alternative::Int(_) | Alternative::Bool(_)
        )
    }))
}
