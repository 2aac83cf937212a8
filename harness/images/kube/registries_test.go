package main

import (
	"os"
	"path/filepath"
	"testing"
)

func TestRegistriesBecomeHostsFilesAndLogins(t *testing.T) {
	folder := t.TempDir()
	file := filepath.Join(folder, "registries.yaml")
	if err := os.WriteFile(file, []byte(`
mirrors:
  public.test:
    endpoint: ["https://mirror.test:5000", "http://other.test/prefix"]
configs:
  "mirror.test:5000":
    tls: {ca_file: /ca.crt, cert_file: /client.crt, key_file: /client.key, insecure_skip_verify: true}
    auth: {username: u, password: "p\"w"}
`), 0o600); err != nil {
		t.Fatal(err)
	}
	logins, err := configureRegistries(file, folder)
	if err != nil {
		t.Fatal(err)
	}
	if len(logins) != 1 || logins[0].Host != "mirror.test:5000" || logins[0].Password != `p"w` {
		t.Errorf("log-ins %+v", logins)
	}
	for host, want := range map[string]string{
		"public.test": `
[host."https://mirror.test:5000"]
capabilities = ["pull", "resolve"]
ca = "/ca.crt"
client = [["/client.crt", "/client.key"]]
skip_verify = true

[host."http://other.test/prefix"]
capabilities = ["pull", "resolve"]
override_path = true
`,
		"mirror.test:5000": `server = "https://mirror.test:5000"
ca = "/ca.crt"
client = [["/client.crt", "/client.key"]]
skip_verify = true

[host]
`,
	} {
		got, err := os.ReadFile(filepath.Join(folder, host, "hosts.toml"))
		if err != nil || string(got) != want {
			t.Errorf("%s: %v\n%s", host, err, got)
		}
	}
}

func TestNoRegistriesFileIsNoMistake(t *testing.T) {
	folder := filepath.Join(t.TempDir(), "certs.d")
	if logins, err := configureRegistries("/does/not/exist", folder); err != nil || logins != nil {
		t.Errorf("%v %v", logins, err)
	}
}
