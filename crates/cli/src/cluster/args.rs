//! The flags of `kco cluster`.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Subcommand};

use super::rules;
use crate::args::Source;
use crate::release::args::{Connection, Output};

/// The subcommands of `kco cluster`.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Add a cluster: create an account with the least permissions there, and store its kubeconfig for the operator.
    Join(Box<Join>),
    /// List the operator's clusters and the state of each.
    #[command(visible_alias = "ls")]
    List(Box<List>),
    /// Remove a cluster, and the operator's account there.
    Leave(Box<Leave>),
}

/// How to reach the target.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Target")]
pub(crate) struct Target {
    /// Context of the kubeconfig for the target, with a user who may write roles there.
    #[arg(long, required_unless_present = "target_kubeconfig")]
    pub(crate) context: Option<String>,
    /// The target's kubeconfig file, if it is not the same as home's.
    #[arg(long = "target-kubeconfig", id = "target_kubeconfig", value_name = "FILE")]
    pub(crate) file: Option<PathBuf>,
    /// Namespace of the account on the target; it is created if it does not exist.
    #[arg(long, value_name = "NAMESPACE", default_value = "multicluster-operator")]
    pub(crate) account_namespace: String,
}

/// The arguments of `join`.
#[derive(Debug, Args)]
pub(crate) struct Join {
    /// Name of the cluster, and of its Secret.
    pub(crate) name: String,
    #[command(flatten)]
    pub(crate) target: Target,
    /// Address at which the operator reaches the target, if it is not the one in the kubeconfig: https://HOST:PORT.
    #[arg(long, value_name = "URL", help_heading = "Target")]
    pub(crate) server: Option<String>,
    /// Lifetime of a token; the operator renews it after half of that. The target may limit it further.
    #[arg(long, default_value = "168h", value_parser = lifetime)]
    pub(crate) lifetime: Duration,
    /// The chart that the operator releases: a folder, an archive, a URL, an OCI reference, or a name with --repo. The
    /// account may write the kinds that a scan finds in it.
    #[arg(long, required_unless_present = "cluster_role")]
    pub(crate) chart: Option<String>,
    #[command(flatten)]
    pub(crate) source: Source,
    /// Allow roles and bindings in the chart: the account gets all the permissions in them, and may grant them.
    #[arg(long)]
    pub(crate) allow_chart_rbac: bool,
    /// Bind this `ClusterRole` of the target to the account as well (can specify multiple).
    #[arg(long, value_name = "NAME")]
    pub(crate) cluster_role: Vec<String>,
    /// Namespaces at home, separated by commas, whose `KryptonDeployments` may use this cluster; "*" means all. Those
    /// in the operator's namespace always may.
    #[arg(long, value_name = "NAMESPACE", value_delimiter = ',')]
    pub(crate) allow_from: Vec<String>,
    /// The operator's `--kubeconfig-key`: the key of the kubeconfig in the Secret.
    #[arg(long, value_name = "KEY", default_value = cluster::kubeconfig::KEY)]
    pub(crate) kubeconfig_key: String,
    /// Print what would be written to the target, without writing anything.
    #[arg(long)]
    pub(crate) dry_run: bool,
    #[command(flatten)]
    pub(crate) connection: Connection,
}

/// The arguments of `list`.
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

/// The arguments of `leave`.
#[derive(Debug, Args)]
pub(crate) struct Leave {
    /// Name of the cluster.
    pub(crate) name: String,
    /// Context of the kubeconfig for the target.
    #[arg(
        long,
        required_unless_present_any = ["target_kubeconfig", "home_only"],
        help_heading = "Target"
    )]
    pub(crate) context: Option<String>,
    /// The target's kubeconfig file, if it is not the same as home's.
    #[arg(long, value_name = "FILE", help_heading = "Target")]
    pub(crate) target_kubeconfig: Option<PathBuf>,
    /// The target no longer exists: remove only what is at home.
    #[arg(long, conflicts_with_all = ["context", "target_kubeconfig"])]
    pub(crate) home_only: bool,
    /// Leave although Tenants or `KryptonDeployments` still use the cluster. Their releases stay on the target, and
    /// nothing removes them.
    #[arg(long)]
    pub(crate) keep_releases: bool,
    #[command(flatten)]
    pub(crate) connection: Connection,
}

/// The lifetime of a token: `168h`, `10m0s`.
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
