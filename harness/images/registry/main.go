// Command registry is a private image registry with TLS and one log-in, for tests in which nodes pull with credentials
// and must fail without them. It is the reference implementation (CNCF distribution), linked as a library, so that the
// image is this one program.
//
// It listens on port 5000 and takes its configuration from files, which are copied into the container before it starts:
//
//	/etc/registry/tls.crt, /etc/registry/tls.key   its certificate chain and key, in PEM
//	/etc/registry/htpasswd                         who may pull and push (bcrypt)
//
// Images are kept in /var/lib/registry, and go with the container. "listening on" in the output means ready.
package main

import (
	"context"
	"crypto/rand"
	"fmt"
	"os"

	"github.com/distribution/distribution/v3/configuration"
	"github.com/distribution/distribution/v3/registry"
	_ "github.com/distribution/distribution/v3/registry/auth/htpasswd"
	_ "github.com/distribution/distribution/v3/registry/storage/driver/filesystem"
)

const (
	certificateFile = "/etc/registry/tls.crt"
	keyFile         = "/etc/registry/tls.key"
	usersFile       = "/etc/registry/htpasswd"
	imagesFolder    = "/var/lib/registry"
)

func main() {
	if err := serve(); err != nil {
		fmt.Fprintln(os.Stderr, "registry:", err)
		os.Exit(1)
	}
}

func serve() error {
	// Without this check the library would make up a certificate-less registry, or a user with a random password.
	for _, file := range []string{certificateFile, keyFile, usersFile} {
		if _, err := os.Stat(file); err != nil {
			return fmt.Errorf("a file of the configuration is missing: %w", err)
		}
	}
	if err := os.Setenv("OTEL_TRACES_EXPORTER", "none"); err != nil {
		return err
	}

	settings := &configuration.Configuration{
		Auth: configuration.Auth{"htpasswd": {"realm": "images", "path": usersFile}},
		Storage: configuration.Storage{
			"filesystem": {"rootdirectory": imagesFolder},
			"delete":     {"enabled": true},
		},
	}
	settings.Log.Level = "info"
	settings.HTTP.Addr = ":5000"
	settings.HTTP.Secret = rand.Text()
	settings.HTTP.TLS.Certificate = certificateFile
	settings.HTTP.TLS.Key = keyFile
	server, err := registry.NewRegistry(context.Background(), settings)
	if err != nil {
		return err
	}
	return server.ListenAndServe()
}
