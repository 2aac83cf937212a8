package main

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"time"

	core "k8s.io/api/core/v1"
	meta "k8s.io/apimachinery/pkg/apis/meta/v1"
	proxyconfig "k8s.io/kube-proxy/config/v1alpha1"
	kubeletconfig "k8s.io/kubelet/config/v1beta1"
	"sigs.k8s.io/yaml"
)

const proxyHealth = "127.0.0.1:10256"

// startKubelet configures the node's agent for a container that shares a machine with others and does not live long:
// no control groups for classes of Pods, no eviction, no image collection, no limits on events and pulls, and changed
// Secrets, ConfigMaps and trust bundles in the Pods within seconds.
func (s *server) startKubelet() error {
	resolver := filepath.Join(dataFolder, "agent/etc/resolv.conf")
	// Pods without cluster DNS ask our name server as well: Docker's own listens where only the node can reach it.
	if err := writeFile(resolver, fmt.Appendf(nil, "nameserver %s\n", s.nodeAddress)); err != nil {
		return err
	}
	configuration := kubeletconfig.KubeletConfiguration{
		TypeMeta:                 meta.TypeMeta{APIVersion: kubeletconfig.SchemeGroupVersion.String(), Kind: "KubeletConfiguration"},
		ContainerRuntimeEndpoint: "unix://" + containerdSocket,
		Address:                  s.nodeAddress.String(),
		TLSCertFile:              tlsFile("kubelet.crt"),
		TLSPrivateKeyFile:        tlsFile("kubelet.key"),
		Authentication: kubeletconfig.KubeletAuthentication{
			Anonymous: kubeletconfig.KubeletAnonymousAuthentication{Enabled: ptr(false)},
			Webhook:   kubeletconfig.KubeletWebhookAuthentication{Enabled: ptr(true)},
			X509:      kubeletconfig.KubeletX509Authentication{ClientCAFile: tlsFile("ca.crt")},
		},
		Authorization: kubeletconfig.KubeletAuthorization{Mode: kubeletconfig.KubeletAuthorizationModeWebhook},
		FeatureGates:  map[string]bool{"ClusterTrustBundle": true, "ClusterTrustBundleProjection": true},

		ClusterDomain:   clusterDomain,
		ClusterDNS:      []string{s.options.dnsAddress.String()},
		ResolverConfig:  &resolver,
		PodLogsDir:      "/var/log/pods",
		VolumePluginDir: filepath.Join(dataFolder, "agent/volume-plugins"),
		MaxPods:         250,

		CgroupDriver:                  "cgroupfs",
		CgroupsPerQOS:                 ptr(false),
		EnforceNodeAllocatable:        []string{"none"},
		FailCgroupV1:                  ptr(false),
		FailSwapOn:                    ptr(false),
		MakeIPTablesUtilChains:        ptr(false),
		OOMScoreAdj:                   ptr(int32(0)),
		LocalStorageCapacityIsolation: ptr(true),

		EvictionHard: map[string]string{
			"memory.available": "0%", "nodefs.available": "0%", "nodefs.inodesFree": "0%", "imagefs.available": "0%",
		},
		ImageGCHighThresholdPercent: ptr(int32(100)),
		RegistryPullQPS:             ptr(int32(0)),
		EventRecordQPS:              ptr(int32(0)),
		KubeAPIQPS:                  ptr(int32(500)),
		KubeAPIBurst:                1000,
		SerializeImagePulls:         ptr(false),

		SyncFrequency:                             meta.Duration{Duration: 10 * time.Second},
		FileCheckFrequency:                        meta.Duration{Duration: 5 * time.Second},
		NodeStatusUpdateFrequency:                 meta.Duration{Duration: 5 * time.Second},
		ConfigMapAndSecretChangeDetectionStrategy: kubeletconfig.WatchChangeDetectionStrategy,
	}
	file := filepath.Join(dataFolder, "agent/etc/kubelet.yaml")
	if err := writeYAML(file, configuration); err != nil {
		return err
	}
	defaults := []string{
		"config=" + file, "kubeconfig=" + kubeconfigFile("kubelet"), "root-dir=" + kubeletFolder,
		"hostname-override=" + s.options.nodeName, "node-ip=" + s.nodeAddress.String(), "v=2",
	}
	if len(s.options.nodeLabels) > 0 {
		defaults = append(defaults, "node-labels="+strings.Join(s.options.nodeLabels, ","))
	}
	return s.startRole("kubelet", defaults...)
}

// startProxy runs kube-proxy, which needs no more of the network than the nft program and this network namespace. The
// limits on connection tracking are left alone, because they are the machine's. It starts once the node is registered,
// because it looks for the node's address and, if there is none yet, only looks again after a pause.
func (s *server) startProxy(ctx context.Context) error {
	if err := until(ctx, "the node's registration", func() error {
		_, err := s.client.CoreV1().Nodes().Get(ctx, s.options.nodeName, meta.GetOptions{})
		return err
	}); err != nil {
		return err
	}
	configuration := proxyconfig.KubeProxyConfiguration{
		TypeMeta:           meta.TypeMeta{APIVersion: proxyconfig.SchemeGroupVersion.String(), Kind: "KubeProxyConfiguration"},
		HostnameOverride:   s.options.nodeName,
		Mode:               "nftables",
		ClusterCIDR:        s.options.podRange.String(),
		DetectLocalMode:    "ClusterCIDR",
		NodePortAddresses:  []string{"primary"},
		HealthzBindAddress: proxyHealth,
		Conntrack: proxyconfig.KubeProxyConntrackConfiguration{
			MaxPerCore: ptr(int32(0)), Min: ptr(int32(0)),
			TCPEstablishedTimeout: &meta.Duration{}, TCPCloseWaitTimeout: &meta.Duration{},
		},
	}
	configuration.ClientConnection.Kubeconfig = kubeconfigFile("kube-proxy")
	configuration.ClientConnection.QPS = 500
	configuration.ClientConnection.Burst = 1000
	configuration.NFTables.MinSyncPeriod = meta.Duration{Duration: 100 * time.Millisecond}
	file := filepath.Join(dataFolder, "agent/etc/kube-proxy.yaml")
	if err := writeYAML(file, configuration); err != nil {
		return err
	}
	if err := s.startRole("kube-proxy", "config="+file); err != nil {
		return err
	}
	return untilHealthy(ctx, "kube-proxy", "http://"+proxyHealth+"/healthz")
}

// waitForNode waits until Pods can be scheduled: the node is Ready, and the controller manager has taken note.
func (s *server) waitForNode(ctx context.Context) error {
	return until(ctx, "the node", func() error {
		node, err := s.client.CoreV1().Nodes().Get(ctx, s.options.nodeName, meta.GetOptions{})
		if err != nil {
			return err
		}
		for _, taint := range node.Spec.Taints {
			if taint.Key == core.TaintNodeNotReady {
				return errors.New("it is tainted: " + taint.ToString())
			}
		}
		for _, condition := range node.Status.Conditions {
			if condition.Type != core.NodeReady {
				continue
			}
			if condition.Status != core.ConditionTrue {
				return errors.New(condition.Message)
			}
			return nil
		}
		return errors.New("it has not reported yet")
	})
}

func writeYAML(path string, value any) error {
	text, err := yaml.Marshal(value)
	if err != nil {
		return fmt.Errorf("encoding %s: %w", path, err)
	}
	return writeFile(path, text)
}

func ptr[T any](value T) *T { return &value }
