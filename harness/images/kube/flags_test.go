package main

import (
	"slices"
	"testing"
)

func TestBothSpellingsOfAFlagMeanTheSame(t *testing.T) {
	for _, args := range [][]string{
		{"--tls-san=a.test,b.test", "--kube-apiserver-arg=v=4", "--disable-agent"},
		{"--tls-san", "a.test", "--tls-san", "b.test", "--kube-apiserver-arg", "v=4", "--disable-agent=true"},
	} {
		o, warnings, err := parseOptions(args)
		if err != nil || len(warnings) > 0 {
			t.Fatalf("%v: %v %v", args, warnings, err)
		}
		if !slices.Equal(o.alternativeNames, []string{"a.test", "b.test"}) || !slices.Equal(o.given["apiserver"], []string{"v=4"}) || o.agent {
			t.Errorf("%v: %+v", args, o)
		}
	}
}

func TestFlagsOfK3sThatMeanNothingHereAreAccepted(t *testing.T) {
	o, warnings, err := parseOptions([]string{"--disable=traefik", "--disable", "metrics-server", "--flannel-backend=none", "--debug", "--node-name", "N1"})
	if err != nil || len(warnings) != 4 || o.nodeName != "n1" || !o.agent {
		t.Errorf("%+v %v %v", o, warnings, err)
	}
}

// The arguments that harness/clusters/cluster/options.rs gives to both images.
func TestArgumentsOfTheHarnessAreAccepted(t *testing.T) {
	o, warnings, err := parseOptions([]string{
		"--tls-san=skr", "--disable=traefik", "--disable=servicelb", "--disable=metrics-server", "--snapshotter=native",
		"--kubelet-arg=fail-cgroupv1=false", "--kube-apiserver-arg=feature-gates=ClusterTrustBundle=true",
		"--kube-controller-manager-arg=feature-gates=ClusterTrustBundle=true",
		"--kube-apiserver-arg=runtime-config=certificates.k8s.io/v1beta1/clustertrustbundles=true", "--disable-agent",
	})
	if err != nil || o.agent || len(o.given["apiserver"]) != 2 || len(o.given["kubelet"]) != 1 || len(o.given["kcm"]) != 1 {
		t.Errorf("%+v %v %v", o, warnings, err)
	}
}

func TestTheNameServerIsTheTenthService(t *testing.T) {
	o, _, err := parseOptions([]string{"--service-cidr=10.96.0.0/16"})
	if err != nil || o.dnsAddress.String() != "10.96.0.10" {
		t.Errorf("%+v %v", o, err)
	}
	for _, wrong := range []string{"--cluster-dns=10.0.0.10", "--cluster-cidr=none", "--service-cidr=fd00::/64", "server"} {
		if _, _, err := parseOptions([]string{wrong}); err == nil {
			t.Errorf("%s was accepted", wrong)
		}
	}
}

func TestTheUsersWordReplacesADefaultOrIsAddedToAList(t *testing.T) {
	got := commandLine(
		[]string{"v=1", "feature-gates=A=true,B=true", "allow-privileged"},
		[]string{"v=5", "feature-gates=B=false", "header=x", "header=y"})
	want := []string{"--feature-gates=A=true,B=true,B=false", "--allow-privileged=true", "--v=5", "--header=x", "--header=y"}
	if !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
}
