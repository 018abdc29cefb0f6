//! The commands of the installer's hook Jobs, against a real API server: `kco installer hook …`, each as a
//! `ServiceAccount` that has exactly the rights in its comment. The test plays the controllers.

use std::io::{BufRead as _, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use e2e::{Namespace, Site, image};
use local_cluster::{ControlPlane, Options};
use serde_json::{Value, json};

const HOME: &str = "krateo-system";
const COMPOSITIONS: &str = "composition.krateo.io";
const BOOTSTRAP: &str = "installer-self-bootstrap";
const TEARDOWN: &str = "installer-ordered-teardown";
const SWEEP: &str = "installer-postdelete";

/// A finalizer that the test removes, or nobody.
const HOLD: &str = "example.org/hold";

struct Stage {
    plane: ControlPlane,
    home: Namespace,
    folder: tempfile::TempDir,
}

/// The output of a hook, and its exit status.
struct Ended {
    code: Option<i32>,
    out: String,
    err: String,
}

impl Ended {
    #[track_caller]
    fn with(self, code: i32, said: &[&str]) -> Self {
        let Self {
            code: ended,
            out,
            err,
        } = &self;
        assert_eq!(*ended, Some(code), "{out}\n{err}");
        for words in said {
            assert!(
                out.contains(words) || err.contains(words),
                "{words:?} is not in:\n{out}\n{err}"
            );
        }
        self
    }

    /// Checks that these texts appear in its output in this order.
    #[track_caller]
    fn in_order(&self, words: &[&str]) {
        let mut rest = self.out.as_str();
        for word in words {
            let found = rest.split_once(word);
            assert!(found.is_some(), "{word:?} does not follow in:\n{}", self.out);
            rest = found.map_or("", |(_, after)| after);
        }
    }
}

impl Stage {
    fn set() -> Result<Self> {
        let plane = ControlPlane::start(Options::default())?;
        let site = Site::host(&plane)?;
        let home = Namespace::make(HOME, &site)?;
        Namespace::make("demo", &site)?;
        for crd in ["compositiondefinitions", "chartgrants"] {
            let crd = image::root().join(format!("charts/core-provider/crds/{crd}.yaml"));
            plane.apply(&std::fs::read_to_string(crd)?)?;
        }
        let stage = Self {
            plane,
            home,
            folder: tempfile::tempdir()?,
        };
        stage.accounts()?;
        Ok(stage)
    }

    /// The accounts of the hooks, with the rights that the comment of each lists.
    fn accounts(&self) -> Result<()> {
        let definitions = |verbs: &[&str]| json!({"apiGroups": ["core.krateo.io"], "resources": ["compositiondefinitions"], "verbs": verbs});
        let crds = |verbs: &[&str]| json!({"apiGroups": ["apiextensions.k8s.io"], "resources": ["customresourcedefinitions"], "verbs": verbs});
        let rest =
            json!({"apiGroups": ["ogen.krateo.io"], "resources": ["restdefinitions"], "verbs": ["list"]});
        let bootstrap = [
            definitions(&["get", "list"]),
            json!({
                "apiGroups": ["core.krateo.io"], "resources": ["compositiondefinitions"], "verbs": ["delete"],
                "resourceNames": ["installer"],
            }),
            json!({"apiGroups": [COMPOSITIONS], "resources": ["installers"], "verbs": ["get", "list", "create", "patch"]}),
            crds(&["get", "list"]),
            rest.clone(),
        ];
        let teardown = [crds(&["get", "list"]), rest];
        let types = ["alphas", "betas", "oasgenproviders"];
        let at_home = [
            json!({"apiGroups": [COMPOSITIONS], "resources": types, "verbs": ["list"]}),
            json!({
                "apiGroups": [COMPOSITIONS], "resources": types, "verbs": ["delete"],
                "resourceNames": ["alpha", "beta", "oasgen-provider"],
            }),
        ];
        let namespaces = json!({
            "apiGroups": [""], "resources": ["namespaces"], "verbs": ["get"], "resourceNames": ["krateo-platform"],
        });
        let webhooks = json!({
            "apiGroups": ["admissionregistration.k8s.io"], "verbs": ["list", "delete"],
            "resources": ["mutatingwebhookconfigurations", "validatingwebhookconfigurations"],
        });
        self.account(BOOTSTRAP, &bootstrap, &[])?;
        self.account(TEARDOWN, &teardown, &at_home)?;
        self.account(SWEEP, &[webhooks, namespaces, crds(&["list", "delete"])], &[])
    }

    fn account(&self, name: &str, cluster: &[Value], namespaced: &[Value]) -> Result<()> {
        let subjects = json!([{"kind": "ServiceAccount", "name": name, "namespace": HOME}]);
        let object = |kind: &str, more: Value| {
            let mut object = json!({
                "apiVersion": "rbac.authorization.k8s.io/v1", "kind": kind, "metadata": {"name": name, "namespace": HOME},
            });
            if kind.starts_with("Cluster") {
                object["metadata"] = json!({"name": name});
            }
            for (key, value) in more.as_object().into_iter().flatten() {
                object[key] = value.clone();
            }
            object
        };
        let role = |kind: &str| json!({"apiGroup": "rbac.authorization.k8s.io", "kind": kind, "name": name});
        for object in [
            json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": name, "namespace": HOME}}),
            object("ClusterRole", json!({"rules": cluster})),
            object(
                "ClusterRoleBinding",
                json!({"subjects": subjects, "roleRef": role("ClusterRole")}),
            ),
            object("Role", json!({"rules": namespaced})),
            object(
                "RoleBinding",
                json!({"subjects": subjects, "roleRef": role("Role")}),
            ),
        ] {
            self.home.apply(&object)?;
        }
        Ok(())
    }

    /// Serves a type in these versions, the last one stored.
    fn serve(&self, group: &str, kind: &str, versions: &[&str]) -> Result<()> {
        let plural = format!("{}s", kind.to_lowercase());
        let each: Vec<Value> = versions
            .iter()
            .map(|version| {
                json!({
                    "name": version, "served": true, "storage": Some(version) == versions.last(),
                    "subresources": {"status": {}},
                    "schema": {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}},
                })
            })
            .collect();
        let name = format!("{plural}.{group}");
        self.home.apply(&json!({
            "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition", "metadata": {"name": name},
            "spec": {
                "group": group, "scope": "Namespaced", "versions": each,
                "names": {"kind": kind, "plural": plural, "singular": kind.to_lowercase(), "listKind": format!("{kind}List")},
            },
        }))?;
        self.home.wait_for("crd", &name, "Established", "True")?;
        // A moment later each version is served.
        for version in versions {
            let path = format!("/apis/{group}/{version}/{plural}");
            self.home.wait_until(&format!("{path} to be served"), || {
                Ok(self.home.kubectl(&["get", "--raw", &path]).is_ok().then_some(()))
            })?;
        }
        Ok(())
    }

    /// An object, with a finalizer if one is given.
    fn object(&self, api_version: &str, kind: &str, name: &str, finalizer: Option<&str>) -> Result<()> {
        self.home.apply(&json!({
            "apiVersion": api_version, "kind": kind, "spec": {},
            "metadata": {"name": name, "namespace": HOME, "finalizers": finalizer.into_iter().collect::<Vec<_>>()},
        }))
    }

    fn definition(&self, namespace: &str, name: &str, metadata: &Value) -> Result<()> {
        let mut object = json!({
            "apiVersion": "core.krateo.io/v1alpha1", "kind": "CompositionDefinition",
            "metadata": {"name": name, "namespace": namespace},
            "spec": {"chart": {"url": "oci://registry.example/charts/some", "version": "1.0.0"}},
        });
        for (key, value) in metadata.as_object().into_iter().flatten() {
            object["metadata"][key] = value.clone();
        }
        self.home.apply(&object)
    }

    fn release(&self, resource: &str, name: &str) -> Result<()> {
        let patch = r#"{"metadata":{"finalizers":null}}"#;
        self.home
            .kubectl(&["patch", resource, name, "--type=merge", "--patch", patch])
            .map(drop)
    }

    /// True once the object's deletion was requested, and when it is gone.
    fn is_going(&self, resource: &str, name: &str) -> Result<bool> {
        let found = self.home.get(resource, name)?;
        Ok(found.is_none_or(|object| object["metadata"]["deletionTimestamp"].is_string()))
    }

    fn file(&self, name: &str, content: &Value) -> Result<PathBuf> {
        let path = self.folder.path().join(name);
        std::fs::write(&path, content.to_string())?;
        Ok(path)
    }

    /// Runs a hook as an account.
    fn hook(&self, account: &str, arguments: &[&str]) -> Result<Ended> {
        let mut command = Command::new(image::binary("kco")?);
        command
            .args(["installer", "hook"])
            .args(arguments)
            .args(["--namespace", HOME, "--interval", "0.2"])
            .env("KUBECONFIG", self.plane.kubeconfig_for(HOME, account)?)
            .env("NO_PROXY", "127.0.0.1");
        let output = command.output()?;
        Ok(Ended {
            code: output.status.code(),
            out: String::from_utf8_lossy(&output.stdout).into_owned(),
            err: String::from_utf8_lossy(&output.stderr).into_owned(),
        })
    }

    /// Runs a hook while the test plays the controllers: `play` is called again and again until the hook has ended.
    fn hook_beside(
        &self,
        account: &str,
        arguments: &[&str],
        play: impl Fn() -> Result<()> + Sync,
    ) -> Result<Ended> {
        let is_over = AtomicBool::new(false);
        std::thread::scope(|scope| {
            let player = scope.spawn(|| {
                while !is_over.load(Ordering::Relaxed) {
                    // Objects that do not exist yet, or not any more, are looked for again.
                    let _ = play();
                    std::thread::sleep(Duration::from_millis(50));
                }
            });
            let ended = self.hook(account, arguments);
            is_over.store(true, Ordering::Relaxed);
            ensure!(player.join().is_ok(), "the test's controllers failed");
            ended
        })
    }
}

fn text(path: &Path) -> String {
    path.to_string_lossy().into_owned()
}

#[test]
fn hooks_of_the_installer_need_exactly_the_rights_of_their_accounts() -> Result<()> {
    let stage = Stage::set()?;
    check(&stage)?;
    self_bootstrap(&stage)?;
    status(&stage)?;
    ordered_teardown(&stage)?;
    bootstrap_teardown(&stage)?;
    post_delete(&stage)
}

/// `kco installer check` finds what somebody else installed.
fn check(stage: &Stage) -> Result<()> {
    let home = &stage.home;
    let values = json!({"components": [component("alpha", "Alpha", &[])]});
    let file = text(&stage.file("values.json", &values)?);
    let found = || anyhow::Ok(home.kco(&["installer", "check", &file])?["found"].clone());
    assert_eq!(found()?, json!([]));
    stage.serve("cert-manager.io", "Issuer", &["v1"])?;
    let said = found()?;
    let said = said[0].as_str().unwrap();
    assert!(
        said.starts_with("cert-manager is there already (types issuers.cert-manager.io)"),
        "{said}"
    );
    home.kubectl(&["delete", "crd", "issuers.cert-manager.io"])
        .map(drop)
}

fn installer(components: &Value) -> Value {
    json!({
        "apiVersion": "composition.krateo.io/v0-3-0", "kind": "Installer",
        "metadata": {"name": "installer", "namespace": HOME},
        "spec": {"components": components, "features": {"observability": true}, "bootstrap": {"coreProvider": {"enabled": false}}},
    })
}

fn component(name: &str, kind: &str, deps: &[&str]) -> Value {
    json!({"name": name, "kind": kind, "version": "1.0.0", "tier": "platform", "deps": deps})
}

fn self_bootstrap(stage: &Stage) -> Result<()> {
    let home = &stage.home;
    let one = json!([component("alpha", "Alpha", &[])]);
    let two = json!([
        component("alpha", "Alpha", &[]),
        component("beta", "Beta", &["alpha"])
    ]);
    let file = text(&stage.file("installer.yaml", &installer(&one))?);
    let hook = [
        "self-bootstrap",
        "--file",
        &file,
        "--attempts",
        "3",
        "--type-timeout",
    ];
    let run = |timeout: &str| stage.hook(BOOTSTRAP, &[&hook[..], &[timeout]].concat());

    run("1")?.with(
        1,
        &[
            "waiting for composition.krateo.io/v0-3-0 Installer",
            "definition krateo-system/installer is not there",
        ],
    );
    // Another version of the type is not enough.
    stage.serve(COMPOSITIONS, "Installer", &["v0-2-0"])?;
    stage.definition(HOME, "installer", &json!({}))?;
    run("1")?.with(
        1,
        &[
            "v0-3-0 Installer",
            "is not served after 1s",
            "it has no conditions yet",
        ],
    );
    assert!(
        home.get("installers.composition.krateo.io", "installer")?
            .is_none()
    );

    stage.serve(COMPOSITIONS, "Installer", &["v0-2-0", "v0-3-0"])?;
    run("60")?.with(1, &["installer is made", "is not Synced"]);
    let resource = "installers.v0-3-0.composition.krateo.io";
    let made = home.get(resource, "installer")?.context("it is not made")?;
    assert_eq!(made["spec"]["components"], one);

    // The annotations that an interrupted creation leaves are removed, and then the engine continues.
    let mark = "krateo.io/external-create-pending";
    home.kubectl(&[
        "annotate",
        resource,
        "installer",
        &format!("{mark}=2026-01-01T00:00:00Z"),
    ])?;
    let engine = || {
        let live = home.get(resource, "installer")?.context("it is gone")?;
        if live["metadata"]["annotations"].get(mark).is_none() {
            let status = r#"{"status":{"conditions":[{"type":"Synced","status":"True","reason":"ReconcileSuccess","message":"","lastTransitionTime":"2026-01-01T00:00:00Z"}]}}"#;
            home.kubectl(&[
                "patch",
                resource,
                "installer",
                "--subresource=status",
                "--type=merge",
                "--patch",
                status,
            ])?;
        }
        Ok(())
    };
    let arguments = ["self-bootstrap", "--file", &file, "--attempts", "300"];
    stage
        .hook_beside(BOOTSTRAP, &arguments, engine)?
        .with(0, &["was interrupted, and is retried", "is Synced"]);

    // Again: nothing is written.
    let before = home.get(resource, "installer")?;
    run("60")?.with(0, &["installer is there", "is Synced"]);
    assert_eq!(home.get(resource, "installer")?, before);

    // An upgrade writes its components, and leaves edits by others alone.
    let edit = r#"{"spec":{"features":{"observability":false}}}"#;
    home.kubectl(&["patch", resource, "installer", "--type=merge", "--patch", edit])?;
    stage.file("installer.yaml", &installer(&two))?;
    run("60")?.with(0, &["now has the components of this chart"]);
    let after = home.get(resource, "installer")?.context("it is gone")?;
    assert_eq!(after["spec"]["components"], two);
    assert_eq!(after["spec"]["features"], json!({"observability": false}));
    Ok(())
}

/// `kco installer status` shows what waits for what, and follows changes by watches.
fn status(stage: &Stage) -> Result<()> {
    let home = &stage.home;
    let serving = |name: &str, kind: &str, version: &str| {
        stage.definition(HOME, name, &json!({}))?;
        let status = json!({"status": {
            "apiVersion": format!("{COMPOSITIONS}/{version}"), "kind": kind, "resource": format!("{}s", kind.to_lowercase()),
            "managed": {"group": COMPOSITIONS, "kind": kind, "versionInfo": [{"version": version, "served": true, "stored": true}]},
        }});
        let patch = [
            "--subresource=status",
            "--type=merge",
            "--patch",
            &status.to_string(),
        ]
        .map(str::to_owned);
        let mut arguments = vec!["patch", "compositiondefinition", name];
        arguments.extend(patch.iter().map(String::as_str));
        home.kubectl(&arguments)
    };
    let ready = |resource: &str, name: &str| {
        let status = r#"{"status":{"conditions":[{"type":"Ready","status":"True","reason":"Available","message":"","lastTransitionTime":"2026-01-01T00:00:00Z"}]}}"#;
        home.kubectl(&[
            "patch",
            resource,
            name,
            "--subresource=status",
            "--type=merge",
            "--patch",
            status,
        ])
    };
    let states = || {
        let shown = home.kco(&["installer", "status"])?;
        let rows = shown["components"].as_array().cloned().unwrap_or_default();
        anyhow::Ok(
            rows.iter()
                .map(|row| row["state"].as_str().unwrap().to_owned())
                .collect::<Vec<_>>(),
        )
    };
    serving("installer", "Installer", "v0-3-0")?;
    assert_eq!(states()?, ["noType", "noType"]);
    for kind in ["Alpha", "Beta"] {
        stage.serve(COMPOSITIONS, kind, &["v1-0-0"])?;
        serving(&kind.to_lowercase(), kind, "v1-0-0")?;
    }
    assert_eq!(states()?, ["due", "waiting"]);

    let mut watch = home.site().kco([
        "installer",
        "status",
        "--watch",
        "--until-ready",
        "--namespace",
        HOME,
    ])?;
    let mut watch = watch.stdout(Stdio::piped()).spawn()?;
    let mut said = BufReader::new(watch.stdout.take().context("it has no output")?).lines();
    let waits = said
        .by_ref()
        .map_while(Result::ok)
        .find(|line| line == "beta: waits for alpha");
    assert!(waits.is_some());
    stage.object("composition.krateo.io/v1-0-0", "Alpha", "alpha", None)?;
    assert_eq!(states()?, ["progressing", "waiting"]);
    ready("alphas", "alpha")?;
    assert_eq!(states()?, ["ready", "due"]);
    stage.object("composition.krateo.io/v1-0-0", "Beta", "beta", None)?;
    ready("betas", "beta")?;
    let last = said.map_while(Result::ok).last();
    assert_eq!(last.as_deref(), Some("2 of 2 components ready"));
    assert!(watch.wait()?.success());

    home.kubectl(&["delete", "alphas,betas", "--all"])?;
    home.kubectl(&["delete", "compositiondefinitions", "--all"])
        .map(drop)
}

fn ordered_teardown(stage: &Stage) -> Result<()> {
    let home = &stage.home;
    let version = "composition.krateo.io/v1-0-0";
    for kind in ["Alpha", "Beta", "OasgenProvider"] {
        stage.serve(COMPOSITIONS, kind, &["v1-0-0"])?;
    }
    let components = [
        ("alpha", "Alpha"),
        ("oasgen-provider", "OasgenProvider"),
        ("beta", "Beta"),
        ("never", "Never"),
    ];
    let components: Vec<Value> = components
        .into_iter()
        .map(|(name, kind)| json!({"name": name, "kind": kind, "version": "1.0.0"}))
        .collect();
    let file = text(&stage.file("components.yaml", &json!(components))?);
    let hook = |attempts: &'static str| {
        ["ordered-teardown", "--components", &file, "--attempts", attempts].map(str::to_owned)
    };
    let make_all = || {
        stage.object(version, "Alpha", "alpha", None)?;
        stage.object(version, "OasgenProvider", "oasgen-provider", None)?;
        stage.object(version, "Beta", "beta", Some(HOLD))
    };

    // The type of RestDefinitions does not exist, so there are none.
    make_all()?;
    let beta_goes = || {
        if stage.is_going("betas", "beta")? {
            stage.release("betas", "beta")?;
        }
        Ok(())
    };
    let owned = hook("300");
    let arguments: Vec<&str> = owned.iter().map(String::as_str).collect();
    stage
        .hook_beside(TEARDOWN, &arguments, beta_goes)?
        .with(0, &["never: kind Never is not served"])
        .in_order(&[
            "beta: removing",
            "oasgen-provider: removing",
            "alpha: removing",
            "all components have been processed",
        ]);

    // A provider outlives the objects whose finalizer it removes: here it is deleted after beta, by somebody who plays
    // the provider.
    stage.serve("ogen.krateo.io", "RestDefinition", &["v1alpha1"])?;
    make_all()?;
    stage.object("ogen.krateo.io/v1alpha1", "RestDefinition", "rest", Some(HOLD))?;
    let both_go = || {
        beta_goes()?;
        if home.get("betas", "beta")?.is_none() && home.get("oasgenproviders", "oasgen-provider")?.is_some() {
            stage.release("restdefinitions", "rest")?;
            home.kubectl(&["delete", "restdefinition", "rest", "--wait=false"])?;
        }
        Ok(())
    };
    stage
        .hook_beside(TEARDOWN, &arguments, both_go)?
        .with(0, &[])
        .in_order(&[
            "beta: removing",
            "oasgen-provider: waiting for RestDefinitions, which must be gone first: krateo-system/rest",
            "oasgen-provider: removing",
            "alpha: removing",
        ]);
    assert!(home.get("restdefinitions", "rest")?.is_none());

    // Again: there is nothing to do.
    stage
        .hook(TEARDOWN, &arguments)?
        .with(0, &["alpha: there is none", "beta: there is none"]);

    // Nobody removes the finalizers, and somebody else has another Alpha: the wait is bounded, reported, and not a
    // failure.
    make_all()?;
    stage.object("ogen.krateo.io/v1alpha1", "RestDefinition", "rest", Some(HOLD))?;
    stage.object(version, "Alpha", "others", None)?;
    let owned = hook("3");
    let arguments: Vec<&str> = owned.iter().map(String::as_str).collect();
    stage.hook(TEARDOWN, &arguments)?.with(
        0,
        &[
            "beta: no longer waiting for its objects to go",
            "oasgen-provider: no longer waiting for RestDefinitions",
            "cannot delete resource",
            "alpha: waiting for its objects to go: krateo-system/others",
        ],
    );
    assert!(home.get("alphas", "others")?.is_some() && home.get("alphas", "alpha")?.is_none());
    assert!(home.get("oasgenproviders", "oasgen-provider")?.is_none());
    let late = stage.hook(TEARDOWN, &[&arguments[..], &["--deadline", "0"]].concat())?;
    late.with(0, &["gave up: there is no time left"]);
    let missing = stage.hook(TEARDOWN, &["ordered-teardown", "--components", "/nowhere"])?;
    missing.with(0, &["gave up: could not read /nowhere"]);

    for (resource, name) in [("betas", "beta"), ("restdefinitions", "rest")] {
        stage.release(resource, name)?;
    }
    home.kubectl(&["delete", "restdefinitions,betas,alphas", "--all"])
        .map(drop)
}

fn bootstrap_teardown(stage: &Stage) -> Result<()> {
    let home = &stage.home;
    let run = |attempts: &str| {
        let hook = [
            "bootstrap-teardown",
            "--release",
            "krateo",
            "--attempts",
            attempts,
        ];
        stage.hook(BOOTSTRAP, &hook)
    };
    stage.definition(HOME, "installer", &json!({"finalizers": [HOLD]}))?;
    // A component's definition, as in the Installer's release.
    let live = home
        .get("installers.composition.krateo.io", "installer")?
        .context("there is no Installer")?;
    let labels = json!({
        "labels": {
            "krateo.io/composition-id": live["metadata"]["uid"], "krateo.io/composition-group": COMPOSITIONS,
            "krateo.io/composition-kind": "Installer",
        },
        "finalizers": [HOLD],
    });
    stage.definition(HOME, "authn", &labels)?;

    // Somebody else's definition: nothing is removed.
    stage.definition("demo", "foreign", &json!({}))?;
    run("3")?.with(
        1,
        &[
            "demo/foreign",
            "Nothing was removed",
            "bootstrap.teardown.removeOthers",
        ],
    );
    assert!(!stage.is_going("compositiondefinitions", "installer")?);
    let others = [
        "bootstrap-teardown",
        "--release",
        "krateo",
        "--attempts",
        "3",
        "--remove-others",
    ];
    // The account may not remove it, unless the chart was configured for that as well.
    stage
        .hook(BOOTSTRAP, &others)?
        .with(1, &["cannot delete resource"]);
    let demo = Namespace::of("demo", home.site());
    demo.kubectl(&["delete", "compositiondefinition", "foreign"])?;

    foreign_rest_definitions(stage)?;

    // Nobody removes what is left: it is named.
    run("3")?.with(
        1,
        &[
            "removing CompositionDefinition.core.krateo.io krateo-system/installer",
            "krateo-system/authn",
            "types alphas.composition.krateo.io",
        ],
    );
    assert!(stage.is_going("compositiondefinitions", "installer")?);
    assert!(!stage.is_going("compositiondefinitions", "authn")?);

    // The same again, with controllers: the definition is deleted with everything that it holds.
    let controllers = || {
        if stage.is_going("compositiondefinitions", "installer")? {
            for kind in ["alphas", "betas", "oasgenproviders", "installers"] {
                home.kubectl(&[
                    "delete",
                    "crd",
                    &format!("{kind}.{COMPOSITIONS}"),
                    "--ignore-not-found",
                    "--wait=false",
                ])?;
            }
            for name in ["authn", "installer"] {
                stage.release("compositiondefinitions", name)?;
                home.kubectl(&["delete", "compositiondefinition", name, "--ignore-not-found"])?;
            }
        }
        Ok(())
    };
    let hook = ["bootstrap-teardown", "--release", "krateo", "--attempts", "300"];
    stage
        .hook_beside(BOOTSTRAP, &hook, controllers)?
        .with(0, &["waiting for", "nothing is left"]);
    // Again, and on a cluster where the type of definitions never existed.
    run("3")?.with(0, &["nothing is left"]);
    home.kubectl(&[
        "delete",
        "crd",
        "compositiondefinitions.core.krateo.io",
        "restdefinitions.ogen.krateo.io",
    ])?;
    run("3")?.with(0, &["nothing is left"]);
    // One read is not three.
    run("1")?.with(1, &["not everything is gone"]);
    Ok(())
}

/// Objects that no component created would keep their finalizers. Those of another platform belong to it, to the end.
fn foreign_rest_definitions(stage: &Stage) -> Result<()> {
    let home = &stage.home;
    stage.object("ogen.krateo.io/v1alpha1", "RestDefinition", "rest", None)?;
    let hook = ["bootstrap-teardown", "--release", "krateo", "--attempts", "3"];
    stage.hook(BOOTSTRAP, &hook)?.with(
        1,
        &[
            "RestDefinitions are there that no component brought",
            "krateo-system/rest",
            "Nothing was removed",
        ],
    );
    assert!(!stage.is_going("compositiondefinitions", "installer")?);
    home.kubectl(&[
        "annotate",
        "crd",
        "restdefinitions.ogen.krateo.io",
        "meta.helm.sh/release-namespace=elsewhere",
    ])
    .map(drop)
}

fn post_delete(stage: &Stage) -> Result<()> {
    let home = &stage.home;
    stage.serve("hyperdx.krateo.io", "Alert", &["v1"])?;
    let webhook = |name: &str, instance: &str| {
        home.apply(&json!({
            "apiVersion": "admissionregistration.k8s.io/v1", "kind": "MutatingWebhookConfiguration",
            "metadata": {"name": name, "labels": {
                "app.kubernetes.io/name": "core-provider", "app.kubernetes.io/instance": instance,
            }},
        }))
    };
    webhook("of-ours", "krateo")?;
    webhook("ours-core-provider", "another")?;
    let run = || {
        stage.hook(
            SWEEP,
            &["post-delete", "--release", "krateo", "--attempts", "100"],
        )
    };
    run()?.with(0, &["of-ours", "alerts.hyperdx.krateo.io", "nothing is left"]);
    assert!(home.get("mutatingwebhookconfigurations", "of-ours")?.is_none());
    assert!(
        home.get("mutatingwebhookconfigurations", "ours-core-provider")?
            .is_some()
    );
    assert!(home.get("crd", "alerts.hyperdx.krateo.io")?.is_none());
    run()?.with(0, &["nothing is left"]);

    // The namespace of the controllers is deleted with the release; here it stays at first, and then it is gone.
    let namespace = Namespace::make("krateo-platform", home.site())?;
    let sweep = [
        "post-delete",
        "--release",
        "krateo",
        "--platform-namespace",
        "krateo-platform",
        "--attempts",
        "2",
    ];
    stage.hook(SWEEP, &sweep)?.with(
        0,
        &[
            "still going: Namespace krateo-platform",
            "Install again once it is gone",
        ],
    );
    namespace.kubectl(&["delete", "namespace", "krateo-platform"])?;
    stage.hook(SWEEP, &sweep)?.with(0, &["nothing is left"]);
    Ok(())
}
