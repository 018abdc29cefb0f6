//! `kco installer check` and `schema`, run like from a shell.

#![expect(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

use std::collections::BTreeMap;
use std::fs;
use std::io::{BufRead as _, BufReader, Write as _};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::{Arc, Mutex};
use std::thread;

use serde_json::{Value, json};

const FOLDER: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/installer");

/// `kco installer` with these arguments, and no cluster.
fn kco(arguments: &[&str]) -> Output {
    let mut kco = Command::new(env!("CARGO_BIN_EXE_kco"));
    for name in ["HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy"] {
        kco.env_remove(name);
    }
    kco.arg("installer")
        .args(arguments)
        .env("KUBECONFIG", "/nowhere")
        .output()
        .unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

fn cases() -> Vec<Value> {
    let file = fs::read(Path::new(FOLDER).join("cases.yaml")).unwrap();
    let Value::Array(cases) = helm::yaml::parse_typed(&file).unwrap() else {
        panic!("cases.yaml is no list")
    };
    cases
}

fn strings(value: &Value) -> Vec<&str> {
    let items = value.as_array().into_iter().flatten();
    items.map(|item| item.as_str().unwrap()).collect()
}

#[test]
fn every_list_is_checked_as_its_case_says() {
    let folder = tempfile::tempdir().unwrap();
    let cases = cases();
    assert!(cases.len() > 20, "{} cases", cases.len());
    for case in &cases {
        let file = folder.path().join("values.json");
        fs::write(&file, case["values"].to_string()).unwrap();
        let output = kco(&["check", &file.to_string_lossy(), "--offline", "--output", "json"]);
        let (name, said) = (case["case"].as_str().unwrap(), text(&output.stderr));
        let errors = strings(&case["errors"]);
        if errors.is_empty() {
            assert!(output.status.success(), "{name}: {said}");
            let report: Value = serde_json::from_slice(&output.stdout).unwrap();
            let waves: Vec<Vec<&Value>> = report["waves"]
                .as_array()
                .unwrap()
                .iter()
                .map(|wave| {
                    wave.as_array()
                        .unwrap()
                        .iter()
                        .map(|entry| &entry["name"])
                        .collect()
                })
                .collect();
            assert_eq!(json!(waves), case["waves"], "{name}");
        } else {
            assert_eq!(output.status.code(), Some(1), "{name}");
            let expected = match &errors[..] {
                [one] => format!("Error: {one}\n"),
                all => format!(
                    "Error: {} faults in components:\n  {}\n",
                    all.len(),
                    all.join("\n  ")
                ),
            };
            assert_eq!(said, expected, "{name}");
        }
    }
}

#[test]
fn waves_and_consent_are_printed_for_review() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("values.yaml");
    fs::write(
        &file,
        "ociRepo: oci://registry.example/charts
features: {extra: false}
components:
- {name: a-crd, kind: ACrd, version: 1.0.0, tier: platform}
- {name: a, kind: A, version: 1.0.0, tier: platform, deps: [a-crd], allow: {kinds: [apps/deployments], chartRBAC: true}}
- {name: b, kind: B, version: 1.0.0, tier: platform, feature: extra}
",
    )
    .unwrap();
    let output = kco(&["check", &file.to_string_lossy(), "--offline"]);
    assert!(output.status.success(), "{}", text(&output.stderr));
    let expected = fs::read_to_string(Path::new(FOLDER).join("review.txt")).unwrap();
    assert_eq!(text(&output.stdout), expected);
}

/// Charts served over HTTP, by path.
struct Charts {
    address: String,
    archives: Arc<Mutex<BTreeMap<String, Vec<u8>>>>,
}

impl Charts {
    fn serve() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = format!("http://{}", listener.local_addr().unwrap());
        let archives: Arc<Mutex<BTreeMap<String, Vec<u8>>>> = Arc::default();
        let served = archives.clone();
        thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let served = served.clone();
                thread::spawn(move || answer(&stream, &served.lock().unwrap()));
            }
        });
        Self { address, archives }
    }

    /// Publishes a chart with this schema, or with none, as `/<name>.tgz`.
    fn publish(&self, name: &str, version: &str, schema: Option<&Value>) {
        let folder = tempfile::tempdir().unwrap();
        let chart = folder.path().join(name);
        fs::create_dir(&chart).unwrap();
        let metadata = format!("apiVersion: v2\nname: {name}\nversion: {version}\n");
        fs::write(chart.join("Chart.yaml"), metadata).unwrap();
        if let Some(schema) = schema {
            fs::write(chart.join("values.schema.json"), schema.to_string()).unwrap();
        }
        // The same chart gives the same bytes, whenever it is packed.
        let packed = Command::new("tar")
            .args(["--sort=name", "--mtime=@0", "--owner=0", "--group=0", "-C"])
            .arg(folder.path())
            .args(["-cz", name])
            .output()
            .unwrap();
        assert!(packed.status.success(), "{}", text(&packed.stderr));
        let path = format!("/{name}.tgz");
        self.archives.lock().unwrap().insert(path, packed.stdout);
    }

    /// An installer chart with these components.
    fn installer(&self, components: &[(&str, &str)]) -> (tempfile::TempDir, PathBuf) {
        let folder = tempfile::tempdir().unwrap();
        let chart = folder.path().join("installer");
        fs::create_dir(&chart).unwrap();
        fs::write(
            chart.join("Chart.yaml"),
            "apiVersion: v2\nname: installer\nversion: 0.1.0\n",
        )
        .unwrap();
        self.list(&chart, components);
        (folder, chart)
    }

    fn list(&self, chart: &Path, components: &[(&str, &str)]) {
        let each = components.iter().map(|(name, version)| {
            let kind = name[..1].to_uppercase() + &name[1..];
            json!({"name": name, "kind": kind, "version": version, "tier": "platform", "chart": format!("{name}.tgz")})
        });
        let values = json!({"ociRepo": self.address, "components": each.collect::<Vec<_>>()});
        fs::write(chart.join("values.yaml"), values.to_string()).unwrap();
    }
}

fn answer(mut stream: &TcpStream, archives: &BTreeMap<String, Vec<u8>>) {
    let mut lines = BufReader::new(stream).lines().map_while(Result::ok);
    let first = lines.next().unwrap_or_default();
    lines.find(String::is_empty);
    let path = first.split(' ').nth(1).unwrap_or_default();
    let (status, body) = match archives.get(path) {
        Some(body) => ("200 OK", body.as_slice()),
        None => ("404 Not Found", &[][..]),
    };
    let head = format!(
        "HTTP/1.1 {status}\r\nContent-Length: {}\r\nConnection: close\r\n\r\n",
        body.len()
    );
    let _ = stream.write_all(head.as_bytes());
    let _ = stream.write_all(body);
}

fn alpha() -> Value {
    json!({
        "$schema": "http://json-schema.org/draft-07/schema#", "title": "Alpha", "type": "object",
        "required": ["replicas"], "additionalProperties": false,
        "definitions": {"port": {"type": "integer", "minimum": 1}},
        "properties": {
            "replicas": {"type": "integer", "default": 1},
            "required": {"type": "boolean"},
            "service": {"type": "object", "required": ["port"], "properties": {"port": {"$ref": "#/definitions/port"}}},
        },
    })
}

fn beta() -> Value {
    json!({"type": "object", "properties": {"config": {"type": "object", "additionalProperties": {"type": "string"}}}})
}

fn schema(chart: &Path, flags: &[&str]) -> Output {
    let chart = chart.to_string_lossy();
    kco(&[&["schema", &*chart][..], flags].concat())
}

#[test]
fn schemas_of_components_become_one_and_a_changed_pin_is_reported() {
    let charts = Charts::serve();
    charts.publish("alpha", "1.0.0", Some(&alpha()));
    charts.publish("beta", "2.0.0", Some(&beta()));
    let (_folder, chart) = charts.installer(&[("beta", "2.0.0"), ("alpha", "1.0.0")]);

    let unmade = schema(&chart, &["--check"]);
    assert_eq!(unmade.status.code(), Some(1));
    assert!(
        text(&unmade.stderr).contains("component \"alpha\" is new"),
        "{}",
        text(&unmade.stderr)
    );
    assert!(
        !chart.join("values.schema.json").exists(),
        "--check writes nothing"
    );

    let made = schema(&chart, &[]);
    assert!(made.status.success(), "{}", text(&made.stderr));
    let written = fs::read_to_string(chart.join("values.schema.json")).unwrap();
    let golden = fs::read_to_string(Path::new(FOLDER).join("values.schema.json")).unwrap();
    assert_eq!(written, golden);
    let lock = fs::read_to_string(chart.join("values.schema.lock.yaml")).unwrap();
    assert!(
        lock.contains("sha256:") && lock.contains(&format!("{}/alpha.tgz", charts.address)),
        "{lock}"
    );

    // Run again: the same output, byte for byte, and no complaints.
    assert!(schema(&chart, &[]).status.success());
    assert_eq!(
        fs::read_to_string(chart.join("values.schema.json")).unwrap(),
        written
    );
    assert_eq!(
        fs::read_to_string(chart.join("values.schema.lock.yaml")).unwrap(),
        lock
    );
    let checked = schema(&chart, &["--check"]);
    assert!(checked.status.success(), "{}", text(&checked.stderr));

    // Published again under the same version.
    charts.publish("beta", "2.0.0", Some(&json!({"type": "object"})));
    let moved = schema(&chart, &["--check"]);
    assert_eq!(moved.status.code(), Some(1));
    assert!(
        text(&moved.stderr).contains("component \"beta\": version 2.0.0 was published again"),
        "{}",
        text(&moved.stderr)
    );

    // A changed pin is reported without fetching any chart.
    charts.archives.lock().unwrap().clear();
    charts.list(&chart, &[("alpha", "1.1.0")]);
    let moved = schema(&chart, &["--check"]);
    assert_eq!(moved.status.code(), Some(1));
    let said = text(&moved.stderr);
    assert!(
        said.contains("component \"alpha\": version \"1.0.0\" became \"1.1.0\""),
        "{said}"
    );
    assert!(said.contains("component \"beta\" is no longer listed"), "{said}");
    assert_eq!(
        fs::read_to_string(chart.join("values.schema.json")).unwrap(),
        written
    );
}

#[test]
fn an_edited_schema_is_reported() {
    let charts = Charts::serve();
    charts.publish("alpha", "1.0.0", Some(&alpha()));
    let (_folder, chart) = charts.installer(&[("alpha", "1.0.0")]);
    assert!(schema(&chart, &[]).status.success());
    let path = chart.join("values.schema.json");
    let edited = fs::read_to_string(&path)
        .unwrap()
        .replace("Values of chart alpha", "Anything of chart alpha");
    fs::write(&path, edited).unwrap();
    let moved = schema(&chart, &["--check"]);
    assert_eq!(moved.status.code(), Some(1));
    assert!(
        text(&moved.stderr).contains("values.schema.json was edited"),
        "{}",
        text(&moved.stderr)
    );
}

#[test]
fn a_chart_that_is_missing_or_has_no_schema_or_another_version_stops_it() {
    let charts = Charts::serve();
    charts.publish("alpha", "1.0.0", Some(&alpha()));
    charts.publish("bare", "1.0.0", None);
    charts.publish("old", "0.9.0", Some(&beta()));
    let (_folder, chart) = charts.installer(&[
        ("alpha", "1.0.0"),
        ("bare", "1.0.0"),
        ("gone", "1.0.0"),
        ("old", "1.0.0"),
    ]);
    let failed = schema(&chart, &[]);
    assert_eq!(failed.status.code(), Some(1));
    let said = text(&failed.stderr);
    assert!(said.contains("nothing is written, because of 3 charts"), "{said}");
    assert!(
        said.contains("component \"bare\": its chart has no values.schema.json"),
        "{said}"
    );
    assert!(said.contains("component \"gone\""), "{said}");
    assert!(said.contains("is version 0.9.0, the list has 1.0.0"), "{said}");
    assert!(!chart.join("values.schema.json").exists());

    let allowed = schema(&chart, &["--allow-missing"]);
    assert!(allowed.status.success(), "{}", text(&allowed.stderr));
    let written: Value =
        serde_json::from_slice(&fs::read(chart.join("values.schema.json")).unwrap()).unwrap();
    let values = &written["properties"]["componentValues"]["properties"];
    assert_eq!(values["bare"]["x-kubernetes-preserve-unknown-fields"], true);
    assert_eq!(values["alpha"]["additionalProperties"], false);

    // With the charts as they are, `check --charts` reports the same about the ones that can be fetched.
    let checked = kco(&["check", &chart.to_string_lossy(), "--offline", "--charts"]);
    let said = text(&checked.stderr);
    assert_eq!(checked.status.code(), Some(1));
    assert!(said.contains("2 charts are not as listed"), "{said}");
}
