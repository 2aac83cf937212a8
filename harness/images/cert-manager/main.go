// The controllers of cert-manager that self-signed and CA issuers need, as one program: cert-manager's own command is a module
// of its own with all issuers, and is not published in versions.
package main

import (
	"context"
	"flag"
	"os"
	"os/signal"
	"sync"
	"syscall"
	"time"

	"k8s.io/klog/v2"

	"github.com/cert-manager/cert-manager/pkg/controller"
	logf "github.com/cert-manager/cert-manager/pkg/logs"

	_ "github.com/cert-manager/cert-manager/pkg/controller/certificaterequests/approver"
	_ "github.com/cert-manager/cert-manager/pkg/controller/certificaterequests/ca"
	_ "github.com/cert-manager/cert-manager/pkg/controller/certificaterequests/selfsigned"
	_ "github.com/cert-manager/cert-manager/pkg/controller/certificates/issuing"
	_ "github.com/cert-manager/cert-manager/pkg/controller/certificates/keymanager"
	_ "github.com/cert-manager/cert-manager/pkg/controller/certificates/readiness"
	_ "github.com/cert-manager/cert-manager/pkg/controller/certificates/requestmanager"
	_ "github.com/cert-manager/cert-manager/pkg/controller/certificates/revisionmanager"
	_ "github.com/cert-manager/cert-manager/pkg/controller/certificates/trigger"
	_ "github.com/cert-manager/cert-manager/pkg/controller/issuers"
	_ "github.com/cert-manager/cert-manager/pkg/issuer/ca"
	_ "github.com/cert-manager/cert-manager/pkg/issuer/selfsigned"
)

// Concurrent reconciles of each controller.
const workers = 5

func main() {
	namespace := flag.String("cluster-resource-namespace", "cert-manager", "namespace of the Secrets of cluster-wide issuers")
	klog.InitFlags(nil)
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	ctx = logf.NewContext(ctx, klog.Background())
	factory, err := controller.NewContextFactory(ctx, controller.ContextOptions{
		KubernetesAPIQPS:   100,
		KubernetesAPIBurst: 200,
		IssuerOptions:      controller.IssuerOptions{ClusterResourceNamespace: *namespace},
		CertificateOptions: controller.CertificateOptions{
			CertificateRequestMinimumBackoffDuration: time.Hour,
			CertificateRequestMaximumBackoffDuration: 32 * time.Hour,
		},
	})
	if err != nil {
		klog.Fatal(err)
	}
	var all sync.WaitGroup
	var starts []func()
	for name, build := range controller.Known() {
		built, err := build(factory)
		if err != nil {
			klog.Fatalf("%s: %v", name, err)
		}
		all.Add(1)
		starts = append(starts, func() {
			defer all.Done()
			if err := built.Run(workers, ctx); err != nil {
				klog.Errorf("%s: %v", name, err)
				os.Exit(1)
			}
		})
	}
	shared, err := factory.Build()
	if err != nil {
		klog.Fatal(err)
	}
	shared.SharedInformerFactory.Start(ctx.Done())
	shared.KubeSharedInformerFactory.Start(ctx.Done())
	shared.HTTP01ResourceMetadataInformersFactory.Start(ctx.Done())
	for _, start := range starts {
		go start()
	}
	<-ctx.Done()
	all.Wait()
}
