# The first node: becomes a cluster by kco init, and runs the join service for a worker and another control plane.
set -e
. "$SITE/prepare.sh"
bootstrapper endorser "$SITE/endorser.key" >"$SITE/endorser.pub"
prepare 1
ip link add eth0 type bridge
ip address add 198.18.0.2/24 dev eth0
ip link set eth0 up
ip link add first type veth peer name second
ip link set first master eth0 up
ip link set second up
ip route add default dev eth0
bootstrap 1 controlPlane '[]' &
bootstrapper=$!
stage() { echo "$(date +%s.%N) $1" >>"$SITE/stages"; }
stage 'nodes are bare'
init() {
    kco init 198.18.0.2 --attestation soft-tpm --endorser "$(cat "$SITE/endorser.pub")" --init-secret "$SITE/secret" \
        --service-cidr 198.19.0.0/16 --name trial --apiserver-san 198.18.0.4,api.trial.test \
        --retry-interval 1 --output "$SITE/cluster" --skip-platform "$@"
}
# What kubeadm does not take is refused before the node is locked, so that the right request comes in time.
for wrong in '--kubernetes-version v1.10.0 --pod-cidr 198.18.64.0/22' '--kubernetes-version v1.99.0 --pod-cidr 198.18.64.0/22' "--kubernetes-version $VERSION --pod-cidr 198.18.64.0/31"; do
    # shellcheck disable=SC2086
    if init $wrong 2>"$SITE/refused"; then
        echo "kco init $wrong was taken" >&2
        exit 1
    fi
    cat "$SITE/refused"
    grep -q 'kubeadm does not take the request' "$SITE/refused"
done
stage 'wrong requests refused'
init --kubernetes-version "$VERSION" --pod-cidr 198.18.64.0/22
wait "$bootstrapper"
stage 'cluster made'
export KUBECONFIG="$SITE/cluster/admin.conf"
kubectl apply --filename "$SITE/joiningnodes.yaml"
kubectl create configmap join-service-control-planes --namespace kube-system
mkdir /run/master-secret
for key in key salt measurementSalt; do
    kubectl get secret join-service-master-secret --namespace kube-system --output "jsonpath={.data.$key}" |
        base64 -d >"/run/master-secret/$key"
done
join-service --attestation soft-tpm --endorser "$(cat "$SITE/endorser.pub")" --kubeconfig "$KUBECONFIG" \
    --listen 198.18.0.2:30090 --admin-port 0 --master-secret-dir /run/master-secret >"$SITE/join-service.log" 2>&1 &
for node in '2 worker' '3 controlPlane'; do
    # shellcheck disable=SC2086
    set -- $node
    unshare --mount --pid --fork --kill-child --mount-proc --net --uts --propagation private \
        bash "$SITE/join.sh" "$1" "$2" >"$SITE/node-$1.log" 2>&1 &
    namespace=$!
    init=
    while [ -z "$init" ]; do
        init=$(tr -d ' ' <"/proc/$namespace/task/$namespace/children")
    done
    # Not before it has left this namespace.
    while [ "$(readlink "/proc/$init/ns/net")" = "$(readlink /proc/self/ns/net)" ]; do sleep 0.05; done
    while [ ! -e "$SITE/fingerprint-$1" ]; do
        [ -e "/proc/$init" ] || exit 1
        sleep 0.05
    done
    if [ "$2" = controlPlane ]; then
        kubectl patch configmap join-service-control-planes --namespace kube-system --type merge \
            --patch "{\"data\": {\"node-$1\": \"$(cat "$SITE/fingerprint-$1")\"}}"
    fi
    ip link add "link-$1" type veth peer name eth0 netns "$init"
    ip link set "link-$1" master eth0 up
    while [ ! -e "$SITE/joined-$1" ]; do
        [ -e "/proc/$init" ] || exit 1
        sleep 0.1
    done
    stage "$2 joined"
done
cp /var/lib/bootstrapper/record.json "$SITE/record-1.json"
cp /var/lib/bootstrapper/registers "$SITE/registers-1"
# A node that joined is one as soon as its kubelet has said so.
for _ in $(seq 100); do
    kubectl get nodes --output json >"$SITE/nodes.json"
    [ "$(kubectl get nodes --output name | wc -l)" = 3 ] && break
    sleep 0.2
done
kubectl get --raw /readyz >"$SITE/readyz"
stage 'all nodes are known'
