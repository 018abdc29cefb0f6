//! Kubeconfigs that try to harm the operator that uses them, API servers that try to harm their clients, and
//! deployments that name Secrets of others.
//!
//! Each attack has an operator of its own, which also reconciles a tenant of the same control plane: that tenant is the
//! victim.

use std::fs;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use anyhow::{Context as _, Result};
use base64::prelude::{BASE64_STANDARD, Engine as _};
use local_cluster::certificates::Authority;
use serde_json::{Value, json};
use tempfile::TempDir;

use super::{Actor, Attack, Outcome, Stage};
use crate::http_server::{Answer, Asked};
use crate::namespace::condition;
use crate::trials::multicluster::{self, LABEL, deployment, tenant};
use crate::{HttpServer, Namespace, image};

const PROGRAM: &str = "multicluster-operator";

/// The Secret with the malicious kubeconfig.
const HOSTILE: &str = "hostile";

/// More memory than an operator with one tenant needs, and half of what its chart allows.
const MOST_MEMORY: u64 = 256 << 20;

/// A text that must not be disclosed.
const TELL_TALE: &str = "tell-tale-of-the-operator";

pub(super) fn attacks() -> Vec<Attack> {
    let row = |name: &'static str, what: &str, attempt: fn(&Stage, &'static str) -> Result<Outcome>| {
        Attack::new(name, Actor::ClusterOwner, what, move |stage| attempt(stage, name))
    };
    vec![
        row(
            "kubeconfig-exec",
            "a kubeconfig has a program run for its token",
            exec,
        )
        .quick(),
        row(
            "kubeconfig-file",
            "a kubeconfig shows a file of the operator to its server",
            file,
        ),
        row(
            "kubeconfig-link-local",
            "a kubeconfig leads to a cloud's metadata service",
            link_local,
        ),
        row(
            "kubeconfig-loopback",
            "a kubeconfig leads to the operator's own pod",
            loopback,
        ),
        row(
            "server-redirect",
            "the server redirects to another, token and all",
            redirect,
        )
        .quick(),
        row("server-endless", "an answer of the server has no end", endless),
        row(
            "server-values",
            "an answer of the server takes far more memory than bytes",
            values,
        ),
        row(
            "server-error",
            "the server steers terminals and fills Secrets by a refusal",
            error,
        ),
        row("server-list", "the server lists tenants without end", list).quick(),
        row(
            "server-flood",
            "the server tells all the time that a tenant has moved",
            flood,
        ),
        row(
            "deployment-secret",
            "a deployment uses a kubeconfig of another namespace",
            secret,
        )
        .quick(),
        row(
            "deployment-namespace",
            "a deployment takes a namespace that was there before",
            namespace,
        ),
        row(
            "deployment-elsewhere",
            "the values of a deployment put an object into a namespace of others",
            elsewhere,
        )
        .quick(),
        row(
            "deployment-lookup",
            "the values of a deployment look up what others have",
            lookup,
        )
        .quick(),
    ]
}

/// The namespace of an attack, and its operator.
struct Post<'s> {
    stage: &'s Stage,
    name: &'static str,
    namespace: Namespace,
    operator: String,
    _charts: HttpServer,
}

impl<'s> Post<'s> {
    fn start(stage: &'s Stage, name: &'static str) -> Result<Self> {
        Self::start_with(stage, name, &[])
    }

    fn start_with(stage: &'s Stage, name: &'static str, flags: &[&str]) -> Result<Self> {
        let (plane, namespace) = (stage.platform().plane(), stage.platform().namespace(name)?);
        let charts = multicluster::charts_of(stage.platform().site())?;
        let served = format!("--watch-namespaces={name},{name}-thief");
        let flags = [flags, &["--self-cluster", &served]].concat();
        let arguments = multicluster::arguments(&charts, name, &flags);
        let operator = format!("operator-{name}");
        let kubeconfig = plane.kubeconfig();
        let environment = [
            ("KUBECONFIG", &*kubeconfig.to_string_lossy()),
            ("NO_PROXY", "127.0.0.1"),
        ];
        plane.start_program(&operator, &image::binary(PROGRAM)?, arguments, &environment)?;
        Ok(Self {
            stage,
            name,
            namespace,
            operator,
            _charts: charts,
        })
    }

    /// Creates the Secret with a kubeconfig.
    fn join(&self, cluster: &str, kubeconfig: &[u8], allowed_from: &str) -> Result<()> {
        self.namespace.apply(&json!({
            "apiVersion": "v1", "kind": "Secret",
            "metadata": {
                "name": cluster, "namespace": self.name, "labels": {LABEL: "true"},
                "annotations": {"krateo.io/allow-from-namespaces": allowed_from},
            },
            "data": {"kubeconfig": BASE64_STANDARD.encode(kubeconfig)},
        }))
    }

    /// The reported state of the hostile cluster, once there is one.
    fn told(&self) -> Result<String> {
        let said = |secret: &Value| {
            let text = secret["metadata"]["annotations"]["mesh.openkcm.io/cluster-state"].as_str()?;
            let standing: Value = serde_json::from_str(text).ok()?;
            let words = (standing["state"].as_str()?, standing["message"].as_str()?);
            (!words.1.is_empty()).then(|| format!("{}: {}", words.0, words.1))
        };
        let secret = self
            .namespace
            .wait("secrets", HOSTILE, |secret| said(secret).is_some())?;
        said(&secret).context("nothing is said of the cluster")
    }

    /// The result of an attack: the state must name it, nothing of it may have worked, and the other tenant must be
    /// reconciled.
    fn judge(self, names: &str, got_through: impl Fn() -> Result<Option<String>>) -> Result<Outcome> {
        let told = self.told()?;
        let victim = self.serve_victim();
        let usage = self.stage.platform().plane().usage(&self.operator)?;
        let seen = got_through()?;
        self.end()?;
        if let Some(seen) = seen {
            return Ok(Outcome::got_through(seen));
        }
        if !told.contains(names) {
            return Ok(Outcome::got_through(format!(
                "the cluster's state does not name it: {told}"
            )));
        }
        if let Err(error) = victim {
            return Ok(Outcome::got_through(format!(
                "the tenant beside is not served: {error:#}"
            )));
        }
        let peak = usage.peak >> 20;
        if usage.peak > MOST_MEMORY {
            return Ok(Outcome::got_through(format!("the operator took {peak} MiB")));
        }
        let seen = format!("the tenant beside was served, the operator took {peak} MiB at most");
        Ok(Outcome::refused(format!("the operator: {told}"), seen))
    }

    /// Creates a tenant, and changes it while the attack goes on.
    fn serve_victim(&self) -> Result<()> {
        let name = format!("{}-victim", self.name);
        let place = Namespace::of(&name, self.namespace.site());
        for greeting in ["one", "two", "three"] {
            let spec =
                json!({"clusterRef": {"secretName": "self-cluster"}, "values": {"greeting": greeting}});
            self.namespace.apply(&tenant(self.name, &name, &spec))?;
            place.wait("configmaps", "settings", |it| it["data"]["greeting"] == greeting)?;
            self.namespace
                .wait("tenants", &name, |it| it["status"]["phase"] == "Ready")?;
        }
        self.namespace.kubectl(&["delete", "tenant", &name])?;
        Ok(())
    }

    fn end(&self) -> Result<()> {
        self.stage.platform().plane().kill_component(&self.operator)
    }
}

/// A TLS server with its own CA.
struct Server {
    http: HttpServer,
    authority: Vec<u8>,
    _folder: TempDir,
}

impl Server {
    fn start(decide: impl Fn(&Asked) -> Answer + Send + Sync + 'static) -> Result<Self> {
        let folder = tempfile::tempdir()?;
        let authority = Authority::create(folder.path().to_owned())?;
        authority.serve("server", vec!["127.0.0.1".to_owned()])?;
        let (certificate, key) = (folder.path().join("server.crt"), folder.path().join("server.key"));
        Ok(Self {
            http: HttpServer::start_tls(&certificate, &key, decide)?,
            authority: fs::read(authority.certificate())?,
            _folder: folder,
        })
    }

    fn kubeconfig(&self, user: &Value) -> Vec<u8> {
        kubeconfig(&self.http.url(""), &self.authority, user)
    }

    /// Credentials of ours that it received, if any.
    fn was_shown(&self, secret: &str) -> Option<String> {
        let mut asked = self.http.asked().into_iter();
        let shown = asked.find(|asked| asked.authorization.as_ref().is_some_and(|it| it.contains(secret)));
        shown.map(|asked| format!("the server was shown it at {}", asked.path))
    }
}

fn kubeconfig(server: &str, authority: &[u8], user: &Value) -> Vec<u8> {
    json!({
        "apiVersion": "v1", "kind": "Config", "current-context": "c",
        "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
        "clusters": [{"name": "c", "cluster": {
            "server": server, "certificate-authority-data": BASE64_STANDARD.encode(authority),
        }}],
        "users": [{"name": "u", "user": user}],
    })
    .to_string()
    .into_bytes()
}

fn exec(stage: &Stage, name: &'static str) -> Result<Outcome> {
    let folder = tempfile::tempdir()?;
    let marker = folder.path().join("it-ran");
    let server = Server::start(|_| Answer::Status(401))?;
    let post = Post::start(stage, name)?;
    let program = json!({"exec": {
        "apiVersion": "client.authentication.k8s.io/v1", "interactiveMode": "Never",
        "command": "touch", "args": [marker.to_string_lossy()],
    }});
    post.join(HOSTILE, &server.kubeconfig(&program), "")?;
    post.judge("`exec` of user", || {
        Ok(marker.exists().then(|| "the program ran".to_owned()))
    })
}

fn file(stage: &Stage, name: &'static str) -> Result<Outcome> {
    let folder = tempfile::tempdir()?;
    let path = folder.path().join("token");
    fs::write(&path, TELL_TALE)?;
    let server = Server::start(|_| Answer::Status(401))?;
    let post = Post::start(stage, name)?;
    let user = json!({"tokenFile": path.to_string_lossy()});
    post.join(HOSTILE, &server.kubeconfig(&user), "")?;
    post.judge("`tokenFile` of user", || Ok(server.was_shown(TELL_TALE)))
}

fn link_local(stage: &Stage, name: &'static str) -> Result<Outcome> {
    let server = Server::start(|_| Answer::Status(401))?;
    let post = Post::start(stage, name)?;
    let text = kubeconfig(
        "https://[::ffff:169.254.169.254]",
        &server.authority,
        &json!({"token": "t"}),
    );
    post.join(HOSTILE, &text, "")?;
    post.judge("a link-local address", || Ok(None))
}

fn loopback(stage: &Stage, name: &'static str) -> Result<Outcome> {
    let server = Server::start(|_| Answer::Status(401))?;
    let post = Post::start_with(stage, name, &["--allow-loopback-clusters=false"])?;
    let at = server
        .http
        .host()
        .rsplit(':')
        .next()
        .unwrap_or_default()
        .to_owned();
    let text = kubeconfig(
        &format!("https://[::ffff:127.0.0.1]:{at}"),
        &server.authority,
        &json!({"token": TELL_TALE}),
    );
    post.join(HOSTILE, &text, "")?;
    post.judge("a loopback address", || {
        Ok((!server.http.asked().is_empty()).then(|| "the server was asked".to_owned()))
    })
}

fn redirect(stage: &Stage, name: &'static str) -> Result<Outcome> {
    let other = Server::start(|_| Answer::Status(401))?;
    let to = other.http.url("/version");
    let server = Server::start(move |_| Answer::Redirect(to.clone()))?;
    let post = Post::start(stage, name)?;
    post.join(HOSTILE, &server.kubeconfig(&json!({"token": TELL_TALE})), "")?;
    post.judge("the server redirects (302)", || {
        Ok((!other.http.asked().is_empty()).then(|| "the redirect was followed".to_owned()))
    })
}

fn endless(stage: &Stage, name: &'static str) -> Result<Outcome> {
    let server = Server::start(|_| Answer::Zeros(1 << 40))?;
    let post = Post::start(stage, name)?;
    post.join(HOSTILE, &server.kubeconfig(&json!({"token": "t"})), "")?;
    post.judge("the answer has more than", || Ok(None))
}

fn values(stage: &Stage, name: &'static str) -> Result<Outcome> {
    let answer = format!("[{}[]]", "[],".repeat(4 << 20)).into_bytes();
    let server = Server::start(move |asked| match asked.path.as_str() {
        "/version" => version(),
        _ => Answer::Content(answer.clone()),
    })?;
    let post = Post::start(stage, name)?;
    post.join(HOSTILE, &server.kubeconfig(&json!({"token": "t"})), "")?;
    post.judge("values", || Ok(None))
}

fn error(stage: &Stage, name: &'static str) -> Result<Outcome> {
    let message = format!("\u{1b}[2Jit is gone\r\n{}", "x".repeat(4 << 20));
    let refusal = json!({
        "kind": "Status", "apiVersion": "v1", "status": "Failure", "reason": "Forbidden", "code": 403, "message": message,
    });
    let refusal = refusal.to_string().into_bytes();
    let server = Server::start(move |asked| match asked.path.as_str() {
        "/version" => version(),
        _ => Answer::Refusal(403, refusal.clone()),
    })?;
    let post = Post::start(stage, name)?;
    post.join(HOSTILE, &server.kubeconfig(&json!({"token": "t"})), "")?;
    let namespace = Namespace::of(name, post.namespace.site());
    post.judge("it is gone", move || {
        let secret = namespace.get("secrets", HOSTILE)?.unwrap_or_default();
        let text = secret["metadata"]["annotations"].to_string();
        let is_told = text.len() < 8 << 10 && !text.contains("u001b");
        Ok((!is_told).then(|| format!("the Secret holds {} bytes of it", text.len())))
    })
}

fn list(stage: &Stage, name: &'static str) -> Result<Outcome> {
    let number = Arc::new(AtomicUsize::new(0));
    let of = name;
    let server = Server::start(move |asked| {
        plausible(asked).unwrap_or_else(|| {
            let tenants = asked.path.ends_with("/tenants") && !asked.query.contains("watch");
            if !tenants {
                return Answer::Status(404);
            }
            let first = number.fetch_add(500, Ordering::SeqCst);
            let items: Vec<Value> = (first..first + 500)
                .map(|number| listed(of, &format!("t{number}"), number))
                .collect();
            let page = json!({
                "kind": "PartialObjectMetadataList", "apiVersion": "meta.k8s.io/v1",
                "metadata": {"resourceVersion": "1", "continue": "more"}, "items": items,
            });
            Answer::Content(page.to_string().into_bytes())
        })
    })?;
    let post = Post::start(stage, name)?;
    post.join(HOSTILE, &server.kubeconfig(&json!({"token": "t"})), "")?;
    post.judge("tenants", || Ok(None))
}

fn flood(stage: &Stage, name: &'static str) -> Result<Outcome> {
    let of = name;
    let mut events = String::new();
    for number in 0..40_000 {
        // The type comes first, as in answers of API servers.
        let object = listed(of, "mover", number).to_string();
        events.extend([r#"{"type":"MODIFIED","object":"#, &object, "}\n"]);
    }
    let server = Server::start(move |asked| {
        plausible(asked).unwrap_or_else(|| {
            let is_tenants = asked.path.ends_with("/tenants");
            match (is_tenants, asked.query.contains("watch")) {
                (true, true) => Answer::Content(events.clone().into_bytes()),
                (true, false) => {
                    let page = json!({
                        "kind": "PartialObjectMetadataList", "apiVersion": "meta.k8s.io/v1",
                        "metadata": {"resourceVersion": "1"}, "items": [],
                    });
                    Answer::Content(page.to_string().into_bytes())
                }
                (false, _) => Answer::Status(404),
            }
        })
    })?;
    let post = Post::start(stage, name)?;
    post.join(HOSTILE, &server.kubeconfig(&json!({"token": "t"})), "")?;
    post.namespace.wait("secrets", HOSTILE, |secret| {
        let told = secret["metadata"]["annotations"]["mesh.openkcm.io/cluster-state"].as_str();
        told.is_some_and(|told| told.contains("Engaged"))
    })?;
    let begun = std::time::Instant::now();
    let asked_before = server.http.asked().len();
    let victim = post.serve_victim();
    std::thread::sleep(Duration::from_secs(10).saturating_sub(begun.elapsed()));
    let (asked, took) = (server.http.asked().len() - asked_before, begun.elapsed());
    let usage = stage.platform().plane().usage(&post.operator)?;
    post.end()?;
    if let Err(error) = victim {
        return Ok(Outcome::got_through(format!(
            "the tenant beside is not served: {error:#}"
        )));
    }
    // Twice the allowed rate of requests, after the burst.
    let most = 2000 + took.as_secs() * 1000;
    if asked as u64 > most || usage.peak > MOST_MEMORY {
        return Ok(Outcome::got_through(format!(
            "{asked} requests in {took:?}, {} MiB",
            usage.peak >> 20
        )));
    }
    Ok(Outcome::refused(
        "the pace of watches and requests",
        format!(
            "{asked} requests in {} s, the tenant beside was served",
            took.as_secs()
        ),
    ))
}

/// A tenant as in lists and watches.
fn listed(namespace: &str, name: &str, version: usize) -> Value {
    json!({
        "kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1",
        "metadata": {
            "name": name, "namespace": namespace, "uid": format!("{version}"), "resourceVersion": format!("{version}"),
        },
    })
}

fn version() -> Answer {
    let version = json!({
        "major": "1", "minor": "36", "gitVersion": "v1.36.0", "gitCommit": "", "gitTreeState": "", "buildDate": "",
        "goVersion": "", "compiler": "", "platform": "",
    });
    Answer::Content(version.to_string().into_bytes())
}

/// The answers of a server until the operator is connected.
fn plausible(asked: &Asked) -> Option<Answer> {
    let groups = |items: Value| {
        let list = json!({
            "kind": "APIGroupDiscoveryList", "apiVersion": "apidiscovery.k8s.io/v2", "metadata": {}, "items": items,
        });
        Some(Answer::Content(list.to_string().into_bytes()))
    };
    match asked.path.as_str() {
        "/version" => Some(version()),
        "/api" => groups(json!([])),
        "/apis" => groups(json!([{
            "metadata": {"name": "mesh.openkcm.io"},
            "versions": [{"version": "v1alpha1", "resources": [{
                "resource": "tenants", "scope": "Namespaced", "singularResource": "tenant",
                "responseKind": {"group": "mesh.openkcm.io", "version": "v1alpha1", "kind": "Tenant"},
                "verbs": ["get", "list", "watch", "patch"],
            }]}],
        }])),
        path if path.contains("/customresourcedefinitions/") => Some(Answer::Content(
            json!({
                "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
                "metadata": {"name": "tenants.mesh.openkcm.io"},
            })
            .to_string()
            .into_bytes(),
        )),
        _ => None,
    }
}

/// An operator, a kubeconfig of its cluster with an admin's credentials, whose Secret may be used from one namespace,
/// and the namespace of the attacker.
fn begin_theft<'s>(
    stage: &'s Stage,
    name: &'static str,
    allowed_from: &str,
) -> Result<(Post<'s>, Namespace)> {
    let post = Post::start(stage, name)?;
    let thief = stage.platform().namespace(&format!("{name}-thief"))?;
    let kubeconfig = fs::read(stage.platform().plane().kubeconfig())?;
    post.join(HOSTILE, &kubeconfig, allowed_from)?;
    thief.wait(
        "customresourcedefinitions",
        "kryptondeployments.mesh.openkcm.io",
        |it| it["status"]["acceptedNames"]["kind"] == "KryptonDeployment",
    )?;
    Ok((post, thief))
}

/// Removes the attacker's deployments, and reports the result: what the operator said of each, and what was released
/// all the same.
fn end_theft(
    post: &Post<'_>,
    thief: &Namespace,
    deployments: &[&str],
    said: &[String],
    seen: Option<String>,
) -> Result<Outcome> {
    let victim = post.serve_victim();
    thief.kubectl(&["delete", "kryptondeployments", "--all", "--wait=false"])?;
    for deployment in deployments {
        thief.wait_gone("kryptondeployments", deployment)?;
    }
    post.end()?;
    let unserved = victim.err();
    let unserved = unserved.map(|error| format!("the tenant beside is not served: {error:#}"));
    Ok(match unserved.or(seen) {
        Some(seen) => Outcome::got_through(seen),
        None => Outcome::refused(
            format!("the operator: {}", said.join("; ")),
            "nothing was made, the tenant beside was served",
        ),
    })
}

/// A region whose cluster is given by this Secret.
fn region(secret: &str, namespace: &str) -> Value {
    json!({"name": "eu", "kubeconfig": {"secret": {"name": secret, "namespace": namespace}}})
}

/// The message of a deployment's condition, once it has one that is not about routing.
fn refusal(namespace: &Namespace, name: &str, reason: &str) -> Result<String> {
    let message = |it: &Value| {
        let ready = condition(it, "Ready")?;
        (ready["reason"] == reason).then(|| ready["message"].as_str().unwrap_or_default().to_owned())
    };
    let refused = namespace.wait("kryptondeployments", name, |it| message(it).is_some())?;
    message(&refused).context("it has no condition")
}

fn secret(stage: &Stage, name: &'static str) -> Result<Outcome> {
    let (post, thief) = begin_theft(stage, name, "others")?;
    let mut said = Vec::new();
    for (loot, named) in [("loot-there", HOSTILE), ("loot-missing", "missing")] {
        thief.apply(&deployment(
            thief.namespace(),
            loot,
            &region(named, name),
            &json!({}),
        ))?;
        said.push(refusal(&thief, loot, "EdgeUnavailable")?.replace(&format!("/{named} "), "/… "));
    }
    let victim = post.serve_victim();
    let mut seen = None;
    for loot in ["loot-there", "loot-missing"] {
        if Namespace::of(loot, thief.site())
            .get("namespaces", loot)?
            .is_some()
        {
            seen = Some(format!("namespace {loot} was made on the cluster"));
        }
    }
    if said[0] != said[1] {
        seen = Some(format!("it is told whether the Secret is there: {said:?}"));
    }
    thief.kubectl(&["delete", "kryptondeployments", "--all", "--wait=false"])?;
    thief.wait_gone("kryptondeployments", "loot-there")?;
    post.end()?;
    if let Err(error) = victim {
        seen = Some(format!("the tenant beside is not served: {error:#}"));
    }
    Ok(match seen {
        Some(seen) => Outcome::got_through(seen),
        None => Outcome::refused(
            format!("the operator: {}", said[0]),
            "nothing was made, the tenant beside was served",
        ),
    })
}

fn namespace(stage: &Stage, name: &'static str) -> Result<Outcome> {
    let (post, thief) = begin_theft(stage, name, &format!("{name}-thief"))?;
    let settled = stage.platform().namespace(&format!("{name}-settled"))?;
    let region = region(HOSTILE, name);
    let mut said = Vec::new();
    for target in ["kube-system", "default", settled.namespace()] {
        thief.apply(&deployment(thief.namespace(), target, &region, &json!({})))?;
        said.push(refusal(&thief, target, "HelmFailed")?);
    }
    let mut seen = None;
    for target in ["kube-system", "default", settled.namespace()] {
        let records = Namespace::of(target, thief.site()).kubectl(&[
            "get",
            "secrets,configmaps",
            "--selector=owner=helm",
            "--output=name",
        ])?;
        if !records.trim().is_empty() {
            seen = Some(format!("a release was made in {target}"));
        }
    }
    thief.kubectl(&["delete", "kryptondeployments", "--all", "--wait=false"])?;
    for target in ["kube-system", "default", settled.namespace()] {
        thief.wait_gone("kryptondeployments", target)?;
    }
    if settled.get("namespaces", settled.namespace())?.is_none() {
        seen = Some("the namespace went with the deployment".to_owned());
    }
    post.end()?;
    Ok(match seen {
        Some(seen) => Outcome::got_through(seen),
        None => Outcome::refused(
            format!("the operator: {}", said.join("; ")),
            "nothing was made there",
        ),
    })
}

fn elsewhere(stage: &Stage, name: &'static str) -> Result<Outcome> {
    let (post, thief) = begin_theft(stage, name, &format!("{name}-thief"))?;
    let settled = stage.platform().namespace(&format!("{name}-settled"))?;
    let region = region(HOSTILE, name);
    let targets = ["kube-system", settled.namespace()];
    let mut said = Vec::new();
    for (number, target) in targets.iter().enumerate() {
        let values = json!({"elsewhere": target});
        let loot = format!("reach-{number}");
        thief.apply(&deployment(thief.namespace(), &loot, &region, &values))?;
        said.push(refusal(&thief, &loot, "HelmFailed")?);
    }
    let mut seen = None;
    for target in targets {
        if Namespace::of(target, thief.site())
            .get("configmaps", "settings")?
            .is_some()
        {
            seen = Some(format!("the object is in {target}"));
        }
    }
    end_theft(&post, &thief, &["reach-0", "reach-1"], &said, seen)
}

fn lookup(stage: &Stage, name: &'static str) -> Result<Outcome> {
    let (post, thief) = begin_theft(stage, name, &format!("{name}-thief"))?;
    let settled = stage.platform().namespace(&format!("{name}-settled"))?;
    for kind in ["ConfigMap", "Secret"] {
        settled.apply(&json!({
            "apiVersion": "v1", "kind": kind, "metadata": {"name": "plans", "namespace": settled.namespace()},
            "data": {"plan": BASE64_STANDARD.encode(TELL_TALE)},
        }))?;
    }
    let region = region(HOSTILE, name);
    let looks = [
        ("peek-map", "ConfigMap", settled.namespace(), "plans"),
        ("peek-secret", "Secret", settled.namespace(), "plans"),
        ("peek-all", "Secret", "", ""),
    ];
    let mut said = Vec::new();
    for (loot, kind, namespace, of) in looks {
        let values = json!({"looks": {"kind": kind, "namespace": namespace, "name": of}});
        thief.apply(&deployment(thief.namespace(), loot, &region, &values))?;
        said.push(refusal(&thief, loot, "HelmFailed")?);
    }
    let mut seen = None;
    for (loot, ..) in looks {
        let place = Namespace::of(loot, thief.site());
        if place.get("configmaps", "settings")?.is_some() {
            seen = Some(format!("the release {loot} was made with what it found"));
        }
    }
    end_theft(&post, &thief, &looks.map(|(loot, ..)| loot), &said, seen)
}
