# Starts a program of a cluster: writes itself down first, so that no moment exists in which the
# program runs and nobody who cleans up would know of it.
# When the list is gone the cluster is being removed, and nothing starts any more.
# $1: the list of processes; the rest: the program and its arguments.
list=$1
shift
echo "$$ $(sed 's/.*) //' "/proc/$$/stat" | cut -d ' ' -f 20)" >>"$list" || exit 1
exec "$@"
