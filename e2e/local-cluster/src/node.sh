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
