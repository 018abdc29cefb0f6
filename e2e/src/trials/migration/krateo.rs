//! Krateo's real programs, installed by their official chart, as images of programs that were built before, and the
//! charts of the definitions.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result, ensure};
use local_cluster::{Cluster, output};
use serde_json::{Value, json};

use super::{is_true, objects, until};
use crate::http_server::Answer;
use crate::platform::{NAMESPACE, RELEASE};
use crate::{ChartFolder, HttpServer, Namespace, Site, image, progress};

/// A version later than those that Krateo uses.
pub(super) const NEXT: &str = "1.2.0";

/// Krateo's programs, each with its name in its image.
const PROGRAMS: [(&str, &str); 3] = [
    ("core-provider", "manager"),
    ("composition-dynamic-controller", "controller"),
    ("chart-inspector", "webservice"),
];

/// Another tag than that of our own images of the same names.
const TAG: &str = "krateo";

/// A chart whose render is always the same.
const GREETING: &str = "
apiVersion: v1
kind: ConfigMap
metadata: {name: {{ .Release.Name }}-web}
data: {GREETING: {{ .Values.greeting | quote }}}
";

/// A password that differs at each render.
const PASSWORD: &str = "
apiVersion: v1
kind: Secret
metadata: {name: {{ .Release.Name }}-password}
stringData: {password: {{ randAlphaNum 16 }}}
---
# Krateo grants what a hook takes where an ordinary object of its kind is in the chart.
apiVersion: batch/v1
kind: Job
metadata: {name: {{ .Release.Name }}-once}
spec: POD
";

/// A Job that runs before the release is installed or upgraded.
const HOOK: &str = r#"
apiVersion: batch/v1
kind: Job
metadata:
  name: {{ .Release.Name }}-prepare
  annotations: {helm.sh/hook: "pre-install,pre-upgrade", helm.sh/hook-delete-policy: before-hook-creation}
spec: POD
"#;

pub(super) struct Krateo {
    charts: HttpServer,
}

impl Krateo {
    /// Pushes images of Krateo's programs and installs its chart.
    pub(super) fn install(folder: &Path, cluster: &Cluster, site: &Site) -> Result<Self> {
        for (program, name) in PROGRAMS {
            push(site, &folder.join(program), name)?;
        }
        let served = charts(site)?;
        let file = move |asked: &crate::http_server::Asked| {
            let name = Path::new(&asked.path).file_name().map(PathBuf::from);
            let path = served.path().join(name.unwrap_or_default());
            fs::read(path).map_or(Answer::Status(404), Answer::Content)
        };
        let charts = HttpServer::start_at(cluster.host_address()?, file)?;
        progress("helm install of Krateo's core-provider");
        let values = tempfile::NamedTempFile::new()?;
        fs::write(values.path(), self::values(site)?.to_string())?;
        let (chart, values) = (
            folder.join("chart").to_string_lossy().into_owned(),
            values.path().to_string_lossy().into_owned(),
        );
        let mut install = site.helm(["install", RELEASE, &chart, "--values", &values]);
        install.args([
            "--namespace",
            NAMESPACE,
            "--create-namespace",
            "--wait",
            "--timeout",
            "5m",
        ]);
        site.run(install)?;
        Ok(Self { charts })
    }

    /// Creates three definitions, two of them for one chart, and waits for Krateo, which compiles a program for each.
    pub(super) fn define(&self, home: &Namespace) -> Result<()> {
        for (name, chart, version) in [
            ("shop-one", "shop", "1.0.0"),
            ("shop-two", "shop", "1.1.0"),
            ("vault", "vault", "1.0.0"),
        ] {
            // Krateo's chart-inspector confuses charts at the same address.
            let url = self.charts.url(&format!("/{chart}"));
            home.apply(&json!({
                "apiVersion": "core.krateo.io/v1alpha1", "kind": "CompositionDefinition",
                "metadata": {"name": name, "namespace": home.namespace()},
                "spec": {"chart": {"url": url, "repo": chart, "version": version}},
            }))?;
        }
        Self::are_ready(home)
    }

    fn are_ready(home: &Namespace) -> Result<()> {
        until("Krateo's definitions to be ready", || {
            let all = objects(home, "compositiondefinitions")?;
            Ok(all.iter().all(|one| is_true(one, "Ready")).then_some(()))
        })
    }

    /// Waits until Krateo's own programs run again.
    pub(super) fn is_up(site: &Site, home: &Namespace) -> Result<()> {
        until("Krateo's programs to run again", || {
            let mut all = objects(&Namespace::of(NAMESPACE, site), "deployments")?;
            all.extend(objects(home, "deployments")?);
            let is_up = |it: &Value| {
                let selector = &it["spec"]["selector"]["matchLabels"];
                selector.get("app.kubernetes.io/component").is_none()
                    && it["status"]["availableReplicas"] == 1
            };
            Ok((all.len() == 5 && all.iter().all(is_up)).then_some(()))
        })?;
        Self::are_ready(home)
    }
}

/// An image with only the program, at the same path as in Krateo's own image.
fn push(site: &Site, program: &Path, name: &str) -> Result<()> {
    ensure!(program.is_file(), "{} is not there", program.display());
    let context = tempfile::tempdir()?;
    fs::copy(program, context.path().join(name))?;
    let recipe = context.path().join("Dockerfile");
    fs::write(
        &recipe,
        format!("FROM scratch\nCOPY {name} /bin/{name}\nENTRYPOINT [\"/bin/{name}\"]\n"),
    )?;
    let called = program.file_name().unwrap_or_default().to_string_lossy();
    let reference = format!("{}/{called}:{TAG}", site.registry());
    progress(format_args!("image {reference}"));
    site.buildah().build(&recipe, context.path(), &[], &reference)?;
    site.buildah().push(&reference, site.plain_http())
}

/// A chart repository with the charts of the definitions.
fn charts(site: &Site) -> Result<tempfile::TempDir> {
    let folder = tempfile::tempdir()?;
    let into = folder.path().to_string_lossy().into_owned();
    for version in ["1.0.0", "1.1.0", NEXT] {
        let chart = ChartFolder::copy("web", "shop", version)?;
        chart.write("templates/configmap.yaml", GREETING)?;
        let packed = chart.folder().to_string_lossy().into_owned();
        site.run(site.helm(["package", &packed, "--destination", &into]))?;
    }
    let chart = ChartFolder::copy("web", "vault", "1.0.0")?;
    chart.write("templates/configmap.yaml", GREETING)?;
    let pod = pod(site);
    chart.write("templates/password.yaml", &PASSWORD.replace("POD", &pod))?;
    chart.write("templates/hook.yaml", &HOOK.replace("POD", &pod))?;
    let packed = chart.folder().to_string_lossy().into_owned();
    site.run(site.helm(["package", &packed, "--destination", &into]))?;
    site.run(site.helm(["repo", "index", &into]))?;
    Ok(folder)
}

/// For the Jobs of the chart: a program that prints its version and exits.
fn pod(site: &Site) -> String {
    json!({"backoffLimit": 0, "template": {"spec": {
        "restartPolicy": "Never", "automountServiceAccountToken": false,
        "securityContext": {"runAsNonRoot": true, "runAsUser": 65532, "seccompProfile": {"type": "RuntimeDefault"}},
        "containers": [{
            "name": "job", "image": image::reference(site, "core-provider"), "args": ["--version"],
            "securityContext": {"allowPrivilegeEscalation": false, "capabilities": {"drop": ["ALL"]}},
        }],
    }}})
    .to_string()
}

/// Values of Krateo's chart: images of this registry, and the Go toolchain of this machine, by which its core-provider
/// compiles a program for each definition, without a network.
fn values(site: &Site) -> Result<Value> {
    let image = |program: &str| json!({"repository": format!("{}/{program}", site.registry()), "tag": TAG, "pullPolicy": "IfNotPresent"});
    let go = |variable: &str| -> Result<String> {
        let said = output(Command::new("go").args(["env", variable]));
        let said = said.context("Krateo's core-provider takes Go")?;
        Ok(said.trim().to_owned())
    };
    let folders = [
        ("go", go("GOROOT")?, "/usr/local/go"),
        ("modules", go("GOMODCACHE")?, "/go/modules"),
        ("cache", go("GOCACHE")?, "/go/cache"),
    ];
    let volumes = folders
        .clone()
        .map(|(name, path, _)| json!({"name": name, "hostPath": {"path": path}}));
    let mounts = folders.map(|(name, _, at)| json!({"name": name, "mountPath": at}));
    Ok(json!({
        "image": image("core-provider"),
        "chartInspector": {"image": image("chart-inspector")},
        "cdc": {
            "image": image("composition-dynamic-controller"),
            "env": {"COMPOSITION_CONTROLLER_RESYNC_INTERVAL": "24h"},
        },
        "env": {
            "CORE_PROVIDER_POLL_INTERVAL": "2m", "HOME": "/tmp", "PATH": "/usr/local/go/bin:/bin",
            "GOMODCACHE": "/go/modules", "GOCACHE": "/go/cache", "GOPROXY": "off", "GOSUMDB": "off", "GOTOOLCHAIN": "local",
            "CGO_ENABLED": "0",
        },
        "volumes": volumes, "volumeMounts": mounts,
    }))
}
