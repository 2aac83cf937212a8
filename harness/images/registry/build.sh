#!/bin/bash
# Builds the image of the private registry. It needs Go and a running Docker.
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
what="registry image"
# shellcheck source=../kube/common.sh
source "$here/../kube/common.sh"

program_image registry "etc/registry var/lib/registry tmp" 'EXPOSE 5000'
