//! The short form of `make attacks`: attacks that need a token, or one or two requests. And what the holder of a
//! controller's token may do, so that a platform that refuses everything does not pass.

use std::collections::BTreeSet;
use std::sync::MutexGuard;

use anyhow::Result;
use e2e::trials::attacks::{self, Hall, OWN_BINDINGS, Post, Stage};
use e2e::{Shared, progress};

/// One stage for all tests of this file, which use it one after the other. It is removed when the process ends.
fn stage() -> Result<MutexGuard<'static, Stage>> {
    static STAGE: Shared<Stage> = Shared::new();
    STAGE.get(Stage::start)
}

#[test]
fn no_quick_attack_gets_through() -> Result<()> {
    let quick: Vec<_> = attacks::all()
        .into_iter()
        .filter(|attack| attack.quick && !attack.later)
        .collect();
    let table = attacks::run(&*stage()?, &quick, 2)?;
    progress(&table);
    assert!(table.is_good(), "{table}");
    Ok(())
}

#[test]
fn a_controllers_token_gets_what_its_releases_need() -> Result<()> {
    let stage = stage()?;
    let post = Post::take(&stage)?;
    for (what, answer) in post.honest()? {
        assert_eq!(answer.refusal(), None, "{what}");
    }
    Ok(())
}

/// The rights of the controller in a namespace without a release: its type, and what bounds and roles consist of.
#[test]
fn a_controllers_token_allows_nothing_else() -> Result<()> {
    let stage = stage()?;
    let post = Post::take(&stage)?;
    let words = [
        "auth",
        "can-i",
        "--list",
        "--no-headers",
        "--namespace",
        attacks::ELSEWHERE,
    ];
    let rights = post.controller.run(&words)?.printed()?;
    let mut resources = BTreeSet::new();
    for right in rights.lines().filter(|right| !right.starts_with([' ', '['])) {
        progress(format_args!(
            "may {}",
            right.split_whitespace().collect::<Vec<_>>().join(" ")
        ));
        assert!(!right.contains('*'), "{right}");
        resources.extend(right.split_whitespace().next());
    }
    // Every account of Kubernetes may ask about itself.
    resources.retain(|resource| !resource.starts_with("selfsubject"));
    let expected = [
        "bastions.composition.krateo.io",
        "bastions.composition.krateo.io/finalizers",
        // This resource is not served: the policies only check the right to it.
        "bastions.composition.krateo.io/permissions",
        "bastions.composition.krateo.io/status",
        "clusterrolebindings.rbac.authorization.k8s.io",
        "clusterroles.rbac.authorization.k8s.io",
        "compositiondefinitions.core.krateo.io",
        "customresourcedefinitions.apiextensions.k8s.io",
        "events.events.k8s.io",
        "rolebindings.rbac.authorization.k8s.io",
        "roles.rbac.authorization.k8s.io",
    ];
    assert_eq!(Vec::from_iter(resources), expected);
    Ok(())
}

#[test]
fn bindings_of_a_chart_give_roles_of_their_own_release() -> Result<()> {
    let stage = stage()?;
    let hall = Hall::open(&stage)?;
    for binding in OWN_BINDINGS {
        assert_eq!(hall.binds(binding)?.refusal(), None, "{binding:?}");
    }
    // Other users can bind whatever they like, with the same label.
    hall.bind_as_admin(("RoleBinding", "Role", "foreign"))
}
