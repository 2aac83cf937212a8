package main

import (
	"context"
	"fmt"
	"os"

	"github.com/spf13/cobra"
	"go.etcd.io/etcd/server/v3/etcdmain"
	"k8s.io/component-base/cli"
	_ "k8s.io/component-base/logs/json/register" // --logging-format=json
	kubectl "k8s.io/kubectl/pkg/cmd"
	"k8s.io/kubectl/pkg/cmd/util"
	apiserver "k8s.io/kubernetes/cmd/kube-apiserver/app"
	controllers "k8s.io/kubernetes/cmd/kube-controller-manager/app"
	proxy "k8s.io/kubernetes/cmd/kube-proxy/app"
	scheduler "k8s.io/kubernetes/cmd/kube-scheduler/app"
	kubelet "k8s.io/kubernetes/cmd/kubelet/app"
)

// upstream runs one of the roles whose code is Kubernetes' (or etcd's) own, unchanged, and returns the exit status.
// The roles are separate processes, as they are everywhere else, because each of them owns global state: feature gates,
// flags, metrics registries and the right to call os.Exit.
func upstream(role string, args []string) (int, error) {
	var command *cobra.Command
	switch role {
	case "etcd":
		etcdmain.Main(append([]string{"etcd"}, args...)) // exits by itself
		return 0, nil
	case "apiserver":
		command = apiserver.NewAPIServerCommand()
	case "kcm":
		command = controllers.NewControllerManagerCommand()
	case "scheduler":
		command = scheduler.NewSchedulerCommand()
	case "kubelet":
		command = kubelet.NewKubeletCommand(context.Background())
	case "kube-proxy":
		command = proxy.NewProxyCommand()
	case "kubectl":
		os.Args = append([]string{"kubectl"}, args...)
		command = kubectl.NewDefaultKubectlCommand()
		if err := cli.RunNoErrOutput(command); err != nil {
			util.CheckErr(err)
		}
		return 0, nil
	default:
		return 2, fmt.Errorf("unknown role %q", role)
	}
	os.Args = append([]string{role}, args...)
	return cli.Run(command), nil
}
