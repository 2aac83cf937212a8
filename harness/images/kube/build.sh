#!/bin/bash
# Builds the image of a Kubernetes cluster with one node, for machines that reach package registries but no image registry.
# It needs root, Go, debootstrap and a running Docker. The image's name is the last line of stdout and the content of
# target/kube/image; everything else goes to stderr. Each step is skipped if what it is made from has not changed.
set -euo pipefail

packages=containerd,runc,containernetworking-plugins,nftables,iptables,ca-certificates
suite=bookworm # the node's, whatever this machine runs

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
what="kube image"
# shellcheck source=common.sh
source "$here/common.sh"

# The modules of go.mod decide; ./upgrade.sh changes all of them.
version=$(awk '$1 == "k8s.io/kubernetes" { print substr($2, 2) }' "$here/go.mod")
wanted=${HARNESS_KUBERNETES_VERSION:-$version}
[[ $wanted == "$version" ]] || fail "this image is Kubernetes $version; for $wanted run harness/images/kube/upgrade.sh $wanted"

# The root file system of the node: Debian's smallest, containerd and what it calls.
build_root() {
	local root=$1 mirror seconds=$SECONDS
	mirror=$(find_mirror)
	say "making the node's root file system with debootstrap, from $mirror (about a minute)"
	rm -rf "$root" "$root.unfinished"
	if ! debootstrap --variant=minbase --include="$packages" "$suite" "$root.unfinished" "$mirror" >"$out/debootstrap.log" 2>&1; then
		tail -n 5 "$out/debootstrap.log" >&2
		fail "debootstrap failed; its log is $out/debootstrap.log"
	fi
	(
		cd "$root.unfinished"
		rm -rf var/cache/apt/* var/lib/apt/lists/* var/log/* var/cache/debconf/* dev/* usr/share/{doc,man,locale,info,zoneinfo,lintian}
		rm -f usr/bin/containerd-shim usr/bin/containerd-shim-runc-v1 usr/bin/containerd-stress
		find usr/lib/cni -type f ! -name ptp ! -name host-local ! -name loopback ! -name portmap -delete
	)
	mv "$root.unfinished" "$root"
	say "made the root file system in $((SECONDS - seconds)) s: $(du -sh "$root" | cut -f1)"
}

# pause.tar is an image archive of one layer, which the node imports when it starts.
pack_pause() {
	say "packing the pause image"
	local id
	id=$(tar -C "$out" --owner=0 --group=0 -c pause | "$docker" import -c 'ENTRYPOINT ["/pause"]' -c 'USER 65535:65535' - localhost/pause:1)
	"$docker" save -o "$out/pause.tar" localhost/pause:1
	"$docker" image rm localhost/pause:1 "$id" >/dev/null 2>&1 || true
}

docker=$(find_docker)
minor=${version#*.}
linker="-s -w -X k8s.io/component-base/version.gitVersion=v$version"
linker+=" -X k8s.io/component-base/version.gitMajor=${version%%.*} -X k8s.io/component-base/version.gitMinor=${minor%%.*}"
root=$out/root-$(echo "$suite $packages $(declare -f build_root)" | short_hash)
program_hash=$(source_hash "$linker")
image=localhost/kyma-kube:$version-$(echo "$program_hash ${root##*/}" | short_hash)

if ! "$docker" image inspect "$image" >/dev/null 2>&1; then
	# It waits for the archive and for one core, so it runs beside the compiler. Should this script end first, that one
	# holds the lock until it is done.
	rooting=
	if [[ ! -d $root ]]; then
		command -v debootstrap >/dev/null || fail "debootstrap is not installed; it makes the node's root file system."
		build_root "$root" &
		rooting=$!
	fi
	if [[ $(cat "$out/program.hash" 2>/dev/null) != "$program_hash" ]]; then
		build_binary pause ./pause '-s -w'
		pack_pause
		build_binary kube . "$linker"
		echo "$program_hash" >"$out/program.hash"
	fi
	[[ -z $rooting ]] || wait "$rooting" || fail "there is no root file system for the node"

	say "assembling $image"
	files=$out/files
	rm -rf "$files"
	cp -a --link "$root" "$files"
	mkdir -p "$files/usr/local/share/kube"
	cp "$out/kube" "$files/usr/local/bin/kube"
	ln -s kube "$files/usr/local/bin/kubectl"
	cp "$out/pause.tar" "$files/usr/local/share/kube/"
	tar -C "$files" -c --numeric-owner . | "$docker" import \
		-c 'ENTRYPOINT ["/usr/local/bin/kube"]' -c 'CMD ["server"]' -c 'EXPOSE 6443' \
		-c 'VOLUME /var/lib/rancher' \
		-c 'ENV PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin KUBECONFIG=/etc/rancher/k3s/k3s.yaml CONTAINERD_SUPPRESS_DEPRECATION_WARNINGS=1' \
		-c 'LABEL kyma.harness.image=kube' \
		- "$image" >/dev/null
	rm -rf "$files"
	remove_unused
	say "ready: $image, $("$docker" image inspect -f '{{.Size}}' "$image" | awk '{ printf "%.0f MB", $1 / 1e6 }')"
else
	say "$image is up to date"
fi
echo "$image" | tee "$out/image"
