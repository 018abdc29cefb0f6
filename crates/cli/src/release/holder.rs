//! The identity of this process in a release's Lease, and the cleanup of a Lease that a killed process left behind.

use std::fs;

use anyhow::Result;
use cluster::{Cluster, Delete, ObjectId};
use k8s_openapi::api::coordination::v1::Lease;

/// The identity of a process: `kco/<host>/<boot>/<process namespace>/<process>/<start>`.
///
/// Process numbers are reused; together with the boot and the start time they are unique.
const PREFIX: &str = "kco";

/// The identity of this process.
pub(super) fn own() -> String {
    let pid = std::process::id();
    let start = started(pid).unwrap_or_default();
    format!("{PREFIX}/{}/{pid}/{start}", machine().unwrap_or_default())
}

/// Deletes the Lease of a release if nobody holds it, or if its holder is a process of this machine that has ended:
/// then nobody has to wait until it expires, and a command that was killed at its very end leaves nothing behind.
///
/// # Errors
/// If the Lease cannot be read or deleted.
pub(super) async fn clear(cluster: &Cluster, namespace: &str, lease: &str) -> Result<()> {
    let id = ObjectId::of::<Lease>(Some(namespace), lease)?;
    let Some(found) = cluster.get::<Lease>(&id).await? else {
        return Ok(());
    };
    let holder = found
        .spec
        .and_then(|spec| spec.holder_identity)
        .unwrap_or_default();
    let is_nobodys = holder.is_empty() || has_ended(&holder) == Some(true);
    if let (true, Some(uid)) = (is_nobodys, &found.metadata.uid) {
        cluster.delete(&id, &Delete::default().uid(uid)).await?;
    }
    Ok(())
}

/// Whether a process of this machine has ended; none for processes of other machines.
fn has_ended(holder: &str) -> Option<bool> {
    let rest = holder.strip_prefix(PREFIX)?.strip_prefix('/')?;
    let (pid, start) = rest
        .strip_prefix(&machine()?)?
        .strip_prefix('/')?
        .split_once('/')?;
    let pid: u32 = pid.parse().ok()?;
    Some(started(pid).is_none_or(|now| now != start))
}

/// `<host>/<boot>/<process namespace>`; none if the system does not provide them.
fn machine() -> Option<String> {
    let read = |path: &str| fs::read_to_string(path).ok().map(|text| text.trim().to_owned());
    let host = read("/proc/sys/kernel/hostname")?;
    let boot = read("/proc/sys/kernel/random/boot_id")?;
    let namespace = fs::read_link("/proc/self/ns/pid").ok()?;
    let namespace: String = namespace
        .to_string_lossy()
        .chars()
        .filter(char::is_ascii_digit)
        .collect();
    Some(format!("{host}/{boot}/{namespace}"))
}

/// When a process started, in clock ticks since boot; none if it does not exist or has ended.
fn started(pid: u32) -> Option<String> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The second field, the name, may contain spaces and parentheses.
    let mut fields = stat.rsplit_once(") ")?.1.split(' ');
    let state = fields.next()?;
    (state != "Z").then(|| fields.nth(18).map(str::to_owned))?
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_is_gone_once_it_has_ended() {
        let own = own();
        assert_eq!(has_ended(&own), Some(false));
        let (process, _) = own.rsplit_once('/').unwrap();
        assert_eq!(has_ended(&format!("{process}/1")), Some(true));
        assert_eq!(has_ended("kco/elsewhere/1/2/3/4"), None);
        assert_eq!(has_ended("composition-dynamic-controller-7f"), None);
    }
}
