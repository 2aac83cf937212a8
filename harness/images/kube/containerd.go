package main

import (
	"context"
	"fmt"
	"net"
	"path/filepath"
	"strings"
	"text/template"

	"golang.org/x/sys/unix"
)

const (
	containerdSocket = "/run/containerd/containerd.sock"
	pauseArchive     = "/usr/local/share/kube/pause.tar"
	pauseImage       = "localhost/pause:1" // as named in that archive
)

// containerdSettings are for version 1.6 and later. Two lines are there because the container is unprivileged:
// restrict_oom_score_adj (runc may not lower the score) and disable_apparmor (no profile can be loaded).
var containerdSettings = template.Must(template.New("containerd").Parse(`version = 2
root = "{{.Data}}/agent/containerd"
state = "/run/containerd"

[grpc]
  address = "{{.Socket}}"

[plugins."io.containerd.internal.v1.opt"]
  path = "{{.Data}}/agent/containerd/opt"

[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = "{{.Pause}}"
  restrict_oom_score_adj = true
  disable_apparmor = true
  netns_mounts_under_state_dir = true
  enable_unprivileged_ports = true
  enable_unprivileged_icmp = true
  max_concurrent_downloads = 10

  [plugins."io.containerd.grpc.v1.cri".containerd]
    snapshotter = "{{.Snapshotter}}"

  [plugins."io.containerd.grpc.v1.cri".cni]
    bin_dir = "/usr/lib/cni"
    conf_dir = "{{.Data}}/agent/etc/cni/net.d"

  [plugins."io.containerd.grpc.v1.cri".registry]
    config_path = "{{.Registries}}"
{{- range .Logins}}

  [plugins."io.containerd.grpc.v1.cri".registry.configs.{{printf "%q" .Host}}.auth]
    username = {{printf "%q" .Username}}
    password = {{printf "%q" .Password}}
    auth = {{printf "%q" .Auth}}
    identitytoken = {{printf "%q" .IdentityToken}}
{{- end}}
`))

// podNetwork gives every Pod a link of its own to the node, which routes. A bridge would let Pods answer each other
// directly, past the node's address translation: without the br_netfilter module, which a container cannot load, no Pod
// could then reach another one of the same node through a Service.
var podNetwork = template.Must(template.New("pod network").Parse(`{
  "cniVersion": "0.4.0",
  "name": "pods",
  "plugins": [
    {
      "type": "ptp",
      "ipMasq": false,
      "ipam": {
        "type": "host-local",
        "dataDir": "/run/cni-addresses",
        "ranges": [[{"subnet": "{{.PodRange}}"}]],
        "routes": [{"dst": "0.0.0.0/0"}]
      }
    },
    {"type": "portmap", "capabilities": {"portMappings": true}, "snat": true}
  ]
}
`))

// masquerading lets Pods speak to what lies beyond the node, such as other containers of the same Docker network, which
// know no way back to a Pod's address. One rule for all Pods is cheaper than the CNI plugin's own rules for each.
const masquerading = `table ip kube-node {
	chain leaving {
		type nat hook postrouting priority srcnat; policy accept;
		ip saddr %[1]s ip daddr != %[1]s masquerade
	}
}
`

// startContainerd configures and starts the container runtime and imports the images that are there already.
func (s *server) startContainerd(ctx context.Context) error {
	logins, err := configureRegistries(registriesFile, certificatesFolder)
	if err != nil {
		return fmt.Errorf("reading %s: %w", registriesFile, err)
	}
	settings := filepath.Join(dataFolder, "agent/etc/containerd/config.toml")
	if err := writeTemplate(settings, containerdSettings, map[string]any{
		"Data": dataFolder, "Socket": containerdSocket, "Pause": pauseImage, "Registries": certificatesFolder,
		"Logins": logins, "Snapshotter": s.options.snapshotterFor(dataFolder),
	}); err != nil {
		return err
	}
	network := filepath.Join(dataFolder, "agent/etc/cni/net.d/10-pods.conflist")
	if err := writeTemplate(network, podNetwork, map[string]any{"PodRange": s.options.podRange}); err != nil {
		return err
	}
	if err := s.family.start("containerd", "/usr/bin/containerd", "--config", settings); err != nil {
		return err
	}
	rule := fmt.Sprintf(masquerading, s.options.podRange)
	if err := s.family.run(ctx, "nft", rule, "/usr/sbin/nft", "-f", "-"); err != nil {
		return fmt.Errorf("masquerading Pods: %w", err)
	}
	if err := until(ctx, "containerd's socket", func() error {
		connection, err := net.Dial("unix", containerdSocket)
		if err != nil {
			return err
		}
		return connection.Close()
	}); err != nil {
		return err
	}
	return s.importImages(ctx)
}

// importImages loads the pause image and, as k3s does, the archives in the folder for machines without a registry.
func (s *server) importImages(ctx context.Context) error {
	archives := []string{pauseArchive}
	for _, pattern := range []string{"*.tar", "*.tar.gz", "*.tgz"} {
		found, err := filepath.Glob(filepath.Join(dataFolder, "agent/images", pattern))
		if err != nil {
			return err
		}
		archives = append(archives, found...)
	}
	for _, archive := range archives {
		err := s.family.run(ctx, "ctr", "", "/usr/bin/ctr", "--namespace", "k8s.io", "images", "import",
			"--snapshotter", s.options.snapshotterFor(dataFolder), archive)
		if err != nil {
			return fmt.Errorf("importing %s: %w", archive, err)
		}
	}
	s.say("%d image archive(s) imported", len(archives))
	return nil
}

// snapshotterFor avoids overlayfs where the folder itself lies on one, which the kernel refuses. It normally does not:
// the image declares a volume.
func (o *options) snapshotterFor(folder string) string {
	var system unix.Statfs_t
	switch {
	case o.snapshotter != "":
		return o.snapshotter
	case unix.Statfs(folder, &system) == nil && system.Type == unix.OVERLAYFS_SUPER_MAGIC:
		return "native"
	default:
		return "overlayfs"
	}
}

func writeTemplate(path string, text *template.Template, values any) error {
	var filled strings.Builder
	if err := text.Execute(&filled, values); err != nil {
		return fmt.Errorf("filling in %s: %w", path, err)
	}
	return writeFile(path, []byte(filled.String()))
}
