#!/bin/bash
# Checks the Go programs and the shell scripts of the images: format, vet, tests, shellcheck (which `.ci/run lint` installs).
# It compiles with the flags of the builds, so that it finds their packages in Go's cache.
set -euo pipefail

cd "$(dirname "${BASH_SOURCE[0]}")"
here=$PWD
what="images"
# shellcheck source=kube/common.sh
source kube/common.sh

# Without the analyses that need facts about every dependency: for those, vet reads all of Kubernetes for minutes.
analyses=(-appends -assign -atomic -bools -copylocks -defers -directive -errorsas -ifaceassert -nilfunc -shift -slog
	-stringintconv -structtag -tests -testinggoroutine -timeformat -unmarshal -unreachable -unusedresult)

command -v go >/dev/null || fail "Go is not installed."
unformatted=$(gofmt -l cert-manager istiod kube registry)
[[ -z $unformatted ]] || fail "run gofmt -w on: $unformatted"
for module in cert-manager istiod kube registry; do
	say "vet and test of $module"
	(cd "$module" && go vet "${analyses[@]}" ./... && go test -vet=off -ldflags '-s -w' ./...) >&2
done
command -v shellcheck >/dev/null || fail "shellcheck is not installed."
shellcheck --external-sources --source-path=SCRIPTDIR ./*.sh ./*/*.sh "$here/../../.ci/run" >&2
say "ready"
