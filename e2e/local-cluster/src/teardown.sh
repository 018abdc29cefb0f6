# Ends a cluster and removes every trace of it, once its owner is gone.
# $1: the folder of the cluster.
#
# Standard input is a pipe that only the owner holds: it ends with the owner, however the owner ends.
# The word `keep` on it means that the cluster shall outlive its owner.
read -r word
[ "$word" = keep ] && exit 0

# If two try, the rename decides who does it. It also frees the name at once.
case $1 in
*.gone) folder=$1 ;;
*)
    folder=$(dirname "$1")/.$(basename "$1").$$.gone
    mv -T "$1" "$folder" 2>/dev/null || exit 0
    ;;
esac

# A pid with another start time is another process; a zombie has ended.
runs() {
    # shellcheck disable=SC2046
    set -- "$2" $(sed 's/.*) //' "/proc/$1/stat" 2>/dev/null | cut -d ' ' -f 1,20)
    [ "$1" = "$3" ] && [ "$2" != Z ]
}

remove_control_groups() {
    for group in /sys/fs/cgroup/"$1" /sys/fs/cgroup/*/"$1"; do
        [ -d "$group" ] && find "$group" -depth -type d -exec rmdir {} + 2>/dev/null
    done
    for group in /sys/fs/cgroup/"$1" /sys/fs/cgroup/*/"$1"; do
        [ -d "$group" ] && return 1
    done
    return 0
}

any_runs() {
    while read -r pid start; do
        runs "$pid" "$start" && return 0
    done <"$folder/processes"
    return 1
}

# The kernel removes the link some time after the namespace, but at once on request. The link of that name is certainly ours
# only while one of our processes exists.
if [ -s "$folder/link" ] && any_runs; then
    ip link delete "$(cat "$folder/link")" 2>/dev/null
fi

# Among these are the first processes of the nodes' process namespaces: when one ends, the kernel ends everything in its
# namespace, and then removes its mounts and its network.
# A program may be started while the list is read, so repeat until none on it runs.
attempts=0
while any_runs && [ $attempts -lt 100 ]; do
    while read -r pid start; do
        runs "$pid" "$start" && kill -KILL "$pid" 2>/dev/null
    done <"$folder/processes"
    attempts=$((attempts + 1))
    sleep 0.05
done

if [ -s "$folder/control-group" ]; then
    attempts=0
    until remove_control_groups "$(cat "$folder/control-group")" || [ $attempts -ge 100 ]; do
        attempts=$((attempts + 1))
        sleep 0.05
    done
fi

# The mounts were in the nodes' mount namespaces, so there are only files here, and no way to other files.
rm -rf --one-file-system "$folder"

# Between the rename and its end, a program may have created its folder again. A real cluster has a record from the start.
[ -f "$1/cluster.json" ] || rm -rf --one-file-system "$1"
