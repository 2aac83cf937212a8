#!/bin/bash
# Builds the base image for `docker build --target webhook .` where rust:1.95-bookworm cannot be pulled: Debian's C
# compiler, this machine's Rust toolchain and its certificates. It needs root, debootstrap, Rust and a running Docker. The
# image's name is the last line of stdout; everything else goes to stderr. Use it so:
#
#   docker build --target webhook --build-arg BUILDER_IMAGE="$(harness/images/builder/build.sh)" .
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
what="builder image"
# shellcheck source=../kube/common.sh
source "$here/../kube/common.sh"

packages=gcc,libc6-dev,make,ca-certificates
suite=bookworm # as rust:1.95-bookworm

docker=$(find_docker)
toolchain=$(rustc --print sysroot)
certificates=/etc/ssl/certs/ca-certificates.crt # also of a proxy between this machine and crates.io
image=localhost/kyma-builder:$({ rustc --version && echo "$packages $suite" && cat "$certificates" "$here/build.sh"; } | short_hash)

if "$docker" image inspect "$image" >/dev/null 2>&1; then
	say "$image is up to date"
else
	root=$out/builder-files
	rm -rf "$root"
	trap 'rm -rf "$root"' EXIT
	mirror=$(find_mirror)
	say "making the root file system with debootstrap, from $mirror"
	if ! debootstrap --variant=minbase --include="$packages" "$suite" "$root" "$mirror" >"$out/debootstrap-builder.log" 2>&1; then
		tail -n 5 "$out/debootstrap-builder.log" >&2
		fail "debootstrap failed; its log is $out/debootstrap-builder.log"
	fi
	rm -rf "$root"/var/cache/apt/* "$root"/var/lib/apt/lists/* "${root:?}"/dev/* "$root"/usr/share/{doc,man,locale}
	say "adding the Rust toolchain of this machine"
	mkdir -p "$root/usr/local/rust"
	tar -C "$toolchain" --exclude=./share --exclude='*.so.dwp' -c . | tar -C "$root/usr/local/rust" -x
	cp "$certificates" "$root$certificates"
	tar -C "$root" -c --numeric-owner . | "$docker" import \
		-c 'ENV PATH=/usr/local/rust/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin CARGO_HOME=/usr/local/cargo' \
		-c 'LABEL kyma.harness.image=builder' - "$image" >/dev/null
	remove_unused
	say "ready: $image"
fi
echo "$image"
