//! Turns what was read of a definition into the facts for its plan. Nothing is decided here.

use std::collections::BTreeSet;

use api::definition::Breaker;
use api::{COMPOSITION_GROUP, CompositionDefinition, annotations};
use composition::serves;
use crdgen::{BadDefaults, CustomResourceDefinition, Names, ServedVersion, Structural};
use kube::ResourceExt as _;

use super::error::Error;
use super::observed::{
    Active, Former, FormerController, FormerType, Holder, Idle, Locked, MadeType, Neighbours, Outdated,
    Source,
};
use super::read::{Elsewhere, Read, ReadController, ReadType};
use crate::definition::controllers::{Controller, Owner};
use crate::definition::desired;
use crate::definition::history::{previous, served_before, version_of};
use crate::definition::instances::{self, Claim, Instance, served_resource};
use crate::definition::resolution::Resolution;
use crate::webhook::Registration;

/// The type that a chart defines.
pub(super) fn source(definition: &CompositionDefinition, found: Resolution) -> Result<Source, Error> {
    let Resolution { chart, resolved } = found;
    let metadata = chart.chart().metadata();
    let names = Names::of_chart(&metadata.name)?;
    let version = ServedVersion::of_chart(&metadata.version)?;
    let bad_defaults = if annotations::is_true(definition.annotations(), annotations::DROP_BAD_DEFAULTS) {
        BadDefaults::Drop
    } else {
        BadDefaults::Refuse
    };
    let structural =
        composition::schema::structural(&chart.engine, bad_defaults)?.ok_or_else(|| Error::NoSchema {
            chart: metadata.name.clone(),
        })?;
    let changes = composition::schema::changes(chart.chart())?;
    Ok(Source {
        chart,
        resolved,
        names,
        version,
        structural,
        changes,
    })
}

/// The facts of a definition to apply.
pub(super) fn active(
    definition: &CompositionDefinition,
    source: Source,
    open: &Locked,
    webhooks: &Registration,
    read: Read,
) -> Result<Active, Error> {
    let Read {
        live,
        desired,
        neighbours,
        bundle,
        target,
        bound,
        relocation,
        granted,
        is_available,
        unadmitted,
        elsewhere,
        former: controllers,
    } = read;
    let Source {
        names,
        version,
        structural,
        chart: _,
        resolved: _,
        changes: _,
    } = &source;
    let (is_holder, holders) = holders(definition, names, version, &neighbours);
    let former = match elsewhere {
        None => None,
        Some(elsewhere) => {
            let read = (elsewhere, controllers);
            Some(former(
                definition,
                &source,
                live.as_ref(),
                &neighbours,
                webhooks,
                read,
            )?)
        }
    };
    Ok(Active {
        is_republished: is_republished(live.as_ref(), version, structural)?,
        previous: previous(definition, names, version),
        live,
        desired,
        is_holder,
        holders,
        bundle,
        target,
        bound,
        relocation,
        granted,
        own_grants: open.grants.iter().map(|grant| grant.id.clone()).collect(),
        is_available,
        unadmitted,
        former,
        source,
    })
}

/// True when the type already has the version with another schema, which is then left as it is.
fn is_republished(
    live: Option<&CustomResourceDefinition>,
    version: &ServedVersion,
    structural: &Structural,
) -> Result<bool, Error> {
    let Some(live) = live else { return Ok(false) };
    let Some(own) = crdgen::own_schema(live, version.as_str())? else {
        return Ok(false);
    };
    let names = live_names(live);
    let made_now = crdgen::own_schema(&crdgen::crd(&names, version, &structural.spec), version.as_str())?;
    Ok(made_now.is_some_and(|made_now| made_now != own))
}

fn live_names(live: &CustomResourceDefinition) -> Names {
    let names = &live.spec.names;
    Names {
        kind: names.kind.clone(),
        list_kind: names.list_kind.clone().unwrap_or_default(),
        plural: names.plural.clone(),
        singular: names.singular.clone().unwrap_or_default(),
    }
}

/// Whether this definition serves this version of the type, and which others do.
fn holders(
    definition: &CompositionDefinition,
    names: &Names,
    version: &ServedVersion,
    neighbours: &Neighbours,
) -> (bool, Vec<Holder>) {
    let Neighbours { others, controllers } = neighbours;
    let api_version = format!("{COMPOSITION_GROUP}/{version}");
    let holds = |some: &CompositionDefinition| {
        let owner = Owner::of(some);
        let runs = |controller: &Controller| {
            controller.owner == owner && controller.serves(&names.plural, version.as_str())
        };
        serves(some, &api_version, &names.kind) || controllers.iter().any(runs)
    };
    let age = |some: &CompositionDefinition| {
        let created = some.metadata.creation_timestamp.clone();
        (created, some.namespace(), some.name_any())
    };
    let others = others.iter().filter(|other| holds(other)).map(|other| Holder {
        name: format!("{}/{}", other.namespace().unwrap_or_default(), other.name_any()),
        is_older: age(other) < age(definition),
    });
    (holds(definition), others.collect())
}

/// The versions of this type that other definitions need.
struct Siblings {
    /// Versions that they run now.
    run: BTreeSet<String>,
    /// Those, and the ones they ran before.
    needed: BTreeSet<String>,
}

impl Siblings {
    fn of(names: &Names, neighbours: &Neighbours, own: &Owner) -> Self {
        let Neighbours { others, controllers } = neighbours;
        let statuses = others
            .iter()
            .filter_map(|other| other.status.as_ref())
            .filter(|status| status.kind.as_deref() == Some(&names.kind));
        let mut run: BTreeSet<String> = controllers
            .iter()
            .filter(|controller| controller.resource == names.plural && controller.owner != *own)
            .map(|controller| controller.version.clone())
            .collect();
        let mut before = BTreeSet::new();
        for status in statuses {
            run.extend(status.api_version.as_deref().map(version_of).map(str::to_owned));
            before.extend(status.previous_version.clone());
        }
        Self {
            needed: run.union(&before).cloned().collect(),
            run,
        }
    }
}

/// True when one of the type's definitions keeps its versions.
fn keeps_versions(definition: &CompositionDefinition, others: &[CompositionDefinition], kind: &str) -> bool {
    let is_of_type = |other: &&CompositionDefinition| {
        let status = other.status.as_ref();
        status.is_some_and(|status| status.kind.as_deref() == Some(kind))
    };
    let mut all = others.iter().filter(is_of_type).chain([definition]);
    all.any(|one| annotations::is_true(one.annotations(), annotations::KEEP_VERSIONS))
}

/// The facts about other versions.
fn former(
    definition: &CompositionDefinition,
    source: &Source,
    live: Option<&CustomResourceDefinition>,
    neighbours: &Neighbours,
    webhooks: &Registration,
    read: (Elsewhere, Vec<ReadController>),
) -> Result<Former, Error> {
    let (Elsewhere { instances, breakers }, controllers) = read;
    let names = &source.names;
    let siblings = Siblings::of(names, neighbours, &Owner::of(definition));
    let previous = previous(definition, names, &source.version);
    let is_needed = |version: &str| {
        version == source.version.as_str()
            || Some(version) == previous.as_deref()
            || siblings.needed.contains(version)
            || instances
                .iter()
                .any(|instance| instance.version.as_deref() == Some(version))
    };
    let idle = live
        .map(|live| idle(live, is_needed, webhooks))
        .transpose()?
        .flatten();
    let run = controllers
        .iter()
        .filter(|former| former.of_type.is_none())
        .map(|former| former.controller.version.clone());
    let claim = Claim {
        definition: (definition.namespace().unwrap_or_default(), definition.name_any()),
        former: served_before(definition).chain(run).collect(),
        foreign: siblings.run,
    };
    let compositions = outdated(&instances, &breakers, &claim, source)?;
    let controllers = controllers
        .into_iter()
        .map(|former| former_controller(former, neighbours));
    Ok(Former {
        controllers: controllers.collect(),
        compositions,
        breakers,
        idle,
        keeps_versions: keeps_versions(definition, &neighbours.others, &names.kind),
    })
}

/// The definition's own compositions of other versions.
fn outdated(
    instances: &[Instance],
    breakers: &[Breaker],
    claim: &Claim,
    source: &Source,
) -> Result<Vec<Outdated>, Error> {
    let (names, version) = (&source.names, source.version.as_str());
    let through = instances::resource(&names.plural, &names.kind, version);
    let mut outdated = Vec::new();
    for instance in instances.iter().filter(|instance| claim.takes(instance)) {
        let is_it =
            |breaker: &Breaker| breaker.namespace == instance.namespace && breaker.name == instance.name;
        outdated.push(Outdated {
            id: instance.id(&through)?,
            version: instance.version.clone(),
            is_refused: breakers.iter().any(is_it),
        });
    }
    Ok(outdated)
}

fn former_controller(read: ReadController, neighbours: &Neighbours) -> FormerController {
    let ReadController {
        controller,
        objects,
        of_type,
    } = read;
    let shares =
        |other: &Controller| other.resource == controller.resource && other.owner != controller.owner;
    let is_shared = neighbours.controllers.iter().any(shares);
    FormerController {
        objects,
        of_type: of_type.map(
            |ReadType {
                 id,
                 kind,
                 compositions,
             }| FormerType {
                id,
                kind,
                compositions,
                is_shared,
            },
        ),
        version: controller.version,
    }
}

/// The first version of the type that is no longer needed.
fn idle(
    live: &CustomResourceDefinition,
    is_needed: impl Fn(&str) -> bool,
    webhooks: &Registration,
) -> Result<Option<Idle>, Error> {
    let Some(version) = crdgen::served_versions(live).find(|version| !is_needed(version)) else {
        return Ok(None);
    };
    let Some(through) = served_resource(live, Some(version)) else {
        return Ok(None);
    };
    Ok(Some(Idle {
        version: version.to_owned(),
        without: desired::without(live, version, webhooks)?,
        through,
    }))
}

/// The versions of a type that other definitions run.
pub(super) fn run_by_others<'n>(
    resource: &str,
    own: &Owner,
    neighbours: &'n Neighbours,
) -> BTreeSet<&'n str> {
    let Neighbours { others, controllers } = neighbours;
    let marked = controllers
        .iter()
        .filter(|controller| controller.resource == resource && controller.owner != *own)
        .map(|controller| controller.version.as_str());
    let said = others
        .iter()
        .filter_map(|other| other.status.as_ref())
        .filter(|status| status.resource.as_deref() == Some(resource))
        .filter_map(|status| status.api_version.as_deref().map(version_of));
    marked.chain(said).collect()
}

/// The versions whose controller is gone although compositions wait for it to clean them up.
pub(super) fn abandoned(of_type: &MadeType) -> Vec<&str> {
    let mut abandoned = Vec::new();
    for composition in of_type.going().filter(|composition| composition.is_held) {
        let gone = of_type.cleaning(composition);
        if let Some(gone) = gone.filter(|controller| !controller.is_running)
            && !abandoned.contains(&gone.version.as_str())
        {
            abandoned.push(gone.version.as_str());
        }
    }
    abandoned
}

#[cfg(test)]
mod tests {
    use api::CompositionDefinitionStatus;
    use api::definition::BoundStatus;
    use cluster::ObjectId;
    use k8s_openapi::api::core::v1::ConfigMap;
    use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
    use k8s_openapi::jiff::Timestamp;
    use tokio::sync::watch;

    use super::super::observed::{MadeController, Remaining};
    use super::*;
    use crate::bundle::Stage;
    use crate::definition::fixtures::{self, chart, crd, resolved, source_of};
    use crate::definition::members::Member;
    use crate::webhook::Address;

    fn named(name: &str) -> CompositionDefinition {
        let mut definition = fixtures::definition();
        definition.metadata.name = Some(name.into());
        definition.metadata.namespace = Some("defs".into());
        definition
    }

    /// A definition that runs a version of kind Web, according to its status.
    fn running(name: &str, version: &str) -> CompositionDefinition {
        let mut definition = named(name);
        definition.status = Some(CompositionDefinitionStatus {
            kind: Some("Web".into()),
            resource: Some("webs".into()),
            api_version: Some(format!("{COMPOSITION_GROUP}/{version}")),
            ..CompositionDefinitionStatus::default()
        });
        definition
    }

    /// The same, after an upgrade from another version.
    fn upgraded(name: &str, version: &str, previous: &str) -> CompositionDefinition {
        let mut definition = running(name, version);
        definition.status.as_mut().unwrap().previous_version = Some(previous.into());
        definition
    }

    fn mark(owner: &str, resource: &str, version: &str) -> Controller {
        Controller {
            resource: resource.into(),
            version: version.into(),
            namespace: None,
            owner: Owner::of(&named(owner)),
        }
    }

    fn composition(name: &str, version: Option<&str>, definition: Option<&str>) -> Instance {
        Instance {
            namespace: "shop".into(),
            name: name.into(),
            version: version.map(str::to_owned),
            definition: definition.map(|name| ("defs".into(), name.into())),
            held: true,
            deleting: false,
            released: None,
        }
    }

    /// Version 1.1.0 is in place, and nothing else exists.
    fn read() -> Read {
        let desired = crd(&fixtures::source("1.1.0"));
        Read {
            live: Some(desired.clone()),
            desired,
            neighbours: Neighbours {
                others: Vec::new(),
                controllers: Vec::new(),
            },
            bundle: Vec::new(),
            target: crate::bundle::tests::target(),
            bound: BoundStatus::default(),
            relocation: None,
            granted: Vec::new(),
            is_available: true,
            unadmitted: None,
            elsewhere: Some(Elsewhere::default()),
            former: Vec::new(),
        }
    }

    fn id(name: &str) -> ObjectId {
        ObjectId::of::<ConfigMap>(Some("defs"), name).unwrap()
    }

    fn facts(definition: &CompositionDefinition, read: Read) -> Active {
        let nowhere = Registration {
            address: Address::Nowhere,
            bundle: watch::channel(String::new()).1,
        };
        let open = Locked {
            grants: vec![Member {
                id: id("own-grant"),
                wanted: serde_json::Value::Null,
                exists: true,
                in_place: true,
                stage: Stage::Own,
            }],
            needed: Vec::new(),
        };
        active(definition, fixtures::source("1.1.0"), &open, &nowhere, read).unwrap()
    }

    #[test]
    fn a_chart_without_a_schema_or_with_invalid_defaults_defines_no_type() {
        let given = |definition: &CompositionDefinition, schema: Option<&str>| {
            let found = Resolution {
                chart: chart("1.1.0", schema),
                resolved: resolved("1.1.0"),
            };
            source(definition, found)
        };
        let plain = named("web");
        let none = given(&plain, None);
        assert!(matches!(none, Err(Error::NoSchema { chart }) if chart == "web"));
        let broken = r#"{"type":"object","properties":{"size":{"type":"string","default":3}}}"#;
        assert!(matches!(given(&plain, Some(broken)), Err(Error::Schema(_))));
        let mut dropping = named("web");
        dropping.metadata.annotations =
            Some([(annotations::DROP_BAD_DEFAULTS.to_owned(), "true".to_owned())].into());
        let source = given(&dropping, Some(broken)).unwrap();
        assert_eq!(
            (source.names.kind.as_str(), source.version.as_str()),
            ("Web", "v1-1-0")
        );
    }

    #[test]
    fn statuses_and_marks_tell_which_definitions_serve_a_version() {
        let check = |own: &CompositionDefinition,
                     others: Vec<CompositionDefinition>,
                     controllers: Vec<Controller>,
                     is_holder: bool,
                     expected: &[(&str, bool)]| {
            let mut read = read();
            read.neighbours = Neighbours { others, controllers };
            let facts = facts(own, read);
            let holders = facts
                .holders
                .iter()
                .map(|holder| (holder.name.as_str(), holder.is_older));
            assert_eq!(holders.collect::<Vec<_>>(), expected);
            assert_eq!(facts.is_holder, is_holder);
        };
        let own = named("web");
        let none = Vec::new;
        check(&own, Vec::new(), none(), false, &[]);
        check(&running("web", "v1-1-0"), Vec::new(), none(), true, &[]);
        check(&running("web", "v1-0-0"), Vec::new(), none(), false, &[]);
        check(&own, Vec::new(), vec![mark("web", "webs", "v1-1-0")], true, &[]);
        let others = vec![
            running("a", "v1-1-0"),
            running("x", "v1-1-0"),
            running("b", "v1-0-0"),
        ];
        // For definitions of the same age, the name decides which is first.
        check(
            &own,
            others,
            none(),
            false,
            &[("defs/a", true), ("defs/x", false)],
        );
        let marked = vec![mark("a", "webs", "v1-1-0"), mark("b", "shops", "v1-1-0")];
        check(
            &own,
            vec![named("a"), named("b")],
            marked,
            false,
            &[("defs/a", true)],
        );
        let since = |mut definition: CompositionDefinition, second: i64| {
            definition.metadata.creation_timestamp = Some(Time(Timestamp::from_second(second).unwrap()));
            definition
        };
        let older = vec![since(running("x", "v1-1-0"), 1)];
        check(&since(own, 2), older, none(), false, &[("defs/x", true)]);
    }

    /// The repository does not prove a chart's origin, since whoever applies a definition chooses it; and after a
    /// registry has been moved or mirrored, the next version comes from another address.
    #[test]
    fn charts_of_one_name_from_two_repositories_share_a_type_but_not_a_version() {
        let from = |url: &str, mut definition: CompositionDefinition| {
            definition.spec.chart.url = url.into();
            definition
        };
        let holders = |version: &str| {
            let mut read = read();
            read.neighbours.others = vec![from("https://two.example", running("other", version))];
            let active = facts(&from("https://one.example", named("web")), read);
            let names = active.holders.into_iter().map(|holder| holder.name);
            names.collect::<Vec<_>>()
        };
        assert_eq!(holders("v1-1-0"), ["defs/other"]);
        assert_eq!(holders("v1-0-0"), [""; 0]);
    }

    #[test]
    fn a_version_is_idle_when_no_definition_and_no_composition_needs_it() {
        let source = fixtures::source("1.1.0");
        let first = crd(&fixtures::source("1.0.0"));
        let both = crdgen::with_version(first, &source.version, &source.structural.spec).unwrap();
        let check = |own: CompositionDefinition,
                     others: Vec<CompositionDefinition>,
                     instances: Vec<Instance>,
                     expected: Option<&str>| {
            let mut read = read();
            read.live = Some(both.clone());
            read.neighbours.others = others;
            read.elsewhere = Some(Elsewhere {
                instances,
                breakers: Vec::new(),
            });
            let idle = facts(&own, read).former.unwrap().idle;
            assert_eq!(idle.as_ref().map(|idle| idle.version.as_str()), expected);
            if let Some(idle) = idle {
                let left: Vec<_> = crdgen::served_versions(&idle.without).collect();
                assert_eq!(left, ["v1-1-0"]);
                assert_eq!(idle.through.version, "v1-1-0");
            }
        };
        let own = || running("web", "v1-1-0");
        let old = Some("v1-0-0");
        check(own(), Vec::new(), Vec::new(), old);
        check(running("web", "v1-0-0"), Vec::new(), Vec::new(), None);
        check(upgraded("web", "v1-1-0", "v1-0-0"), Vec::new(), Vec::new(), None);
        check(own(), vec![running("a", "v1-0-0")], Vec::new(), None);
        check(own(), vec![upgraded("a", "v1-2-0", "v1-0-0")], Vec::new(), None);
        check(
            own(),
            Vec::new(),
            vec![composition("x", old, Some("other"))],
            None,
        );
        check(own(), Vec::new(), vec![composition("x", None, None)], old);
    }

    #[test]
    fn own_compositions_of_other_versions_are_found_and_checked_for_fit() {
        let breaker = |name: &str| Breaker {
            namespace: "shop".into(),
            name: name.into(),
            path: "/x".into(),
            reason: "no".into(),
        };
        let old = Some("v1-0-0");
        let instances = || {
            vec![
                composition("mine", old, Some("web")),
                composition("refused", old, Some("web")),
                composition("theirs", old, Some("other")),
                composition("nobodys", old, None),
                composition("before", Some("v0-9-0"), None),
                composition("run-by-others", Some("v2-0-0"), Some("web")),
            ]
        };
        let check = |own_version: &str, expected: &[(&str, bool)]| {
            let mut read = read();
            read.elsewhere = Some(Elsewhere {
                instances: instances(),
                breakers: vec![breaker("refused"), breaker("theirs")],
            });
            read.neighbours.controllers = vec![mark("other", "webs", "v2-0-0")];
            read.former = vec![ReadController {
                controller: mark("web", "webs", own_version),
                objects: Vec::new(),
                of_type: None,
            }];
            let former = facts(&running("web", "v1-1-0"), read).former.unwrap();
            let told = former.compositions.iter();
            let told: Vec<_> = told.map(|one| (one.id.name(), one.is_refused)).collect();
            assert_eq!(told, expected);
            assert_eq!(former.breakers.len(), 2, "those of others are reported, too");
            assert_eq!(former.compositions[0].id.resource().version, "v1-1-0");
        };
        check(
            "v1-0-0",
            &[("mine", false), ("refused", true), ("nobodys", false)],
        );
        check("v0-9-0", &[("mine", false), ("refused", true), ("before", false)]);
    }

    #[test]
    fn a_former_type_is_shared_while_others_have_controllers_of_it() {
        let check = |others: Vec<Controller>, is_shared: bool| {
            let mut read = read();
            let own = mark("web", "shops", "v1-0-0");
            read.neighbours.controllers = [vec![own.clone()], others].concat();
            read.former = vec![ReadController {
                controller: own,
                objects: Vec::new(),
                of_type: Some(ReadType {
                    id: id("shops"),
                    kind: Some("Shop".into()),
                    compositions: 2,
                }),
            }];
            let former = facts(&named("web"), read).former.unwrap();
            let [controller] = former.controllers.as_slice() else {
                panic!("one controller");
            };
            let of_type = controller.of_type.as_ref().unwrap();
            assert_eq!((of_type.is_shared, of_type.compositions), (is_shared, 2));
        };
        check(Vec::new(), false);
        check(vec![mark("web", "shops", "v2-0-0")], false);
        check(vec![mark("other", "webs", "v1-0-0")], false);
        check(vec![mark("other", "shops", "v2-0-0")], true);
    }

    #[test]
    fn other_versions_are_unknown_while_compositions_may_not_be_read() {
        let mut unknown = read();
        unknown.elsewhere = None;
        let facts = facts(&named("web"), unknown);
        assert!(facts.former.is_none());
        assert_eq!(facts.own_grants, [id("own-grant")]);
    }

    #[test]
    fn a_version_with_another_schema_is_recognized() {
        let check = |live: Option<CustomResourceDefinition>, expected: bool| {
            let mut read = read();
            read.live = live;
            assert_eq!(facts(&named("web"), read).is_republished, expected);
        };
        let other = r#"{"type":"object","properties":{"size":{"type":"string"}}}"#;
        check(None, false);
        check(Some(crd(&fixtures::source("1.1.0"))), false);
        check(Some(crd(&source_of("1.1.0", other))), true);
        check(Some(crd(&source_of("1.0.0", other))), false);
    }

    #[test]
    fn any_definition_of_a_type_can_keep_its_versions() {
        let definition = |kind: &str, keeps: &str| {
            let mut definition = running("web", "v1-0-0");
            definition.metadata.annotations =
                Some([(annotations::KEEP_VERSIONS.to_owned(), keeps.to_owned())].into());
            definition.status.as_mut().unwrap().kind = Some(kind.to_owned());
            definition
        };
        let plain = definition("Web", "false");
        assert!(!keeps_versions(&plain, &[], "Web"));
        assert!(keeps_versions(&definition("Web", "true"), &[], "Web"));
        assert!(keeps_versions(&plain, &[definition("Web", "true")], "Web"));
        assert!(!keeps_versions(&plain, &[definition("Shop", "true")], "Web"));
    }

    #[test]
    fn marks_and_statuses_tell_the_versions_of_others() {
        let neighbours = Neighbours {
            others: vec![running("a", "v2-0-0"), named("new")],
            controllers: vec![
                mark("web", "webs", "v1-0-0"),
                mark("b", "webs", "v3-0-0"),
                mark("b", "shops", "v4-0-0"),
            ],
        };
        let own = Owner::of(&named("web"));
        let run: Vec<_> = run_by_others("webs", &own, &neighbours).into_iter().collect();
        assert_eq!(run, ["v2-0-0", "v3-0-0"]);
    }

    #[test]
    fn compositions_wait_for_controllers_that_are_gone() {
        let controller = |version: &str, is_shared: bool, is_running: bool| MadeController {
            version: version.into(),
            objects: Vec::new(),
            is_shared,
            is_running,
        };
        let left = |version: &str, is_held: bool| Remaining {
            id: id("web"),
            version: Some(version.into()),
            is_held,
        };
        let check = |is_shared: bool,
                     controllers: Vec<MadeController>,
                     compositions: Vec<Remaining>,
                     expected: &[&str]| {
            let of_type = MadeType {
                id: id("type"),
                is_live: true,
                is_shared,
                controllers,
                compositions,
            };
            assert_eq!(abandoned(&of_type), expected);
        };
        let gone = || {
            vec![
                controller("v1-0-0", false, false),
                controller("v2-0-0", false, false),
            ]
        };
        let one = || {
            vec![
                controller("v1-0-0", false, true),
                controller("v2-0-0", false, false),
            ]
        };
        check(false, gone(), Vec::new(), &[]);
        check(
            false,
            gone(),
            vec![left("v2-0-0", true), left("v2-0-0", true)],
            &["v2-0-0"],
        );
        check(false, gone(), vec![left("v2-0-0", false)], &[]);
        check(false, one(), vec![left("v1-0-0", true)], &[]);
        // Compositions of versions without a controller go to the first one, if the type is removed too.
        check(false, gone(), vec![left("v0-9-0", true)], &["v1-0-0"]);
        check(false, one(), vec![left("v0-9-0", true)], &[]);
        check(true, gone(), vec![left("v0-9-0", true)], &[]);
        let shared = vec![controller("v1-0-0", true, false)];
        check(true, shared, vec![left("v1-0-0", true)], &[]);
    }
}
