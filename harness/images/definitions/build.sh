#!/bin/bash
# Fetches the CustomResourceDefinitions of Istio and cert-manager from their Go modules, for a KCP on which neither runs. They
# become target/kube/definitions.yaml. Go and a module proxy are needed; nothing is compiled.
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
what="definitions"
# shellcheck source=../kube/common.sh
source "$here/../kube/common.sh"

target=$out/definitions.yaml
hash=$(source_hash definitions)
if [[ $(cat "$target.hash" 2>/dev/null) == "$hash" && -s $target ]]; then
	say "up to date"
	exit
fi
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT

# folder MODULE@VERSION SUM: where the module is, after its checksum was compared
folder() {
	local found
	found=$(cd "$scratch" && GOFLAGS=-mod=mod GONOSUMDB='*' go mod download -json "$1") || fail "cannot fetch $1"
	grep -qF "\"Sum\": \"$2\"" <<<"$found" || fail "$1 has another checksum than $2"
	sed -n 's/^[[:space:]]*"Dir": "\(.*\)",$/\1/p' <<<"$found"
}

istio=$(folder istio.io/api@v1.31.1 h1:5Yb5ihcz4YQsCkciusK7DnFpBMwRB6EFWeUKH1Atuyk=)
certificates=$(folder github.com/cert-manager/cert-manager@v1.21.2 h1:UWgoYM+KLNtRlqmoWOKjKBOBUPVHeepQ6/ac3ERJW68=)
{
	cat "$istio/kubernetes/customresourcedefinitions.gen.yaml"
	for file in "$certificates"/deploy/crds/cert-manager.io_*.yaml; do
		echo ---
		cat "$file"
	done
} >"$scratch/all"
mv "$scratch/all" "$target"
echo "$hash" >"$target.hash"
say "ready: $target"
