# shellcheck shell=bash
# What the scripts share that build images from Go modules: sourced, with `here` set to the module's folder and `what` to
# the name of the thing that is built.

out=$(cd "$(dirname "${BASH_SOURCE[0]}")/../../.." && pwd)/target/kube
mkdir -p "$out"

: "${here:?the folder of the Go module}" "${what:?the name of what is built}"

# Two runs at once would work in the same folders: the second one waits, and then finds everything done.
exec 9>"$out/lock"
flock 9

say() { printf '%(%H:%M:%S)T %s: %s\n' -1 "$what" "$*" >&2; }
fail() { say "$*"; exit 1; }
short_hash() { sha256sum | cut -c1-12; }

# A newer client that lies before Debian's on the PATH may not speak to Debian's engine.
find_docker() {
	local client
	for client in docker /usr/bin/docker; do
		if "$client" version >/dev/null 2>&1; then
			echo "$client"
			return
		fi
	done
	fail "no Docker engine answers; it keeps the image. Install docker.io and start dockerd."
}

# How every package is compiled. The linker leaves debug information out, so it need not be made.
compiler='all=-dwarf=false'
export CGO_ENABLED=0 GOFLAGS="-mod=readonly -trimpath -buildvcs=false -gcflags=$compiler"

# source_hash WORDS...: everything that a program is made from: compiler, sources, pinned modules, flags, the given words
source_hash() {
	(
		cd "$here" || exit
		go version || fail "Go is not installed; it compiles this image's programs."
		echo "$compiler" "$@"
		find . -type f \( -name '*.go' ! -name '*_test.go' -o -name go.mod -o -name go.sum -o -name '*.sh' \) | LC_ALL=C sort | xargs sha256sum
	) | short_hash
}

# build_binary NAME PACKAGE FLAGS: a static program in target/kube/NAME. A compiler's process lives for a second, so it
# collects garbage only when there is a gibibyte of it.
build_binary() {
	local name=$1 package=$2 flags=$3 began=$SECONDS told=0 job
	say "compiling $name; what has not been compiled on this machine before takes a while"
	(cd "$here" && GOGC=off GOMEMLIMIT=1GiB exec go build -ldflags "$flags" -o "$out/$name" "$package" >&2) &
	job=$!
	while kill -0 "$job" 2>/dev/null; do
		sleep 0.2
		# The compiler is silent for minutes: show that it is still at work.
		if ((SECONDS - began - told >= 30)); then
			told=$((SECONDS - began))
			say "still compiling $name ($told s)"
		fi
	done
	wait "$job" || fail "the compiler failed"
	say "compiled $name in $((SECONDS - began)) s"
}

# remove_unused: with the client in `docker`; images of a week ago that no container uses. Younger ones may be those of
# another checkout.
remove_unused() {
	"${docker:?}" image prune --all --force --filter "label=kyma.harness.image" --filter until=168h >/dev/null
}

# program_image NAME FOLDERS CHANGES...: builds the image of the Go program in `here` on nothing but these empty folders, unless
# it is there. Each of CHANGES is a line of a Dockerfile. The image's name is the last line of stdout and the content of
# target/kube/NAME-image; everything else goes to stderr.
program_image() {
	local name=$1 folders=$2 linker='-s -w' docker image files change
	shift 2
	docker=$(find_docker)
	image=localhost/kyma-$name:$(source_hash "$linker" "$folders" "$@")
	if "$docker" image inspect "$image" >/dev/null 2>&1; then
		say "$image is up to date"
	else
		if [[ $(cat "$out/$name.hash" 2>/dev/null) != "${image##*:}" ]]; then
			build_binary "$name" . "$linker"
			echo "${image##*:}" >"$out/$name.hash"
		fi
		files=$out/$name-files
		rm -rf "$files"
		(mkdir -p "$files" && cd "$files" && xargs mkdir -p <<<"$folders")
		cp "$out/$name" "$files/$name"
		local changes=(-c "ENTRYPOINT [\"/$name\"]" -c "LABEL kyma.harness.image=$name")
		for change; do changes+=(-c "$change"); done
		tar -C "$files" -c --numeric-owner --owner=0 --group=0 . |
			"$docker" import "${changes[@]}" - "$image" >/dev/null
		rm -rf "$files"
		remove_unused
		say "ready: $image"
	fi
	echo "$image" | tee "$out/$name-image"
}

# The archive that this machine's own apt uses, in the old one-line format or the newer one with paragraphs. There is no
# default: some machines reach only a mirror, and only its owner knows which.
find_mirror() {
	local ours found
	ours=$(. /etc/os-release && echo "${VERSION_CODENAME:-$suite}")
	found=$(for file in /etc/apt/sources.list /etc/apt/sources.list.d/*.{list,sources}; do
		[[ ! -f $file ]] || { cat "$file" && echo; }
	done | awk -v suites="$suite $ours" '
		function offer(place, list,   i, j, wanted, offered) {
			split(suites, wanted); split(list, offered)
			for (i in wanted) for (j in offered) if (wanted[i] == offered[j] && place ~ /debian/) print place
		}
		/^[[:space:]]*#/ { next }
		$1 == "deb" { sub(/\[[^]]*\]/, ""); offer($2, $3) }
		$1 == "Types:" || NF == 0 { place = "" ; list = "" }
		$1 == "URIs:" { place = $2 }
		$1 == "Suites:" { list = $0 }
		place != "" && list != "" { offer(place, list); place = "" }
	' | head -n 1)
	[[ -n $found ]] || fail "no Debian archive among apt's sources; the node's root file system comes from one."
	echo "$found"
}
