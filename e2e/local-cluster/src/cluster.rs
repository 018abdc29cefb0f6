//! A Kubernetes with nodes, pods, Services, DNS and a registry.

use std::{
    ffi::OsStr,
    fs,
    net::{Ipv4Addr, SocketAddrV4},
    ops::Deref,
    os::unix::fs::MetadataExt,
    path::Path,
    process::Command,
    time::Instant,
};

use anyhow::{Context, Result, ensure};

use crate::{
    certificates::Authority,
    control_plane::{ControlPlane, Options, PATIENCE, Ports, Site},
    dns,
    image::{self, Buildah},
    network::{self, Addresses},
    node::{self, Node},
    packages, parts,
    process::output,
    registry,
    state::{NodeRecord, Size, StateFolder, unique_suffix},
    wait,
};

/// A whole Kubernetes in network namespaces of its own: the control plane and the registry on the first node,
/// pods on all of them. Needs root.
///
/// It is a [`ControlPlane`] and more, so it has all of its methods. It ends in the same way: with the value, or with
/// the process.
#[derive(Debug)]
pub struct Cluster {
    plane: ControlPlane,
}

impl Deref for Cluster {
    type Target = ControlPlane;

    fn deref(&self) -> &ControlPlane {
        &self.plane
    }
}

impl Cluster {
    /// Starts a cluster and waits until pods can be used: every node is ready and the DNS answers.
    ///
    /// # Errors
    /// If this user is not root, a package is missing, a part cannot be built or a program does not start; the message
    /// says which, and includes the end of its log.
    pub fn start(options: Options) -> Result<Self> {
        ensure!(
            is_root()?,
            "a cluster needs root, for its network namespaces and containers; a control plane does not"
        );
        packages::require(&packages::NODES)?;
        let network_policies = options.network_policies;
        if network_policies {
            packages::require(&packages::NETWORK_POLICIES)?;
        }
        let count = options.nodes.max(1);
        ensure!(
            count <= network::MOST_NODES,
            "a cluster has at most {} nodes",
            network::MOST_NODES
        );
        let mut plane = ControlPlane::prepare(&options, Size::Cluster)?;
        let started = Instant::now();
        let nodes: Vec<Node> = (1..=count)
            .map(|number| Node::boot(&plane, number))
            .collect::<Result<_>>()?;
        let inits: Vec<_> = nodes.iter().map(Node::init).collect();
        let addresses = network::connect(&inits, options.many_services, |link| {
            plane.home.write("link", link).map(drop)
        })?;
        plane.phase("network", started);

        let authority = launch(&mut plane, options, &nodes, addresses)?;
        for node in &nodes {
            node.import_base_images(&plane)?;
        }
        plane.phase("containerd with images", started);
        plane.await_api_server()?;
        plane.phase("API server ready", started);
        plane.launch_controllers(nodes[0].location(), true)?;

        let control_group = format!("kco-{}", unique_suffix());
        plane.home.write("control-group", &control_group)?;
        for node in &nodes {
            node.join(&plane, &authority, addresses, &control_group)?;
        }
        plane.apply(&dns::manifests(addresses.dns()))?;
        await_nodes(&plane, count)?;
        plane.phase("nodes ready", started);
        if network_policies {
            for node in &nodes {
                node.enforce_network_policies(&plane, &authority, addresses)?;
            }
        }
        await_dns(&plane)?;
        plane.phase("DNS ready", started);
        plane.await_default_service_account()?;
        plane.declare_ready()?;
        Ok(Self { plane })
    }

    /// An existing cluster, by name; dropping the value does not end it.
    ///
    /// # Errors
    /// When there is none of that name, it is not ready, or it has no nodes.
    pub fn open(name: &str) -> Result<Self> {
        let plane = ControlPlane::open_in(&StateFolder::of_user()?, name)?;
        ensure!(
            plane.record().size == Size::Cluster,
            "{name} is a control plane; it has no nodes"
        );
        Ok(Self { plane })
    }

    /// `host:port` of the registry: the same for the host, for image references and for pods; plain HTTP.
    pub fn registry(&self) -> &str {
        self.plane.record().registry.as_deref().unwrap_or_default()
    }

    /// The host's end of the link: nodes and pods can reach what listens there.
    ///
    /// # Errors
    /// When the registry, which is on the same link, has no address.
    pub fn host_address(&self) -> Result<Ipv4Addr> {
        let registry: SocketAddrV4 = self
            .registry()
            .parse()
            .with_context(|| format!("{:?} is no address", self.registry()))?;
        let [a, b, cluster, _] = registry.ip().octets();
        Ok(Ipv4Addr::new(a, b, cluster, 1))
    }

    /// The nodes.
    pub fn nodes(&self) -> &[NodeRecord] {
        &self.plane.record().nodes
    }

    /// Imports an OCI archive into every node. Pods name the image as the archive does, with
    /// `imagePullPolicy: Never` or `IfNotPresent`.
    ///
    /// # Errors
    /// When it is no archive of an image.
    pub fn load_image(&self, archive: &Path) -> Result<()> {
        let archive = archive
            .canonicalize()
            .with_context(|| format!("could not find {}", archive.display()))?;
        // A node does not see every folder of the host, but it sees its own.
        let copy = self.plane.home.path("loading.tar");
        fs::copy(&archive, &copy)?;
        for node in self.nodes() {
            node::import(&self.plane, node.init, &copy)
                .with_context(|| format!("could not load {} into {}", archive.display(), node.name))?;
        }
        fs::remove_file(copy)?;
        Ok(())
    }

    /// Imports an image of this user's `buildah` storage into every node, under the same name.
    ///
    /// # Errors
    /// When there is no such image.
    pub fn load_reference(&self, reference: &str) -> Result<()> {
        let archive = self.plane.home.path("exported.tar");
        image::export(reference, &archive)?;
        self.load_image(&archive)?;
        fs::remove_file(archive)?;
        Ok(())
    }

    /// Builds a Dockerfile, pushes the image to the cluster's registry and gives the reference that pods use.
    ///
    /// `arguments` go to `buildah build` as they are (`--target`, `--build-arg`); `tag` is `name:version`.
    ///
    /// # Errors
    /// When the build or the push fails; the message has what buildah said.
    pub fn build_image(
        &self,
        dockerfile: &Path,
        context: &Path,
        arguments: &[&str],
        tag: &str,
    ) -> Result<String> {
        let reference = format!("{}/{tag}", self.registry());
        let buildah = Buildah::at(self.plane.home.path("buildah"));
        buildah.build(dockerfile, context, arguments, &reference)?;
        buildah.push(&reference, true)?;
        Ok(reference)
    }

    /// A command that runs in the network namespace of a node (`node-1` is 0 in [`Cluster::nodes`]), and otherwise as
    /// on the host: it reaches pods and Services as the node does.
    pub fn exec_in_node<A: AsRef<OsStr>>(
        &self,
        node: &NodeRecord,
        command_line: impl IntoIterator<Item = A>,
    ) -> Command {
        let mut command = network::inside(node.init);
        command
            .args(command_line)
            .env("KUBECONFIG", self.plane.kubeconfig());
        command
    }

    /// Lets the cluster outlive this process, until `local-cluster down`.
    ///
    /// # Errors
    /// When that cannot be written down.
    pub fn detach(self) -> Result<()> {
        self.plane.detach()
    }
}

/// Starts the control plane and the registry on the first node, and the runtime on each.
fn launch(
    plane: &mut ControlPlane,
    options: Options,
    nodes: &[Node],
    addresses: Addresses,
) -> Result<Authority> {
    let first = &nodes[0];
    let address = addresses.node(1);
    let site = Site {
        location: first.location(),
        address,
        ports: Ports {
            api_server: 6443,
            etcd: 2379,
            etcd_peers: 2380,
        },
        services: addresses.services(),
        has_nodes: true,
    };
    let registry = format!("{address}:{}", registry::PORT);
    plane.home.record.registry = Some(registry.clone());
    plane.home.record.nodes = nodes.iter().map(|node| node.record(addresses)).collect();
    let authority = plane.certify(&site)?;
    plane.home.save()?;
    plane.launch(&site, options.api_server_arguments)?;
    for node in nodes {
        node.start_runtime(plane, addresses, &registry)?;
    }
    start_registry(plane, first, address)?;
    Ok(authority)
}

fn start_registry(plane: &ControlPlane, node: &Node, address: Ipv4Addr) -> Result<()> {
    let storage = plane.home.path("registry");
    let config = plane
        .home
        .write("registry.yaml", &registry::config(address, &storage))?;
    plane.run(
        &parts::REGISTRY,
        "registry",
        node.location(),
        vec!["serve".into(), config.display().to_string()],
        &registry::ENVIRONMENT,
    )
}

fn await_nodes(plane: &ControlPlane, count: usize) -> Result<()> {
    wait::until("the nodes", PATIENCE, || {
        plane.check()?;
        let ready = output(&mut plane.kubectl([
            "get",
            "nodes",
            "--output=jsonpath={range .items[*]}{.status.conditions[?(@.type==\"Ready\")].status}{\"\\n\"}{end}",
        ]))?;
        Ok((ready.lines().filter(|line| *line == "True").count() == count).then_some(()))
    })
}

fn await_dns(plane: &ControlPlane) -> Result<()> {
    wait::until("the DNS", PATIENCE, || {
        plane.check()?;
        let available = output(&mut plane.kubectl([
            "get",
            "deployment",
            "coredns",
            "--namespace=kube-system",
            "--output=jsonpath={.status.availableReplicas}",
        ]))?;
        Ok((available == "1").then_some(()))
    })
}

/// The owner of a process' folder in /proc is its effective user.
pub(crate) fn is_root() -> Result<bool> {
    Ok(fs::metadata("/proc/self")?.uid() == 0)
}
