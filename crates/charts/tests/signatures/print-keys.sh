#!/usr/bin/env bash
# Prints private keys of many kinds anew, with gpg 2.2: for tests alone, they sign nothing that anybody trusts.
#
# Each is secret/<name>.secret, as gpg --export-secret-keys writes it, with <name>.public as gpg --export writes it. Those
# called *-locked have the passphrase "tiger". rsa.kbx and rsa.asc are the keys of rsa.public as a keybox and armored.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
out=$here/secret
work=$(mktemp -d)
trap 'for home in "$work"/*/; do gpgconf --homedir "$home" --kill all; done; rm -rf "$work"' EXIT
rm -rf "$out"
mkdir "$out"
made=20260101T000000

# on NAME PASSPHRASE gpg's arguments: in a home of its own, where a passphrase is hashed over as few bytes as can be.
on() {
    local home=$work/$1 passphrase=$2
    shift 2
    if [ ! -d "$home" ]; then
        mkdir -m 700 "$home"
        echo "s2k-count 1024" >"$home/gpg-agent.conf"
    fi
    gpg --quiet --batch --no-tty --homedir "$home" --pinentry-mode loopback --passphrase "$passphrase" \
        --faked-system-time "$made!" "$@"
}
written() {
    on "$1" "$2" --export-secret-keys >"$out/$1.secret"
    on "$1" "$2" --export >"$out/$1.public"
}
signer="Signer <signer@example.com>"
for kind in rsa:rsa2048 ed25519:ed25519 nistp256:nistp256 nistp384:nistp384; do
    name=${kind%%:*}
    on "$name-locked" tiger --quick-gen-key "$signer" "${kind##*:}" sign never
    written "$name-locked" tiger
done
for kind in rsa:rsa2048 ed25519:ed25519; do
    on "${kind%%:*}" "" --quick-gen-key "$signer" "${kind##*:}" sign never
    written "${kind%%:*}" ""
done
cp "$work/rsa/pubring.kbx" "$out/rsa.kbx"
on rsa "" --export --armor >"$out/rsa.asc"
on rsa "" --export-secret-keys --armor >"$out/rsa.secret.asc"
on ed25519-other "" --quick-gen-key "Other <other@example.com>" ed25519 sign never
written ed25519-other ""

# A primary key that may not sign, and one whose private part is elsewhere.
for name in subkey-locked elsewhere; do
    usage=cert
    [ $name = elsewhere ] && usage=sign
    on $name tiger --quick-gen-key "$signer" ed25519 $usage never
    fingerprint=$(on $name tiger --with-colons --list-keys | awk -F: '$1 == "fpr" { print $10; exit }')
    case $name in
    subkey-locked) on $name tiger --quick-add-key "$fingerprint" ed25519 sign never ;;
    elsewhere) on $name tiger --quick-add-key "$fingerprint" cv25519 encr never ;;
    esac
done
written subkey-locked tiger
on elsewhere tiger --export-secret-subkeys >"$out/elsewhere.secret"

# What gpg 2.2 does not export itself: AES-256 with a passphrase hashed by SHA-256, and another cipher. The head of the
# first packet is two bytes long.
bytes() { xxd -r -p; }
hex() { xxd -p | tr -d '\n'; }
whole=$(hex <"$out/ed25519.secret")
length=$((16#${whole:2:2} * 2))
body=${whole:4:length} rest=${whole:4+length}
public=${body:0:102}
clear=${body:104:length-104-4}
salt=0102030405060708 iv=000102030405060708090a0b0c0d0e0f count=1024
key=$(while :; do printf %s "$salt$(printf tiger | hex)"; done | head -c $((count * 2)) | bytes | sha256sum | cut -c 1-64) || true
sum=$(printf %s "$clear" | bytes | sha1sum | cut -c 1-40)
encrypted=$(printf %s "$clear$sum" | bytes | openssl enc -aes-256-cfb -K "$key" -iv $iv | hex)
locked() {
    local body=$public"fe$1"0308"${salt}00$iv$encrypted"
    printf '94%02x%s%s' $((${#body} / 2)) "$body" "$rest" | bytes >"$out/$2.secret"
}
locked 09 sha256-aes256-locked
locked 03 cast5-locked
cp "$out/ed25519.public" "$out/sha256-aes256-locked.public"
