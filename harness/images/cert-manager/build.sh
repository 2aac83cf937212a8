#!/bin/bash
# Builds the image of cert-manager. It needs Go and a running Docker.
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
what="cert-manager image"
# shellcheck source=../kube/common.sh
source "$here/../kube/common.sh"

program_image cert-manager "tmp"
