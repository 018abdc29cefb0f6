//! `kco approve`: the permissions for which a composition's release waits, and the annotation that approves them.
//!
//! They are worked out here and not read from the composition's status, which others may be able to write: whoever
//! approves sees what the controller will be granted.

use std::fmt::Write as _;

use anyhow::{Result, bail};
use api::annotations::APPROVED_PERMISSIONS;
use cluster::ObjectId;
use composition::approval::{Unapproved, unapproved};
use serde::Serialize;
use serde_json::json;

use super::args;
use super::names::{self, Named};
use super::permissions::{self, ReleaseContext};
use super::{desired, find};
use crate::release::output;
use crate::release::session::{self, Session};

/// The field manager of the annotation.
const MANAGER: &str = "kco";

/// The output.
#[derive(Debug, PartialEq, Eq, Serialize)]
struct Approval {
    /// Type and name.
    composition: String,
    namespace: String,
    /// The permissions that are needed and not granted yet.
    rights: Vec<String>,
    /// Stands for all permissions that the release needs; none if it needs no others than it has.
    digest: Option<String>,
    /// True if the composition has the annotation with this digest.
    approved: bool,
}

/// Prints the permissions that wait, and approves them if their digest is given.
pub(crate) fn run(args: &args::Approve) -> Result<()> {
    // A mistake in the arguments is told without a cluster, too.
    find::check_name(&args.one.composition)?;
    if let Some(digest) = &args.digest {
        check_digest(digest)?;
    }
    let approval = session::run(&args.one.connection, async |session| {
        Box::pin(approval(session, args)).await
    })?;
    output::print(args.one.output.output, &approval, || text(&approval))
}

/// Refuses what cannot be a digest of permissions.
fn check_digest(typed: &str) -> Result<()> {
    let is_digit = |c: char| c.is_ascii_digit() || ('a'..='f').contains(&c);
    let hex = typed.strip_prefix("sha256:").unwrap_or_default();
    if hex.len() != 64 || !hex.chars().all(is_digit) {
        bail!(
            "{typed:?} is no digest of permissions, which is sha256: and 64 hexadecimal digits: run the command without \
             --digest to see it"
        );
    }
    Ok(())
}

async fn approval(session: &Session, args: &args::Approve) -> Result<Approval> {
    let (resource, composition) = find::one(session, &args.one.composition).await?;
    let Named { release, .. } = names::name(session, &resource, &composition).await?;
    let records = session.find(release.as_str()).await?;
    let governed = desired::find(session, &composition, &release, &args.controller.krateo_namespace).await?;
    let context = ReleaseContext {
        composition: &composition,
        resource: &resource,
        release: &release,
        records: &records,
    };
    let touched = governed.desired(&records).await?.touched;
    let granting = permissions::granting(
        session,
        &context,
        &governed.definition,
        &touched,
        &args.controller,
    )
    .await?;
    let waiting = unapproved(&granting.needed, &granting.granted, None);
    let approved = composition.annotations.get(APPROVED_PERMISSIONS);
    let decided = decide(waiting, approved.map(String::as_str), args.digest.as_deref())?;
    if decided.writes {
        let patch = json!({"metadata": {
            // What was worked out is of this state of the composition.
            "resourceVersion": composition.resource_version,
            "annotations": {APPROVED_PERMISSIONS: args.digest},
        }});
        let id = ObjectId::new(resource.clone(), Some(&composition.namespace), &composition.name)?;
        session
            .cluster
            .merge_returning_metadata(&id, &patch, MANAGER)
            .await?;
    }
    let (rights, digest) = match decided.waiting {
        Some(Unapproved { digest, rights }) => (rights, Some(digest)),
        None => (Vec::new(), None),
    };
    Ok(Approval {
        composition: format!("{}/{}", resource.plural, composition.name),
        namespace: composition.namespace.clone(),
        rights,
        digest,
        approved: decided.approved,
    })
}

/// What to do about permissions that wait.
#[derive(Debug, PartialEq, Eq)]
struct Decided {
    waiting: Option<Unapproved>,
    /// Whether they are approved in the end.
    approved: bool,
    writes: bool,
}

/// Decides by the digest that was typed, and the one in the annotation.
fn decide(waiting: Option<Unapproved>, annotated: Option<&str>, typed: Option<&str>) -> Result<Decided> {
    let digest = waiting.as_ref().map(|waiting| waiting.digest.as_str());
    let is_approved = digest.is_some() && digest == annotated;
    let writes = match (typed, digest) {
        (None, _) => false,
        (Some(typed), Some(digest)) if typed == digest => !is_approved,
        (Some(typed), Some(digest)) => bail!(
            "{typed} is not the digest of the permissions that wait, which is {digest}: run the command without --digest to \
             see them"
        ),
        // It was approved, and the controller has granted it since.
        (Some(typed), None) if annotated == Some(typed) => false,
        (Some(typed), None) => bail!("no permission waits for an approval, so {typed} approves nothing"),
    };
    Ok(Decided {
        approved: is_approved || writes,
        waiting,
        writes,
    })
}

fn text(approval: &Approval) -> String {
    let Approval {
        composition,
        namespace,
        rights,
        digest,
        approved,
    } = approval;
    let Some(digest) = digest else {
        return format!("{composition} needs no permission that it does not have\n");
    };
    let mut text = format!("COMPOSITION: {composition}\nNEW PERMISSIONS:\n");
    for right in rights {
        let _ = writeln!(text, "  {right}");
    }
    let _ = writeln!(text, "DIGEST: {digest}");
    if *approved {
        text.push_str("APPROVED: yes\n");
    } else {
        let _ = writeln!(
            text,
            "APPROVED: no; to approve: kco approve {composition} --namespace {namespace} --digest {digest}"
        );
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    const WAITING: &str = "sha256:1";

    fn waiting() -> Unapproved {
        Unapproved {
            digest: WAITING.into(),
            rights: vec!["team: create configmaps/web".into()],
        }
    }

    fn check(
        waiting: Option<Unapproved>,
        annotated: Option<&str>,
        typed: Option<&str>,
        expected: (bool, bool),
    ) {
        let decided = decide(waiting, annotated, typed).unwrap();
        assert_eq!(
            (decided.approved, decided.writes),
            expected,
            "{annotated:?} {typed:?}"
        );
    }

    #[test]
    fn only_the_digest_of_what_waits_is_written() {
        check(Some(waiting()), None, None, (false, false));
        check(Some(waiting()), Some("sha256:0"), None, (false, false));
        check(Some(waiting()), None, Some(WAITING), (true, true));
        check(Some(waiting()), Some("sha256:0"), Some(WAITING), (true, true));
        check(Some(waiting()), Some(WAITING), Some(WAITING), (true, false));
        check(None, Some(WAITING), Some(WAITING), (false, false));
        check(None, None, None, (false, false));
    }

    #[test]
    fn another_digest_is_refused_with_the_one_that_waits() {
        let refused = |waiting, typed| decide(waiting, None, Some(typed)).unwrap_err().to_string();
        assert!(refused(Some(waiting()), "sha256:2").contains("which is sha256:1"));
        // A digest of an earlier release is none of these.
        assert!(refused(Some(waiting()), "af63bd4c8601b7be").contains("is not the digest"));
        assert!(refused(None, WAITING).contains("approves nothing"));
    }

    #[test]
    fn what_is_no_digest_is_refused_without_a_cluster() {
        check_digest(&format!("sha256:{}", "0a".repeat(32))).unwrap();
        for wrong in [
            "",
            "af63bd4c8601b7be",
            WAITING,
            &format!("sha256:{}", "0A".repeat(32)),
        ] {
            let error = check_digest(wrong).unwrap_err().to_string();
            assert!(error.contains("is no digest of permissions"), "{error}");
        }
    }

    #[test]
    fn the_text_ends_with_the_command_that_approves() {
        let mut approval = Approval {
            composition: "webs/shop".into(),
            namespace: "team".into(),
            rights: vec!["team: create configmaps/web".into()],
            digest: Some(WAITING.into()),
            approved: false,
        };
        assert_eq!(
            text(&approval),
            "COMPOSITION: webs/shop\nNEW PERMISSIONS:\n  team: create configmaps/web\nDIGEST: sha256:1\nAPPROVED: no; to \
             approve: kco approve webs/shop --namespace team --digest sha256:1\n"
        );
        approval.approved = true;
        assert!(text(&approval).ends_with("APPROVED: yes\n"));
        approval.digest = None;
        assert_eq!(
            text(&approval),
            "webs/shop needs no permission that it does not have\n"
        );
    }
}
