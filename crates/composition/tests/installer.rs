//! Renders the platform's charts with our own engine: which components `charts/installer` renders for simulated
//! clusters, step by step, and what it refuses. `e2e/tests/render_installer.rs` checks the same with the real Helm.
#![expect(clippy::disallowed_methods, reason = "charts and cases are files")]
#![expect(clippy::panic, clippy::unwrap_used, reason = "a test fails by panicking")]

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::LazyLock;

use chart_bound::scan::{Kind, Reads, scan};
use crdgen::{Names, ServedVersion};
use helm::capabilities::Capabilities;
use helm::chart::{Chart, File, Limits};
use helm::context::{Answer, Context, LookupKey};
use helm::engine::{Engine, Operation, ReleaseOptions, RenderOptions};
use helm::line::HelmLine;
use serde_json::{Map, Value, json};

const NAMESPACE: &str = "krateo-system";
const PLATFORM: &str = "krateo-platform";
const GROUP: &str = "composition.krateo.io";

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn walk(folder: &Path, name: &str, files: &mut Vec<File>) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let base = path.file_name().unwrap().to_str().unwrap();
        let name = format!("{name}{base}");
        if path.is_dir() {
            walk(&path, &format!("{name}/"), files);
        } else {
            files.push(File::new(name, fs::read(path).unwrap()));
        }
    }
}

/// The installer with our subchart; third-party ones are left out.
static INSTALLER: LazyLock<Engine> = LazyLock::new(|| {
    let mut files = Vec::new();
    walk(&root().join("charts/installer"), "", &mut files);
    walk(
        &root().join("charts/core-provider"),
        "charts/core-provider/",
        &mut files,
    );
    Engine::new(Chart::from_files(files, &Limits::default()).unwrap())
});

static CORE_PROVIDER: LazyLock<Engine> = LazyLock::new(|| {
    let mut files = Vec::new();
    walk(&root().join("charts/core-provider"), "", &mut files);
    Engine::new(Chart::from_files(files, &Limits::default()).unwrap())
});

/// The default list of components.
fn components() -> Vec<Value> {
    let text = fs::read(root().join("charts/installer/values.yaml")).unwrap();
    let values = helm::values::read(&text).unwrap();
    values["components"].as_array().unwrap().clone()
}

fn text<'a>(of: &'a Value, key: &str) -> &'a str {
    of[key].as_str().unwrap()
}

/// A simulated cluster, as far as templates look it up.
#[derive(Clone, Default)]
struct World {
    /// Kinds of the group, each with the versions that are served.
    types: BTreeMap<String, Vec<String>>,
    /// Compositions by name.
    objects: BTreeMap<String, Value>,
    services: Vec<Value>,
    /// True while CRDs are not established yet.
    without_status: bool,
}

impl World {
    /// Each component's type is served in the version of the list.
    fn with_types() -> Self {
        let types = components().into_iter().map(|component| {
            let version = ServedVersion::of_chart(text(&component, "version")).unwrap();
            (text(&component, "kind").to_owned(), vec![version.to_string()])
        });
        Self {
            types: types.collect(),
            ..Self::default()
        }
    }

    /// Sets these compositions to exist and be Ready.
    fn ready(mut self, names: &[&str]) -> Self {
        for name in names {
            self.set(name, "True", None);
        }
        self
    }

    /// Sets all compositions to exist and be Ready.
    fn complete() -> Self {
        let all = components();
        let names: Vec<&str> = all.iter().map(|component| text(component, "name")).collect();
        Self::with_types().ready(&names)
    }

    fn without(mut self, names: &[&str]) -> Self {
        for name in names {
            self.objects.remove(*name).unwrap();
        }
        self
    }

    /// Adds a composition with this `Ready`, of this version instead of that of the list.
    fn set(&mut self, name: &str, ready: &str, version: Option<&str>) {
        let listed = components();
        let component = listed.iter().find(|component| component["name"] == name).unwrap();
        let own = ServedVersion::of_chart(text(component, "version")).unwrap();
        let version = version.unwrap_or(own.as_str());
        let object = json!({
            "kind": component["kind"],
            "metadata": {"name": name, "namespace": NAMESPACE, "labels": {"krateo.io/composition-version": version}},
            "status": {"conditions": [{"type": "Synced", "status": "True"}, {"type": "Ready", "status": ready}]},
        });
        self.objects.insert(name.to_owned(), object);
    }

    fn serve(&mut self, kind: &str, versions: &[&str]) {
        let versions = versions.iter().map(|version| (*version).to_owned()).collect();
        self.types.insert(kind.to_owned(), versions);
    }

    fn answer(&self, key: &LookupKey) -> Answer {
        let LookupKey {
            api_version,
            kind,
            namespace,
            name,
        } = key;
        let list = |items: Vec<Value>| Answer::Found(json!({"items": items}).into());
        match (
            api_version.as_str(),
            kind.as_str(),
            namespace.as_str(),
            name.as_str(),
        ) {
            ("apiextensions.k8s.io/v1", "CustomResourceDefinition", "", "") => list(self.definitions()),
            ("v1", "Service", NAMESPACE, "") => list(self.services.clone()),
            ("v1", "Secret", NAMESPACE, "jwt-sign-key") => Answer::NotFound,
            (version, kind, NAMESPACE, name) => {
                let version = version.strip_prefix("composition.krateo.io/").unwrap();
                let is_served = self
                    .types
                    .get(kind)
                    .is_some_and(|versions| versions.iter().any(|served| served == version));
                match self.objects.get(name) {
                    _ if !is_served => Answer::Failed(format!("{kind} is not served in {version}")),
                    Some(object) => Answer::Found(object.clone().into()),
                    None => Answer::NotFound,
                }
            }
            _ => panic!("nobody looks up {key:?}"),
        }
    }

    fn definitions(&self) -> Vec<Value> {
        let others = json!({
            "metadata": {"name": "authns.example.com"},
            "spec": {"group": "example.com", "names": {"kind": "Authn"}, "versions": [{"name": "v0-22-2", "served": true}]},
            "status": {"conditions": [{"type": "Established", "status": "True"}]},
        });
        let own = self.types.iter().map(|(kind, versions)| {
            let mut listed: Vec<Value> = versions
                .iter()
                .map(|version| json!({"name": version, "served": true}))
                .collect();
            listed.push(json!({"name": "vacuum", "served": false}));
            let mut definition = json!({
                "spec": {"group": GROUP, "names": {"kind": kind}, "versions": listed},
                "status": {"conditions": [{"type": "Established", "status": "True"}]},
            });
            if self.without_status {
                definition["status"] = json!({"conditions": [], "storedVersions": ["vacuum"]});
            }
            definition
        });
        own.chain([others]).collect()
    }
}

/// The result of a render.
#[derive(Debug)]
struct Rendered {
    objects: Vec<Value>,
    hooks: Vec<Value>,
    /// What was looked up.
    asked: BTreeSet<LookupKey>,
}

impl Rendered {
    /// Names of compositions, with the version where it differs from the component's.
    fn compositions(&self) -> BTreeSet<String> {
        let listed = components();
        let names = self
            .of(|object| text(object, "apiVersion").starts_with(GROUP))
            .map(|object| {
                let name = text(&object["metadata"], "name");
                let component = listed.iter().find(|component| component["name"] == name);
                let version =
                    component.map(|component| ServedVersion::of_chart(text(component, "version")).unwrap());
                let written = text(object, "apiVersion").rsplit('/').next().unwrap();
                match version {
                    Some(version) if version.as_str() == written => name.to_owned(),
                    _ => format!("{name}@{written}"),
                }
            });
        names.collect()
    }

    fn definitions(&self) -> BTreeSet<String> {
        self.of(|object| object["kind"] == "CompositionDefinition")
            .map(|object| text(&object["metadata"], "name").to_owned())
            .collect()
    }

    fn get(&self, kind: &str, name: &str) -> &Value {
        self.objects
            .iter()
            .chain(&self.hooks)
            .find(|object| object["kind"] == kind && object["metadata"]["name"] == name)
            .unwrap_or_else(|| panic!("there is no {kind} {name}"))
    }

    fn of<'a>(&'a self, which: impl Fn(&Value) -> bool + 'a) -> impl Iterator<Item = &'a Value> {
        self.objects.iter().filter(move |object| which(object))
    }
}

fn chain(error: &dyn std::error::Error) -> String {
    match error.source() {
        Some(source) => format!("{error}: {}", chain(source)),
        None => error.to_string(),
    }
}

/// Why nothing was rendered.
#[derive(Debug)]
struct Refusal {
    said: String,
    /// What had been looked up before.
    asked: BTreeSet<LookupKey>,
}

/// Renders like a controller: answers lookups until the chart asks for nothing new.
fn render_by(engine: &Engine, values: &Value, world: &World, check: bool) -> Result<Rendered, Refusal> {
    let mut known: BTreeMap<LookupKey, Answer> = BTreeMap::new();
    loop {
        let context = Context::new(jiff::Timestamp::UNIX_EPOCH, |bytes: &mut [u8]| bytes.fill(7));
        let release = ReleaseOptions {
            name: "installer".to_owned(),
            namespace: NAMESPACE.to_owned(),
            revision: 1,
            operation: Operation::Upgrade,
        };
        let context = context.with_lookups(known.clone());
        let mut options = RenderOptions::new(release, Capabilities::of(HelmLine::Four), context);
        options.skip_schema_validation = !check;
        let rendered = engine.render(values.as_object().unwrap(), &options);
        let missing = options.context.lookups.missing();
        if !missing.is_empty() {
            let answers = missing.into_iter().map(|key| {
                let answer = world.answer(&key);
                (key, answer)
            });
            known.extend(answers);
            continue;
        }
        let rendered = rendered.map_err(|error| Refusal {
            said: chain(&error),
            asked: known.keys().cloned().collect(),
        })?;
        let parse = |text: &str| helm::yaml::parse_typed(text.as_bytes()).unwrap();
        return Ok(Rendered {
            objects: rendered
                .manifests
                .iter()
                .map(|manifest| parse(&manifest.text))
                .filter(|object| !object.is_null())
                .collect(),
            hooks: rendered.hooks.iter().map(|hook| parse(&hook.manifest)).collect(),
            asked: known.into_keys().collect(),
        });
    }
}

/// Values in composition mode.
fn composition_mode(mut values: Value) -> Value {
    let off = json!({"enabled": false});
    values["bootstrap"] =
        json!({"coreProvider": off, "certManager": off, "clickhouseOperator": off, "mongodbOperator": off});
    values["global"]["compositionId"] = json!("uid");
    values
}

/// Renders in composition mode with the default list and these additional values.
fn render(values: Value, world: &World) -> Rendered {
    render_by(&INSTALLER, &composition_mode(values), world, true).unwrap()
}

/// Values that enable all features.
fn all() -> Value {
    json!({"features": {"podRestartAlert": true}})
}

fn set(names: &[&str]) -> BTreeSet<String> {
    names.iter().map(|name| (*name).to_owned()).collect()
}

const WAVE_0: [&str; 6] = [
    "authn-crd",
    "oasgen-provider-crd",
    "frontend-crd",
    "snowplow-crd",
    "krateo-clickstack",
    "kagent-crds",
];
const WAVE_1: [&str; 7] = [
    "authn",
    "snowplow",
    "oasgen-provider",
    "otel-collector-deployment",
    "krateo-sse-proxy",
    "clickhouse-mcp-server",
    "kagent",
];
const WAVE_2: [&str; 4] = [
    "frontend",
    "hyperdx-provider",
    "otel-collector-daemonset",
    "krateo-autopilot",
];
const WAVE_3: [&str; 1] = ["portal"];

#[test]
fn a_composition_is_made_once_its_type_is_served_and_all_it_depends_on_is_ready() {
    let waves: [&[&str]; 4] = [&WAVE_0, &WAVE_1, &WAVE_2, &WAVE_3];
    let nothing = render(all(), &World::default());
    assert_eq!(nothing.compositions(), set(&[]));
    assert_eq!(nothing.definitions().len(), 18);
    let mut ready = Vec::new();
    let mut due = Vec::new();
    for wave in waves {
        due.extend(wave);
        let rendered = render(all(), &World::with_types().ready(&ready));
        assert_eq!(rendered.compositions(), set(&due));
        assert_eq!(rendered.definitions().len(), 18);
        ready.extend(wave);
    }
    assert_eq!(render(all(), &World::complete()).compositions(), set(&due));
}

#[test]
fn types_are_listed_once_and_nothing_is_looked_up_that_is_not_served() {
    let mut world = World::with_types();
    world.types.remove("Kagent");
    let rendered = render(all(), &world);
    let kinds: Vec<&str> = rendered.asked.iter().map(|key| key.kind.as_str()).collect();
    assert!(!kinds.contains(&"Kagent"), "{kinds:?}");
    // 17 compositions, the list, the Services and the Secret.
    assert_eq!(kinds.len(), 20);
    // A type that is not established yet does not count as served.
    let rendered = render(
        all(),
        &World {
            without_status: true,
            ..World::with_types()
        },
    );
    assert_eq!(rendered.compositions(), set(&[]));
    assert_eq!(rendered.asked.len(), 3);
}

#[test]
fn only_what_is_really_ready_counts() {
    let first = |world: &World| render(all(), world).compositions().contains("authn");
    let world = World::with_types();
    assert!(!first(&world));
    assert!(first(&world.clone().ready(&["authn-crd"])));
    let mut changed = world.clone();
    changed.set("authn-crd", "False", None);
    assert!(!first(&changed));
    // Still the previous version.
    changed.set("authn-crd", "True", Some("v0-22-1"));
    assert!(!first(&changed));
    for (path, value) in [
        ("/status", Value::Null),
        ("/status/conditions", Value::Null),
        ("/metadata/deletionTimestamp", json!("2026-01-01T00:00:00Z")),
    ] {
        let mut changed = world.clone().ready(&["authn-crd"]);
        let object = changed.objects.get_mut("authn-crd").unwrap();
        let (parent, key) = path.rsplit_once('/').unwrap();
        object.pointer_mut(parent).unwrap()[key] = value;
        assert!(!first(&changed), "{path}");
    }
}

#[test]
fn what_is_there_stays_when_what_it_depends_on_is_not_ready_any_more() {
    let mut world = World::complete();
    let everything = render(all(), &world).compositions();
    assert_eq!(everything.len(), 18);
    for name in ["authn-crd", "authn", "krateo-clickstack"] {
        world.set(name, "False", None);
        assert_eq!(render(all(), &world).compositions(), everything, "{name}");
    }
    // Nor when it is gone: it is created again, and nothing else is touched.
    let world = world.without(&["authn-crd"]);
    assert_eq!(render(all(), &world).compositions(), everything);
}

#[test]
fn what_is_turned_off_goes_from_the_leaves() {
    let off = || json!({"features": {"observability": false, "observabilityAgents": false}});
    let stays = [
        "authn-crd",
        "oasgen-provider-crd",
        "frontend-crd",
        "snowplow-crd",
        "authn",
        "snowplow",
        "oasgen-provider",
        "frontend",
        "portal",
    ];
    let mut world = World::complete().without(&["hyperdx-provider"]);
    for (kept, gone) in [
        (
            vec![
                "krateo-clickstack",
                "otel-collector-deployment",
                "clickhouse-mcp-server",
                "kagent-crds",
                "kagent",
            ],
            vec!["otel-collector-daemonset", "krateo-sse-proxy", "krateo-autopilot"],
        ),
        (
            vec!["krateo-clickstack", "kagent-crds"],
            vec!["otel-collector-deployment", "clickhouse-mcp-server", "kagent"],
        ),
        (vec![], vec!["krateo-clickstack", "kagent-crds"]),
    ] {
        let rendered = render(off(), &world);
        let expected = [&stays[..], &kept].concat();
        assert_eq!(rendered.compositions(), set(&expected));
        // A definition is removed after its composition.
        let defined = [&expected[..], &gone].concat();
        assert_eq!(rendered.definitions(), set(&defined));
        world = world.without(&gone);
    }
    assert_eq!(render(off(), &world).definitions(), set(&stays));
}

#[test]
fn a_live_composition_keeps_its_version_until_the_new_one_is_served() {
    let mut world = World::complete();
    world.set("authn", "True", Some("v0-21-0"));
    world.serve("Authn", &["v0-20-0", "v0-21-0", "v0-21-1"]);
    let before = render(all(), &world);
    assert!(
        before.compositions().contains("authn@v0-21-0"),
        "{:?}",
        before.compositions()
    );
    assert_eq!(before.compositions().len(), 18);
    assert_eq!(
        before.get("CompositionDefinition", "authn")["spec"]["chart"]["version"],
        "0.22.2"
    );
    world.serve("Authn", &["v0-21-0", "v0-22-2"]);
    let after = render(all(), &world).compositions();
    assert!(after.contains("authn"), "{after:?}");
    assert_eq!(after.len(), 18);
    // A version that is not served any more cannot be used to write it.
    world.serve("Authn", &["v0-21-1"]);
    assert!(render(all(), &world).compositions().contains("authn@v0-21-1"));
}

fn load_balancer(name: &str, ingress: &Value) -> Value {
    json!({
        "metadata": {"name": name}, "spec": {"type": "LoadBalancer"},
        "status": {"loadBalancer": {"ingress": ingress}},
    })
}

#[test]
fn a_consumer_is_told_the_addresses_that_are_known() {
    let values = || {
        json!({
            "exposure": {"type": "LoadBalancer"},
            "componentValues": {"frontend": {"config": {"X": "kept", "AUTHN_API_BASE_URL": "mine"}, "replicas": 2}},
        })
    };
    let mut world = World::complete();
    let config =
        |world: &World| render(values(), world).get("Frontend", "frontend")["spec"]["config"].clone();
    let mut expected = json!({"X": "kept", "AUTHN_API_BASE_URL": "mine"});
    assert_eq!(config(&world), expected);
    for (service, ingress, keys, url) in [
        (
            "authn-authn",
            json!([{"ip": "192.0.2.1"}]),
            &["AUTHN_API_BASE_URL"][..],
            "http://192.0.2.1:8082",
        ),
        (
            "snowplow-snowplow",
            json!([{"ip": "192.0.2.2"}, {"ip": "192.0.2.3"}]),
            &["SNOWPLOW_API_BASE_URL"],
            "http://192.0.2.3:8081",
        ),
        (
            "krateo-sse-proxy",
            json!([{"hostname": "lb.example"}]),
            &["EVENTS_API_BASE_URL", "EVENTS_PUSH_API_BASE_URL"],
            "http://lb.example:8080",
        ),
        (
            "snowplow-six",
            json!([{"ip": "2001:db8::1"}]),
            &["SNOWPLOW_API_BASE_URL"],
            "http://[2001:db8::1]:8081",
        ),
        // It has no address yet.
        (
            "authn-later",
            Value::Null,
            &["AUTHN_API_BASE_URL"],
            "http://192.0.2.1:8082",
        ),
    ] {
        world.services.push(load_balancer(service, &ingress));
        for key in keys {
            expected[key] = json!(url);
        }
        assert_eq!(config(&world), expected, "{service}");
    }
    assert_eq!(
        render(values(), &world).get("Frontend", "frontend")["spec"]["replicas"],
        2
    );
}

#[test]
fn the_type_of_a_service_follows_the_exposure() {
    let world = World::complete();
    let service = |values: Value, kind: &str, name: &str| {
        render(values, &world).get(kind, name)["spec"]
            .pointer("/service/type")
            .cloned()
    };
    for (exposure, expected) in [
        ("NodePort", Some(json!("NodePort"))),
        ("LoadBalancer", Some(json!("LoadBalancer"))),
        ("Ingress", None),
    ] {
        let values = json!({"exposure": {"type": exposure}});
        assert_eq!(service(values.clone(), "Authn", "authn"), expected);
        assert_eq!(service(values, "Portal", "portal"), None);
    }
    let mut nested = components();
    for component in &mut nested {
        if component["name"] == "authn" {
            component["serviceValuesPath"] = json!("web.server.service");
        }
    }
    let rendered = render(json!({"components": nested}), &world);
    assert_eq!(
        rendered.get("Authn", "authn")["spec"],
        json!({"web": {"server": {"service": {"type": "NodePort"}}}})
    );
}

#[test]
fn nodes_have_an_address_where_the_admin_names_one() {
    let mut world = World::complete();
    world.services.push(json!({
        "metadata": {"name": "authn-authn"},
        "spec": {"type": "NodePort", "ports": [{"port": 9, "nodePort": 30009}, {"port": 8082, "nodePort": 30082}]},
        "status": {"loadBalancer": {}},
    }));
    let config = |values: Value| render(values, &world).get("Frontend", "frontend")["spec"]["config"].clone();
    assert_eq!(config(json!({})), Value::Null);
    assert_eq!(
        config(json!({"exposure": {"nodeIP": "192.0.2.9"}})),
        json!({"AUTHN_API_BASE_URL": "http://192.0.2.9:30082"})
    );
}

#[test]
fn what_is_worked_out_wins_also_where_it_is_false() {
    let values = json!({
        "hitlApproval": false,
        "vertexAI": {"projectID": "p"},
        "global": {"imageRegistry": "mirror.example"},
        "componentValues": {"krateo-autopilot": {
            "hitlApproval": true, "vertexAI": {"projectID": "mine", "extra": 1}, "big": 9_007_199_254_740_991_i64,
        }},
    });
    let world = World::complete();
    let rendered = render(values, &world);
    assert_eq!(
        rendered.get("KrateoAutopilot", "krateo-autopilot")["spec"],
        json!({
            "hitlApproval": false,
            "vertexAI": {"enabled": true, "projectID": "p", "location": "global", "extra": 1},
            "big": 9_007_199_254_740_991_i64,
            "global": {"imageRegistry": "mirror.example"},
        })
    );
    let rendered = render(json!({"vertexAI": {"enabled": false}}), &world);
    assert_eq!(
        rendered.get("KrateoAutopilot", "krateo-autopilot")["spec"],
        json!({"hitlApproval": true})
    );
}

#[test]
fn the_admins_word_is_given_for_what_is_defined() {
    let values = json!({
        "ociRepo": "oci://charts.example/",
        "registryAuth": {
            "enabled": true, "username": "robot", "plainHTTP": true, "passwordRef": {"name": "registry", "key": "password"},
        },
        "components": [
            {"name": "a", "kind": "A", "version": "1.0.0", "tier": "platform"},
            {
                "name": "b", "kind": "B", "version": "1.0.0", "tier": "platform", "feature": "off", "chart": "c",
                "repo": "https://other.example/charts", "chartRepo": "c",
                "allow": {"namespaces": ["one", "two"], "kinds": ["apps/deployments"], "chartRBAC": true},
            },
        ],
    });
    let bootstrap = render_by(&INSTALLER, &values, &World::default(), true).unwrap();
    let definition = bootstrap.get("CompositionDefinition", "installer");
    let word = text(
        &definition["metadata"]["annotations"],
        "krateo.io/allowed-definitions",
    );
    let entries: Vec<Value> = serde_json::from_str(word).unwrap();
    assert_eq!(word, json!(entries).to_string(), "compact, with sorted keys");
    assert_eq!(
        entries,
        [
            json!({
                "name": "a", "namespace": NAMESPACE, "kind": "A", "version": "1.0.0", "plainHTTP": true,
                "url": "oci://charts.example/a",
            }),
            json!({
                "name": "b", "namespace": NAMESPACE, "kind": "B", "version": "1.0.0", "plainHTTP": true, "repo": "c",
                "url": "https://other.example/charts/c",
                "annotations": {
                    "krateo.io/allowed-namespaces": "one,two",
                    "krateo.io/allowed-kinds": "apps/deployments",
                    "krateo.io/allow-chart-rbac": "true",
                },
            }),
        ]
    );
    // The Installer that is handed over defines exactly these.
    let installer = &bootstrap.get("ConfigMap", "installer-self-cr")["data"];
    let installer = helm::yaml::parse_typed(text(installer, "installer.yaml").as_bytes()).unwrap();
    let mut spec = installer["spec"].clone();
    spec["features"]["off"] = json!(true);
    let rendered = render_by(&INSTALLER, &spec, &World::default(), true).unwrap();
    for entry in entries {
        let definition = rendered.get("CompositionDefinition", text(&entry, "name"));
        let chart = &definition["spec"]["chart"];
        for key in ["url", "version", "repo", "plainHTTP", "insecureSkipVerifyTLS"] {
            assert_eq!(chart.get(key), entry.get(key), "{key}");
        }
        assert_eq!(
            definition["metadata"].get("annotations"),
            entry.get("annotations")
        );
        assert_eq!(
            chart["credentials"],
            json!({
                "username": "robot",
                "passwordRef": {"name": "registry", "key": "password", "namespace": NAMESPACE},
            })
        );
    }
    for switch in installer["spec"]["bootstrap"].as_object().unwrap().values() {
        assert_eq!(*switch, json!({"enabled": false}));
    }
}

#[test]
fn an_installer_that_would_install_the_engine_or_an_operator_is_refused() {
    for part in [
        "coreProvider",
        "certManager",
        "clickhouseOperator",
        "mongodbOperator",
    ] {
        let mut values = composition_mode(json!({}));
        values["bootstrap"][part]["enabled"] = json!(true);
        let refusal = render_by(&INSTALLER, &values, &World::default(), true).unwrap_err();
        let expected = format!("the Installer object has bootstrap.{part}.enabled: set it to false");
        assert!(refusal.said.contains(&expected), "{}", refusal.said);
    }
}

#[test]
fn a_release_beside_its_components_and_an_open_namespace_of_the_engine_are_refused() {
    for (values, expected) in [
        (
            json!({"namespaces": {"krateo": "platform"}}),
            "the release is in namespace \"krateo-system\", and components in namespaces.krateo \"platform\": install with \
             --namespace platform, or set namespaces.krateo to krateo-system",
        ),
        (
            json!({"core-provider": {"namespaceOverride": "engine"}}),
            "the engine is in namespace \"engine\", and core-provider.coreProvider.closedNamespaces does not close it: add \
             \"engine\" there",
        ),
    ] {
        let refusal = render_by(&INSTALLER, &values, &World::default(), true).unwrap_err();
        assert!(refusal.said.contains(expected), "{}", refusal.said);
    }
    let moved = json!({"core-provider": {"namespaceOverride": "engine", "coreProvider": {"closedNamespaces": ["engine"]}}});
    render_by(&INSTALLER, &moved, &World::default(), true).unwrap();
}

#[test]
fn a_login_without_a_password_is_refused() {
    let values = json!({"registryAuth": {"enabled": true, "username": "robot"}});
    let refusal = render_by(&INSTALLER, &values, &World::default(), true)
        .unwrap_err()
        .said;
    assert!(
        refusal.contains(
            "registryAuth is enabled, and takes username, passwordRef.name and passwordRef.key: set them"
        ),
        "{refusal}"
    );
}

#[test]
fn a_bad_list_is_refused_in_the_words_of_kco() {
    let cases = fs::read(root().join("crates/cli/tests/installer/cases.yaml")).unwrap();
    let cases = helm::yaml::parse_typed(&cases).unwrap();
    let cases = cases.as_array().unwrap();
    let mut tried = 0;
    for case in cases.iter().filter(|case| case["only"] != "kco") {
        let name = text(case, "case");
        let values = composition_mode(case["values"].clone());
        // For some of them, the schema has its own message.
        let rendered = render_by(&INSTALLER, &values, &World::default(), false);
        match case["errors"].as_array() {
            None => {
                let on: usize = case["waves"]
                    .as_array()
                    .unwrap()
                    .iter()
                    .map(|wave| wave.as_array().unwrap().len())
                    .sum();
                assert_eq!(rendered.unwrap().definitions().len(), on, "{name}");
            }
            Some(errors) => {
                let Refusal { said, asked } = rendered.unwrap_err();
                assert!(said.contains(errors[0].as_str().unwrap()), "{name}: {said}");
                // After a lookup was answered, the engine would withhold the message.
                assert_eq!(asked, BTreeSet::new(), "{name}");
            }
        }
        tried += 1;
    }
    assert!(tried > 15, "{tried}");
}

#[test]
fn no_template_renders_in_both_modes() {
    let files = |values: &Value| {
        let context = Context::new(jiff::Timestamp::UNIX_EPOCH, |bytes: &mut [u8]| bytes.fill(7));
        let release = ReleaseOptions {
            name: "installer".to_owned(),
            namespace: NAMESPACE.to_owned(),
            revision: 1,
            operation: Operation::Install,
        };
        let options = RenderOptions::new(release, Capabilities::of(HelmLine::Four), context);
        let rendered = INSTALLER.render(values.as_object().unwrap(), &options).unwrap();
        let manifests = rendered.manifests.iter().map(|manifest| &manifest.path);
        let files: BTreeSet<String> = manifests
            .chain(rendered.hooks.iter().map(|hook| &hook.path))
            .map(|path| path.trim_start_matches("installer/").to_owned())
            .collect();
        (files, rendered.crds.len())
    };
    let (bootstrap, types) = files(&json!({}));
    assert_eq!(types, 2, "the definitions of our own types");
    let own: BTreeSet<String> = bootstrap
        .iter()
        .filter(|file| file.starts_with("templates/"))
        .cloned()
        .collect();
    assert_eq!(
        own,
        set(&[
            "templates/bootstrap-teardown.yaml",
            "templates/installers-policy.yaml",
            "templates/namespace.yaml",
            "templates/post-delete-cleanup.yaml",
            "templates/self-bootstrap.yaml"
        ])
    );
    let (composition, types) = files(&composition_mode(json!({})));
    assert_eq!(types, 0);
    assert_eq!(
        composition,
        set(&[
            "templates/definitions.yaml",
            "templates/ordered-teardown.yaml",
            "templates/secret.yaml"
        ])
    );
}

#[test]
fn the_default_list_has_the_kinds_that_its_charts_become() {
    let bootstrap = render_by(&INSTALLER, &json!({}), &World::default(), true).unwrap();
    let role = bootstrap.get("Role", "installer-ordered-teardown");
    let rules = role["rules"].as_array().unwrap();
    for component in components() {
        let name = text(&component, "name");
        let names = Names::of_chart(name).unwrap();
        assert_eq!(names.kind, text(&component, "kind"));
        let removes = rules.iter().any(|rule| {
            rule["resources"]
                .as_array()
                .unwrap()
                .contains(&json!(names.plural))
                && rule["verbs"] == json!(["delete"])
                && rule["resourceNames"] == json!([name])
        });
        assert!(removes, "{name} can be removed in its order");
    }
}

#[test]
fn no_rule_holds_everything_and_the_engine_has_a_namespace_of_its_own() {
    let bootstrap = render_by(&INSTALLER, &json!({}), &World::default(), true).unwrap();
    for object in bootstrap.objects.iter().chain(&bootstrap.hooks) {
        let rules = object["rules"].as_array().into_iter().flatten();
        for rule in rules {
            assert!(!rule.to_string().contains("\"*\""), "{rule}");
        }
        let metadata = &object["metadata"];
        let is_of_engine =
            object["kind"] == "Deployment" || text(metadata, "name").contains("self-bootstrap");
        if is_of_engine && metadata.get("namespace").is_some() {
            let expected = if matches!(object["kind"].as_str(), Some("Role" | "RoleBinding")) {
                NAMESPACE
            } else {
                PLATFORM
            };
            assert_eq!(metadata["namespace"], expected, "{metadata}");
        }
    }
    let accounts: BTreeSet<&str> = bootstrap
        .of(|object| object["kind"] == "ServiceAccount" && object["metadata"]["namespace"] == NAMESPACE)
        .map(|object| text(&object["metadata"], "name"))
        .collect();
    assert_eq!(accounts, BTreeSet::from(["installer-ordered-teardown"]));
}

#[test]
fn the_lookups_of_the_installer_are_spelled_out() {
    let scan = scan(INSTALLER.chart());
    let reads = |api_version: &str, kind: &str| {
        let kind = Kind {
            api_version: api_version.to_owned(),
            kind: kind.to_owned(),
        };
        scan.lookups.get(&kind).copied()
    };
    let all = Some(Reads {
        one: false,
        all: true,
    });
    assert_eq!(reads("apiextensions.k8s.io/v1", "CustomResourceDefinition"), all);
    assert_eq!(reads("v1", "Service"), all);
    assert!(reads("v1", "Secret").is_some_and(|reads| reads.one && !reads.all));
    assert!(
        scan.kinds
            .iter()
            .any(|kind| kind.to_string() == "core.krateo.io/v1alpha1 CompositionDefinition")
    );
}

const NAMESPACED: [&str; 8] = [
    "ServiceAccount",
    "ConfigMap",
    "Role",
    "RoleBinding",
    "Service",
    "Deployment",
    "PodDisruptionBudget",
    "NetworkPolicy",
];

#[test]
fn core_provider_runs_in_the_namespace_that_it_is_given() {
    let mut values = json!({
        "coreProvider": {"certificateSource": "csr"},
        "cdc": {"assets": {"a": "b"}},
        "dashboard": {"enabled": true},
        "networkPolicy": {"enabled": true, "apiServers": [{"ipBlock": {"cidr": "192.0.2.1/32"}}]},
    });
    let plain = render_by(&CORE_PROVIDER, &values, &World::default(), true).unwrap();
    for object in &plain.objects {
        assert_eq!(object["metadata"].get("namespace"), None, "{object}");
    }
    values["namespaceOverride"] = json!(PLATFORM);
    let placed = render_by(&CORE_PROVIDER, &values, &World::default(), true).unwrap();
    assert_eq!(plain.objects.len(), placed.objects.len());
    let mut kinds = BTreeSet::new();
    for (plain, placed) in plain.objects.iter().zip(placed.objects) {
        let kind = text(plain, "kind");
        // It is the same except for the namespace, wherever that occurs.
        let mut expected: Value =
            serde_json::from_str(&plain.to_string().replace(NAMESPACE, PLATFORM)).unwrap();
        if NAMESPACED.contains(&kind) {
            expected["metadata"]["namespace"] = json!(PLATFORM);
            kinds.insert(kind);
        }
        assert_eq!(placed, expected);
    }
    assert_eq!(kinds, NAMESPACED.into_iter().collect());
}

#[test]
fn one_value_says_where_the_images_of_the_platform_come_from() {
    let images = |values: &Value| {
        let rendered = render_by(&INSTALLER, values, &World::default(), true).unwrap();
        let objects = rendered.objects.iter().chain(&rendered.hooks);
        let images: BTreeSet<String> = objects
            .filter_map(|object| object.pointer("/spec/template/spec/containers/0/image"))
            .map(|image| image.as_str().unwrap().to_owned())
            .collect();
        let installer = text(
            &rendered.get("ConfigMap", "installer-self-cr")["data"],
            "installer.yaml",
        );
        let installer = helm::yaml::parse_typed(installer.as_bytes()).unwrap();
        let hooks = installer["spec"]["hooks"]["image"]["registry"].clone();
        (images, hooks)
    };
    let of = |registry: &str| {
        let images =
            ["chart-inspector", "core-provider", "kco"].map(|name| format!("{registry}/{name}:0.1.0"));
        (BTreeSet::from(images), json!(registry))
    };
    assert_eq!(images(&json!({})), of("ghcr.io/krateo"));
    let values = json!({"global": {"imageRegistry": "mirror.example/krateo"}});
    assert_eq!(images(&values), of("mirror.example/krateo"));
    let rendered = render(values, &World::default());
    let hook = rendered.get("Job", "installer-ordered-teardown");
    assert_eq!(
        hook.pointer("/spec/template/spec/containers/0/image").unwrap(),
        "mirror.example/krateo/kco:0.1.0"
    );
}

#[test]
fn values_that_no_template_knows_are_refused() {
    let mut deep = Map::new();
    deep.insert("typo".to_owned(), json!(1));
    for values in [
        json!({"componentvalues": {}}),
        json!({"exposure": deep.clone()}),
        json!({"bootstrap": deep.clone()}),
        json!({"components": [{"name": "a", "kind": "A", "version": "1.0.0", "tier": "platform", "dep": []}]}),
        json!({"components": [{"name": "a", "kind": "A", "version": "1.0.0"}]}),
        json!({"components": [{"name": "a", "kind": "A", "version": "1.0", "tier": "platform"}]}),
        json!({"exposure": {"type": "nodeport"}}),
    ] {
        let refusal = render_by(&INSTALLER, &values, &World::default(), true)
            .unwrap_err()
            .said;
        assert!(refusal.contains("values don't meet"), "{values}: {refusal}");
    }
}
