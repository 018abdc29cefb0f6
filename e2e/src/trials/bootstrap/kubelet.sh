# Stands for the kubelet's unit: starts it again and again, from when kubeadm has written its configuration.
keep() {
    while :; do
        if [ -f /var/lib/kubelet/config.yaml ]; then
            [ -f /var/lib/kubelet/kubeadm-flags.env ] && . /var/lib/kubelet/kubeadm-flags.env
            # shellcheck disable=SC2086
            kubelet --bootstrap-kubeconfig=/etc/kubernetes/bootstrap-kubelet.conf \
                --kubeconfig=/etc/kubernetes/kubelet.conf --config=/var/lib/kubelet/config.yaml \
                --hostname-override="$(hostname)" $KUBELET_KUBEADM_ARGS
        fi
        sleep 0.5
    done
}
keep >>"$KUBELET_LOG" 2>&1 &
