# Makes of this namespace a node with folders, a hostname and a container runtime of its own. Read by the others.
# $SITE: the folder of the trial; $1: the number of the node.
prepare() {
    number=$1
    mount -t tmpfs tmpfs /mnt
    mkdir /mnt/etc
    cp -a /etc/. /mnt/etc/
    rm -rf /mnt/etc/kubernetes /mnt/etc/cni
    mount --bind /mnt/etc /etc
    hostname "node-$number"
    echo "198.18.0.$((number + 1)) node-$number" >>/etc/hosts
    for hidden in /run /var/lib /var/log; do
        mount -t tmpfs -o mode=755 tmpfs "$hidden"
    done
    # The kubelet sets these for the whole machine; here it sets copies.
    for tunable in vm/overcommit_memory vm/panic_on_oom kernel/panic kernel/panic_on_oops \
        kernel/keys/root_maxkeys kernel/keys/root_maxbytes; do
        mkdir -p "/run/tunables/$tunable"
        cat "/proc/sys/$tunable" >"/run/tunables/$tunable/value"
        mount --bind "/run/tunables/$tunable/value" "/proc/sys/$tunable"
    done
    echo 1 >/proc/sys/net/ipv4/ip_forward
    ip link set lo up
    # Two kubelets that share a control group end each other's pods.
    group="$(basename "$SITE")-node-$number"
    for hierarchy in /sys/fs/cgroup /sys/fs/cgroup/*; do
        [ -e "$hierarchy/cgroup.procs" ] && mkdir -p "$hierarchy/$group"
    done
    mkdir -p "$SITE/patches-$number"
    sed "s|CONTROL_GROUP|/$group|; s|RESOLV|$SITE/resolv.conf|" "$SITE/kubelet.json" \
        >"$SITE/patches-$number/kubeletconfiguration+merge.json"
    run_containerd "$number"
    for image in "$SITE"/images/*.tar; do
        ctr --namespace k8s.io images import "$image"
    done
    bootstrapper attestation-key --endorser "$SITE/endorser.key" >"$SITE/fingerprint.part-$number"
    mv "$SITE/fingerprint.part-$number" "$SITE/fingerprint-$number"
}

# $1: the number of the node.
run_containerd() {
    sed "s|FOLDER|$SITE/node-$1|" "$SITE/containerd.toml" >/run/containerd.toml
    containerd --config /run/containerd.toml >>"$SITE/containerd-$1.log" 2>&1 &
    for _ in $(seq 100); do
        ctr --namespace k8s.io version >/dev/null 2>&1 && break
        sleep 0.1
    done
}

# $1: the number of the node; $2: its role; $3: where it looks for the join service.
bootstrap() {
    cat >/run/metadata.json <<METADATA
{"name": "node-$1", "role": "$2", "address": "198.18.0.$(($1 + 1))", "controlPlanes": $3, "initSecretHash": "$(cat "$SITE/hash")"}
METADATA
    bootstrapper run --attestation soft-tpm --endorser "$(cat "$SITE/endorser.pub")" --metadata /run/metadata.json \
        --kubeadm "$SITE/bin/kubeadm" --start-kubelet "sh $SITE/kubelet.sh" --kubeadm-patches "$SITE/patches-$1" \
        --ignore-preflight-check SystemVerification >"$SITE/bootstrapper-$1.log" 2>&1
}
