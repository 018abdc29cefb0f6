//! Runs the process from its arguments: sets up webhooks, watches and workers.

use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, Result};
use api::{CompositionDefinition, labels};
use charts::Charts;
use charts::source::Limits;
use cluster::{Cluster, Item, ResourceId};
use composition::Schemas;
use crdgen::CustomResourceDefinition;
use futures::{Stream, StreamExt as _, TryStreamExt as _};
use helm_client::rendering::{self, Event};
use k8s_openapi::api::admissionregistration::v1::{
    MutatingWebhookConfiguration, ValidatingAdmissionPolicy, ValidatingAdmissionPolicyBinding,
    ValidatingWebhookConfiguration,
};
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::{ConfigMap, Service, ServiceAccount};
use k8s_openapi::api::rbac::v1::{ClusterRole, ClusterRoleBinding, Role, RoleBinding};
use kube::core::{DynamicObject, ObjectMeta, PartialObjectMeta};
use kube::runtime::controller::{self, Action, Config};
use kube::runtime::reflector::{ObjectRef, Store};
use kube::runtime::watcher::watch_object;
use kube::runtime::{Controller, WatchStreamExt as _, reflector, watcher};
use kube::{Api, Resource, ResourceExt as _};
use runtime::watch::readable;
use runtime::{Backoff, Process, Renders, Telemetry, chain};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use crate::args::{Args, CertificateSource};
use crate::backlog::Backlog;
use crate::bound::Scans;
use crate::bundle::{Placement, Platform};
use crate::chart_grants::{ChartGrants, Consents};
use crate::definition::{Context, Error, HELD_UP, Looks, Placed, Settled, Turns, Waits, reconcile};
use crate::definition_type;
use crate::grants::secrets;
use crate::labelling::Labelling;
use crate::namespaces::{Arrivals, Namespaces};
use crate::templates::Templates;
use crate::webhook::{
    self, Address, Certificates, Conversions, Judge, Registration, Requests, Shown, Source, WebhookMetrics,
    Webhooks,
};

/// Name of the leader Lease, the same as Krateo's.
const LEASE: &str = "leader-election-core-provider";

/// How long webhooks are still answered after the process was asked to shut down.
const LAME_DUCK: Duration = Duration::from_secs(5);

/// How long a start may wait for charts.
const PREPARED_WITHIN: Duration = Duration::from_secs(15);

/// The pause after a failed registration.
const REGISTER_AGAIN: Duration = Duration::from_secs(5);

impl Args {
    /// Runs until asked to shut down.
    pub(crate) async fn run(self) -> Result<()> {
        let mut options = runtime::Options::new("core-provider", env!("CARGO_PKG_VERSION"));
        options.debug = self.debug;
        options.kubeconfig.clone_from(&self.client.kubeconfig);
        options.admin = (self.metrics_server_port != 0)
            .then(|| SocketAddr::from((Ipv4Addr::UNSPECIFIED, self.metrics_server_port)));
        if let Some(wrong) = self.webhooks.refusal() {
            return Err(runtime::args::refuse::<Self>(wrong).into());
        }
        options.push = Some(self.push.push(options.service));
        let process = runtime::start(options).await?;
        let renders = Renders::new(process.metrics())?;
        rendering::tell_events(move |event| match event {
            Event::Waited(time) => renders.waited(time),
            Event::Refused(reason) => renders.refused(reason),
            Event::Exceeded(limit) => renders.exceeded(limit),
        });
        let telemetry = Telemetry::new(process.metrics(), "provider_runtime", "compositiondefinitions")?;
        let prepared = self.prepare(&process, telemetry.clone()).await;
        telemetry.started(prepared.is_ok());
        let (context, signals) = match prepared {
            Ok((context, signals)) => (Arc::new(context), signals),
            Err(error) => {
                process.finish(None).await;
                return Err(error);
            }
        };

        let leading = if self.leader_election {
            match process.lead(&self.krateo_namespace, LEASE).await {
                Ok(held) => Some(held),
                // A standby replica served webhooks, so it shuts down as cleanly as the leader.
                Err(runtime::Error::Ended) => {
                    process.finish(None).await;
                    return Ok(());
                }
                Err(error) => return Err(error.into()),
            }
        } else {
            None
        };
        let lost = leading.as_ref().map(cluster::Held::lost).unwrap_or_default();
        self.register(context.webhooks.clone(), context.labelling.clone(), &process);
        let (cluster, shutdown) = (process.cluster().clone(), process.shutdown());
        process.spawn(async move {
            shutdown
                .run_until_cancelled(definition_type::keep(&cluster))
                .await;
        });
        self.serve(context, signals, &process, lost).await;
        process.finish(leading).await;
        Ok(())
    }

    /// Starts to serve webhooks, and assembles what passes need.
    async fn prepare(&self, process: &Process, telemetry: Telemetry) -> Result<(Context, Signals)> {
        let charts = Charts::new(process.cluster().clone(), Limits::default())
            .with_fresh_for(self.poll_interval.0)
            .with_registry_config(self.charts.helm_registry_config_path.clone());
        let charts = Arc::new(charts);
        let webhooks = self.answer(process, charts.clone()).await?;
        self.context(process, charts, webhooks, telemetry)
    }

    /// Starts to serve webhooks, as every replica does, and waits until it has a certificate.
    async fn answer(&self, process: &Process, charts: Arc<Charts>) -> Result<Registration> {
        let (sender, mut bundle) = watch::channel(String::new());
        let args = &self.webhooks;
        if args.port == 0 {
            process.readiness().set(true);
            let address = Address::Nowhere;
            return Ok(Registration { address, bundle });
        }
        let address = match &args.url {
            Some(url) => Address::Url(url.clone()),
            None => Address::Service {
                name: args.service_name.clone(),
                namespace: args.service_namespace.clone(),
                port: args.port,
            },
        };
        let shown = Arc::new(Shown::default());
        let listen = SocketAddr::from((Ipv4Addr::UNSPECIFIED, args.port));
        let listener = runtime::server::listen(listen)
            .await
            .with_context(|| format!("could not serve webhooks on {listen}"))?;
        let conversions = Arc::new(Conversions::new(process.cluster().clone()));
        let judge = Arc::new(Self::judge(process, charts, conversions.clone()));
        let webhooks = Webhooks {
            judge: judge.clone(),
            conversions,
            metrics: WebhookMetrics::new(process.metrics())?,
        };
        // Callers that still have our address are answered for a moment after shutdown.
        let (shutdown, ended) = (process.shutdown(), CancellationToken::new());
        process.serve_tls(
            listener,
            webhook::tls(shown.clone()),
            webhook::app(webhooks),
            ended.clone(),
        );
        process.spawn(async move {
            shutdown.cancelled().await;
            tokio::time::sleep(LAME_DUCK).await;
            ended.cancel();
        });
        let certificates = Certificates {
            cluster: process.cluster().clone(),
            namespace: self.krateo_namespace.clone(),
            names: address.names(),
            source: self.certificate_source(process),
            times: args.times()?,
            shown,
            bundle: sender,
        };
        process.spawn(certificates.keep(process.shutdown()));
        let known = bundle.wait_for(|bundle| !bundle.is_empty());
        let shutdown = process.shutdown();
        if let Some(known) = shutdown.run_until_cancelled(known).await {
            known.context("the keeper of the certificates ended")?;
        }
        // An unprepared webhook admits everything, so readiness waits for it.
        let (readiness, shutdown) = (process.readiness().clone(), process.shutdown());
        process.spawn(async move {
            let prepared = tokio::time::timeout(PREPARED_WITHIN, judge.prepare());
            if let Some(Err(_)) = shutdown.run_until_cancelled(prepared).await {
                tracing::warn!("some charts could not be prefetched: ready without them");
            }
            readiness.set(true);
        });
        Ok(Registration { address, bundle })
    }

    fn certificate_source(&self, process: &Process) -> Source {
        let args = &self.webhooks;
        match args.certificate_source {
            CertificateSource::Authority => Source::Authority,
            CertificateSource::Csr => {
                let (name, namespace) = (&args.service_name, &args.service_namespace);
                Source::Requests(Box::new(Requests::new(process.cluster(), name, namespace)))
            }
        }
    }

    /// What validates writes: the current definitions and their charts, which are fetched ahead of the first write.
    fn judge(process: &Process, charts: Arc<Charts>, conversions: Arc<Conversions>) -> Judge {
        let definitions = Api::<Item<CompositionDefinition>>::all(process.cluster().client());
        let (store, writer) = reflector::store();
        let (shutdown, fetching) = (process.shutdown(), charts.clone());
        let watched = readable(watcher(definitions, watcher::Config::default()))
            .default_backoff()
            .reflect(writer)
            .applied_objects();
        process.spawn(async move {
            let fetch = Box::pin(watched.for_each(|definition| fetch(definition, fetching.clone())));
            shutdown.run_until_cancelled(fetch).await;
        });
        Judge {
            definitions: store,
            charts,
            schemas: Schemas::default(),
            conversions,
        }
    }

    /// Keeps the webhook for labels registered, and rotates the CA bundles of everything that calls us.
    fn register(&self, mut webhooks: Registration, labelling: Option<Labelling>, process: &Process) {
        let (cluster, shutdown) = (process.cluster().clone(), process.shutdown());
        let name = self.service_account.clone();
        let registrations = Api::<PartialObjectMeta<MutatingWebhookConfiguration>>::all(cluster.client());
        process.spawn(async move {
            let register = async {
                let mut registrations = pin!(watch_object(registrations, &name).default_backoff());
                let (mut uid, mut is_renewed) = (None, false);
                loop {
                    let labels = webhooks.set_labels(&name, &cluster).await;
                    if std::mem::take(&mut is_renewed) {
                        labelling.iter().for_each(Labelling::renewed);
                    }
                    let trust = webhooks.renew_trust(&cluster).await;
                    if let Err(error) = &labels {
                        tracing::warn!(error = chain(error), "could not register the webhook for labels");
                    }
                    if let Err(error) = &trust {
                        tracing::warn!(
                            error = chain(error),
                            "could not rotate the CA bundles of types and webhooks"
                        );
                    }
                    if labels.and(trust).is_err() {
                        tokio::time::sleep(REGISTER_AGAIN).await;
                        continue;
                    }
                    tokio::select! {
                        Ok(()) = webhooks.bundle.changed() => {}
                        () = replaced(&mut registrations, &mut uid) => {
                            tracing::warn!(name, "the registration of the webhook for labels was deleted: writing it again");
                            is_renewed = true;
                        }
                    }
                }
            };
            shutdown.run_until_cancelled::<_>(register).await;
        });
    }

    /// Reconciles definitions until the process is asked to shut down or loses the lead.
    async fn serve(
        &self,
        context: Arc<Context>,
        signals: Signals,
        process: &Process,
        lost: CancellationToken,
    ) {
        let Signals { arrivals, consents } = signals;
        let known = context.scans.wait_until_known();
        if process.shutdown().run_until_cancelled(known).await.is_none() {
            return;
        }
        let until = process.shutdown().cancelled_owned();
        let definitions = Api::<Item<CompositionDefinition>>::all(process.cluster().client());
        let (store, writer) = reflector::store();
        let (triggers, backlog) = (Triggers::of(&context, store.clone()), context.backlog.clone());
        let (seen, arrived) = (triggers.clone(), triggers.clone());
        let granted = triggers.clone();
        let consents = consents.inspect(move |definition| granted.changed(definition));
        let arrivals = arrivals.filter(move |definition| std::future::ready(arrived.takes_over(definition)));
        let definitions = readable(watcher(definitions, watcher::Config::default()))
            .reflect(writer)
            .applied_objects()
            .inspect_ok(move |definition| seen.fired(&ObjectRef::from_obj(definition)));
        let controller = Controller::for_stream(definitions, store);
        let working = watching(controller, process.cluster(), &triggers)
            .with_config(Config::default().concurrency(self.max_reconcile_rate))
            .reconcile_all_on(
                changes(context.webhooks.bundle.clone()).inspect(move |()| triggers.all_fired()),
            )
            .reconcile_on(arrivals)
            .reconcile_on(consents)
            .graceful_shutdown_on(until)
            .run(reconcile, retry, context)
            .for_each(|outcome| {
                if let Err(error) = outcome {
                    if let controller::Error::ObjectNotFound(gone) = &error {
                        let namespace = gone.namespace.as_deref().unwrap_or_default();
                        backlog.forgets(&ObjectRef::new(&gone.name).within(namespace));
                    }
                    tracing::debug!(error = chain(&error), "pass ended");
                }
                std::future::ready(())
            });
        tokio::select! {
            () = working => {}
            // Passes in flight stop where they are, because another replica has started its own.
            () = lost.cancelled() => {}
        }
    }

    fn context(
        &self,
        process: &Process,
        charts: Arc<Charts>,
        webhooks: Registration,
        telemetry: Telemetry,
    ) -> Result<(Context, Signals)> {
        let cluster = process.cluster().clone();
        let (namespaces, arrivals) = Namespaces::new(
            cluster.clone(),
            self.krateo_namespace.clone(),
            self.closed_namespaces.clone(),
        );
        let backlog = Arc::new(Backlog::new(telemetry.queue()));
        let waiting = backlog.clone();
        telemetry.tell_depth(move || waiting.depth())?;
        let (grants, kept, consents) = ChartGrants::watch(&cluster);
        let shutdown = process.shutdown();
        process.spawn(async move {
            shutdown.run_until_cancelled(kept).await;
        });
        let registration = webhook::of_labels(&self.service_account)?;
        let labelling = webhooks
            .is_called()
            .then(|| Labelling::keep(registration, cluster.clone()));
        let context = Context {
            charts,
            webhooks,
            labelling,
            templates: Templates::from_folder(&assets())?,
            platform: Platform {
                krateo_namespace: self.krateo_namespace.clone(),
                closed_namespaces: self.closed_namespaces.clone(),
                placement: self.cdc_namespace,
                image: with_tag(&self.cdc_image, self.cdc_image_tag.as_deref()),
                image_pull_policy: self.cdc_image_pull_policy.clone(),
                chart_inspector_url: self.url_chart_inspector.clone(),
                inspector_service_account: self.chart_inspector_service_account.clone(),
                provider_service_account: self.service_account.clone(),
                reads_helm_releases: self.cdc_read_helm_releases,
                replicas: self.cdc_replicas,
                shards: self.shards().map_err(anyhow::Error::msg)?,
                metrics_port: self.metrics_port().map_err(anyhow::Error::msg)?,
                env: self.environment(),
            },
            recorder: process.recorder().with_silence(self.event_silence.0),
            telemetry,
            backlog,
            looks: Looks::default(),
            turns: Turns::default(),
            waits: Waits::default(),
            settled: Arc::default(),
            placed: Placed::default(),
            sync: self.sync.0,
            scans: Scans::new(grants),
            namespaces,
            backoff: Backoff::new(self.min_error_retry_interval.0, self.max_error_retry_interval.0),
            poll_interval: self.poll_interval.0,
            cluster,
        };
        Ok((context, Signals { arrivals, consents }))
    }
}

/// Reasons for passes other than watched objects.
struct Signals {
    arrivals: Arrivals,
    consents: Consents,
}

/// The kinds of objects in bundles that are watched, which is all but Secrets.
fn kinds() -> [ResourceId; 11] {
    [
        ResourceId::of::<ServiceAccount>(),
        ResourceId::of::<ConfigMap>(),
        ResourceId::of::<Service>(),
        ResourceId::of::<Deployment>(),
        ResourceId::of::<Role>(),
        ResourceId::of::<RoleBinding>(),
        ResourceId::of::<ClusterRole>(),
        ResourceId::of::<ClusterRoleBinding>(),
        ResourceId::of::<ValidatingWebhookConfiguration>(),
        ResourceId::of::<ValidatingAdmissionPolicy>(),
        ResourceId::of::<ValidatingAdmissionPolicyBinding>(),
    ]
}

/// The namespace in which objects of a kind are watched; none means all, as for roles, which also let controllers read
/// Secrets in other namespaces.
fn watched<'p>(kind: &ResourceId, platform: &'p Platform) -> Option<&'p str> {
    let is_placed = kind.namespaced && kind.group != "rbac.authorization.k8s.io";
    let is_here = is_placed && platform.placement == Placement::Platform;
    is_here.then_some(platform.krateo_namespace.as_str())
}

/// True when the labels of an object in this namespace may be trusted to name its definition, since anyone who may
/// write there can set them. They are trusted where only the platform writes; in the definition's own namespace, where
/// they affect only that definition; and in the namespaces of the Secrets that it names.
fn is_believed(
    namespace: Option<&str>,
    owner: &ObjectRef<CompositionDefinition>,
    definition: Option<&CompositionDefinition>,
    krateo_namespace: &str,
) -> bool {
    let Some(namespace) = namespace else { return true };
    namespace == krateo_namespace
        || Some(namespace) == owner.namespace.as_deref()
        || definition.is_some_and(|definition| secrets(definition).contains_key(namespace))
}

/// The triggers of passes; records each one that fires.
#[derive(Clone)]
struct Triggers {
    settled: Arc<Settled>,
    backlog: Arc<Backlog>,
    definitions: Store<CompositionDefinition>,
    platform: Platform,
}

impl Triggers {
    fn of(context: &Context, definitions: Store<CompositionDefinition>) -> Self {
        Self {
            settled: context.settled.clone(),
            backlog: context.backlog.clone(),
            definitions,
            platform: context.platform.clone(),
        }
    }

    fn fired(&self, definition: &ObjectRef<CompositionDefinition>) {
        self.backlog.wants(definition, Duration::ZERO);
    }

    /// What the definition depends on has changed.
    fn changed(&self, definition: &ObjectRef<CompositionDefinition>) {
        self.settled.forget(definition);
        self.fired(definition);
    }

    fn all_fired(&self) {
        for definition in self.definitions.state() {
            self.fired(&ObjectRef::from_obj(definition.as_ref()));
        }
    }

    /// The definition to reconcile after a change of an object of its bundle.
    fn owner(&self, object: &ObjectMeta) -> Option<ObjectRef<CompositionDefinition>> {
        let label = |name: &str| object.labels.as_ref()?.get(name).cloned();
        let name = label(labels::DEFINITION_NAME).zip(label(labels::DEFINITION_NAMESPACE));
        let owner = name.map(|(name, namespace)| ObjectRef::new(&name).within(&namespace))?;
        let definition = self.definitions.get(&owner);
        let (place, own) = (object.namespace.as_deref(), &self.platform.krateo_namespace);
        if !is_believed(place, &owner, definition.as_deref(), own) {
            return None;
        }
        self.settled.forget(&owner);
        self.fired(&owner);
        Some(owner)
    }

    /// True when a composition that was moved to the definition may come from another definition's chart. Compositions
    /// that the definition moves itself are handled by the pass that moves them.
    fn takes_over(&self, definition: &ObjectRef<CompositionDefinition>) -> bool {
        let resource = |some: &CompositionDefinition| some.status.as_ref()?.resource.clone();
        let Some(own) = self.definitions.get(definition) else {
            return false;
        };
        let others = self.definitions.state();
        let mut others = others.iter().filter(|other| other.uid() != own.uid());
        let is_shared = others.any(|other| resource(other).is_some() && resource(other) == resource(&own));
        if is_shared {
            self.settled.forget(definition);
            self.fired(definition);
        }
        is_shared
    }

    /// The definitions to reconcile after a change of their type.
    fn owners(&self, type_: &ObjectMeta) -> Vec<ObjectRef<CompositionDefinition>> {
        let plural = type_
            .labels
            .as_ref()
            .and_then(|labels| labels.get(labels::COMPOSITION_TYPE));
        let owners = plural.map(|plural| self.settled.forget_type(plural));
        let owners = owners.unwrap_or_default();
        for owner in &owners {
            self.fired(owner);
        }
        owners
    }
}

/// What is watched of the objects that definitions create: only metadata, because a type can be nested too deeply to
/// parse.
type Metadata = Item<PartialObjectMeta<DynamicObject>>;

/// Adds watches that reconcile a definition when one of its objects changes. Label selectors keep all other objects
/// out.
fn watching(
    mut controller: Controller<CompositionDefinition>,
    cluster: &Cluster,
    triggers: &Triggers,
) -> Controller<CompositionDefinition> {
    let made = watcher::Config::default().labels(labels::CONTROLLER_RESOURCE);
    for kind in kinds() {
        let told = triggers.clone();
        let owner = move |object: Metadata| told.owner(object.meta());
        let objects = kind.api(cluster.client(), watched(&kind, &triggers.platform));
        controller = controller.watches_with(objects, kind.api_resource(), made.clone(), owner);
    }
    let types = ResourceId::of::<CustomResourceDefinition>();
    let triggers = triggers.clone();
    let owners = move |object: Metadata| triggers.owners(object.meta());
    controller.watches_with(
        types.api(cluster.client(), None),
        types.api_resource(),
        watcher::Config::default().labels(labels::COMPOSITION_TYPE),
        owners,
    )
}

/// Fetches the chart of a definition whose compositions are validated.
async fn fetch(definition: Result<CompositionDefinition, watcher::Error>, charts: Arc<Charts>) {
    let definition = match definition {
        Ok(definition) => definition,
        Err(error) => {
            return tracing::debug!(error = chain(&error), "the watch of definitions was interrupted");
        }
    };
    if webhook::is_judged(&definition)
        && let Err(error) = charts.get(&composition::chart_spec(&definition)).await
    {
        tracing::debug!(error = chain(&error), "could not prefetch a chart");
    }
}

/// Ends when the watched object is found missing, or is no longer the one with this UID: it was deleted and written again
/// while the watch was interrupted. The UID is of the object as seen last.
async fn replaced<T: Resource>(
    watched: &mut (impl Stream<Item = watcher::Result<Option<T>>> + Unpin),
    uid: &mut Option<String>,
) {
    while let Some(seen) = watched.next().await {
        let Ok(seen) = seen else { continue };
        let seen = seen.and_then(|object| object.meta().uid.clone());
        let is_same = uid.is_none() || *uid == seen;
        uid.clone_from(&seen);
        if seen.is_none() || !is_same {
            return;
        }
    }
    std::future::pending::<()>().await;
}

/// One item for each change.
fn changes(watched: watch::Receiver<String>) -> impl futures::Stream<Item = ()> + Send + 'static {
    futures::stream::unfold(watched, |mut watched| async move {
        watched.changed().await.ok()?;
        Some(((), watched))
    })
}

/// The folder in which operators put their own templates.
fn assets() -> PathBuf {
    std::env::temp_dir().join("assets")
}

/// `image` with another tag. A colon after the last slash starts a tag; one before it belongs to a port.
fn with_tag(image: &str, tag: Option<&str>) -> String {
    let Some(tag) = tag.filter(|tag| !tag.is_empty()) else {
        return image.to_owned();
    };
    let name = image.rfind('/').map_or(0, |slash| slash + 1);
    let end = image[name..].find(':').map_or(image.len(), |colon| name + colon);
    format!("{}:{tag}", &image[..end])
}

/// When to retry a failed pass: with backoff if it can succeed without a change, otherwise at the next poll (a change
/// of the definition comes before that).
#[expect(
    clippy::needless_pass_by_value,
    reason = "the signature that kube's Controller asks for"
)]
fn retry(definition: Arc<CompositionDefinition>, error: &Error, ctx: Arc<Context>) -> Action {
    let object = ObjectRef::from_obj(definition.as_ref());
    let pause = ctx.backoff.failed(&object);
    let pause = if error.is_transient() {
        pause
    } else if error.waits_for_compositions() {
        ctx.poll_interval.min(HELD_UP)
    } else {
        pause.max(ctx.poll_interval)
    };
    ctx.backlog.wants(&object, pause);
    // Logged with all fields, because kube calls this after the pass's span has ended.
    tracing::warn!(
        object.kind = "CompositionDefinition",
        object.namespace = definition.namespace(),
        object.name = definition.name_any(),
        definition = %object,
        generation = definition.meta().generation,
        error = chain(error),
        retry_in = ?pause,
        "could not reconcile"
    );
    Action::requeue(pause)
}

#[cfg(test)]
mod tests {
    use api::CompositionDefinitionSpec;
    use api::definition::{ChartSource, SecretItemRef};

    use super::*;

    #[test]
    fn labels_that_name_a_definition_count_only_where_others_cannot_write_them() {
        let chart = ChartSource {
            ca_bundle_ref: Some(SecretItemRef {
                name: "ca".into(),
                namespace: Some("vault".into()),
                key: None,
            }),
            ..ChartSource::default()
        };
        let mut definition = CompositionDefinition::new("web", CompositionDefinitionSpec { chart });
        definition.metadata.namespace = Some("defs".into());
        let owner = ObjectRef::from_obj(&definition);
        let check = |namespace: Option<&str>, expected: bool| {
            let is_believed = is_believed(namespace, &owner, Some(&definition), "krateo");
            assert_eq!(is_believed, expected, "{namespace:?}");
        };
        check(None, true);
        check(Some("krateo"), true);
        check(Some("defs"), true);
        check(Some("vault"), true);
        check(Some("team"), false);
        assert!(!super::is_believed(Some("vault"), &owner, None, "krateo"));
    }

    #[test]
    fn objects_that_tenants_can_write_are_not_watched() {
        let platform = crate::bundle::tests::platform();
        let accounts = ResourceId::of::<ServiceAccount>();
        assert_eq!(watched(&accounts, &platform), Some("krateo-system"));
        assert_eq!(watched(&ResourceId::of::<Role>(), &platform), None);
        assert_eq!(watched(&ResourceId::of::<ClusterRole>(), &platform), None);
        let beside = Platform {
            placement: Placement::Definition,
            ..platform
        };
        assert_eq!(watched(&accounts, &beside), None);
    }

    #[tokio::test]
    async fn a_registration_that_was_written_again_unseen_counts_as_replaced() {
        let object = |uid: &str| {
            let mut object = DynamicObject::new("labels", &ResourceId::of::<ConfigMap>().api_resource());
            object.metadata.uid = Some(uid.to_owned());
            Ok(Some(object))
        };
        let seen = [
            object("1"),
            object("1"),
            object("2"),
            Err(watcher::Error::NoResourceVersion),
            Ok(None),
            object("3"),
            object("3"),
        ];
        let mut seen = futures::stream::iter(seen).chain(futures::stream::pending());
        let mut uid = None;
        for left in ["2", ""] {
            replaced(&mut seen, &mut uid).await;
            assert_eq!(uid.as_deref().unwrap_or_default(), left);
        }
        let waiting = replaced(&mut seen, &mut uid);
        assert!(
            tokio::time::timeout(Duration::from_millis(1), waiting)
                .await
                .is_err()
        );
        assert_eq!(uid.as_deref(), Some("3"));
    }

    #[test]
    fn another_tag_takes_the_place_of_the_images_own() {
        assert_eq!(with_tag("r:5000/a/cdc:1", Some("2")), "r:5000/a/cdc:2");
        assert_eq!(with_tag("r:5000/a/cdc", Some("2")), "r:5000/a/cdc:2");
        assert_eq!(with_tag("cdc:1", None), "cdc:1");
        assert_eq!(with_tag("cdc:1", Some("")), "cdc:1");
    }
}
