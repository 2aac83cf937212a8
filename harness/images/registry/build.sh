#!/bin/bash
# Builds the image of the private registry: one static program on nothing. It needs Go and a running Docker. The image's
# name is the last line of stdout and the content of target/kube/registry-image; everything else goes to stderr.
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
what="registry image"
# shellcheck source=../kube/common.sh
source "$here/../kube/common.sh"

linker='-s -w'
docker=$(find_docker)
image=localhost/kyma-registry:$(source_hash "$linker")

if "$docker" image inspect "$image" >/dev/null 2>&1; then
	say "$image is up to date"
else
	if [[ $(cat "$out/registry.hash" 2>/dev/null) != "${image##*:}" ]]; then
		build_binary registry . "$linker"
		echo "${image##*:}" >"$out/registry.hash"
	fi
	files=$out/registry-files
	rm -rf "$files"
	mkdir -p "$files"/{etc/registry,var/lib/registry,tmp}
	cp "$out/registry" "$files/registry"
	tar -C "$files" -c --numeric-owner --owner=0 --group=0 . | "$docker" import \
		-c 'ENTRYPOINT ["/registry"]' -c 'EXPOSE 5000' -c 'LABEL kyma.harness.image=registry' - "$image" >/dev/null
	rm -rf "$files"
	remove_unused
	say "ready: $image"
fi
echo "$image" | tee "$out/registry-image"
