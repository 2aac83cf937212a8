// Command kube is Kubernetes in one static binary: the entry point of an image that is a cluster with one real node.
//
// It exists for places where no image registry can be reached, so that `rancher/k3s` cannot be pulled: Kubernetes, etcd
// and CoreDNS are ordinary Go modules, and the rest of a node (containerd, runc, CNI plugins) is packaged by Debian.
// The image keeps the contract of k3s's image, so that a test harness can start either. Unlike k3s's image it does not
// need `--privileged`.
//
// The first argument selects the role. `server` starts all the others as child processes of the same binary; the name
// `kubectl` is also taken from argv[0], so that a symbolic link suffices.
package main

import (
	"fmt"
	"os"
	"path/filepath"
)

func main() {
	status, err := dispatch(os.Args)
	if err != nil {
		fmt.Fprintln(os.Stderr, "kube:", err)
		status = max(status, 1)
	}
	os.Exit(status)
}

func dispatch(argv []string) (int, error) {
	if filepath.Base(argv[0]) == "kubectl" {
		return upstream("kubectl", argv[1:])
	}
	if len(argv) < 2 {
		return 2, fmt.Errorf("name a role: server, etcd, apiserver, kcm, scheduler, kubelet, kube-proxy, dns or kubectl")
	}
	switch role, args := argv[1], argv[2:]; role {
	case "server":
		return 0, serve(args)
	case "dns":
		return 0, answerNames(args)
	default:
		return upstream(role, args)
	}
}
