# The last steps of a node and of a bare machine, after node.sh and machine.sh, which set $program.
# The kubelet sets these for the whole machine; here it sets copies.
for tunable in vm/overcommit_memory vm/panic_on_oom kernel/panic kernel/panic_on_oops \
    kernel/keys/root_maxkeys kernel/keys/root_maxbytes; do
    mkdir -p "/run/tunables/$tunable"
    cat "/proc/sys/$tunable" >"/run/tunables/$tunable/value"
    mount --bind "/run/tunables/$tunable/value" "/proc/sys/$tunable"
done
echo 1 >/proc/sys/net/ipv4/ip_forward
exec "$program"
