package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"os/signal"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"
)

const (
	apiPort = 6443

	dataFolder         = "/var/lib/rancher/k3s" // k3s's, on the image's volume
	kubeletFolder      = dataFolder + "/agent/kubelet"
	certificatesFolder = dataFolder + "/agent/etc/containerd/certs.d"
	registriesFile     = "/etc/rancher/k3s/registries.yaml"
	adminFile          = "/etc/rancher/k3s/k3s.yaml"
	logFolder          = "/var/log/kube"

	// k3s's lines, which test harnesses wait for.
	apiIsUp   = "k3s is up and running"
	nodeIsUp  = "Node controller sync successful"
	startTime = 3 * time.Minute // much more than any machine needs, and less than the patience of whoever waits
)

// errStopped is why everything ends when the container is stopped. It is not a failure.
var errStopped = errors.New("stopped")

// server is one cluster, from its first process to its last.
type server struct {
	options     *options
	family      *family
	client      *kubernetes.Clientset
	binary      string
	nodeAddress netip.Addr
	began       time.Time
}

// serve is the role `server`: it starts the cluster's parts, says when they are ready, and ends with the first of them.
func serve(args []string) error {
	options, warnings, err := parseOptions(args)
	if err != nil {
		return err
	}
	for _, warning := range warnings {
		fmt.Fprintln(os.Stderr, "kube: warning:", warning)
	}
	if os.Getpid() != 1 {
		return errors.New("the role server changes mounts and ends every process around it: it runs as the first process of a container, and nowhere else")
	}
	ctx, end := context.WithCancelCause(context.Background())
	stop := make(chan os.Signal, 1)
	signal.Notify(stop, unix.SIGTERM, unix.SIGINT)
	go func() {
		<-stop
		end(errStopped)
	}()

	s := &server{options: options, family: newFamily(end), began: time.Now()}
	if err := s.boot(ctx); err != nil {
		end(err) // if a part has ended, that came first and is the cause
	}
	<-ctx.Done()
	endAll()
	if cause := context.Cause(ctx); !errors.Is(cause, errStopped) {
		return cause
	}
	return nil
}

// boot starts everything in the order in which the parts need each other; what can wait in parallel does.
func (s *server) boot(whole context.Context) error {
	ctx, cancel := context.WithTimeoutCause(whole, startTime, fmt.Errorf("not ready after %s", startTime))
	defer cancel()
	if err := s.prepare(); err != nil {
		return err
	}
	runtime := make(chan error, 1)
	if s.options.agent {
		go func() { runtime <- s.startContainerd(ctx) }()
	}
	if err := s.startStore(ctx); err != nil {
		return err
	}
	if err := s.startAPIServer(); err != nil {
		return err
	}
	if err := s.waitForAPI(ctx); err != nil {
		return err
	}
	s.say("the API server is ready")
	if err := s.startControllers(); err != nil {
		return err
	}
	if s.options.agent {
		if err := s.startNode(ctx, runtime); err != nil {
			return err
		}
	}
	if err := copyFile(kubeconfigFile("admin"), adminFile); err != nil {
		return err
	}
	s.say(apiIsUp)
	if s.options.agent {
		s.say(nodeIsUp)
	}
	return nil
}

// startNode ends when Pods can run: they can be scheduled, and find each other by Services and names.
func (s *server) startNode(ctx context.Context, runtime <-chan error) error {
	names, services := make(chan error, 1), make(chan error, 1)
	go func() { names <- s.startDNS(ctx) }()
	if err := <-runtime; err != nil {
		return err
	}
	if err := s.startKubelet(); err != nil {
		return err
	}
	go func() { services <- s.startProxy(ctx) }()
	if err := s.waitForNode(ctx); err != nil {
		return err
	}
	if err := <-services; err != nil {
		return err
	}
	s.say("the node is ready")
	return <-names
}

// prepare does what must be there before any part starts: mounts, addresses, certificates, our own client.
func (s *server) prepare() (err error) {
	if s.binary, err = os.Executable(); err != nil {
		return fmt.Errorf("finding this program: %w", err)
	}
	if err = os.MkdirAll(logFolder, 0o755); err != nil {
		return err
	}
	if s.nodeAddress, err = ownAddress(); err != nil {
		return fmt.Errorf("finding the node's address: %w", err)
	}
	if s.options.agent {
		if err = prepareMounts(); err != nil {
			return err
		}
	}
	if err = s.makeCertificates(); err != nil {
		return fmt.Errorf("making certificates: %w", err)
	}
	config, err := clientcmd.BuildConfigFromFlags("", kubeconfigFile("admin"))
	if err != nil {
		return err
	}
	config.QPS = -1 // no limit
	if s.client, err = kubernetes.NewForConfig(config); err != nil {
		return fmt.Errorf("making a client: %w", err)
	}
	return nil
}

// makeCertificates gives every part an identity of its own, as kubeadm does, so that the built-in roles and the node
// authorizer are at work as in a real cluster.
func (s *server) makeCertificates() error {
	cluster, err := newAuthority("kube-ca")
	if err != nil {
		return err
	}
	frontProxy, err := newAuthority("front-proxy-ca")
	if err != nil {
		return err
	}
	for name, authority := range map[string]*authority{"ca": cluster, "front-proxy-ca": frontProxy} {
		if err := authority.pair.write(filepath.Dir(tlsFile(name)), name); err != nil {
			return err
		}
	}
	hostname, err := os.Hostname()
	if err != nil {
		return err
	}
	apiHosts := append([]string{
		"127.0.0.1", "localhost", hostname, s.nodeAddress.String(), nthAddress(s.options.serviceRange, 1).String(),
		"kubernetes", "kubernetes.default", "kubernetes.default.svc", "kubernetes.default.svc." + clusterDomain,
	}, s.options.alternativeNames...)
	nodeUser := "system:node:" + s.options.nodeName
	for _, leaf := range []struct {
		file   string
		signer *authority
		user   string
		groups []string
		hosts  []string
	}{
		{"apiserver", cluster, "kube-apiserver", nil, apiHosts},
		{"kubelet", cluster, nodeUser, []string{"system:nodes"}, []string{s.nodeAddress.String(), s.options.nodeName, "127.0.0.1"}},
		{"kubelet-client", cluster, "kube-apiserver-kubelet-client", []string{"system:masters"}, nil},
		{"service-accounts", cluster, "service-accounts", nil, nil},
		{"front-proxy", frontProxy, "front-proxy", nil, nil},
		{"admin", cluster, "system:admin", []string{"system:masters"}, nil},
		{"kcm", cluster, "system:kube-controller-manager", nil, nil},
		{"scheduler", cluster, "system:kube-scheduler", nil, nil},
		{"kube-proxy", cluster, "system:kube-proxy", nil, nil},
		{"dns", cluster, dnsUser, nil, nil},
	} {
		pair, err := leaf.signer.issue(leaf.user, leaf.groups, leaf.hosts)
		if err != nil {
			return err
		}
		if err := pair.write(filepath.Dir(tlsFile(leaf.file)), leaf.file); err != nil {
			return err
		}
		text, err := kubeconfig(fmt.Sprintf("https://127.0.0.1:%d", apiPort), cluster.pair.certificate, pair)
		if err != nil {
			return err
		}
		if err := writeFile(kubeconfigFile(leaf.file), text); err != nil {
			return err
		}
	}
	return nil
}

// ownAddress is the one that other containers reach this one at: the first IPv4 address that is not loopback.
func ownAddress() (netip.Addr, error) {
	links, err := net.Interfaces()
	if err != nil {
		return netip.Addr{}, err
	}
	for _, link := range links {
		addresses, err := link.Addrs()
		if err != nil {
			return netip.Addr{}, err
		}
		for _, address := range addresses {
			prefix, err := netip.ParsePrefix(address.String())
			if err == nil && prefix.Addr().Is4() && prefix.Addr().IsGlobalUnicast() {
				return prefix.Addr(), nil
			}
		}
	}
	return netip.Addr{}, errors.New("this container has no network")
}

// say tells whoever reads the container's output what happened, and how long after the start.
func (s *server) say(format string, values ...any) {
	fmt.Printf("[%5.1f s] %s\n", time.Since(s.began).Seconds(), fmt.Sprintf(format, values...))
}

func copyFile(from, to string) error {
	content, err := os.ReadFile(from)
	if err != nil {
		return err
	}
	return writeFile(to, content)
}
