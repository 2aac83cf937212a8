package main

import (
	"fmt"
	"net/netip"
	"os"
	"slices"
	"strings"
)

// options is what `kube server` can be told. The flags bear k3s's names, so that whoever starts the container need not
// know which of the two images it is.
type options struct {
	alternativeNames []string            // further names and addresses in the API server's certificate
	given            map[string][]string // role → KEY=VALUE pairs, in the order in which they were given
	nodeLabels       []string
	agent            bool // whether there is a node, or only a control plane
	nodeName         string
	snapshotter      string // containerd's; empty: chosen by the file system
	podRange         netip.Prefix
	serviceRange     netip.Prefix
	dnsAddress       netip.Addr
}

// roleOfFlag maps k3s's pass-through flags to our names of the roles.
var roleOfFlag = map[string]string{
	"etcd-arg":                    "etcd",
	"kube-apiserver-arg":          "apiserver",
	"kube-controller-manager-arg": "kcm",
	"kube-scheduler-arg":          "scheduler",
	"kubelet-arg":                 "kubelet",
}

// parseOptions reads the flags of `kube server`, both `--flag=value` and `--flag value`. Flags that k3s may know and that
// have no meaning here come back as warnings, for a caller that switches off parts of k3s must not fail with us.
func parseOptions(args []string) (*options, []string, error) {
	hostname, err := os.Hostname()
	if err != nil {
		return nil, nil, fmt.Errorf("finding the host name: %w", err)
	}
	o := &options{given: map[string][]string{}, agent: true, nodeName: strings.ToLower(hostname)}
	pods, services, dns := "10.42.0.0/16", "10.43.0.0/16", ""
	var warnings []string

	for len(args) > 0 {
		name, value, assigned := strings.Cut(args[0], "=")
		if !strings.HasPrefix(name, "-") {
			return nil, nil, fmt.Errorf("unexpected argument %q", args[0])
		}
		args = args[1:]
		name = strings.TrimLeft(name, "-")
		// A flag without "=" owns the next word unless that is a flag itself; the only known flag without a value is ours.
		if !assigned && name != "disable-agent" && len(args) > 0 && !strings.HasPrefix(args[0], "-") {
			value, args = args[0], args[1:]
			assigned = true
		}
		role, passedThrough := roleOfFlag[name]
		switch {
		case name == "disable-agent":
			o.agent = assigned && value == "false"
		case passedThrough:
			if value == "" {
				return nil, nil, fmt.Errorf("--%s wants KEY=VALUE", name)
			}
			o.given[role] = append(o.given[role], strings.TrimLeft(value, "-"))
		case name == "tls-san":
			o.alternativeNames = append(o.alternativeNames, splitList(value)...)
		case name == "node-label":
			o.nodeLabels = append(o.nodeLabels, splitList(value)...)
		case name == "node-name":
			o.nodeName = strings.ToLower(value)
		case name == "snapshotter":
			o.snapshotter = value
		case name == "cluster-cidr":
			pods = value
		case name == "service-cidr":
			services = value
		case name == "cluster-dns":
			dns = value
		default:
			warnings = append(warnings, fmt.Sprintf("--%s means nothing here and is ignored", name))
		}
	}

	if o.podRange, err = netip.ParsePrefix(pods); err != nil {
		return nil, nil, fmt.Errorf("--cluster-cidr: %w", err)
	}
	if o.serviceRange, err = netip.ParsePrefix(services); err != nil {
		return nil, nil, fmt.Errorf("--service-cidr: %w", err)
	}
	if !o.podRange.Addr().Is4() || !o.serviceRange.Addr().Is4() {
		return nil, nil, fmt.Errorf("--cluster-cidr and --service-cidr: only IPv4 is supported")
	}
	if dns == "" { // the tenth address, as in k3s and kubeadm
		dns = nthAddress(o.serviceRange, 10).String()
	}
	if o.dnsAddress, err = netip.ParseAddr(dns); err != nil {
		return nil, nil, fmt.Errorf("--cluster-dns: %w", err)
	}
	if !o.serviceRange.Contains(o.dnsAddress) {
		return nil, nil, fmt.Errorf("--cluster-dns: %s lies outside of the Services' range %s", o.dnsAddress, o.serviceRange)
	}
	return o, warnings, nil
}

// commandLine turns a role's default settings (KEY=VALUE) and those that the user gave into flags. The user's word
// replaces a default, except for settings that are lists of decisions: there it is added after ours, and the last mention
// of a feature gate or an API wins.
func commandLine(defaults, given []string) []string {
	joined := map[string]bool{"feature-gates": true, "runtime-config": true, "enable-admission-plugins": true}
	overridden := map[string]bool{}
	for _, pair := range given {
		key, _, _ := strings.Cut(pair, "=")
		overridden[key] = !joined[key]
	}
	var order []string
	values := map[string][]string{}
	set := func(pair string) {
		key, value, hasValue := strings.Cut(pair, "=")
		if !hasValue {
			value = "true"
		}
		if !slices.Contains(order, key) {
			order = append(order, key)
		}
		values[key] = append(values[key], value)
	}
	for _, pair := range defaults {
		if key, _, _ := strings.Cut(pair, "="); !overridden[key] {
			set(pair)
		}
	}
	for _, pair := range given {
		set(pair)
	}

	var flags []string
	for _, key := range order {
		if joined[key] {
			values[key] = []string{strings.Join(values[key], ",")}
		}
		for _, value := range values[key] {
			flags = append(flags, "--"+key+"="+value)
		}
	}
	return flags
}

func splitList(text string) []string {
	return strings.FieldsFunc(text, func(r rune) bool { return r == ',' || r == ' ' })
}

// nthAddress counts from the range's network address, which is number zero.
func nthAddress(in netip.Prefix, n int) netip.Addr {
	address := in.Masked().Addr()
	for range n {
		address = address.Next()
	}
	return address
}
