# A bare node that joins. $1: its number; $2: its role.
set -e
. "$SITE/prepare.sh"
prepare "$1"
# The other end is on the first node's bridge, which its namespace makes.
for _ in $(seq 100); do
    ip link show eth0 >/dev/null 2>&1 && break
    sleep 0.1
done
ip address add "198.18.0.$(($1 + 1))/24" dev eth0
ip link set eth0 up
ip route add default dev eth0
bootstrap "$1" "$2" '["198.18.0.2"]'
bootstrapper unlock --attestation soft-tpm --endorser "$(cat "$SITE/endorser.pub")" --metadata /run/metadata.json
cp /var/lib/bootstrapper/record.json "$SITE/record-$1.json"
cp /var/lib/bootstrapper/registers "$SITE/registers-$1"
touch "$SITE/joined-$1"
# Until the trial ends.
sleep infinity
