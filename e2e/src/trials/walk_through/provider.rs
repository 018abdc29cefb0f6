//! The walk-through of core-provider.

use anyhow::{Context as _, Result, ensure};
use serde_json::{Value, json};

use super::servers::USER;
use super::sparkler::holds;
use super::{FIREWORKS, Walk, until};
use crate::Namespace;
use crate::namespace::{condition, is_ready};
use crate::platform::NAMESPACE;

/// The release name of its examples.
const RELEASE: &str = "my-composition-release";

impl Walk {
    /// From "How to Install" to "Authentication".
    pub(super) fn provider(&mut self) {
        self.install();
        self.postgresql();
        self.upgrade();
        self.several_versions();
        self.authentication();
    }

    fn install(&mut self) {
        self.typed("helm repo add krateo https://charts.krateo.io");
        self.typed("helm repo update");
        self.otherwise(
            "helm install bff krateo/bff --namespace krateo-system --create-namespace",
            "nothing is needed besides the platform: plurals come from the API server, so there is no such chart",
            |_| Ok(()),
        );
        self.typed("helm repo add krateo https://charts.krateo.io");
        self.typed("helm repo update");
        self.step(
            "helm install krateo-core-provider krateo/core-provider --namespace krateo-system --create-namespace",
            |walk| {
                let install =
                    "helm install krateo-core-provider krateo/core-provider --namespace krateo-system --create-namespace";
                // The walk-through expects controllers where Krateo places them.
                let place = " --set cdc.namespace=definition";
                walk.run(&format!("{install}{}{place}", walk.servers.values()))?;
                let up = "kubectl wait deployments --all --namespace krateo-system --for condition=Available=True";
                walk.run(&format!("{up} --timeout=180s")).map(drop)
            },
        );
    }

    /// "Apply the `CompositionDefinition` Manifest".
    fn postgresql(&mut self) {
        self.step("kubectl apply: CompositionDefinition postgresql", |walk| {
            let system = walk.namespace(NAMESPACE);
            let annotations = json!({
                "krateo.io/connector-verbose": "true",
                "krateo.io/paused": "false",
                "krateo.io/release-name": RELEASE,
            });
            let url = "oci://registry-1.docker.io/bitnamicharts/postgresql";
            let chart = json!({"url": url, "version": "12.8.3", "plainHTTP": true});
            walk.define(&system, "postgresql", &annotations, &chart)?;
            system.wait_for("compositiondefinitions", "postgresql", "Ready", "True")?;
            let type_ = system
                .get("crd", "postgresqls.composition.krateo.io")?
                .context("no type")?;
            let schema = type_["spec"]["versions"][0]["schema"].to_string();
            ensure!(schema.contains("PostgreSQL architecture"), "no schema: {schema}");
            system
                .wait_for(
                    "deployments",
                    "postgresqls-v12-8-3-controller",
                    "Available",
                    "True",
                )
                .map(drop)
        });
        self.step(
            "the most restrictive policy: what the controller may do",
            |walk| restricted(&walk.namespace(NAMESPACE), "krateo-system:postgresqls-v12-8-3"),
        );
        self.step(
            "krateo.io/release-name of the definition: helm list -n databases",
            |walk| {
                let databases = Namespace::make("databases", &walk.site)?;
                databases.apply(&json!({
                    "apiVersion": "composition.krateo.io/v12-8-3",
                    "kind": "Postgresql",
                    "metadata": {"name": "database", "namespace": "databases"},
                    "spec": {},
                }))?;
                databases.wait_for("postgresqls", "database", "Released", "True")?;
                let list = walk.run("helm list -n databases")?;
                let is_there = list.lines().any(|line| {
                    line.starts_with(RELEASE)
                        && line.contains("postgresql-12.8.3")
                        && line.contains("deployed")
                });
                ensure!(is_there, "{list}");
                Ok(())
            },
        );
        self.step(
            "kubectl delete compositiondefinition postgresql -n krateo-system",
            |walk| {
                walk.run("kubectl delete compositiondefinition postgresql -n krateo-system --timeout=180s")?;
                let system = walk.namespace(NAMESPACE);
                system.wait_gone("deployments", "postgresqls-v12-8-3-controller")?;
                for kind in [
                    "clusterroles",
                    "clusterrolebindings",
                    "roles",
                    "rolebindings",
                    "serviceaccounts",
                ] {
                    let left = system.kubectl(&["get", kind, "--output", "name"])?;
                    ensure!(!left.contains("postgresql"), "left of its RBAC: {left}");
                }
                Ok(())
            },
        );
    }

    /// "Upgrade Chart Version".
    fn upgrade(&mut self) {
        let held = "its chart places an Application in krateo-system, the platform's own namespace: held until the \
                    definition's annotation krateo.io/allowed-namespaces names it";
        self.step(
            "kubectl apply: CompositionDefinition fireworksapp-1-1-5",
            |walk| {
                let own = Namespace::make(FIREWORKS, &walk.site)?;
                let annotations = json!({"krateo.io/connector-verbose": "true"});
                walk.define(&own, "fireworksapp-1-1-5", &annotations, &fireworks("1.1.5"))?;
                own.wait_for("compositiondefinitions", "fireworksapp-1-1-5", "Ready", "True")
                    .map(drop)
            },
        );
        self.otherwise(
            "kubectl apply: FireworksApp sparkler, with the chart's defaults",
            held,
            |walk| {
                let own = walk.namespace(FIREWORKS);
                own.apply(&json!({
                    "apiVersion": "composition.krateo.io/v1-1-5",
                    "kind": "FireworksApp",
                    "metadata": {"name": "sparkler", "namespace": FIREWORKS},
                    "spec": {"git": {"toRepo": {"name": "sparkler"}}},
                }))?;
                walk.await_sparkler(|object| {
                    says(object, "Synced", "krateo.io/allowed-namespaces: krateo-system")
                })?;
                let allowed = "krateo.io/allowed-namespaces=krateo-system";
                own.kubectl(&["annotate", "compositiondefinition", "fireworksapp-1-1-5", allowed])?;
                walk.await_sparkler(|object| holds(object, "Ready")).map(drop)
            },
        );
        self.typed(
            "kubectl patch compositiondefinition fireworksapp-1-1-5 -n fireworksapp-system --type=merge -p \
             '{\"spec\":{\"chart\":{\"version\":\"1.1.6\"}}}'",
        );
        self.typed(
            "kubectl wait compositiondefinition fireworksapp-1-1-5 --for condition=Ready=True --namespace \
             fireworksapp-system",
        );
        self.shows(
            "kubectl get crd fireworksapps.composition.krateo.io -o yaml",
            |type_| type_.contains("name: v1-1-5") && type_.contains("name: v1-1-6"),
        );
        self.typed(
            "kubectl wait deployment fireworksapps-v1-1-6-controller --namespace fireworksapp-system --for \
             condition=Available=True",
        );
        self.shows("helm list -n fireworksapp-system", |list| {
            list.contains("fireworks-app-1.1.6") && !list.contains("fireworks-app-1.1.5")
        });
        self.shows("kubectl get po -n fireworksapp-system", |pods| {
            pods.contains("fireworksapps-v1-1-6-controller") && !pods.contains("fireworksapps-v1-1-5")
        });
    }

    /// "Multi-Version Management".
    fn several_versions(&mut self) {
        self.step(
            "1. kubectl annotate compositiondefinition fireworksapp-1-1-5 -n fireworksapp-system krateo.io/paused=true",
            |walk| {
                let own = walk.namespace(FIREWORKS);
                own.kubectl(&["annotate", "compositiondefinition", "fireworksapp-1-1-5", "krateo.io/paused=true"])?;
                own.wait("compositiondefinitions", "fireworksapp-1-1-5", |object| {
                    condition(object, "Synced").is_some_and(|synced| synced["reason"] == "ReconcilePaused")
                })
                .map(drop)
            },
        );
        self.step(
            "2. kubectl apply: CompositionDefinition fireworksapp-1-1-7, with krateo.io/release-name",
            |walk| {
                let own = walk.namespace(FIREWORKS);
                let release = walk.release()?;
                let annotations = json!({
                    "krateo.io/paused": "false",
                    "krateo.io/release-name": release,
                    "krateo.io/allowed-namespaces": NAMESPACE,
                });
                walk.define(&own, "fireworksapp-1-1-7", &annotations, &fireworks("1.1.7"))?;
                own.wait_for("compositiondefinitions", "fireworksapp-1-1-7", "Ready", "True")?;
                walk.look_again()?;
                let both = walk.run("kubectl get deployments -n fireworksapp-system")?;
                ensure!(
                    both.lines().filter(|line| line.contains("-controller")).count() == 2,
                    "{both}"
                );
                walk.move_sparkler("1.1.7", "fireworksapp-1-1-7")?;
                is_released(&own, "1.1.7", &release)
            },
        );
        self.step("the same back again: a rollback", |walk| {
            let own = walk.namespace(FIREWORKS);
            let release = walk.release()?;
            walk.move_sparkler("1.1.6", "fireworksapp-1-1-5")?;
            is_released(&own, "1.1.6", &release)?;
            own.kubectl(&[
                "delete",
                "compositiondefinition",
                "fireworksapp-1-1-7",
                "--timeout=180s",
            ])?;
            own.kubectl(&[
                "annotate",
                "compositiondefinition",
                "fireworksapp-1-1-5",
                "krateo.io/paused-",
            ])?;
            own.wait("compositiondefinitions", "fireworksapp-1-1-5", is_ready)?;
            walk.look_again()
        });
        self.otherwise(
            "without krateo.io/release-name the release is called as the composition",
            "eight characters of its UID follow, so that a recreated one never meets the release of its predecessor; \
             COMPOSITION_CONTROLLER_SAFE_RELEASE_NAME=false in cdc.env leaves them out",
            |walk| {
                let release = walk.release()?;
                ensure!(release.len() == "sparkler-".len() + 8 && release.starts_with("sparkler-"), "{release}");
                Ok(())
            },
        );
    }

    /// Makes sparkler follow a definition with that version of the chart.
    fn move_sparkler(&self, version: &str, definition: &str) -> Result<()> {
        let version = format!("krateo.io/composition-version=v{}", version.replace('.', "-"));
        let definition = format!("krateo.io/composition-definition-name={definition}");
        self.change_sparkler("label", &["--overwrite", &version, &definition])
    }

    /// "Authentication".
    fn authentication(&mut self) {
        let oci = json!({"url": "oci://registry-1.docker.io/yourusername/fireworks-app", "version": "0.1.0"});
        let helm =
            json!({"repo": "fireworks-app", "url": "https://theurltoyourhelmrepo", "version": "0.3.0"});
        for (secret, chart) in [("docker-hub", oci), ("helm-repo", helm)] {
            self.typed(&format!(
                "kubectl create secret generic {secret} --from-literal=token=your_token -n krateo-system"
            ));
            let command = format!("kubectl apply: CompositionDefinition fireworks-private, with {secret}");
            self.step(&command, |walk| walk.private(secret, chart));
        }
    }

    fn private(&self, secret: &str, mut chart: Value) -> Result<()> {
        let system = self.namespace(NAMESPACE);
        if secret == "docker-hub" {
            chart["plainHTTP"] = true.into();
        }
        chart["credentials"] = json!({
            "username": USER,
            "passwordRef": {"key": "token", "name": secret, "namespace": NAMESPACE},
        });
        let version = chart["version"].as_str().unwrap_or_default().replace('.', "-");
        let annotations = json!({"krateo.io/connector-verbose": "true"});
        self.define(&system, "fireworks-private", &annotations, &chart)?;
        system.wait_for("compositiondefinitions", "fireworks-private", "Ready", "True")?;
        let deployment = format!("fireworksapps-v{version}-controller");
        system.wait_for("deployments", &deployment, "Available", "True")?;
        let delete = [
            "delete",
            "compositiondefinition",
            "fireworks-private",
            "--timeout=180s",
        ];
        system.kubectl(&delete).map(drop)
    }

    /// Applies a definition as in the walk-through, with another address of its chart.
    fn define(&self, namespace: &Namespace, name: &str, annotations: &Value, chart: &Value) -> Result<()> {
        let definition = json!({
            "apiVersion": "core.krateo.io/v1alpha1",
            "kind": "CompositionDefinition",
            "metadata": {"annotations": annotations, "name": name, "namespace": namespace.namespace()},
            "spec": {"chart": chart},
        });
        namespace.apply(&serde_json::from_str(
            &self.servers.in_place(&definition.to_string()),
        )?)
    }
}

fn fireworks(version: &str) -> Value {
    json!({"repo": "fireworks-app", "url": "https://charts.krateo.io", "version": version})
}

/// Waits until only the release of sparkler is of that version.
fn is_released(own: &Namespace, version: &str, release: &str) -> Result<()> {
    until("the release to have the version", || {
        let list: Vec<Value> = serde_json::from_str(&own.helm(&["list", "--output", "json"])?)?;
        let chart = format!("fireworks-app-{version}");
        let is_so = list.len() == 1
            && list[0]["name"] == *release
            && list[0]["chart"] == *chart
            && list[0]["status"] == "deployed";
        Ok(if is_so { Ok(()) } else { Err(format!("{list:?}")) })
    })
}

/// True if the condition is False and its message contains these words.
pub(super) fn says(object: &Value, type_: &str, words: &str) -> bool {
    condition(object, type_).is_some_and(|condition| {
        let message = condition["message"].as_str().unwrap_or_default();
        condition["status"] == "False" && message.contains(words)
    })
}

/// The controller may do nothing that its chart does not need.
fn restricted(namespace: &Namespace, account: &str) -> Result<()> {
    for (verb, resource) in [
        ("*", "*"),
        ("list", "secrets"),
        ("get", "secrets"),
        ("create", "pods"),
        ("delete", "namespaces"),
        ("patch", "compositiondefinitions.core.krateo.io"),
    ] {
        ensure!(
            !namespace.may(account, verb, resource)?,
            "it may {verb} {resource}"
        );
    }
    // It may write roles of releases, but the policy does not let it grant itself more than its chart needs.
    let user = format!("--as=system:serviceaccount:{account}");
    let widen = [
        "create",
        "clusterrole",
        "composition:widened",
        "--verb=get",
        "--resource=secrets",
    ];
    let refused = namespace.kubectl(&[&widen[..], &["--dry-run=server", &user]].concat());
    ensure!(refused.is_err(), "it may grant itself all Secrets");
    let bundle = account.rsplit(':').next().unwrap_or_default();
    for kind in ["clusterrole", "role"] {
        let role = namespace
            .get(kind, bundle)?
            .with_context(|| format!("no {kind} {bundle}"))?;
        ensure!(
            !role["rules"].to_string().contains("\"*\""),
            "a wildcard: {}",
            role["rules"]
        );
    }
    Ok(())
}
