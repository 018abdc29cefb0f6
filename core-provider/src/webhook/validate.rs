//! Validates compositions at admission against the chart's full JSON Schema, with the same result as Helm over the same
//! values.

use std::collections::HashMap;
use std::fmt::Write as _;
use std::sync::{Arc, LazyLock, Mutex, PoisonError};

use api::{COMPOSITION_GROUP, CompositionDefinition, labels};
use charts::Charts;
use composition::{Schemas, chart_of, schema, serves};
use helm::context::Deadline;
use helm::engine::Engine;
use helm::schema::Violation;
use helm_client::rendering::Pool;
use kube::runtime::reflector::Store;
use runtime::chain;
use serde_json::{Map, Value};
use tokio::sync::Semaphore;
use tokio::time::Instant;

use super::bodies::Admitted;
use super::conversions::Conversions;
use super::review::{AdmissionRequest, Operation, Verdict};

/// The reason in the warning when a validation hits its deadline.
const TOO_LONG: &str = "it takes too long";

/// How many unknown keys are reported at most.
const TOLD: usize = 20;

/// What validation needs from the process.
pub(crate) struct Judge {
    pub(crate) definitions: Store<CompositionDefinition>,
    pub(crate) charts: Arc<Charts>,
    pub(crate) schemas: Schemas,
    pub(crate) conversions: Arc<Conversions>,
}

/// How many slots of the pool each type may use to validate values against its schema, at admission and when it gets a
/// new version: fewer than the pool has, for all namespaces together. Evaluating a schema keyword cannot be
/// interrupted, so it may occupy a slot beyond its deadline. Then only the type with the slow schema has a slot less,
/// and its writes pass with a warning.
#[derive(Default)]
pub(crate) struct Shares(Mutex<HashMap<String, Arc<Semaphore>>>);

static SHARES: LazyLock<Shares> = LazyLock::new(Shares::default);

impl Shares {
    /// The shares of this process, which has one pool.
    pub(crate) fn of_process() -> &'static Self {
        &SHARES
    }

    /// The share of a type that a definition serves. The map holds at most one entry per kind of a definition.
    pub(crate) fn of(&self, kind: &str) -> Arc<Semaphore> {
        let mut shares = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let share = shares.entry(kind.to_owned());
        let share = share.or_insert_with(|| Arc::new(Semaphore::new(Pool::of_process().share())));
        share.clone()
    }
}

impl Judge {
    /// Waits until the definitions are listed and their charts fetched, as far as they can be fetched.
    pub(crate) async fn prepare(&self) {
        // An error means that the watch has ended because the process ends.
        if self.definitions.wait_until_ready().await.is_err() {
            return;
        }
        let definitions = self.definitions.state();
        let judged = definitions.iter().filter(|definition| is_judged(definition));
        let fetched =
            judged.map(async |definition| self.charts.get(&composition::chart_spec(definition)).await);
        // A chart that cannot be fetched is reported when a write needs it.
        futures::future::join_all(fetched).await;
    }

    /// Validates one write. If it cannot be validated, it is allowed with a warning: the controller checks again before
    /// it renders.
    pub(super) async fn judge(&self, request: &AdmissionRequest, admitted: &Admitted) -> Verdict {
        // A stored object that no longer fits the schema must still accept labels and finalizers, and be deletable.
        if request.operation == Operation::Update && request.keeps_spec() {
            return Verdict::default();
        }
        let object = match request.read() {
            Ok(object) => object,
            Err(why) => {
                return Verdict {
                    refusal: Some(format!("controllers could not read this object: {why}")),
                    ..Verdict::default()
                };
            }
        };
        let version = version(request, &object);
        let Some(definition) = self.definition(&version, &request.kind.kind) else {
            return unchecked(&format!("no CompositionDefinition serves {version}"));
        };
        let chart = chart_of(&definition, &version, &request.kind.kind);
        let until = admitted.until;
        let chart = match tokio::time::timeout_at(until, self.charts.get(&chart)).await {
            Ok(Ok(chart)) => chart,
            Ok(Err(error)) => return unchecked(&chain(&error)),
            Err(_) => return unchecked("the chart is still being fetched"),
        };
        let spec = match tokio::time::timeout_at(until, self.governed(request, object, &version)).await {
            Ok(Ok(spec)) => spec,
            Ok(Err(why)) => return unchecked(&why),
            Err(_) => return unchecked("the changes between versions are still being read"),
        };
        match self.schemas.of(&chart.digest, &chart.engine) {
            Ok(own) => {
                let share = Shares::of_process().of(&request.kind.kind).acquire_owned();
                let Ok(Ok(share)) = tokio::time::timeout_at(until, share).await else {
                    return unchecked("other compositions of the type are still being checked");
                };
                let held = (admitted.clone(), share);
                verdict(request, chart.engine.clone(), own, spec, until, held).await
            }
            Err(error) => unchecked(&chain(&error)),
        }
    }

    /// The values in the version that governs the object.
    async fn governed(
        &self,
        request: &AdmissionRequest,
        mut object: Value,
        version: &str,
    ) -> Result<Value, String> {
        let governing = version.rsplit_once('/').map_or(version, |(_, version)| version);
        if object["apiVersion"] == version || request.kind.version == governing {
            return Ok(object["spec"].take());
        }
        let conversion = self.conversions.now(&request.resource.resource).await;
        let Some(conversion) = conversion.map_err(|error| chain(&error))? else {
            return Ok(object["spec"].take());
        };
        let converted = conversion.convert(&mut object, governing);
        converted.map_err(|error| error.to_string())?;
        Ok(object["spec"].take())
    }

    fn definition(&self, api_version: &str, kind: &str) -> Option<Arc<CompositionDefinition>> {
        self.definitions
            .find(|definition| serves(definition, api_version, kind))
    }
}

/// The version that governs the object: the one in its label, or the one it was written through.
fn version(request: &AdmissionRequest, object: &Value) -> String {
    let through = request.request_kind.as_ref().unwrap_or(&request.kind);
    let label = object["metadata"]["labels"][labels::COMPOSITION_VERSION].as_str();
    format!("{COMPOSITION_GROUP}/{}", label.unwrap_or(&through.version))
}

/// True when writes of this definition's compositions are validated here.
pub(crate) fn is_judged(definition: &CompositionDefinition) -> bool {
    let status = definition.status.as_ref();
    status.is_some_and(|status| !status.degraded.is_empty())
}

fn unchecked(why: &str) -> Verdict {
    Verdict {
        warnings: vec![format!("not checked against the chart's full schema: {why}")],
        ..Verdict::default()
    }
}

/// Validates on the pool that renders charts, because a schema can take arbitrarily long too.
async fn verdict(
    request: &AdmissionRequest,
    engine: Arc<Engine>,
    own: Option<Arc<crdgen::JSONSchemaProps>>,
    spec: Value,
    until: Instant,
    held: impl Send + 'static,
) -> Verdict {
    let namespace = &request.namespace;
    let work = move |deadline: Deadline| {
        let verdict = judged(&engine, own.as_deref(), &spec, &deadline);
        // Room and share are released only now, even if the caller has stopped waiting.
        drop(held);
        verdict
    };
    let left = until.saturating_duration_since(Instant::now());
    let judging = Pool::of_process().run(namespace, left, work);
    match tokio::time::timeout_at(until, judging).await {
        Ok(Ok(verdict)) => verdict,
        Ok(Err(busy)) => unchecked(&busy.to_string()),
        Err(_) => unchecked(TOO_LONG),
    }
}

fn judged(
    engine: &Engine,
    own: Option<&crdgen::JSONSchemaProps>,
    spec: &Value,
    deadline: &Deadline,
) -> Verdict {
    let read = own.map_or_else(|| spec.clone(), |own| schema::read_by(own, spec));
    let none = Map::new();
    let checked = match engine.check_until(read.as_object().unwrap_or(&none), &|| deadline.is_over()) {
        Ok(Some(checked)) => checked,
        Ok(None) => return unchecked(TOO_LONG),
        Err(error) => {
            return Verdict {
                refusal: Some(chain(&error)),
                ..Verdict::default()
            };
        }
    };
    let unknown = match own {
        Some(own) => schema::unknown_keys(own, &engine.chart().values(), &read),
        None => Vec::new(),
    };
    let warning =
        |key: &String| format!("unknown field {key:?}: neither the chart's schema nor its values know it");
    Verdict {
        refusal: (!checked.violations.is_empty()).then(|| refusal(&checked.violations)),
        warnings: unknown.iter().take(TOLD).map(warning).collect(),
        patch: None,
    }
}

/// The refusal in Helm's words, one line per path.
fn refusal(violations: &[Violation]) -> String {
    let mut text =
        "values don't meet the specifications of the schema(s) in the following chart(s):".to_owned();
    let mut chart = "";
    for violation in violations {
        if violation.chart != chart {
            chart = &violation.chart;
            let _ = write!(text, "\n{chart}:");
        }
        let _ = write!(text, "\n- at '{}': {}", violation.path, violation.reason);
    }
    text
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use helm::chart::{Chart, File, Limits};
    use serde_json::json;

    use super::*;

    fn engine() -> Engine {
        let schema = json!({
            "type": "object",
            "properties": {"a": {"type": "string"}, "b": {"type": "string"}},
            "oneOf": [{"required": ["a"]}, {"required": ["b"]}],
        });
        let files = vec![
            File::new("Chart.yaml", b"apiVersion: v2\nname: web\nversion: 1.0.0\n"),
            File::new("values.yaml", b"a: x\nport: 80\n"),
            File::new("values.schema.json", schema.to_string()),
        ];
        Engine::new(Chart::from_files(files, &Limits::default()).unwrap())
    }

    fn judged(spec: &Value) -> Verdict {
        let engine = engine();
        let own = schema::structural(&engine, crdgen::BadDefaults::Drop)
            .unwrap()
            .unwrap();
        super::judged(&engine, Some(&own.spec), spec, &deadline(false))
    }

    fn deadline(is_over: bool) -> Deadline {
        Deadline::new(Duration::from_secs(1), move || is_over)
    }

    #[test]
    fn a_validation_stops_at_its_deadline_and_warns() {
        let verdict = super::judged(&engine(), None, &json!({"b": "y"}), &deadline(true));
        assert_eq!(verdict, unchecked(TOO_LONG));
    }

    #[tokio::test]
    async fn one_type_cannot_take_the_slots_of_others() {
        let shares = Shares::default();
        let share = shares.of("Web");
        let all = u32::try_from(Pool::of_process().share()).unwrap();
        let _held = share.clone().try_acquire_many_owned(all).unwrap();
        assert!(shares.of("Web").try_acquire().is_err());
        assert!(shares.of("Shop").try_acquire().is_ok());
    }

    #[test]
    fn values_are_validated_merged_over_the_charts_defaults() {
        assert_eq!(judged(&json!({})).refusal, None);
        let refusal = judged(&json!({"b": "y"})).refusal.unwrap();
        assert!(
            refusal.contains("\nweb:\n- at '': 'oneOf' failed, subschemas 0, 1 matched"),
            "{refusal}"
        );
        assert_eq!(judged(&json!({"a": null, "b": "y"})).refusal, None);
    }

    #[test]
    fn an_unknown_key_causes_a_warning_and_is_stored() {
        let verdict = judged(&json!({"prot": 81, "port": 81}));
        assert_eq!(verdict.refusal, None);
        assert_eq!(verdict.warnings.len(), 1);
        assert!(verdict.warnings[0].contains("\"spec.prot\""));
    }
}
