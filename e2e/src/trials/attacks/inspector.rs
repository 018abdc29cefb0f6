//! chart-inspector answers only callers that present a token made for it and may read the composition. Its own token
//! can read little.

use anyhow::{Context as _, Result};
use futures::{StreamExt as _, TryStreamExt as _, stream};
use serde_json::json;

use super::bindings::outcome;
use super::stage::{CATALOG, Scene};
use super::{Actor, Attack, Outcome, Stage};
use crate::Namespace;

pub(super) fn attacks() -> Vec<Attack> {
    let mut all = asking();
    all.extend(taking());
    all
}

#[expect(clippy::too_many_lines, reason = "one list, an entry for each attack")]
fn asking() -> Vec<Attack> {
    let asked =
        |name: &str, actor: Actor, what: &str, token: fn(&Stage, &Scene<'_>) -> Result<Option<String>>| {
            let own = name.to_owned();
            Attack::new(name, actor, what, move |stage| {
                let scene = Scene::with_victim(stage, &own, &json!({}))?;
                let token = token(stage, &scene)?;
                asks(stage, &scene, token.as_deref())
            })
            .quick()
        };
    let reads = |name: &str, what: &str, words: &'static str| {
        Attack::new(name, Actor::Inspector, what, move |stage| {
            stage.bazaar()?;
            let words: Vec<&str> = words.split(' ').collect();
            Ok(outcome(&stage.inspector()?.run(&words)?))
        })
        .quick()
    };
    vec![
        asked(
            "inspector-nobody",
            Actor::Peer,
            "asks without a token what the victim's release touches",
            |_, _| Ok(None),
        ),
        asked(
            "inspector-no-token",
            Actor::Peer,
            "asks with a text that is no token",
            |_, _| Ok(Some("not-a-token".to_owned())),
        ),
        asked(
            "inspector-other-audience",
            Actor::Controller,
            "asks with a token for the API server",
            |stage, scene| token(&home(stage, scene), &scene.bazaar.account(), None),
        ),
        asked(
            "inspector-somebody-else",
            Actor::Controller,
            "asks with a token for somebody else",
            |stage, scene| {
                token(
                    &home(stage, scene),
                    &scene.bazaar.account(),
                    Some("somebody-else"),
                )
            },
        ),
        asked(
            "inspector-stranger",
            Actor::Tenant,
            "asks about the victim's composition with a token for chart-inspector",
            |_, scene| token(&scene.a, "tenant", Some("chart-inspector")),
        ),
        asked(
            "inspector-other-controller",
            Actor::Controller,
            "asks about a composition of another type",
            |stage, _| {
                let bastion = stage.bastion()?;
                let home = Namespace::of(&bastion.home, stage.platform().site());
                token(&home, &bastion.account(), Some("chart-inspector"))
            },
        ),
        Attack::new(
            "inspector-answer",
            Actor::Controller,
            "has chart-inspector look the victim's Secret up, and reads its answer",
            answered,
        ),
        reads(
            "inspector-secrets",
            "lists all Secrets",
            "get secrets --all-namespaces",
        ),
        reads(
            "inspector-key",
            "reads a Secret of the platform",
            "get secrets --namespace krateo-system",
        ),
        reads(
            "inspector-writes",
            "makes a ConfigMap",
            "create configmap forged --namespace catalog",
        ),
        reads(
            "inspector-tokens",
            "makes a token of core-provider",
            "create token core-provider --namespace krateo-system",
        ),
        reads(
            "inspector-roles",
            "makes a role",
            "create clusterrole forged --verb=get --resource=secrets",
        ),
        Attack::new(
            "inspector-flood",
            Actor::Peer,
            "sends a thousand tokens that are none, and one of them a thousand times",
            flooded,
        ),
        Attack::new(
            "inspector-registry-password",
            Actor::Inspector,
            "reads the password of a registry that a definition names",
            |stage| {
                stage.bazaar()?;
                let words = [
                    "get",
                    "secret",
                    super::stage::REGISTRY_SECRET,
                    "--namespace",
                    CATALOG,
                ];
                Ok(outcome(&stage.inspector()?.run(&words)?))
            },
        )
        .quick()
        .residue("never Secrets but those that a definition names for its chart"),
    ]
}

/// Templates that use a processor for hours, and templates that use up all memory.
fn taking() -> Vec<Attack> {
    let crowd = |name: &'static str, what: &str, template: &'static str| {
        Attack::new(name, Actor::Tenant, what, move |stage| {
            crowded(stage, name, template)
        })
    };
    vec![
        crowd(
            "inspector-endless",
            "has six compositions inspected at once whose templates never end",
            r#"{{ range 1000000000 }}{{ $x := htpasswd "a" "b" }}{{ end }}"#,
        ),
        crowd(
            "inspector-memory",
            "has six compositions inspected at once whose templates fill the memory",
            r#"{{ $x := list }}{{ range 100000 }}{{ $x = append $x (repeat 10000000 "a") }}{{ end }}"#,
        ),
    ]
}

/// Six compositions of the attacker are inspected at once; meanwhile the victim's is inspected, and changed.
fn crowded(stage: &Stage, name: &str, template: &str) -> Result<Outcome> {
    let scene = Scene::with_victim(stage, name, &json!({"greeting": "before"}))?;
    let token = token(
        &home(stage, &scene),
        &scene.bazaar.account(),
        Some("chart-inspector"),
    )?;
    let names: Vec<String> = (0..6).map(|at| format!("crowd-{at}")).collect();
    for name in &names {
        scene.compose(name, &json!({"extraDeploy": [template]}))?;
    }
    let token = token.as_deref();
    let ask = |namespace: &str, name: &str| get(stage, &scene, namespace, name, token);
    let (seen, cut_off) = std::thread::scope(|scope| {
        let crowd: Vec<_> = names
            .iter()
            .map(|name| scope.spawn(|| ask(scene.a.namespace(), name)))
            .collect();
        let mut seen = Vec::new();
        while seen.is_empty() || crowd.iter().any(|asked| !asked.is_finished()) {
            seen.push(ask(scene.b.namespace(), "web"));
        }
        let crowd = crowd.into_iter().map(|asked| match asked.join() {
            Ok(answer) => answer,
            Err(panic) => std::panic::resume_unwind(panic),
        });
        (seen, crowd.collect::<Result<Vec<_>>>())
    });
    for answer in seen {
        let (status, body) = answer?;
        if status != 200 {
            return Ok(Outcome::got_through(format!(
                "meanwhile chart-inspector answers the victim {status}: {body}"
            )));
        }
    }
    // Those that got no place in time are told to retry.
    let cut_off = cut_off?;
    let told = |(status, body): &(u16, String)| match status {
        500 => body.contains("extra.yaml:") && body.contains("the render "),
        503 => body.contains("could be processed within"),
        _ => false,
    };
    match cut_off.iter().find(|answer| !told(answer)) {
        Some((status, body)) => Ok(Outcome::got_through(format!(
            "chart-inspector answers the attacker {status}: {body}"
        ))),
        None => Ok(Outcome::refused(
            cut_off
                .iter()
                .map(|(_, body)| body.as_str())
                .min()
                .unwrap_or_default(),
            "chart-inspector answers about the victim's composition all the time",
        )),
    }
}

fn home(stage: &Stage, scene: &Scene<'_>) -> Namespace {
    Namespace::of(&scene.bazaar.home, stage.platform().site())
}

fn token(namespace: &Namespace, account: &str, audience: Option<&str>) -> Result<Option<String>> {
    let audience = audience.map(|audience| format!("--audience={audience}"));
    let mut words = vec!["create", "token", account];
    words.extend(audience.as_deref());
    Ok(Some(namespace.kubectl(&words)?.trim().to_owned()))
}

/// Requests the objects that the victim's release touches.
fn asks(stage: &Stage, scene: &Scene<'_>, token: Option<&str>) -> Result<Outcome> {
    let (status, body) = get(stage, scene, scene.b.namespace(), "web", token)?;
    Ok(if status == 200 {
        Outcome::got_through(format!("chart-inspector answers: {body}"))
    } else {
        Outcome::refused(
            format!("chart-inspector answers {status}: {body}"),
            "nothing is answered",
        )
    })
}

/// Status and body of chart-inspector's answer about a composition of the shared type.
fn get(
    stage: &Stage,
    scene: &Scene<'_>,
    namespace: &str,
    name: &str,
    token: Option<&str>,
) -> Result<(u16, String)> {
    let url = url(stage, scene, namespace, name);
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    let client = client()?;
    runtime.block_on(async {
        let mut request = client.get(url);
        if let Some(token) = token {
            request = request.bearer_auth(token);
        }
        let answer = request.send().await.context("chart-inspector does not answer")?;
        Ok((answer.status().as_u16(), answer.text().await?))
    })
}

fn client() -> Result<reqwest::Client> {
    let _ = rustls::crypto::ring::default_provider().install_default();
    Ok(reqwest::Client::builder().no_proxy().build()?)
}

fn url(stage: &Stage, scene: &Scene<'_>, namespace: &str, name: &str) -> String {
    format!(
        "{}resources?compositionName={name}&compositionNamespace={namespace}&compositionVersion={}\
         &compositionResource={}&compositionDefinitionName=bazaar&compositionDefinitionNamespace={CATALOG}\
         &releaseName={name}",
        stage.platform().inspector_url(),
        scene.bazaar.version,
        scene.bazaar.plural,
    )
}

/// A flood of invalid tokens: the API server is asked about each only once, and authenticated callers are answered
/// meanwhile.
fn flooded(stage: &Stage) -> Result<Outcome> {
    const TOKENS: usize = 1000;
    const AT_ONCE: usize = 40;
    let scene = Scene::with_victim(stage, "inspector-flood", &json!({}))?;
    let known = token(
        &home(stage, &scene),
        &scene.bazaar.account(),
        Some("chart-inspector"),
    )?
    .unwrap_or_default();
    let url = url(stage, &scene, scene.b.namespace(), "web");
    let client = client()?;
    let ask = |token: String| {
        let request = client.get(&url).bearer_auth(token);
        async move { Ok::<_, reqwest::Error>(request.send().await?.status().as_u16()) }
    };
    let since = stage.mark()?;
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    let answers: Vec<(bool, u16)> = runtime.block_on(async {
        let same = std::iter::repeat_n("not-a-token".to_owned(), TOKENS);
        let others = (0..TOKENS).map(|number| format!("not-a-token-{number}"));
        let all = same.chain(others).enumerate().map(|(place, token)| {
            let is_honest = place % 50 == 0;
            let asked = ask(if is_honest { known.clone() } else { token });
            async move { Ok::<_, reqwest::Error>((is_honest, asked.await?)) }
        });
        stream::iter(all).buffer_unordered(AT_ONCE).try_collect().await
    })?;
    let reviews = stage
        .platform()
        .plane()
        .audit()
        .since(since)?
        .filter(|record| {
            record
                .as_ref()
                .is_ok_and(|record| record.resource == "tokenreviews")
        })
        .count();
    let honest = |(is_honest, status): &&(bool, u16)| *is_honest && *status != 200;
    if let Some((_, status)) = answers.iter().find(honest) {
        return Ok(Outcome::got_through(format!(
            "the controller of the type is answered {status} meanwhile"
        )));
    }
    if answers
        .iter()
        .any(|(is_honest, status)| !is_honest && *status == 200)
    {
        return Ok(Outcome::got_through("somebody without a token is answered"));
    }
    // One request for each of the other tokens; for this one, as often as a cached refusal expires, and those in flight
    // at first.
    if reviews > TOKENS + 2 * AT_ONCE {
        return Ok(Outcome::got_through(format!(
            "the API server was asked {reviews} times about {TOKENS} tokens"
        )));
    }
    Ok(Outcome::refused(
        "chart-inspector answers 401, and remembers whom it refused",
        format!(
            "{reviews} reviews for {} requests; the controller is answered",
            answers.len()
        ),
    ))
}

/// The holder of the controller's token inspects a composition of the attacker whose template fails with the Secret as
/// its message: chart-inspector must read it with its own rights only.
fn answered(stage: &Stage) -> Result<Outcome> {
    let name = "inspector-answer";
    let text = "tell-tale-of-inspector-answer";
    let scene = Scene::with_victim(stage, name, &json!({"password": text, "greeting": text}))?;
    let b = scene.b.namespace();
    let template = |kind: &str, namespace: &str, name: &str| {
        format!(
            r#"{{{{ $s := lookup "v1" "{kind}" "{namespace}" "{name}" }}}}{{{{ if $s }}}}{{{{ fail ($s.data | toJson) }}}}{{{{ end }}}}"#
        )
    };
    let cases = [
        ("one", template("Secret", b, "web-login")),
        ("two", template("Secret", CATALOG, super::stage::REGISTRY_SECRET)),
        ("three", template("ConfigMap", b, "web-settings")),
        (
            "four",
            format!(
                r#"{{{{ $c := lookup "composition.krateo.io/v1-0-0" "Bazaar" "{b}" "web" }}}}{{{{ if $c }}}}{{{{ fail ($c.spec | toJson) }}}}{{{{ end }}}}"#
            ),
        ),
    ];
    let token = token(
        &home(stage, &scene),
        &scene.bazaar.account(),
        Some("chart-inspector"),
    )?;
    let password = stage
        .catalog()
        .get("secrets", super::stage::REGISTRY_SECRET)?
        .unwrap_or_default();
    let password = password["data"]["password"]
        .as_str()
        .unwrap_or_default()
        .to_owned();
    let encoded = base64::Engine::encode(&base64::prelude::BASE64_STANDARD, text);
    let mut last = String::new();
    for (name, template) in cases {
        scene.compose(name, &json!({"extraDeploy": [template]}))?;
        let (status, body) = get(stage, &scene, scene.a.namespace(), name, token.as_deref())?;
        if [text, &encoded, &password]
            .iter()
            .any(|text| body.contains(*text))
        {
            return Ok(Outcome::got_through(format!(
                "chart-inspector answers {status}: {body}"
            )));
        }
        last = format!("chart-inspector answers {status}: {body}");
    }
    Ok(Outcome::refused(last, "the texts are in none of its answers"))
}
