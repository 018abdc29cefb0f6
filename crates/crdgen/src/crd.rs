//! Builds a CRD from names, a version and a schema; adds versions to it and removes them.

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::{
    CustomResourceColumnDefinition, CustomResourceConversion, CustomResourceDefinitionNames,
    CustomResourceDefinitionSpec, CustomResourceDefinitionVersion, CustomResourceSubresourceStatus,
    CustomResourceSubresources, CustomResourceValidation,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde_json::json;

pub use crate::error::Error;
use crate::served::{STORAGE_VERSION, name, real};
use crate::structural::{anything, come_into_being};
use crate::{CustomResourceDefinition, JSONSchemaProps, Names, ServedVersion, siblings, values};

/// The API group of all compositions.
pub const GROUP: &str = "composition.krateo.io";

/// A CRD with its first version, served and stored.
///
/// `spec` is the schema of [`crate::structural()`].
pub fn crd(names: &Names, version: &ServedVersion, spec: &JSONSchemaProps) -> CustomResourceDefinition {
    CustomResourceDefinition {
        metadata: ObjectMeta {
            name: Some(format!("{}.{GROUP}", names.plural)),
            ..Default::default()
        },
        spec: CustomResourceDefinitionSpec {
            group: GROUP.to_owned(),
            names: CustomResourceDefinitionNames {
                kind: names.kind.clone(),
                list_kind: Some(names.list_kind.clone()),
                plural: names.plural.clone(),
                singular: Some(names.singular.clone()),
                categories: Some(vec!["compositions".to_owned(), "comps".to_owned()]),
                short_names: None,
            },
            scope: "Namespaced".to_owned(),
            versions: vec![served(version, spec, true)],
            conversion: Some(no_conversion()),
            preserve_unknown_fields: None,
        },
        status: None,
    }
}

/// Adds a version to the CRD, such that no write through any version loses fields of another.
///
/// From the second version on, objects are stored as [`STORAGE_VERSION`], all real versions are served and none is
/// stored, and objects are converted by copying (strategy `None`); a caller that needs another conversion
/// ([`crate::conversion::needed`]) sets it. Each version's schema also contains the fields that only other versions
/// have, untyped, at their paths in this version; a field whose type differs between versions is untyped in all of
/// them. [`own_schema`] returns the schema with which a version was created.
///
/// An existing version keeps its schema, only its status schema is updated: repeating the call gives the same bytes.
/// `status`, including `storedVersions`, is not changed.
///
/// # Errors
/// When the schemas of the CRD's versions cannot be read.
pub fn with_version(
    existing: CustomResourceDefinition,
    version: &ServedVersion,
    spec: &JSONSchemaProps,
) -> Result<CustomResourceDefinition, Error> {
    let mut crd = existing;
    let there = real(&crd).any(|there| there.name == version.as_str());
    if !there {
        let at = crd
            .spec
            .versions
            .iter()
            .take_while(|there| there.name != STORAGE_VERSION)
            .count();
        crd.spec.versions.insert(at, served(version, spec, false));
    }
    settle(crd)
}

/// Removes a version from the CRD, and from the other versions the fields that only it had.
///
/// The storage version is kept, because objects are stored in it. The caller makes sure that `version` is no longer
/// listed in `status.storedVersions`. If the version does not exist, the CRD is only updated.
///
/// # Errors
/// When it is the last version, or the schemas of the CRD's versions cannot be read.
pub fn without_version(
    existing: CustomResourceDefinition,
    version: &str,
) -> Result<CustomResourceDefinition, Error> {
    let mut crd = existing;
    if real(&crd).all(|there| there.name == version) {
        let (crd, version) = (name(&crd), version.to_string());
        return Err(Error::LastVersion { crd, version });
    }
    let mut own = siblings::read_all(&crd)?;
    own.retain(|(there, _)| there != version);
    crd.spec.versions.retain(|there| there.name != version);
    siblings::write_all(&mut crd, &own)?;
    settle(crd)
}

/// The schema of `spec` with which a version was created, without the fields of other versions.
///
/// A reader of the version uses it to fill defaults ([`crate::fill_defaults`]) and to drop fields of other versions
/// ([`crate::drop_strangers`]). None if the CRD does not serve the version.
///
/// # Errors
/// When the schemas of the CRD's versions cannot be read.
pub fn own_schema(crd: &CustomResourceDefinition, version: &str) -> Result<Option<JSONSchemaProps>, Error> {
    let own = siblings::read_all(crd)?;
    Ok(own
        .into_iter()
        .find(|(name, _)| name == version)
        .map(|(_, schema)| schema))
}

/// Adjusts all versions to each other.
fn settle(mut crd: CustomResourceDefinition) -> Result<CustomResourceDefinition, Error> {
    let own = siblings::read_all(&crd)?;
    let several = own.len() > 1
        || crd
            .spec
            .versions
            .iter()
            .any(|version| version.name == STORAGE_VERSION);
    let storage = crd
        .spec
        .versions
        .iter()
        .position(|version| version.name == STORAGE_VERSION);
    let storage = storage.map(|at| crd.spec.versions.remove(at));
    for version in &mut crd.spec.versions {
        version.served = true;
        version.storage = !several;
        version.additional_printer_columns = Some(columns());
        version.subresources = Some(status_subresource());
        renew_status(version);
    }
    if several {
        crd.spec.versions.push(storage.unwrap_or_else(storage_version));
    }
    crd.spec.conversion = Some(no_conversion());
    siblings::write_all(&mut crd, &own)?;
    Ok(crd)
}

fn served(version: &ServedVersion, spec: &JSONSchemaProps, storage: bool) -> CustomResourceDefinitionVersion {
    CustomResourceDefinitionVersion {
        name: version.to_string(),
        served: true,
        storage,
        schema: Some(CustomResourceValidation {
            open_api_v3_schema: Some(whole(spec)),
        }),
        subresources: Some(status_subresource()),
        additional_printer_columns: Some(columns()),
        ..Default::default()
    }
}

fn storage_version() -> CustomResourceDefinitionVersion {
    let kept = |words: &str| JSONSchemaProps {
        type_: Some("object".to_owned()),
        description: Some(words.to_owned()),
        nullable: None,
        ..anything()
    };
    let schema = JSONSchemaProps {
        type_: Some("object".to_owned()),
        description: Some("How objects of all versions are stored; never served.".to_owned()),
        properties: Some(
            [
                ("spec".to_owned(), kept("Kept as written.")),
                ("status".to_owned(), kept("Kept as written.")),
            ]
            .into(),
        ),
        ..Default::default()
    };
    CustomResourceDefinitionVersion {
        name: STORAGE_VERSION.to_owned(),
        served: false,
        storage: true,
        schema: Some(CustomResourceValidation {
            open_api_v3_schema: Some(schema),
        }),
        subresources: Some(status_subresource()),
        ..Default::default()
    }
}

/// The schema of a whole object, built around that of its `spec`.
pub(crate) fn whole(spec: &JSONSchemaProps) -> JSONSchemaProps {
    let mut spec = spec.clone();
    spec.description
        .get_or_insert_with(|| "The chart's values.".to_owned());
    come_into_being(&mut spec, "spec");
    // An object without `spec` uses the chart's own values, which may lack fields that the schema requires.
    let may_lack = spec.default.is_some() || values::refusal(&spec, &json!({}), "spec").is_none();
    let properties = [
        ("apiVersion", words("Group and version of this object.")),
        ("kind", words("Kind of this object.")),
        (
            "metadata",
            JSONSchemaProps {
                type_: Some("object".to_owned()),
                ..Default::default()
            },
        ),
        ("spec", spec),
        ("status", status()),
    ];
    JSONSchemaProps {
        type_: Some("object".to_owned()),
        required: (!may_lack).then(|| vec!["spec".to_owned()]),
        properties: Some(properties.map(|(key, schema)| (key.to_owned(), schema)).into()),
        ..Default::default()
    }
}

fn renew_status(version: &mut CustomResourceDefinitionVersion) {
    let schema = version
        .schema
        .as_mut()
        .and_then(|schema| schema.open_api_v3_schema.as_mut());
    if let Some(properties) = schema.and_then(|schema| schema.properties.as_mut()) {
        properties.insert("status".to_owned(), status());
    }
}

/// The status that the dynamic controller writes to a composition.
fn status() -> JSONSchemaProps {
    let managed = object(
        "An object that the chart manages.",
        [
            ("apiVersion", words("API version of the object.")),
            ("resource", words("Resource of the object, in the plural.")),
            ("name", words("Name of the object.")),
            ("namespace", words("Namespace of the object, when it has one.")),
            ("path", words("Path at which the API server has the object.")),
        ],
    );
    let revision = JSONSchemaProps {
        type_: Some("integer".to_owned()),
        format: Some("int64".to_owned()),
        ..words("Revision of the Helm release that was seen last.")
    };
    object(
        "What was done, and how it is.",
        [
            ("conditions", conditions()),
            ("helmChartUrl", words("URL of the chart that is deployed.")),
            (
                "helmChartVersion",
                words("Version of the chart that is deployed."),
            ),
            ("digest", words("Digest of the deployed manifest.")),
            ("previousDigest", words("Digest of the manifest deployed before.")),
            ("managed", list("The objects that the chart manages.", managed)),
            ("releaseName", words("Name of the Helm release, chosen once.")),
            ("releaseRevision", revision),
        ],
    )
}

/// `metav1.Condition`, without its limits on lengths: the messages come from charts and servers.
fn conditions() -> JSONSchemaProps {
    let choice = ["True", "False", "Unknown"].map(|text| json!(text));
    let status = JSONSchemaProps {
        enum_: Some(
            choice
                .map(k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::JSON)
                .into(),
        ),
        ..words("True, False or Unknown.")
    };
    let generation = JSONSchemaProps {
        type_: Some("integer".to_owned()),
        format: Some("int64".to_owned()),
        ..words("The generation of the object that the condition is about.")
    };
    let time = JSONSchemaProps {
        format: Some("date-time".to_owned()),
        ..words("When the status last changed.")
    };
    let condition = object(
        "One aspect of how the object is.",
        [
            ("type", words("The aspect, such as Ready.")),
            ("status", status),
            ("observedGeneration", generation),
            ("lastTransitionTime", time),
            ("reason", words("One word why.")),
            ("message", words("A sentence why.")),
        ],
    );
    let required = ["lastTransitionTime", "status", "type"].map(str::to_owned);
    JSONSchemaProps {
        x_kubernetes_list_type: Some("map".to_owned()),
        x_kubernetes_list_map_keys: Some(vec!["type".to_owned()]),
        ..list(
            "How the object is.",
            JSONSchemaProps {
                required: Some(required.into()),
                ..condition
            },
        )
    }
}

fn words(description: &str) -> JSONSchemaProps {
    JSONSchemaProps {
        type_: Some("string".to_owned()),
        description: Some(description.to_owned()),
        ..Default::default()
    }
}

fn object<const N: usize>(description: &str, properties: [(&str, JSONSchemaProps); N]) -> JSONSchemaProps {
    JSONSchemaProps {
        type_: Some("object".to_owned()),
        properties: Some(properties.map(|(key, schema)| (key.to_owned(), schema)).into()),
        ..words(description)
    }
}

fn list(description: &str, item: JSONSchemaProps) -> JSONSchemaProps {
    let items =
        k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::JSONSchemaPropsOrArray::Schema(
            Box::new(item),
        );
    JSONSchemaProps {
        type_: Some("array".to_owned()),
        items: Some(items),
        ..words(description)
    }
}

/// The columns of `kubectl get`. The first two are those of the reference, in its order, for scripts that cut its
/// output; all except the first are fields of [`status`].
fn columns() -> Vec<CustomResourceColumnDefinition> {
    let column = |name: &str, type_: &str, json_path: &str| CustomResourceColumnDefinition {
        name: name.to_owned(),
        type_: type_.to_owned(),
        json_path: json_path.to_owned(),
        ..Default::default()
    };
    let wide = |name: &str, type_: &str, json_path: &str| CustomResourceColumnDefinition {
        priority: Some(1),
        ..column(name, type_, json_path)
    };
    vec![
        column("AGE", "date", ".metadata.creationTimestamp"),
        column("READY", "string", ".status.conditions[?(@.type=='Ready')].status"),
        column(
            "SYNCED",
            "string",
            ".status.conditions[?(@.type=='Synced')].status",
        ),
        column("RELEASE", "string", ".status.releaseName"),
        column("CHART", "string", ".status.helmChartVersion"),
        wide("REVISION", "integer", ".status.releaseRevision"),
        wide(
            "REASON",
            "string",
            ".status.conditions[?(@.type=='Ready')].reason",
        ),
        wide("CHART URL", "string", ".status.helmChartUrl"),
    ]
}

fn status_subresource() -> CustomResourceSubresources {
    CustomResourceSubresources {
        status: Some(CustomResourceSubresourceStatus(json!({}))),
        scale: None,
    }
}

fn no_conversion() -> CustomResourceConversion {
    CustomResourceConversion {
        strategy: "None".to_owned(),
        webhook: None,
    }
}
