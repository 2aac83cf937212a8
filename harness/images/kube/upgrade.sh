#!/bin/bash
# Changes the Kubernetes version of the cluster image: ./upgrade.sh 1.37.0. The versions in go.mod are all that decides;
# etcd and CoreDNS follow as far as Kubernetes needs it. Run `cargo harness setup` afterwards.
set -euo pipefail

cd "$(dirname "${BASH_SOURCE[0]}")"
wanted=${1:?the version, for example 1.37.0}
present=$(awk '$1 == "k8s.io/kubernetes" { print substr($2, 2) }' go.mod)
sed -i -E "/k8s\.io\//s/v(0\.${present#1.}|$present)( |$)/v@\1\2/; s/v@0\.${present#1.}/v0.${wanted#1.}/; s/v@$present/v$wanted/" go.mod
go mod tidy
