//! Checks compositions against the schema of the version that they would move to.

use std::time::Duration;

use api::definition::Breaker;
use crdgen::JSONSchemaProps;
use crdgen::conversion::Conversion;
use helm::context::Deadline;
use helm::engine::Engine;
use helm_client::rendering::{RENDER_TIMEOUT, SLOT_TIMEOUT};
use serde_json::Map;

use super::instances::{Instance, Spec};

/// How long a page of compositions may take, including the wait for a slot.
pub(crate) const LOOK_TIMEOUT: Duration =
    Duration::from_secs(SLOT_TIMEOUT.as_secs() + RENDER_TIMEOUT.as_secs());

/// A version of the type that compositions are checked against.
pub(super) struct Gate<'a> {
    /// The chart of the version.
    pub(super) engine: &'a Engine,
    /// The structural schema of the version.
    pub(super) own: &'a JSONSchemaProps,
    /// The version's name.
    pub(super) version: &'a str,
    /// The conversion between the versions, if charts list changes.
    pub(super) conversion: Option<&'a Conversion>,
}

impl Gate<'_> {
    /// Why the version refuses a composition, with the path and the first reason; one that is being deleted is never
    /// refused.
    ///
    /// Also none once the deadline has passed, so the caller must not conclude that the composition fits.
    ///
    /// `own_schema` gives the schema of the composition's current version, to ignore fields that exist only because of
    /// other versions.
    pub(super) fn breaker(
        &self,
        instance: &Instance,
        spec: Spec,
        own_schema: impl Fn(&str) -> Option<JSONSchemaProps>,
        deadline: &Deadline,
    ) -> Option<Breaker> {
        if instance.deleting {
            return None;
        }
        let labelled = instance.version.as_deref();
        let former = labelled.and_then(own_schema);
        let (path, reason) = self.refusal(labelled, spec, former.as_ref(), deadline)?;
        Some(Breaker {
            namespace: instance.namespace.clone(),
            name: instance.name.clone(),
            path,
            reason,
        })
    }

    /// Why the version refuses a spec, as Helm would refuse the values, or the API server the object. Without anything of
    /// the spec but its keys: definitions are read by others than compositions.
    fn refusal(
        &self,
        labelled: Option<&str>,
        spec: Spec,
        former: Option<&JSONSchemaProps>,
        deadline: &Deadline,
    ) -> Option<(String, String)> {
        if spec.is_unreadable {
            return Some((String::new(), "it cannot be read".to_owned()));
        }
        let mut spec = spec.in_version(self.version, labelled, self.conversion, |spec| {
            if let Some(former) = former {
                crdgen::drop_strangers(former, spec);
            }
        });
        let none = Map::new();
        let values = spec.as_object().unwrap_or(&none);
        match self.engine.check_until(values, &|| deadline.is_over()) {
            Err(_) => {
                let why = "its values cannot be merged with those of the chart";
                return Some((String::new(), why.to_owned()));
            }
            Ok(None) => return None,
            Ok(Some(checked)) => {
                if let [first, others @ ..] = checked.violations.as_slice() {
                    let more = match others.len() {
                        0 => String::new(),
                        more => format!(" (and {more} more)"),
                    };
                    return Some((first.path.clone(), format!("{}{more}", first.masked)));
                }
            }
        }
        crdgen::fill_defaults(self.own, &mut spec);
        crdgen::refusal(self.own, &spec, "spec").map(|why| (String::new(), why))
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use helm::chart::{Chart, File, Limits};
    use serde_json::{Value, json};

    use super::*;

    fn engine(schema: &Value) -> Engine {
        let files = vec![
            File::new("Chart.yaml", b"apiVersion: v2\nname: web\nversion: 2.0.0\n"),
            File::new("values.yaml", b"size: small\n"),
            File::new("values.schema.json", schema.to_string()),
        ];
        Engine::new(Chart::from_files(files, &Limits::default()).unwrap())
    }

    fn deadline(is_over: bool) -> Deadline {
        Deadline::new(Duration::from_secs(1), move || is_over)
    }

    fn instance(name: &str, value: Value) -> (Instance, Spec) {
        let instance = Instance {
            namespace: "shop".into(),
            name: name.into(),
            version: Some("v1-0-0".into()),
            definition: None,
            held: true,
            deleting: false,
            released: None,
        };
        let spec = Spec {
            value,
            is_unreadable: false,
            shown: "v1-0-0".into(),
            kept: None,
        };
        (instance, spec)
    }

    #[test]
    fn exactly_the_compositions_that_do_not_fit_are_reported() {
        let schema = json!({
            "type": "object", "additionalProperties": false, "required": ["size"],
            "properties": {"size": {"enum": ["small", "big"]}, "count": {"type": "integer", "maximum": 3}},
        });
        let engine = engine(&schema);
        let own = crdgen::structural(&schema, &json!({"size": "small"}))
            .unwrap()
            .spec;
        let former: JSONSchemaProps = serde_json::from_value(json!({
            "type": "object", "properties": {"size": {"type": "string"}, "count": {"type": "integer"}},
        }))
        .unwrap();
        let gate = Gate {
            engine: &engine,
            own: &own,
            version: "v2-0-0",
            conversion: None,
        };
        let (wrong, spec) = instance("wrong-size", json!({"size": "huge"}));
        assert_eq!(gate.breaker(&wrong, spec, |_| None, &deadline(true)), None);
        let mut going = instance("going", json!({"size": "huge"}));
        going.0.deleting = true;
        let mut deep = instance("deep", Value::Null);
        deep.1.is_unreadable = true;
        let instances = [
            deep,
            instance("fits", json!({"count": 3})),
            instance("too-many", json!({"count": 9})),
            instance("carries-a-stranger", json!({"elsewhere": 1})),
            instance("wrong-size", json!({"size": "huge"})),
            going,
        ];
        let breakers: Vec<_> = instances
            .into_iter()
            .filter_map(|(instance, spec)| {
                gate.breaker(&instance, spec, |_| Some(former.clone()), &deadline(false))
            })
            .collect();
        let said: Vec<_> = breakers
            .iter()
            .map(|breaker| {
                (
                    breaker.name.as_str(),
                    breaker.path.as_str(),
                    breaker.reason.as_str(),
                )
            })
            .collect();
        assert_eq!(
            said,
            [
                ("deep", "", "it cannot be read"),
                ("too-many", "/count", "the value is greater than the maximum of 3"),
                (
                    "wrong-size",
                    "/size",
                    "the value is not one of \"small\" or \"big\""
                ),
            ]
        );
    }
}
