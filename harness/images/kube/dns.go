package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"net"
	"net/netip"
	"os"
	"slices"
	"strings"

	"github.com/coredns/caddy"
	"github.com/coredns/coredns/core/dnsserver"
	_ "github.com/coredns/coredns/plugin/bind"
	_ "github.com/coredns/coredns/plugin/errors"
	_ "github.com/coredns/coredns/plugin/forward"
	_ "github.com/coredns/coredns/plugin/kubernetes"
	_ "github.com/coredns/coredns/plugin/template"

	core "k8s.io/api/core/v1"
	discovery "k8s.io/api/discovery/v1"
	rbac "k8s.io/api/rbac/v1"
	failure "k8s.io/apimachinery/pkg/api/errors"
	meta "k8s.io/apimachinery/pkg/apis/meta/v1"
)

const (
	clusterDomain = "cluster.local"
	dnsUser       = "system:coredns"
	dnsName       = "kube-dns" // the Service's name everywhere, whoever answers
)

// answerNames is the role `dns`: CoreDNS with the few plugins that a cluster needs. It runs on the node and not in a
// Pod, so there is no image to load and names resolve as soon as the API server is up.
func answerNames(args []string) error {
	flags := flag.NewFlagSet("dns", flag.ContinueOnError)
	address := flags.String("address", "", "the address to listen on")
	credentials := flags.String("kubeconfig", "", "how to reach the API server")
	upstreams := flags.String("upstreams", "", "name servers for all other names, separated by commas")
	if err := flags.Parse(args); err != nil {
		return fmt.Errorf("dns: %w", err)
	}
	caddy.AppName, caddy.Quiet, dnsserver.Quiet = "kube dns", true, true
	caddy.TrapSignals()
	instance, err := caddy.Start(caddy.CaddyfileInput{
		Contents:       []byte(corefile(*address, *credentials, splitList(*upstreams))),
		Filepath:       "Corefile",
		ServerTypeName: "dns",
	})
	if err != nil {
		return fmt.Errorf("dns: %w", err)
	}
	instance.Wait()
	return nil
}

// corefile configures CoreDNS. Nothing is cached: names of other containers change while tests run. Upstreams are not
// probed either: Docker's name server knows its containers even while the machine's own does not answer. Without any
// upstream, foreign names do not exist, which is an answer, and nobody waits for it.
func corefile(address, credentials string, upstreams []string) string {
	through, others := "", "template ANY ANY {\n\t\trcode NXDOMAIN\n\t}"
	if len(upstreams) > 0 {
		through = "fallthrough in-addr.arpa ip6.arpa"
		others = fmt.Sprintf("forward . %s {\n\t\tmax_fails 0\n\t\tpolicy sequential\n\t}", strings.Join(upstreams, " "))
	}
	cluster := fmt.Sprintf("kubernetes %s in-addr.arpa ip6.arpa {\n\t\tkubeconfig %s\n\t\tpods insecure\n\t\tttl 5\n\t\t%s\n\t}",
		clusterDomain, credentials, through)
	if len(upstreams) > 0 {
		cluster += "\n\t" + others
	}
	return fmt.Sprintf("%s in-addr.arpa ip6.arpa {\n\tbind %s\n\terrors\n\t%s\n}\n. {\n\tbind %s\n\terrors\n\t%s\n}\n",
		clusterDomain, address, cluster, address, others)
}

// upstreamResolvers reads the container's own name servers. On Docker networks with names that is Docker's (127.0.0.11),
// which resolves other containers. Our own addresses are left out, or a question would go round in circles.
func upstreamResolvers(file string, own ...netip.Addr) ([]string, error) {
	text, err := os.ReadFile(file)
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	var found []string
	for line := range strings.Lines(string(text)) {
		fields := strings.Fields(line)
		if len(fields) < 2 || fields[0] != "nameserver" {
			continue
		}
		if address, err := netip.ParseAddr(fields[1]); err == nil && !slices.Contains(own, address) {
			found = append(found, address.String())
		}
	}
	return found, nil
}

// startDNS starts the name server and makes it the cluster's: a Service without a selector leads to the node.
func (s *server) startDNS(ctx context.Context) error {
	if err := s.publishDNS(ctx); err != nil {
		return fmt.Errorf("making the objects of cluster DNS: %w", err)
	}
	upstreams, err := upstreamResolvers("/etc/resolv.conf", s.nodeAddress, s.options.dnsAddress)
	if err != nil {
		return err
	}
	if err := s.startRole("dns", "address="+s.nodeAddress.String(), "kubeconfig="+kubeconfigFile("dns"),
		"upstreams="+strings.Join(upstreams, ",")); err != nil {
		return err
	}
	resolver := net.Resolver{PreferGo: true, Dial: func(ctx context.Context, network, _ string) (net.Conn, error) {
		var dialer net.Dialer
		return dialer.DialContext(ctx, network, netip.AddrPortFrom(s.nodeAddress, 53).String())
	}}
	if err := until(ctx, "cluster DNS", func() error {
		_, err := resolver.LookupHost(ctx, "kubernetes.default.svc."+clusterDomain+".")
		return err
	}); err != nil {
		return err
	}
	s.say("cluster DNS answers at %s, and asks %v for other names", s.options.dnsAddress, upstreams)
	return nil
}

func (s *server) publishDNS(ctx context.Context) error {
	ports := []struct {
		name     string
		protocol core.Protocol
	}{{"dns", core.ProtocolUDP}, {"dns-tcp", core.ProtocolTCP}}
	service := &core.Service{
		ObjectMeta: meta.ObjectMeta{Name: dnsName, Namespace: meta.NamespaceSystem, Labels: map[string]string{"k8s-app": dnsName}},
		Spec:       core.ServiceSpec{ClusterIP: s.options.dnsAddress.String()},
	}
	slice := &discovery.EndpointSlice{
		ObjectMeta: meta.ObjectMeta{Name: dnsName, Namespace: meta.NamespaceSystem, Labels: map[string]string{
			discovery.LabelServiceName: dnsName, discovery.LabelManagedBy: "kube",
		}},
		AddressType: discovery.AddressTypeIPv4,
		Endpoints:   []discovery.Endpoint{{Addresses: []string{s.nodeAddress.String()}, Conditions: discovery.EndpointConditions{Ready: ptr(true)}}},
	}
	for _, port := range ports {
		service.Spec.Ports = append(service.Spec.Ports, core.ServicePort{Name: port.name, Protocol: port.protocol, Port: 53})
		slice.Ports = append(slice.Ports, discovery.EndpointPort{Name: &port.name, Protocol: &port.protocol, Port: ptr(int32(53))})
	}
	read := []string{"list", "watch"}
	role := &rbac.ClusterRole{ObjectMeta: meta.ObjectMeta{Name: dnsUser}, Rules: []rbac.PolicyRule{
		{APIGroups: []string{""}, Resources: []string{"services", "namespaces", "pods"}, Verbs: read},
		{APIGroups: []string{discovery.GroupName}, Resources: []string{"endpointslices"}, Verbs: read},
	}}
	binding := &rbac.ClusterRoleBinding{
		ObjectMeta: meta.ObjectMeta{Name: dnsUser},
		RoleRef:    rbac.RoleRef{APIGroup: rbac.GroupName, Kind: "ClusterRole", Name: dnsUser},
		Subjects:   []rbac.Subject{{APIGroup: rbac.GroupName, Kind: rbac.UserKind, Name: dnsUser}},
	}

	var create meta.CreateOptions
	_, roleErr := s.client.RbacV1().ClusterRoles().Create(ctx, role, create)
	_, bindingErr := s.client.RbacV1().ClusterRoleBindings().Create(ctx, binding, create)
	_, serviceErr := s.client.CoreV1().Services(meta.NamespaceSystem).Create(ctx, service, create)
	_, sliceErr := s.client.DiscoveryV1().EndpointSlices(meta.NamespaceSystem).Create(ctx, slice, create)
	for _, err := range []error{roleErr, bindingErr, serviceErr, sliceErr} {
		if err != nil && !failure.IsAlreadyExists(err) {
			return err
		}
	}
	return nil
}
