//! Upgrades the platform to the next version of its chart and rolls it back, two replicas of each program, while
//! compositions exist and clients write: does a write fail, is a release touched?
//!
//! Both versions have the same programs, with two versions of the chart and two tags of their images. So this tests how
//! an upgrade replaces pods, roles, policies and controllers. It does not test whether a later program understands what
//! an earlier one wrote, nor changes in the chart's content.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anyhow::Result;
use serde_json::{Value, json};

use super::replicas::Event;
use super::{Pace, Traffic, composition, judged_chart, wait_until_judged};
use crate::picture::{Figures, Picture};
use crate::platform::{self, RELEASE};
use crate::{ChartFolder, Namespace, Scenario, image, progress};

const KIND: &str = "Judge";
const PLURAL: &str = "judges";

/// The next version, of the chart and of all programs.
const NEXT: &str = "999.0.0";

/// The programs' Deployments: core-provider, chart-inspector, and the one controller.
const DEPLOYMENTS: usize = 3;

/// How many replicas each of them has.
const REPLICAS: u64 = 2;

/// How many compositions nobody changes.
const COMPOSITIONS: usize = 5;

/// How many compositions are changed all the time, in turn.
const BUSY: usize = 3;

/// How long the client that changes them pauses between two writes.
const PAUSE: Duration = Duration::from_secs(1);

/// A password that differs at each render: if a release is touched, it changes.
const PASSWORD: &str = "
apiVersion: v1
kind: Secret
metadata: {name: {{ .Release.Name }}-password}
stringData: {password: {{ randAlphaNum 16 }}}
";

/// The results.
#[derive(Debug)]
pub struct Outcome {
    events: Vec<Event>,
    /// What each direction touched of the compositions that nobody changed.
    figures: Vec<Figures>,
    /// How often compositions were changed.
    changes: usize,
    /// Changes that were refused, or had no effect.
    faults: Vec<String>,
}

impl Outcome {
    /// True if no write failed and nothing was touched.
    pub fn is_good(&self) -> bool {
        let is_good = |event: &Event| event.wrong_answers() == 0 && event.failed() == 0;
        self.events.iter().all(is_good)
            && self.figures.iter().all(|figures| *figures == Figures::default())
            && self.faults.is_empty()
    }
}

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let sum = |of: &dyn Fn(&Event) -> u64| self.events.iter().map(of).sum::<u64>();
        let touched = self
            .figures
            .iter()
            .fold(Figures::default(), |sum, one| sum.worst(one));
        write!(
            f,
            "{} writes, {} failed, {} wrong answers; {} changes, {} failed; {touched}",
            sum(&|event| event.counts.asked()),
            sum(&Event::failed),
            sum(&Event::wrong_answers),
            self.changes,
            self.faults.len(),
        )
    }
}

/// Runs the whole trial on a cluster of its own.
///
/// # Errors
/// When the cluster does not come up, or a version does not.
pub fn run() -> Result<Outcome> {
    let scenario = Scenario::alone("upgrade-platform")?;
    image::push(scenario.site(), &image::PROGRAMS, NEXT)?;
    platform::install_with(scenario.site(), &[format!("cdc.replicas={REPLICAS}")])?;
    let chart = judged_chart("judge")?;
    chart.write("templates/password.yaml", PASSWORD)?;
    scenario.define("judge", &chart.push(scenario.site())?, "1.0.0")?;
    scenario.wait_for("compositiondefinitions", "judge", "Ready", "True")?;
    wait_until_judged(&scenario, KIND)?;
    let names: Vec<String> = (0..COMPOSITIONS).map(|number| format!("live-{number}")).collect();
    let spec = json!({"image": scenario.web_image()});
    for name in &names {
        scenario.apply(&composition(KIND, scenario.namespace(), name, &spec))?;
    }
    for name in &names {
        scenario.wait_for(PLURAL, name, "Ready", "True")?;
    }
    is_of(&scenario, image::TAG)?;
    let busy = Namespace::make("upgrade-busy", scenario.site())?;
    let is_over = AtomicBool::new(false);
    let (written, (events, figures)) = std::thread::scope(|scope| {
        let writer = scope.spawn(|| Changes::until(&is_over, &busy));
        let both_ways = go_both_ways(&scenario);
        is_over.store(true, Ordering::SeqCst);
        let changes = writer
            .join()
            .map_err(|_| anyhow::anyhow!("the client panicked"))?;
        Ok::<_, anyhow::Error>((changes, both_ways?))
    })?;
    let changes = written.count;
    let faults = written.come_about(&busy);
    for fault in &faults {
        progress(fault);
    }
    Ok(Outcome {
        events,
        figures,
        changes,
        faults,
    })
}

/// To the next version, and back.
fn go_both_ways(scenario: &Scenario) -> Result<(Vec<Event>, Vec<Figures>)> {
    let (cluster, namespace) = (scenario.cluster(), scenario.namespace());
    let traffic = Traffic::start(cluster, namespace, KIND, PLURAL, Pace::STEADY)?;
    let types = [format!("{PLURAL}.composition.krateo.io")];
    let types = types.each_ref().map(String::as_str);
    let picture = || Picture::take(scenario.site(), namespace, &types);
    let mut events = Vec::new();
    let mut figures = Vec::new();
    for way in ["upgrade to the next version", "rollback"] {
        let before = picture()?;
        events.push(Event::of(scenario, &traffic, way, true, || {
            if way == "rollback" {
                scenario
                    .platform()
                    .helm(&["rollback", RELEASE, "--wait", "--timeout=5m"])?;
                is_of(scenario, image::TAG)
            } else {
                upgrade(scenario)?;
                is_of(scenario, NEXT)
            }
        })?);
        let later = picture()?;
        let touched = before.against(&later, &before.stars, &BTreeSet::new());
        progress(format_args!("{way}: {touched} {:?}", before.moved(&later)));
        figures.push(touched);
    }
    Ok((events, figures))
}

fn upgrade(scenario: &Scenario) -> Result<()> {
    let chart = image::root().join("charts/core-provider");
    let chart = ChartFolder::copy_of(&chart, "core-provider", NEXT)?;
    let folder = chart.folder().to_string_lossy().into_owned();
    let tag = format!("image.tag={NEXT}");
    let upgrade = ["upgrade", RELEASE, &folder, "--reuse-values", "--set", &tag];
    let upgrade = [&upgrade[..], &["--wait", "--timeout=5m"]].concat();
    scenario.platform().helm(&upgrade).map(drop)
}

/// Waits until all programs, including controllers, have a tag, and no pod of another tag is left.
fn is_of(scenario: &Scenario, tag: &str) -> Result<()> {
    let is_so = |deployment: &Value| {
        let (spec, status) = (&deployment["spec"], &deployment["status"]);
        let image = spec["template"]["spec"]["containers"][0]["image"].as_str();
        image.is_some_and(|image| image.ends_with(&format!(":{tag}")))
            && status["observedGeneration"] == deployment["metadata"]["generation"]
            && ["replicas", "updatedReplicas", "availableReplicas"]
                .iter()
                .all(|count| status[count] == REPLICAS)
    };
    let platform = scenario.platform();
    scenario.wait_until(&format!("all programs to be of {tag}"), || {
        let all: Value =
            serde_json::from_str(&platform.kubectl(&["get", "deployments", "--output=json"])?)?;
        let all = all["items"].as_array().cloned().unwrap_or_default();
        Ok((all.len() == DEPLOYMENTS && all.iter().all(is_so)).then_some(()))
    })
}

/// The writes of a client that changes compositions all the time.
#[derive(Default)]
struct Changes {
    count: usize,
    /// The text that each is to have in the end.
    wanted: BTreeMap<String, String>,
    refused: Vec<String>,
}

impl Changes {
    /// Changes compositions in turn; the first change of each creates it.
    fn until(is_over: &AtomicBool, busy: &Namespace) -> Self {
        let mut changes = Self::default();
        while !is_over.load(Ordering::SeqCst) {
            let name = format!("busy-{}", changes.count % BUSY);
            let greeting = format!("change {}", changes.count);
            let mut object = composition(
                KIND,
                busy.namespace(),
                &name,
                // Changing one without pods is a change as well.
                &json!({"greeting": greeting, "replicas": 0}),
            );
            object["metadata"]["labels"] = json!({"krateo.io/release-name": name});
            changes.count += 1;
            match busy.apply(&object) {
                Ok(()) => drop(changes.wanted.insert(name, greeting)),
                Err(error) => changes.refused.push(format!("{greeting} was refused: {error:#}")),
            }
            std::thread::sleep(PAUSE);
        }
        changes
    }

    /// Waits for the accepted changes, and returns those that were refused or had no effect.
    fn come_about(self, busy: &Namespace) -> Vec<String> {
        let mut faults = self.refused;
        for (name, greeting) in self.wanted {
            let is_said = busy.wait("configmaps", &format!("{name}-web"), |map| {
                map["data"]["GREETING"] == greeting.as_str()
            });
            if let Err(error) = is_said {
                faults.push(format!("{name} does not say {greeting}: {error:#}"));
            }
        }
        faults
    }
}
