//! `kco migrate check`: what will happen to each definition and composition. Nothing is written.

use anyhow::Result;
use api::policy::{DeletionPolicy, ManagementPolicy};
use api::{Composition, CompositionDefinition, annotations};
use cluster::{ObjectId, ResourceId, Selector};
use composition::plan::Release;
use helm::origin::ALLOW_FROM_NAMESPACES;
use k8s_openapi::api::core::v1::Secret;
use kube::ResourceExt as _;
use serde_json::{Map, Value};

use super::args::Check;
use super::findings::{Finding, Report};
use super::grants;
use super::installed::newest;
use super::krateo;
use crate::composition::{Foreseen, find, foreseen};
use crate::release::args::Upgrade;
use crate::release::make::ReleaseInput;
use crate::release::output;
use crate::release::session::{self, Session};

/// The exit status if an admin has something to settle.
const UNSETTLED: i32 = 2;

/// How other programs mark the objects that they manage: key of a label or annotation, and the program's name.
const MANAGERS: [(&str, &str); 5] = [
    ("argocd.argoproj.io/tracking-id", "Argo CD"),
    ("argocd.argoproj.io/instance", "Argo CD"),
    ("helm.toolkit.fluxcd.io/name", "Flux"),
    ("kustomize.toolkit.fluxcd.io/name", "Flux"),
    ("krateo.io/krateoctl", "krateoctl"),
];

/// Prints the report.
pub(super) fn run(args: &Check) -> Result<()> {
    let upgrade = &args.upgrade;
    if args.grant {
        return grants::print(upgrade);
    }
    let report = session::run(&upgrade.connection, async |session| {
        let mut report = report(session, upgrade).await?;
        report.grants = grants::findings(session).await?;
        Ok(report)
    })?;
    output::print(upgrade.making.output.output, &report, || report.text())?;
    if !report.unsettled().is_empty() {
        std::process::exit(UNSETTLED);
    }
    Ok(())
}

/// What has to be settled before the migration; with `grant`, except grants.
pub(super) async fn unsettled(session: &Session, upgrade: &Upgrade, grant: bool) -> Result<Vec<String>> {
    let mut report = report(session, upgrade).await?;
    if !grant {
        report.grants = grants::findings(session).await?;
    }
    Ok(report.unsettled())
}

async fn report(session: &Session, upgrade: &Upgrade) -> Result<Report> {
    let controllers = krateo::controllers(&session.cluster).await?;
    let mut report = Report {
        platform: platform(session, upgrade).await?,
        ..Report::default()
    };
    let kind = ResourceId::of::<CompositionDefinition>();
    let definitions: Vec<CompositionDefinition> = session.cluster.list(&kind, Selector::default()).await?;
    let mut compositions = Vec::new();
    for resource in find::types(session, None).await? {
        for composition in find::all(session, &resource, Selector::default()).await? {
            compositions.push((resource.clone(), composition));
        }
    }
    for definition in &definitions {
        let findings = of_definition(session, definition).await?;
        report.definitions.extend(findings);
    }
    report.definitions.extend(retired(&definitions, &compositions));
    for controller in &controllers {
        report.definitions.push(Finding::told(
            format!(
                "controller {} in namespace {}",
                controller.deployment(),
                controller.namespace
            ),
            format!("replaced by one in namespace {}", session.namespace),
        ));
    }
    for (resource, composition) in &compositions {
        let findings = Box::pin(of_composition(session, resource, composition, &definitions));
        report.compositions.extend(findings.await);
    }
    for object in krateo::objects(&session.cluster, &controllers).await? {
        let star = if krateo::has_star(&object) {
            ", which has a rule with *"
        } else {
            ""
        };
        report.removed.push(format!("{}{star}", place(&object)));
    }
    for webhook in krateo::webhooks(&session.cluster).await? {
        report.removed.push(place(&webhook));
    }
    Ok(report)
}

fn place(object: &Value) -> String {
    let kind = object["kind"].as_str().unwrap_or_default();
    match krateo::namespace(object) {
        "" => format!("{kind} {}", krateo::name(object)),
        namespace => format!("{kind} {} in namespace {namespace}", krateo::name(object)),
    }
}

async fn platform(session: &Session, upgrade: &Upgrade) -> Result<Vec<Finding>> {
    let mut findings = Vec::new();
    let record = newest(session, &upgrade.release).await?;
    let about = format!("release {} in namespace {}", upgrade.release, session.namespace);
    if *record.status() != helm::release::Status::Deployed {
        let status = record.status();
        findings.push(Finding::settled_by(
            &about,
            format!("it is {status}"),
            "finish or roll it back with Helm",
        ));
    }
    let observed = session.find(&upgrade.release).await?;
    let input = ReleaseInput::load(&upgrade.release, &upgrade.chart, &upgrade.making)?;
    if let Some(tag) = krateos_tag(&input.values_upon(&observed, upgrade.earlier_values)) {
        findings.push(Finding::settled_by(&about, "its values are refused", tag));
    }
    let render = Box::pin(input.render(session, &observed, upgrade.earlier_values, &upgrade.making));
    findings.push(match render.await {
        Ok(_) => Finding::told(&about, "its values are accepted, and it becomes this platform's"),
        Err(error) => Finding::settled_by(&about, "its values are refused", format!("{error:#}")),
    });
    let mut is_there = false;
    for id in session.releases().objects(&record).await? {
        let Some(live) = session.cluster.get::<Value>(&id).await? else {
            continue;
        };
        if krateo::is_krateos(&live) {
            is_there = true;
            findings.push(Finding::told(
                place(&live),
                "replaced: its selector cannot be changed",
            ));
        }
        findings.extend(managed(&live));
    }
    if !is_there {
        findings.push(Finding::told(&about, "it no longer runs a program of Krateo's"));
    }
    findings.push(Finding::told(
        "compositions",
        "Ready says that their objects are well, where it said that the release is made; \
         COMPOSITION_CONTROLLER_READY_MEANS: released in cdc.env keeps the former meaning",
    ));
    Ok(findings)
}

/// What to set `image.tag` to, without a registry. In Krateo's chart it is the version of one program, in ours the
/// version of all.
pub(super) fn krateos_tag(values: &Map<String, Value>) -> Option<String> {
    let text = |path: [&str; 2]| {
        let said = values.get(path[0]).and_then(|map| map.get(path[1]));
        said.and_then(Value::as_str).filter(|said| !said.is_empty())
    };
    let tag = text(["image", "tag"])?;
    let is_ours = text(["image", "registry"])
        .or(text(["global", "imageRegistry"]))
        .is_some();
    (!is_ours).then(|| {
        format!(
            "image.tag: write nothing, {tag} is a version of Krateo's program; for a version of this platform's write \
             image.registry along with it"
        )
    })
}

/// Versions of types that Krateo never stopped serving, and that nothing uses.
fn retired(
    definitions: &[CompositionDefinition],
    compositions: &[(ResourceId, Composition)],
) -> Vec<Finding> {
    let is_run = |kind: &str, version: &str| {
        let api_version = format!("{}/{version}", api::COMPOSITION_GROUP);
        let mut statuses = definitions.iter().filter_map(|one| one.status.as_ref());
        statuses.any(|status| {
            status.kind.as_deref() == Some(kind) && status.api_version.as_deref() == Some(&api_version)
        }) || compositions
            .iter()
            .any(|(resource, one)| resource.kind == kind && one.resource.version == version)
    };
    let mut findings = Vec::new();
    for definition in definitions {
        let managed = definition
            .status
            .as_ref()
            .and_then(|status| status.managed.as_ref());
        let keeps = annotations::is_true(definition.annotations(), annotations::KEEP_VERSIONS);
        let Some(managed) = managed.filter(|_| !keeps) else {
            continue;
        };
        let served = managed.version_info.iter().filter(|info| info.served);
        let served = served.map(|info| info.version.as_str());
        let unused: Vec<_> = served.filter(|version| !is_run(&managed.kind, version)).collect();
        if !unused.is_empty() {
            let namespace = definition.namespace().unwrap_or_default();
            findings.push(Finding::told(
                format!("definition {} in namespace {namespace}", definition.name_any()),
                format!(
                    "versions {} of kind {} are taken out of the type, for no composition is of them; the annotation {}: \
                     \"true\" keeps them",
                    unused.join(", "),
                    managed.kind,
                    annotations::KEEP_VERSIONS
                ),
            ));
        }
    }
    findings
}

/// Another program that manages an object, and would revert our changes.
fn managed(object: &Value) -> Option<Finding> {
    let metadata = &object["metadata"];
    let has = |key: &str| metadata["labels"].get(key).is_some() || metadata["annotations"].get(key).is_some();
    let (_, who) = MANAGERS.iter().find(|(key, _)| has(key))?;
    let place = place(object);
    let settle =
        format!("pause {who} for it until the migration has ended, then give {who} this platform's chart");
    Some(Finding::settled_by(place, format!("{who} manages it"), settle))
}

async fn of_definition(session: &Session, definition: &CompositionDefinition) -> Result<Vec<Finding>> {
    let mut findings = Vec::new();
    let namespace = definition.namespace().unwrap_or_default();
    let about = format!("definition {} in namespace {namespace}", definition.name_any());
    let policies = ManagementPolicy::of(definition.annotations())
        .map(drop)
        .and(DeletionPolicy::of(definition.annotations()).map(drop));
    if let Err(unknown) = policies {
        let what = "it is held: Krateo treated this policy as the default";
        findings.push(Finding::settled_by(&about, what, unknown.to_string()));
    }
    if let Some(credentials) = &definition.spec.chart.credentials {
        let secret = &credentials.password_ref;
        let (place, name) = (&secret.namespace, &secret.name);
        if *place != namespace {
            let id = ObjectId::of::<Secret>(Some(place), name)?;
            let live = session.cluster.get_metadata(&id).await?;
            let consents = live
                .as_ref()
                .and_then(|live| live.annotations().get(ALLOW_FROM_NAMESPACES));
            let mut consents = consents
                .into_iter()
                .flat_map(|said| said.split(',').map(str::trim));
            if !consents.any(|consent| consent == namespace || consent == "*") {
                findings.push(Finding::settled_by(
                    &about,
                    format!("it uses Secret {name} of namespace {place}, which has to allow that"),
                    format!("kubectl annotate secret {name} --namespace {place} {ALLOW_FROM_NAMESPACES}={namespace}"),
                ));
            }
        }
    }
    if annotations::is_true(definition.annotations(), annotations::PAUSED) {
        findings.push(Finding::settled_by(
            &about,
            "it is paused: no controller of this platform is made for it",
            format!(
                "kubectl annotate compositiondefinition {} --namespace {namespace} {}-",
                definition.name_any(),
                annotations::PAUSED
            ),
        ));
    }
    let mut object = serde_json::to_value(definition)?;
    object["kind"] = "CompositionDefinition".into();
    findings.extend(managed(&object));
    if findings.is_empty() {
        findings.push(Finding::told(about, "migrates as it is"));
    }
    Ok(findings)
}

async fn of_composition(
    session: &Session,
    resource: &ResourceId,
    composition: &Composition,
    definitions: &[CompositionDefinition],
) -> Vec<Finding> {
    let Composition { namespace, name, .. } = composition;
    let about = format!("{} {name} in namespace {namespace}", resource.kind);
    let kubectl = &|what: &str| {
        format!(
            "kubectl annotate {} {name} --namespace {namespace} {what}",
            resource.plural
        )
    };
    let mut findings = Vec::new();
    if *namespace == session.namespace {
        let definition = composition.definition().unwrap_or_default();
        let allows = definitions.iter().any(|one| {
            (
                one.namespace().unwrap_or_default().as_str(),
                one.name_any().as_str(),
            ) == definition
                && one
                    .annotations()
                    .get(annotations::ALLOWED_NAMESPACES)
                    .is_some_and(|allowed| allowed.split(',').any(|allowed| allowed.trim() == namespace))
        });
        if !allows {
            findings.push(Finding::settled_by(
                &about,
                "it is held: it is in the platform's own namespace",
                format!(
                    "kubectl annotate compositiondefinition {} --namespace {} {}={namespace}, or move it",
                    definition.1,
                    definition.0,
                    annotations::ALLOWED_NAMESPACES
                ),
            ));
        }
    }
    let at_home = session.at(namespace);
    let seen = foreseen(&at_home, resource, composition, &session.namespace);
    let seen = match Box::pin(seen).await {
        Ok(seen) => seen,
        Err(error) => {
            let settle = format!("examine it: {error:#}");
            findings.push(Finding::settled_by(
                about,
                "what will happen to it is unknown",
                settle,
            ));
            return findings;
        }
    };
    findings.push(of_release(&about, &seen, kubectl));
    if annotations::is_true(&composition.annotations, annotations::ADOPT) {
        findings.push(adopting(&about, &seen.release, kubectl));
    }
    if seen.compares_pause {
        findings.push(Finding::settled_by(
            &about,
            "its chart compares gracefullyPaused with a string, but here it is a boolean",
            "compare toString .Values.global.gracefullyPaused in the chart",
        ));
    }
    findings
}

/// Anyone who could write the composition could set the annotation while no policy of ours checked who sets it.
fn adopting(about: &str, release: &str, annotate: impl Fn(&str) -> String) -> Finding {
    let remove = annotate(&format!("{}-", annotations::ADOPT));
    Finding::settled_by(
        about,
        format!(
            "it carries {}, and nobody was asked who set it: release {release} would become its own if Helm's marks say nothing \
             against it",
            annotations::ADOPT
        ),
        format!("{remove}, and set it again once this platform runs: then the API server checks who may"),
    )
}

/// What will happen to a release.
fn of_release(about: &str, seen: &Foreseen, annotate: impl Fn(&str) -> String) -> Finding {
    let Foreseen {
        release,
        standing,
        is_unseen,
        differs,
        compares_pause: _,
    } = seen;
    match standing {
        Release::Unsigned | Release::InSync | Release::Drifted(_) => Finding::told(
            about,
            format!("release {release} is taken over as it is, without a new revision"),
        ),
        Release::Absent if *is_unseen => Finding::settled_by(
            about,
            format!("it is held: its status lists objects of release {release}, which has no record"),
            format!(
                "restore its records, or, to have it installed anew: {}",
                annotate(&format!("{}=0", annotations::RELEASE_REVISION))
            ),
        ),
        Release::Absent => Finding::told(about, format!("release {release} is installed")),
        Release::OutOfSync(_) | Release::Failed(_) if differs.is_empty() => Finding::told(
            about,
            format!("release {release} is upgraded: its values or its chart differ"),
        ),
        Release::OutOfSync(_) | Release::Failed(_) => Finding::told(
            about,
            format!(
                "release {release} is upgraded: these fields change: {}",
                differs.join(", ")
            ),
        ),
        Release::WouldDrawAnew { revision, fields } => Finding::settled_by(
            about,
            format!(
                "release {release} is held: an upgrade would generate new values for {}",
                fields.join(", ")
            ),
            annotate(&format!("{}={revision}", annotations::TAKE_OVER_REVISION)),
        ),
        Release::Foreign(why) => Finding::settled_by(
            about,
            format!("it is held: {why}"),
            format!(
                "once this platform runs: {}",
                annotate(&format!("{}=true", annotations::ADOPT))
            ),
        ),
        Release::Locked(who) => Finding::settled_by(
            about,
            format!("{who} is working on release {release}"),
            "wait until that has finished",
        ),
        Release::Interrupted(action) => Finding::settled_by(
            about,
            format!("the {action} of release {release} was interrupted"),
            "let Krateo or Helm finish it",
        ),
        Release::Resting(why) => Finding::settled_by(
            about,
            format!("release {release} has failed: {why}"),
            "correct the composition",
        ),
        Release::Unreadable => Finding::settled_by(
            about,
            format!("the objects of release {release} cannot be read"),
            "use an account that may",
        ),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_program_that_manages_an_object_is_named_and_has_to_be_paused() {
        let object = |metadata: Value| json!({"kind": "Deployment", "metadata": metadata});
        assert_eq!(managed(&object(json!({"name": "a", "labels": {"a": "b"}}))), None);
        let argo = object(json!({"name": "a", "annotations": {"argocd.argoproj.io/tracking-id": "x"}}));
        assert!(managed(&argo).unwrap().settle.unwrap().contains("pause Argo CD"));
        let flux = object(json!({"name": "a", "labels": {"helm.toolkit.fluxcd.io/name": "x"}}));
        assert!(managed(&flux).unwrap().what.contains("Flux"));
    }

    #[test]
    fn a_release_that_is_held_says_which_annotation_settles_it() {
        let find = |standing: Release| {
            let seen = Foreseen {
                release: "a".to_owned(),
                standing,
                is_unseen: true,
                differs: Vec::new(),
                compares_pause: false,
            };
            of_release("Web a", &seen, |what| format!("annotate {what}"))
        };
        assert_eq!(find(Release::Unsigned).settle, None);
        let drawn = find(Release::WouldDrawAnew {
            revision: 3,
            fields: vec!["Secret a: .data.password".into()],
        });
        let unseen = find(Release::Absent).settle.unwrap();
        assert!(
            unseen.ends_with("annotate krateo.io/release-revision=0"),
            "{unseen}"
        );
        assert_eq!(
            drawn.settle.as_deref(),
            Some("annotate krateo.io/take-over-revision=3")
        );
        assert!(drawn.what.contains("Secret a: .data.password"), "{}", drawn.what);
        let foreign = find(Release::Foreign("release a is not of this composition".into()));
        assert_eq!(
            foreign.settle.as_deref(),
            Some("once this platform runs: annotate krateo.io/adopt=true")
        );
    }

    #[test]
    fn an_annotation_set_before_the_migration_has_to_be_confirmed() {
        let found = adopting("Web a", "a", |what| format!("annotate {what}"));
        assert!(
            found.what.contains("release a would become its own"),
            "{}",
            found.what
        );
        assert!(found.settle.unwrap().starts_with("annotate krateo.io/adopt-, "));
    }

    #[test]
    fn a_tag_of_krateos_program_is_not_taken_for_one_of_ours() {
        let check = |values: Value, expected: bool| {
            let Value::Object(values) = values else {
                panic!("no map")
            };
            assert_eq!(krateos_tag(&values).is_some(), expected, "{values:?}");
        };
        check(json!({"image": {"tag": "0.20.1"}}), true);
        check(
            json!({"image": {"tag": "0.20.1", "registry": "mirror.example"}}),
            false,
        );
        check(
            json!({"image": {"tag": "0.20.1"}, "global": {"imageRegistry": "mirror.example"}}),
            false,
        );
        check(json!({"image": {"tag": ""}}), false);
        check(json!({}), false);
    }
}
