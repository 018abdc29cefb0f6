//! Approvals are annotations that need the verb `approve`: neither who may write an object nor its controller gives one.
//!
//! Each attack comes with the same write by somebody who may: a platform that refuses everything does not pass.

use anyhow::{Result, bail, ensure};
use serde_json::{Value, json};

use super::definitions::author_of;
use super::stage::Scene;
use super::{Actor, Answer, Attack, Holder, Outcome, Stage};

const APPROVED: &str = "krateo.io/approved-permissions";

pub(super) fn attacks() -> Vec<Attack> {
    vec![
        Attack::new(
            "approve-edit",
            Actor::Tenant,
            "approves permissions of its own composition",
            own,
        )
        .quick(),
        Attack::new(
            "approve-others",
            Actor::Tenant,
            "approves in another namespace than the one in which it may",
            elsewhere,
        )
        .quick(),
        Attack::new(
            "approve-with-spec",
            Actor::Tenant,
            "may approve, and changes the values in the same write",
            with_spec,
        )
        .quick(),
        Attack::new(
            "approve-creation",
            Actor::Tenant,
            "may approve, and creates a composition with an approval in it",
            at_creation,
        )
        .quick(),
        Attack::new(
            "approve-definition",
            Actor::DefinitionAuthor,
            "approves an upgrade of its own definition",
            definition,
        )
        .quick(),
        Attack::new(
            "approve-controller",
            Actor::Controller,
            "approves permissions of a composition, although its account has the verb",
            controller,
        )
        .quick(),
    ]
}

/// A composition `mine` of the attacker's.
fn composed<'s>(stage: &'s Stage, name: &str) -> Result<Scene<'s>> {
    let scene = Scene::of(stage, name)?;
    let mine = scene.bazaar.composition(scene.a.namespace(), "mine", &json!({}));
    scene
        .a
        .wait_until("the composition", || Ok(scene.a.apply(&mine).ok()))?;
    Ok(scene)
}

/// Approves permissions of a composition, and nothing else.
fn approve(by: &Holder, scene: &Scene<'_>, namespace: &str, digest: &str) -> Result<Answer> {
    let said = format!("{APPROVED}={digest}");
    by.run(&[
        "annotate",
        &scene.bazaar.resource(),
        "mine",
        "--overwrite",
        &said,
        "--namespace",
        namespace,
    ])
}

/// Somebody in the attacker's namespace who may approve there, and has done it: the control of an attack.
fn approver(stage: &Stage, scene: &Scene<'_>) -> Result<Holder> {
    let place = scene.a.namespace();
    let approver = stage.person(place, "approver", "edit")?;
    stage.lets_approve(place, (place, "approver"))?;
    scene.a.wait_until("an approval by who may approve", || {
        Ok(approve(&approver, scene, place, "sha256:control")?
            .refusal()
            .is_none()
            .then_some(()))
    })?;
    Ok(approver)
}

/// Refused by a rule that says so.
fn refused(answer: Answer, words: &str) -> Result<Outcome> {
    Ok(match answer {
        Answer::Allowed(_) => Outcome::got_through("the API server allowed it"),
        Answer::Denied(why) if why.contains(words) => Outcome::refused(why, "nothing was approved"),
        Answer::Denied(why) | Answer::Failed(why) => bail!("it failed for another reason: {why}"),
    })
}

fn own(stage: &Stage) -> Result<Outcome> {
    let scene = composed(stage, "approve-edit")?;
    approver(stage, &scene)?;
    // It may take the approval back: that widens nothing.
    let resource = scene.bazaar.resource();
    let back = scene
        .tenant
        .run(&["annotate", &resource, "mine", &format!("{APPROVED}-")])?;
    ensure!(back.refusal().is_none(), "{back:?}");
    let answer = approve(&scene.tenant, &scene, scene.a.namespace(), "sha256:mine")?;
    refused(
        answer,
        "needs the verb approve on bazaars.composition.krateo.io there",
    )
}

fn elsewhere(stage: &Stage) -> Result<Outcome> {
    let scene = composed(stage, "approve-others")?;
    let approver = approver(stage, &scene)?;
    let b = scene.b.namespace();
    let theirs = scene.bazaar.composition(b, "mine", &json!({}));
    scene
        .b
        .wait_until("the composition", || Ok(scene.b.apply(&theirs).ok()))?;
    // It may write there, too, but not approve.
    scene.b.apply(&json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "RoleBinding",
        "metadata": {"name": "guest", "namespace": b},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "composition-user"},
        "subjects": [{"kind": "ServiceAccount", "name": "approver", "namespace": scene.a.namespace()}],
    }))?;
    let resource = scene.bazaar.resource();
    scene.b.wait_until("the right to write there", || {
        let labelled = approver.run(&[
            "label",
            &resource,
            "mine",
            "--overwrite",
            "guest=true",
            "--namespace",
            b,
        ])?;
        Ok(labelled.refusal().is_none().then_some(()))
    })?;
    refused(
        approve(&approver, &scene, b, "sha256:theirs")?,
        "needs the verb approve on bazaars.composition.krateo.io there",
    )
}

fn with_spec(stage: &Stage) -> Result<Outcome> {
    let scene = composed(stage, "approve-with-spec")?;
    let approver = approver(stage, &scene)?;
    let patch = json!({
        "metadata": {"annotations": {APPROVED: "sha256:with-spec"}}, "spec": {"greeting": "forged"},
    });
    let (resource, patch) = (scene.bazaar.resource(), patch.to_string());
    refused(
        approver.run(&["patch", &resource, "mine", "--type=merge", "--patch", &patch])?,
        "in a write that also changes spec",
    )
}

fn at_creation(stage: &Stage) -> Result<Outcome> {
    let scene = composed(stage, "approve-creation")?;
    let approver = approver(stage, &scene)?;
    let new = |annotations: Value| {
        let mut new = scene.bazaar.composition(scene.a.namespace(), "new", &json!({}));
        new["metadata"]["annotations"] = annotations;
        new
    };
    let answer = approver.apply(&new(json!({APPROVED: "sha256:new"})))?;
    approver.apply(&new(json!({})))?.printed()?;
    refused(answer, "approves what exists")
}

fn definition(stage: &Stage) -> Result<Outcome> {
    let scene = composed(stage, "approve-definition")?;
    let author = author_of(stage, &scene)?;
    let place = scene.a.namespace();
    scene.a.apply(&json!({
        "apiVersion": "core.krateo.io/v1alpha1", "kind": "CompositionDefinition",
        "metadata": {"name": "mine", "namespace": place, "annotations": {"krateo.io/paused": "true"}},
        "spec": {"chart": {"url": "oci://127.0.0.2:1/mine", "version": "1.0.0"}},
    }))?;
    let annotate =
        |said: &str| author.run(&["annotate", "compositiondefinition", "mine", "--overwrite", said]);
    let upgrade = "krateo.io/upgrade-to-version=2.0.0";
    scene.a.wait_until("the right to write definitions", || {
        Ok(annotate("mine=true")?.refusal().is_none().then_some(()))
    })?;
    let answer = annotate(upgrade)?;
    stage.lets_approve(place, (place, "author"))?;
    scene.a.wait_until("an approval by who may approve", || {
        Ok(annotate(upgrade)?.refusal().is_none().then_some(()))
    })?;
    refused(
        answer,
        "needs the verb approve on compositiondefinitions.core.krateo.io there",
    )
}

fn controller(stage: &Stage) -> Result<Outcome> {
    let scene = composed(stage, "approve-controller")?;
    approver(stage, &scene)?;
    let (place, type_) = (scene.a.namespace(), &scene.bazaar);
    let account = type_.account();
    stage.lets_approve(place, (&type_.home, &account))?;
    let (controller, resource) = (stage.controller(type_, place)?, type_.resource());
    scene.a.wait_until("the verb of the account", || {
        let may = controller.run(&["auth", "can-i", "approve", &resource])?;
        Ok(may.refusal().is_none().then_some(()))
    })?;
    refused(
        approve(&controller, &scene, place, "sha256:forged")?,
        "a controller neither gives an approval nor takes one back",
    )
}
