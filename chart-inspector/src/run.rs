//! Runs the process and its HTTP server from the arguments.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;

use anyhow::Result;
use charts::Charts;
use charts::source::Limits;
use helm_client::rendering::{self, Event};
use runtime::Renders;

use crate::args::Args;
use crate::callers::Callers;
use crate::definitions::Definitions;
use crate::http::{Service, app};
use crate::inspector::Inspector;

impl Args {
    /// Answers requests until asked to shut down.
    pub(crate) async fn run(self) -> Result<()> {
        let mut options = runtime::Options::new("chart-inspector", env!("CARGO_PKG_VERSION"));
        options.debug = self.debug;
        options.kubeconfig.clone_from(&self.client.kubeconfig);
        options.push = Some(self.push.push(options.service));
        let process = runtime::start(options).await?;
        let renders = Renders::new(process.metrics())?;
        rendering::tell_events(move |event| match event {
            Event::Waited(time) => renders.waited(time),
            Event::Refused(reason) => renders.refused(reason),
            Event::Exceeded(limit) => renders.exceeded(limit),
        });

        let cluster = process.cluster().clone();
        let inspector = Inspector {
            charts: Charts::new(cluster.clone(), Limits::default())
                .with_registry_config(self.charts.helm_registry_config_path),
            schemas: composition::Schemas::default(),
            definitions: Definitions::default(),
            cluster,
            krateo_namespace: self.krateo_namespace,
        };
        let callers = self.authenticate.then(|| Callers::new(inspector.cluster.clone()));
        if callers.is_none() {
            tracing::warn!("authentication is off: every caller that reaches this service gets answers");
        }
        let state = Arc::new(Service::new(inspector, callers, process.metrics())?);
        let address = SocketAddr::from((Ipv4Addr::UNSPECIFIED, self.port));
        process.serve(address, app(state).merge(process.admin())).await?;
        process.readiness().set(true);
        process.shutdown().cancelled().await;
        process.finish(None).await;
        Ok(())
    }
}
