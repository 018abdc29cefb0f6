//! The flags of `kco cluster`.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Subcommand};

use super::rules;
use crate::args::Source;
use crate::release::args::{Connection, Output};

/// Verbs on the clusters of the multicluster operator.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Let the operator work on another cluster: make an account there with the least it needs, and tell the operator.
    Join(Box<Join>),
    /// List the clusters that the operator is told of, and how it stands to each.
    #[command(visible_alias = "ls")]
    List(Box<List>),
    /// Take a cluster away from the operator, and remove its account there.
    Leave(Box<Leave>),
}

/// Which cluster is the other one.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Target")]
pub(crate) struct Target {
    /// Context of the kubeconfig that leads to the target, as somebody who may write roles there.
    #[arg(long, required_unless_present = "target_kubeconfig")]
    pub(crate) context: Option<String>,
    /// The target's kubeconfig file, when it is not the one of home.
    #[arg(long = "target-kubeconfig", id = "target_kubeconfig", value_name = "FILE")]
    pub(crate) file: Option<PathBuf>,
    /// Namespace of the account on the target; it is made where it is missing.
    #[arg(long, value_name = "NAMESPACE", default_value = "multicluster-operator")]
    pub(crate) account_namespace: String,
}

/// What to join.
#[derive(Debug, Args)]
pub(crate) struct Join {
    /// Name of the cluster, and of its Secret.
    pub(crate) name: String,
    #[command(flatten)]
    pub(crate) target: Target,
    /// The target's address as the operator reaches it, when it is not that of the kubeconfig: https://HOST:PORT.
    #[arg(long, value_name = "URL", help_heading = "Target")]
    pub(crate) server: Option<String>,
    /// How long a token lasts; the operator renews it after half of that. The target may have a shorter longest time.
    #[arg(long, default_value = "168h", value_parser = lifetime)]
    pub(crate) lifetime: Duration,
    /// The operator's chart: a folder, an archive, a URL, an OCI reference, or with --repo a name. The account may write the
    /// kinds that a scan finds in it.
    #[arg(long, required_unless_present = "cluster_role")]
    pub(crate) chart: Option<String>,
    #[command(flatten)]
    pub(crate) source: Source,
    /// The chart may bring roles and bindings: the account gets all that they hold, and may give it on.
    #[arg(long)]
    pub(crate) allow_chart_rbac: bool,
    /// Give the account this `ClusterRole` of the target as well (can specify multiple).
    #[arg(long, value_name = "NAME")]
    pub(crate) cluster_role: Vec<String>,
    /// Namespaces at home whose `KryptonDeployments` may use this cluster, separated by commas; "*" stands for all. Those in
    /// the operator's namespace may anyway.
    #[arg(long, value_name = "NAMESPACE", value_delimiter = ',')]
    pub(crate) allow_from: Vec<String>,
    /// The operator's `--kubeconfig-key`: the key of the kubeconfig in the Secret.
    #[arg(long, value_name = "KEY", default_value = cluster::kubeconfig::KEY)]
    pub(crate) kubeconfig_key: String,
    /// Print what would be written to the target, and write nothing.
    #[arg(long)]
    pub(crate) dry_run: bool,
    #[command(flatten)]
    pub(crate) connection: Connection,
}

/// What to list.
#[derive(Debug, Args)]
pub(crate) struct List {
    /// The operator's `--kubeconfig-key`: the key of the kubeconfig in the Secrets.
    #[arg(long, value_name = "KEY", default_value = cluster::kubeconfig::KEY)]
    pub(crate) kubeconfig_key: String,
    #[command(flatten)]
    pub(crate) output: Output,
    #[command(flatten)]
    pub(crate) connection: Connection,
}

/// What to take away.
#[derive(Debug, Args)]
pub(crate) struct Leave {
    /// Name of the cluster.
    pub(crate) name: String,
    /// Context of the kubeconfig that leads to the target.
    #[arg(
        long,
        required_unless_present_any = ["target_kubeconfig", "home_only"],
        help_heading = "Target"
    )]
    pub(crate) context: Option<String>,
    /// The target's kubeconfig file, when it is not the one of home.
    #[arg(long, value_name = "FILE", help_heading = "Target")]
    pub(crate) target_kubeconfig: Option<PathBuf>,
    /// The target is gone: remove what is at home alone.
    #[arg(long, conflicts_with_all = ["context", "target_kubeconfig"])]
    pub(crate) home_only: bool,
    /// Leave although Tenants or `KryptonDeployments` are still there. Their releases stay on the target, and nobody removes them.
    #[arg(long)]
    pub(crate) keep_releases: bool,
    #[command(flatten)]
    pub(crate) connection: Connection,
}

/// `168h`, `10m0s`: what a token may last.
fn lifetime(text: &str) -> Result<Duration, String> {
    let parsed: Result<jiff::SignedDuration, _> = text.parse();
    let duration = parsed
        .ok()
        .and_then(|duration| Duration::try_from(duration).ok())
        .ok_or_else(|| format!("invalid duration {text:?}: write it as 168h or 30m"))?;
    let (least, most) = (rules::SHORTEST_TOKEN, rules::LONGEST_TOKEN);
    if duration < least || duration > most {
        return Err(format!(
            "{text} is out of range: a token lasts {} minutes at least and {} days at most",
            least.as_secs() / 60,
            most.as_secs() / 86_400
        ));
    }
    Ok(duration)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_lasts_ten_minutes_to_a_year() {
        assert_eq!(lifetime("168h"), Ok(Duration::from_hours(168)));
        assert_eq!(lifetime("10m"), Ok(Duration::from_mins(10)));
        for bad in ["9m59s", "9000h", "-1h", "week", ""] {
            assert!(lifetime(bad).is_err(), "{bad}");
        }
    }
}
