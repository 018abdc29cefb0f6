//! The cluster's OCI registry: plain HTTP, at one address for the host, the nodes and the pods.

use std::{net::Ipv4Addr, path::Path};

pub(crate) const PORT: u16 = 5000;

/// Its configuration.
pub(crate) fn config(address: Ipv4Addr, storage: &Path) -> String {
    format!(
        "version: 0.1\n\
         log: {{level: warn}}\n\
         storage:\n  \
           filesystem: {{rootdirectory: \"{}\"}}\n  \
           delete: {{enabled: true}}\n\
         http: {{addr: \"{address}:{PORT}\"}}\n",
        storage.display()
    )
}

/// It would look for a collector of traces.
pub(crate) const ENVIRONMENT: [(&str, &str); 1] = [("OTEL_TRACES_EXPORTER", "none")];

/// What containerd is told about it (`hosts.toml`): that it speaks plain HTTP.
pub(crate) fn hosts_file(registry: &str) -> String {
    format!(
        "server = \"http://{registry}\"\n\
         [host.\"http://{registry}\"]\n\
         capabilities = [\"pull\", \"resolve\"]\n"
    )
}
