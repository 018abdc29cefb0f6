//! Charts that stand in for the components and for the third-party subcharts of the installer: small, but with the
//! behaviour for which the order matters. Types come from `*-crd`, and `oasgen-provider` removes the finalizer of
//! objects that `hyperdx-provider` creates.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};
use serde_json::{Value, json};

use super::components::{Component, Profile};

/// The finalizer of `RestDefinition`s, which the process of `oasgen-provider` removes.
pub const FINALIZER: &str = "trial.krateo.io/rest-definition";

/// The component that removes it.
pub const PROVIDER: &str = "oasgen-provider";

/// The component that creates a `RestDefinition`.
pub const PROVIDED: &str = "hyperdx-provider";

/// The subcharts of the installer that are not ours.
pub const FOREIGN: [(&str, &str); 3] = [
    ("cert-manager", "v1.20.2"),
    ("clickhouse-operator-helm", "0.0.5"),
    ("community-operator", "0.13.0"),
];

/// Writes a chart for each component into `folder`, whose pods run `image`; returns the charts' folders in the order of
/// the list.
///
/// # Errors
/// When a file cannot be written.
pub fn write_components(profile: &Profile, folder: &Path, image: &str) -> Result<Vec<PathBuf>> {
    let charts = profile.components().iter();
    charts
        .map(|component| write_component(component, folder, image))
        .collect()
}

/// The same for one component.
///
/// # Errors
/// When a file cannot be written.
pub fn write_component(component: &Component, folder: &Path, image: &str) -> Result<PathBuf> {
    let chart = Chart::at(folder, component.name);
    chart.file("Chart.yaml", &metadata(component.name, &component.version))?;
    let (properties, values) = settings(component, image);
    let schema = json!({
        "$schema": "http://json-schema.org/draft-07/schema#",
        "title": component.name,
        "type": "object",
        "required": ["greeting"],
        "properties": properties,
    });
    chart.file("values.schema.json", &serde_json::to_string_pretty(&schema)?)?;
    // JSON is YAML.
    chart.file("values.yaml", &serde_json::to_string_pretty(&values)?)?;
    chart.file("templates/configmap.yaml", CONFIG_MAP)?;
    if component.exposure.is_some() {
        chart.file("templates/service.yaml", SERVICE)?;
    }
    let runs_server = component.exposure.is_some_and(|exposure| exposure.has_workload);
    if runs_server || component.name == PROVIDER {
        chart.file("templates/deployment.yaml", DEPLOYMENT)?;
    }
    if component.name == PROVIDER {
        chart.file("templates/rbac.yaml", PROVIDER_RBAC)?;
    }
    if component.name == PROVIDED {
        chart.file(
            "templates/restdefinition.yaml",
            &REST_DEFINITION.replace("FINALIZER", FINALIZER),
        )?;
    }
    if let Some(base) = component
        .name
        .strip_suffix("-crd")
        .or(component.name.strip_suffix("-crds"))
    {
        chart.file("templates/crd.yaml", &definition(base))?;
    }
    Ok(chart.0)
}

/// Writes a chart for each third-party subchart of the installer into `folder`.
///
/// # Errors
/// When a file cannot be written.
pub fn write_foreign(folder: &Path) -> Result<()> {
    for (name, version) in FOREIGN {
        let chart = Chart::at(folder, name);
        chart.file("Chart.yaml", &metadata(name, version))?;
        chart.file("values.yaml", "{}\n")?;
        chart.file("templates/configmap.yaml", FOREIGN_CONFIG_MAP)?;
    }
    Ok(())
}

/// The folder of a chart.
struct Chart(PathBuf);

impl Chart {
    fn at(folder: &Path, name: &str) -> Self {
        Self(folder.join(name))
    }

    fn file(&self, name: &str, text: &str) -> Result<()> {
        let path = self.0.join(name);
        if let Some(folder) = path.parent() {
            fs::create_dir_all(folder).with_context(|| format!("could not make {}", folder.display()))?;
        }
        fs::write(&path, text).with_context(|| format!("could not write {}", path.display()))
    }
}

fn metadata(name: &str, version: &str) -> String {
    format!(
        "apiVersion: v2\nname: {name}\ndescription: Stands for {name} in trials.\ntype: application\nversion: {version}\n"
    )
}

/// The values that can be set: as properties of a schema, and with defaults.
fn settings(component: &Component, image: &str) -> (Value, Value) {
    let mut properties = json!({
        "greeting": {"type": "string", "minLength": 1, "description": "What its ConfigMap holds."},
        "level": {"type": "string", "enum": ["debug", "info", "warn"], "description": "What is logged."},
        "replicas": {"type": "integer", "minimum": 0, "maximum": 3, "description": "How many pods run."},
    });
    let mut values =
        json!({"greeting": format!("Hello from {}", component.name), "level": "info", "replicas": 1});
    let mut add = |key: &str, schema: Value, value: Option<Value>| {
        properties[key] = schema;
        if let Some(value) = value {
            values[key] = value;
        }
    };
    if let Some(exposure) = component.exposure {
        let service = json!({
            "type": "object",
            "additionalProperties": false,
            "properties": {
                "type": {"type": "string", "enum": ["ClusterIP", "NodePort", "LoadBalancer"]},
                "port": {"type": "integer", "minimum": 1, "maximum": 65535},
            },
        });
        add(
            "service",
            service,
            Some(json!({"type": "ClusterIP", "port": exposure.port})),
        );
    }
    if component.exposure.is_some() || component.name == PROVIDER {
        let clears = if component.name == PROVIDER { FINALIZER } else { "" };
        add("image", json!({"type": "string"}), Some(json!(image)));
        add("clears", json!({"type": "string"}), Some(json!(clears)));
    }
    if component.consumer {
        let config = json!({"type": "object", "additionalProperties": {"type": "string"}});
        add("config", config, Some(json!({})));
    }
    if component.vertex_ai {
        let vertex = json!({
            "type": "object",
            "properties": {
                "enabled": {"type": "boolean"},
                "projectID": {"type": "string"},
                "location": {"type": "string"},
            },
        });
        add("vertexAI", vertex, None);
        add("hitlApproval", json!({"type": "boolean"}), None);
    }
    (properties, values)
}

/// A type of its own; that of `oasgen-provider-crd` is the one that `hyperdx-provider` needs.
fn definition(base: &str) -> String {
    let (group, kind) = match base {
        "oasgen-provider" => ("ogen", "RestDefinition"),
        base => (base, "Trial"),
    };
    let plural = format!("{}s", kind.to_lowercase());
    format!(
        "apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata:
  name: {plural}.{group}.krateo.io
spec:
  group: {group}.krateo.io
  scope: Namespaced
  names: {{kind: {kind}, listKind: {kind}List, plural: {plural}, singular: {}}}
  versions:
    - name: v1alpha1
      served: true
      storage: true
      schema:
        openAPIV3Schema: {{type: object, x-kubernetes-preserve-unknown-fields: true}}
",
        kind.to_lowercase()
    )
}

const CONFIG_MAP: &str = "apiVersion: v1
kind: ConfigMap
metadata:
  name: {{ .Release.Name }}-{{ .Chart.Name }}
data:
  greeting: {{ .Values.greeting | quote }}
  version: {{ .Chart.Version | quote }}
  {{- range $key, $value := .Values.config }}
  {{ $key }}: {{ $value | quote }}
  {{- end }}
";

const SERVICE: &str = "apiVersion: v1
kind: Service
metadata:
  name: {{ .Release.Name }}-{{ .Chart.Name }}
spec:
  type: {{ .Values.service.type }}
  selector: {app.kubernetes.io/instance: {{ .Release.Name }}}
  ports:
    - {name: http, port: {{ .Values.service.port }}, targetPort: http}
";

const DEPLOYMENT: &str = "apiVersion: apps/v1
kind: Deployment
metadata:
  name: {{ .Release.Name }}-{{ .Chart.Name }}
spec:
  replicas: {{ .Values.replicas }}
  selector:
    matchLabels: {app.kubernetes.io/instance: {{ .Release.Name }}}
  template:
    metadata:
      labels: {app.kubernetes.io/instance: {{ .Release.Name }}}
    spec:
      {{- if .Values.clears }}
      serviceAccountName: {{ .Release.Name }}-{{ .Chart.Name }}
      {{- else }}
      automountServiceAccountToken: false
      {{- end }}
      securityContext:
        runAsNonRoot: true
        runAsUser: 65532
        runAsGroup: 65532
        seccompProfile: {type: RuntimeDefault}
      containers:
        - name: web
          image: {{ .Values.image | quote }}
          env:
            - {name: GREETING, value: {{ .Values.greeting | quote }}}
            {{- with .Values.clears }}
            - {name: CLEARS_FINALIZER, value: {{ . | quote }}}
            {{- end }}
          ports:
            - {name: http, containerPort: 8080}
          readinessProbe:
            httpGet: {path: /, port: http}
            periodSeconds: 1
          resources:
            requests: {cpu: 5m, memory: 16Mi}
            limits: {memory: 64Mi}
          securityContext:
            allowPrivilegeEscalation: false
            readOnlyRootFilesystem: true
            capabilities: {drop: [ALL]}
";

const PROVIDER_RBAC: &str = "apiVersion: v1
kind: ServiceAccount
metadata:
  name: {{ .Release.Name }}-{{ .Chart.Name }}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: Role
metadata:
  name: {{ .Release.Name }}-{{ .Chart.Name }}
rules:
  - apiGroups: [ogen.krateo.io]
    resources: [restdefinitions]
    verbs: [get, list, patch]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata:
  name: {{ .Release.Name }}-{{ .Chart.Name }}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: Role, name: {{ .Release.Name }}-{{ .Chart.Name }}}
subjects:
  - {kind: ServiceAccount, name: {{ .Release.Name }}-{{ .Chart.Name }}, namespace: {{ .Release.Namespace }}}
";

const REST_DEFINITION: &str = "apiVersion: ogen.krateo.io/v1alpha1
kind: RestDefinition
metadata:
  name: {{ .Release.Name }}
  finalizers: [FINALIZER]
spec:
  greeting: {{ .Values.greeting | quote }}
";

const FOREIGN_CONFIG_MAP: &str = "apiVersion: v1
kind: ConfigMap
metadata:
  name: {{ .Release.Name }}-{{ .Chart.Name }}
data:
  version: {{ .Chart.Version | quote }}
";
