package main

import (
	"errors"
	"fmt"
	"maps"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"sigs.k8s.io/yaml"
)

// registries is the part of k3s's registries.yaml that containerd can follow. Rewriting of names is not among it.
type registries struct {
	Mirrors map[string]struct {
		Endpoints []string `json:"endpoint"`
	} `json:"mirrors"`
	Configs map[string]struct {
		Auth *registryLogin `json:"auth"`
		TLS  *registryTLS   `json:"tls"`
	} `json:"configs"`
}

type registryLogin struct {
	Host          string `json:"-"`
	Username      string `json:"username"`
	Password      string `json:"password"`
	Auth          string `json:"auth"`
	IdentityToken string `json:"identity_token"`
}

type registryTLS struct {
	Authority          string `json:"ca_file"`
	Certificate        string `json:"cert_file"`
	Key                string `json:"key_file"`
	InsecureSkipVerify bool   `json:"insecure_skip_verify"`
}

// configureRegistries translates the file into what containerd wants: a folder with a hosts.toml for each registry, which
// is read at every pull, and the log-ins, which belong to its main settings and are returned. No file means no registry.
func configureRegistries(file, folder string) ([]registryLogin, error) {
	text, err := os.ReadFile(file)
	if errors.Is(err, os.ErrNotExist) {
		return nil, os.MkdirAll(folder, 0o755)
	}
	if err != nil {
		return nil, err
	}
	var wanted registries
	if err := yaml.Unmarshal(text, &wanted); err != nil {
		return nil, err
	}

	hosts := map[string]bool{}
	for host := range wanted.Mirrors {
		hosts[host] = true
	}
	var logins []registryLogin
	for _, host := range slices.Sorted(maps.Keys(wanted.Configs)) {
		hosts[host] = true
		if login := wanted.Configs[host].Auth; login != nil {
			login.Host = host
			logins = append(logins, *login)
		}
	}
	for host := range hosts {
		text, err := wanted.hostsFile(host)
		if err != nil {
			return nil, fmt.Errorf("registry %s: %w", host, err)
		}
		name := host
		if host == "*" {
			name = "_default"
		}
		if err := writeFile(filepath.Join(folder, name, "hosts.toml"), []byte(text)); err != nil {
			return nil, err
		}
	}
	return logins, nil
}

// hostsFile names the mirrors in the order in which they are asked, and then the registry itself.
func (r *registries) hostsFile(host string) (string, error) {
	var text strings.Builder
	if r.Configs[host].TLS != nil { // otherwise containerd knows best, in particular for its default registry
		fmt.Fprintf(&text, "server = %q\n", "https://"+host)
	}
	r.describe(&text, host)
	if len(r.Mirrors[host].Endpoints) == 0 {
		text.WriteString("\n[host]\n") // containerd 1.6 takes a file without this table for a mistake
	}
	for _, endpoint := range r.Mirrors[host].Endpoints {
		address, err := url.Parse(endpoint)
		if err != nil {
			return "", err
		}
		if address.Host == "" {
			return "", fmt.Errorf("the endpoint %q is not a URL", endpoint)
		}
		fmt.Fprintf(&text, "\n[host.%q]\ncapabilities = [\"pull\", \"resolve\"]\n", endpoint)
		if path := strings.TrimSuffix(address.Path, "/"); path != "" && path != "/v2" {
			text.WriteString("override_path = true\n")
		}
		r.describe(&text, address.Host)
	}
	return text.String(), nil
}

// describe adds how to trust a host and what to show it.
func (r *registries) describe(text *strings.Builder, host string) {
	settings := r.Configs[host].TLS
	if settings == nil {
		return
	}
	if settings.Authority != "" {
		fmt.Fprintf(text, "ca = %q\n", settings.Authority)
	}
	if settings.Certificate != "" {
		fmt.Fprintf(text, "client = [[%q, %q]]\n", settings.Certificate, settings.Key)
	}
	if settings.InsecureSkipVerify {
		text.WriteString("skip_verify = true\n")
	}
}
