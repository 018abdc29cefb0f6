# The first process of a node: gives the node folders of its own where programs have built-in paths,
# then waits and reaps.
# $1: the program to become; the rest: folders that stay as they are.
set -e
program=$1
shift
mount -t tmpfs tmpfs /mnt
kept=0
for folder in "$@"; do
    kept=$((kept + 1))
    mkdir "/mnt/$kept"
    mount --bind "$folder" "/mnt/$kept"
done
for hidden in /run /var/lib /var/log; do
    mount -t tmpfs -o mode=755 tmpfs "$hidden"
done
kept=0
for folder in "$@"; do
    kept=$((kept + 1))
    mkdir -p "$folder"
    mount --bind "/mnt/$kept" "$folder"
    umount "/mnt/$kept"
done
umount /mnt
# The kubelet sets these for the whole machine; here it sets copies.
for tunable in vm/overcommit_memory vm/panic_on_oom kernel/panic kernel/panic_on_oops \
    kernel/keys/root_maxkeys kernel/keys/root_maxbytes; do
    mkdir -p "/run/tunables/$tunable"
    cat "/proc/sys/$tunable" >"/run/tunables/$tunable/value"
    mount --bind "/run/tunables/$tunable/value" "/proc/sys/$tunable"
done
echo 1 >/proc/sys/net/ipv4/ip_forward
exec "$program"
