#!/usr/bin/env bash
# Prints keys and signatures of many kinds anew, with what gpg and helm say to each: print-vectors.sh HELM
#
# Each case is <name>.keys, as gpg --export writes it, and <name>.prov; `verdicts` has a line for each case: its name,
# what gpg --verify reports, and whether helm verify accepts it. Private keys do not outlive the script.
set -euo pipefail
helm=$(realpath "$1")
here=$(cd "$(dirname "$0")" && pwd)
out=$here/vectors
work=$(mktemp -d)
trap '[ -z "${LOG:-}" ] || cp "$work/log" "$LOG"; for home in "$work"/*/; do gpgconf --homedir "$home" --kill all; done; rm -rf "$work"' EXIT
rm -rf "$out"
mkdir "$out" "$work/signers"
chmod 700 "$work/signers"

# All is made at this moment, unless said otherwise.
made=20260101T000000
now=20260601T000000

at() {
    local time=$1
    shift
    gpg --quiet --batch --no-tty --homedir "$work/signers" --pinentry-mode loopback --passphrase '' \
        --faked-system-time "$time!" --allow-weak-key-signatures --allow-weak-digest-algos "$@" 2>>"$work/log"
}

# key NAME ALGORITHM [USAGE [EXPIRES]]
key() { at $made --quick-gen-key "$1 <$1@example.com>" "$2" "${3:-sign}" "${4:-never}"; }
fingerprint() { at $now --with-colons --list-keys "<$1@example.com>" | awk -F: '$1 == "fpr" { print $10; exit }'; }
subkey_of() { at $now --with-colons --list-keys "<$1@example.com>" | awk -F: '$1 == "fpr" { last = $10 } END { print last }'; }
keys() { at $now --export $(printf '<%s@example.com> ' "$@"); }
edit() {
    local name=$1
    shift
    printf '%s\n' "$@" | gpg --quiet --no-tty --homedir "$work/signers" --pinentry-mode loopback --passphrase '' \
        --faked-system-time "$now!" --command-fd 0 --status-fd 2 --edit-key "<$name@example.com>" 2>>"$work/log"
}
# signed NAME WHO [FLAGS...]: case NAME is the text, signed by WHO.
signed() {
    local name=$1 who=$2
    shift 2
    at "${when:-$now}" --local-user "$who" --digest-algo SHA512 "$@" --clearsign <"$work/text" >"$out/$name.prov"
}
# The text that helm package --sign would sign.
awk '/^$/ && !body { body = 1; next } /^-----BEGIN PGP SIGNATURE/ { exit } body' "$here/web-1.2.3.tgz.prov" >"$work/text"

key rsa rsa2048
key ed ed25519
key short rsa1024
key curve nistp256
key wide nistp384
key widest nistp521
key other ed25519

for digest in SHA256 SHA384 SHA512 SHA224 SHA1 RIPEMD160; do
    for who in rsa ed; do
        name=$who-$(tr '[:upper:]' '[:lower:]' <<<$digest)
        signed "$name" "<$who@example.com>" --digest-algo $digest || { rm -f "$out/$name.prov"; continue; }
        keys $who >"$out/$name.keys"
    done
done
signed rsa-1024-bits "<short@example.com>" && keys short >"$out/rsa-1024-bits.keys"
signed nistp256 "<curve@example.com>" && keys curve >"$out/nistp256.keys"
signed nistp256-sha256 "<curve@example.com>" --digest-algo SHA256 && keys curve >"$out/nistp256-sha256.keys"
sed 's/^version: 1.2.3/version: 1.2.4/' <"$out/nistp256.prov" >"$out/nistp256-text-changed.prov"
keys curve >"$out/nistp256-text-changed.keys"
signed nistp384 "<wide@example.com>" && keys wide >"$out/nistp384.keys"
signed nistp384-sha384 "<wide@example.com>" --digest-algo SHA384 && keys wide >"$out/nistp384-sha384.keys"
signed nistp521 "<widest@example.com>" && keys widest >"$out/nistp521.keys"
signed other-key "<other@example.com>" && keys rsa ed >"$out/other-key.keys"
signed second-key "<ed@example.com>" && keys rsa ed >"$out/second-key.keys"
signed two-signatures "<other@example.com>" --local-user "<ed@example.com>" && keys ed >"$out/two-signatures.keys"

# Subkeys.
key sub rsa2048 cert
at $made --quick-add-key "$(fingerprint sub)" ed25519 sign 2027-12-31
signed subkey "$(subkey_of sub)!" && keys sub >"$out/subkey.keys"
key subgone rsa2048 cert
at $made --quick-add-key "$(fingerprint subgone)" ed25519 sign never
signed subkey-revoked "$(subkey_of subgone)!"
signed subkey-revoked-twice "$(subkey_of subgone)!"
keys subgone >"$work/subgone.before"
edit subgone "key 1" revkey y 0 "" y save
keys subgone >"$out/subkey-revoked.keys"
# Also when another copy of the key does not know it yet.
cat "$work/subgone.before" "$out/subkey-revoked.keys" >"$out/subkey-revoked-twice.keys"
key subold rsa2048 cert
at $made --quick-add-key "$(fingerprint subold)" ed25519 sign 2026-07-01
signed subkey-expired "$(subkey_of subold)!" && keys subold >"$out/subkey-expired.keys"
key old rsa2048 cert 2026-07-01
at $made --quick-add-key "$(fingerprint old)" ed25519 sign never
signed subkey-of-expired "$(subkey_of old)!" && keys old >"$out/subkey-of-expired.keys"

# Keys that have ended.
key expired ed25519 sign 2026-07-01
signed key-expired "<expired@example.com>" && keys expired >"$out/key-expired.keys"
key longer ed25519 sign 2026-07-01
at $now --quick-set-expire "$(fingerprint longer)" 2040-01-01
signed key-prolonged "<longer@example.com>" && keys longer >"$out/key-prolonged.keys"
for digest in SHA512 SHA1; do
    who=gone$(tr '[:upper:]' '[:lower:]' <<<$digest)
    key $who ed25519
    signed key-revoked-$digest "<$who@example.com>"
    keys $who >"$work/before"
    cp "$out/key-revoked-$digest.prov" "$out/key-revoked-$digest-twice.prov"
    sed 's/^:---/---/' "$work/signers/openpgp-revocs.d/$(fingerprint $who).rev" >"$work/rev"
    if [ $digest = SHA1 ]; then
        printf '%s\n' y 0 "" y | gpg --quiet --no-tty --homedir "$work/signers" --pinentry-mode loopback --passphrase '' \
            --faked-system-time "$now!" --cert-digest-algo SHA1 --command-fd 0 --status-fd 2 --yes \
            --output "$work/rev" --gen-revoke "<$who@example.com>" 2>>"$work/log"
    fi
    at $now --import "$work/rev"
    keys $who >"$out/key-revoked-$digest.keys"
    cat "$work/before" "$out/key-revoked-$digest.keys" >"$out/key-revoked-$digest-twice.keys"
done
key named ed25519
signed name-revoked "<named@example.com>"
at $now --quick-add-uid "$(fingerprint named)" "named again <again@example.com>"
at $now --quick-revoke-uid "$(fingerprint named)" "named <named@example.com>"
at $now --export "<again@example.com>" >"$out/name-revoked.keys"
key watched ed25519
key watcher ed25519
signed revoked-by-another "<watched@example.com>"
edit watched addrevoker "<watcher@example.com>" y save
printf '%s\n' y 0 "" y | gpg --quiet --no-tty --homedir "$work/signers" --pinentry-mode loopback --passphrase '' \
    --faked-system-time "$now!" --command-fd 0 --status-fd 2 --yes --output "$work/rev" \
    --desig-revoke "<watched@example.com>" 2>>"$work/log"
at $now --import "$work/rev"
keys watched >"$out/revoked-by-another.keys"
keys watched watcher >"$out/revoked-by-another-there.keys"
cp "$out/revoked-by-another.prov" "$out/revoked-by-another-there.prov"

# Signatures that say more about themselves.
signed expired "<ed@example.com>" --default-sig-expire 7d && keys ed >"$out/expired.keys"
when=20990101T000000 signed from-the-future "<ed@example.com>" && keys ed >"$out/from-the-future.keys"
signed noted "<ed@example.com>" --sig-notation note@example.com=text && keys ed >"$out/noted.keys"
signed critically-noted "<ed@example.com>" --sig-notation '!note@example.com=text' && keys ed >"$out/critically-noted.keys"
when=20251231T000000 signed before-its-key "<ed@example.com>" --ignore-time-conflict && keys ed >"$out/before-its-key.keys"

# Texts.
variant() {
    local name=$1
    shift
    "$@" <"$out/ed-sha512.prov" >"$out/$name.prov"
    keys ed >"$out/$name.keys"
}
variant text-changed sed 's/^version: 1.2.3/version: 1.2.4/'
variant digest-changed sed 's/1ebac99e/1ebac99f/'
variant blanks-at-ends sed 's/^name: web$/name: web \t/'
variant line-ends-of-dos sed 's/$/\r/'
variant blank-in-front sed 's/^name: web$/ name: web/'
variant line-added sed 's/^name: web$/&\n/'
variant other-header sed 's/^Hash: .*/&\nComment: name: evil/'
variant text-as-header sed 's/^Hash: .*/&\nname: evil/'
variant no-hash-header sed '/^Hash: /d'
variant unescaped-dash sed 's/^name: web$/&\n-x: 1/'
variant text-in-front sed '1s/^/name: evil\n/'
variant text-behind sed '$s/$/\nname: evil/'
variant cut-off sed '/END PGP/,$d'
{ sed 's/^name: web$/maintainers:\n- name: Jo\n-----dashes: x   /' "$work/text"; } >"$work/dashes"
at $now --local-user "<ed@example.com>" --digest-algo SHA512 --clearsign <"$work/dashes" >"$out/dashes.prov"
keys ed >"$out/dashes.keys"
# The same bytes, signed as a file, in the frame of a text.
sed '$!s/$/\r/' "$work/text" | head -c -1 >"$work/canonical"
{
    printf -- '-----BEGIN PGP SIGNED MESSAGE-----\nHash: SHA512\n\n'
    cat "$work/text"
    at $now --local-user "<ed@example.com>" --digest-algo SHA512 --armor --detach-sign <"$work/canonical"
} >"$out/signed-as-file.prov"
keys ed >"$out/signed-as-file.keys"
# As Helm signs.
mkdir "$work/chart"
keys ed >"$out/keys-cut-off.keys"
head -c -40 "$out/keys-cut-off.keys" >"$work/cut" && mv "$work/cut" "$out/keys-cut-off.keys"
cp "$out/ed-sha512.prov" "$out/keys-cut-off.prov"

gpg_says() {
    local home=$work/verify-$1 status
    mkdir -m 700 "$home"
    gpg --quiet --batch --homedir "$home" --import "$out/$1.keys" 2>>"$work/log" || true
    status=$(gpg --batch --homedir "$home" --status-fd 1 --verify "$out/$1.prov" 2>>"$work/log") && code=0 || code=$?
    status=$(awk '$2 ~ /^(GOODSIG|EXPSIG|EXPKEYSIG|REVKEYSIG|BADSIG|ERRSIG|NODATA)$/ { printf "%s%s", sep, $2; sep = "+" }' \
        <<<"$status")
    echo "${status:-nothing}/$code"
}
helm_says() {
    local folder=$work/helm-$1
    mkdir "$folder"
    cp "$here/web-1.2.3.tgz" "$folder"
    cp "$out/$1.prov" "$folder/web-1.2.3.tgz.prov"
    if "$helm" verify "$folder/web-1.2.3.tgz" --keyring "$out/$1.keys" >>"$work/log" 2>&1; then echo ok; else echo refused; fi
}
for prov in "$out"/*.prov; do
    name=$(basename "$prov" .prov)
    printf '%-26s %-22s %s\n' "$name" "$(gpg_says "$name")" "$(helm_says "$name")"
done | tee "$out/verdicts"
