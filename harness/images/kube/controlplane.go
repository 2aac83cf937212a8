package main

import (
	"context"
	"fmt"
	"path/filepath"
)

const storeAddress = "http://127.0.0.1:2379"

// startStore runs etcd with files that nobody will ever need after a crash, so it does not wait for the disk. It elects
// itself, which with the usual times takes a second. An API server that is faster than etcd would wait longer than that,
// because it dials again only after a pause.
func (s *server) startStore(ctx context.Context) error {
	const peer = "http://127.0.0.1:2380"
	if err := s.startRole("etcd",
		"name=default", "data-dir="+filepath.Join(dataFolder, "server/db/etcd"),
		"listen-client-urls="+storeAddress, "advertise-client-urls="+storeAddress,
		"listen-peer-urls="+peer, "initial-advertise-peer-urls="+peer, "initial-cluster=default="+peer,
		"heartbeat-interval=20", "election-timeout=100", "unsafe-no-fsync=true", "log-level=warn"); err != nil {
		return err
	}
	return untilHealthy(ctx, "etcd", storeAddress+"/health")
}

// startAPIServer also switches on ClusterTrustBundles and their projection into Pods, which are not served by default.
func (s *server) startAPIServer() error {
	return s.startRole("apiserver",
		"etcd-servers="+storeAddress,
		"bind-address=0.0.0.0", fmt.Sprint("secure-port=", apiPort), "advertise-address="+s.nodeAddress.String(),
		"service-cluster-ip-range="+s.options.serviceRange.String(),
		"authorization-mode=Node,RBAC", "enable-admission-plugins=NodeRestriction", "allow-privileged=true",
		"feature-gates=ClusterTrustBundle=true,ClusterTrustBundleProjection=true",
		"runtime-config=certificates.k8s.io/v1beta1/clustertrustbundles=true",
		"tls-cert-file="+tlsFile("apiserver.crt"), "tls-private-key-file="+tlsFile("apiserver.key"),
		"client-ca-file="+tlsFile("ca.crt"),
		"service-account-issuer=https://kubernetes.default.svc.cluster.local",
		"service-account-key-file="+tlsFile("service-accounts.crt"),
		"service-account-signing-key-file="+tlsFile("service-accounts.key"),
		"kubelet-certificate-authority="+tlsFile("ca.crt"), "kubelet-preferred-address-types=InternalIP",
		"kubelet-client-certificate="+tlsFile("kubelet-client.crt"), "kubelet-client-key="+tlsFile("kubelet-client.key"),
		"requestheader-client-ca-file="+tlsFile("front-proxy-ca.crt"), "requestheader-allowed-names=front-proxy",
		"requestheader-username-headers=X-Remote-User", "requestheader-group-headers=X-Remote-Group",
		"requestheader-extra-headers-prefix=X-Remote-Extra-",
		"proxy-client-cert-file="+tlsFile("front-proxy.crt"), "proxy-client-key-file="+tlsFile("front-proxy.key"))
}

// startControllers runs the controller manager and the scheduler. Their usual limits on requests are made for shared,
// long-lived clusters; here they would be most of the time until a first Pod runs. A node may be silent for minutes,
// because test machines are busy, and nothing is gained by moving Pods from the only one.
func (s *server) startControllers() error {
	if err := s.startRole("kcm",
		"kubeconfig="+kubeconfigFile("kcm"), "kube-api-qps=500", "kube-api-burst=1000",
		"leader-elect=false", "secure-port=0", "use-service-account-credentials=true",
		"service-account-private-key-file="+tlsFile("service-accounts.key"), "root-ca-file="+tlsFile("ca.crt"),
		"cluster-signing-cert-file="+tlsFile("ca.crt"), "cluster-signing-key-file="+tlsFile("ca.key"),
		"node-monitor-grace-period=5m", "feature-gates=ClusterTrustBundle=true"); err != nil {
		return err
	}
	return s.startRole("scheduler",
		"kubeconfig="+kubeconfigFile("scheduler"), "kube-api-qps=500", "kube-api-burst=1000",
		"leader-elect=false", "secure-port=0")
}

// startRole starts another role of this binary, with the user's settings over ours.
func (s *server) startRole(role string, defaults ...string) error {
	return s.family.start(role, append([]string{s.binary, role}, commandLine(defaults, s.options.given[role])...)...)
}

// waitForAPI waits for all start-up hooks of the API server, among which are those that make the built-in roles.
func (s *server) waitForAPI(ctx context.Context) error {
	return until(ctx, "the API server", func() error {
		return s.client.RESTClient().Get().AbsPath("/readyz").Do(ctx).Error()
	})
}

func tlsFile(name string) string { return filepath.Join(dataFolder, "server/tls", name) }

func kubeconfigFile(role string) string {
	return filepath.Join(dataFolder, "server/cred", role+".kubeconfig")
}
