package main

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"time"

	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/tools/clientcmd/api"
)

// authority is a certificate authority that lives as long as the cluster, which is short: nothing is ever renewed.
type authority struct {
	certificate *x509.Certificate
	key         *ecdsa.PrivateKey
	pair        keyPair
}

// keyPair is a certificate and its key, both in PEM.
type keyPair struct{ certificate, key []byte }

func newAuthority(name string) (*authority, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, fmt.Errorf("making the key of %s: %w", name, err)
	}
	template := certificateTemplate(pkix.Name{CommonName: name})
	template.IsCA = true
	template.KeyUsage = x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		return nil, fmt.Errorf("signing %s: %w", name, err)
	}
	certificate, err := x509.ParseCertificate(der)
	if err != nil {
		return nil, fmt.Errorf("reading %s back: %w", name, err)
	}
	pair, err := encodePair(der, key)
	return &authority{certificate: certificate, key: key, pair: pair}, err
}

// issue signs a leaf for both ends of TLS. In a client certificate Kubernetes reads the common name as the user and the
// organizations as groups; hosts are DNS names and addresses.
func (a *authority) issue(user string, groups, hosts []string) (keyPair, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return keyPair{}, fmt.Errorf("making the key of %s: %w", user, err)
	}
	template := certificateTemplate(pkix.Name{CommonName: user, Organization: groups})
	template.KeyUsage = x509.KeyUsageDigitalSignature
	template.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth, x509.ExtKeyUsageServerAuth}
	for _, host := range hosts {
		if ip := net.ParseIP(host); ip != nil {
			template.IPAddresses = append(template.IPAddresses, ip)
		} else {
			template.DNSNames = append(template.DNSNames, host)
		}
	}
	der, err := x509.CreateCertificate(rand.Reader, template, a.certificate, key.Public(), a.key)
	if err != nil {
		return keyPair{}, fmt.Errorf("signing the certificate of %s: %w", user, err)
	}
	return encodePair(der, key)
}

func certificateTemplate(subject pkix.Name) *x509.Certificate {
	serial, _ := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 120)) // the system's random source does not fail
	now := time.Now()
	return &x509.Certificate{
		SerialNumber:          serial,
		Subject:               subject,
		NotBefore:             now.Add(-time.Hour), // clocks of containers and clients may differ a little
		NotAfter:              now.AddDate(1, 0, 0),
		BasicConstraintsValid: true,
	}
}

func encodePair(der []byte, key *ecdsa.PrivateKey) (keyPair, error) {
	encoded, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		return keyPair{}, fmt.Errorf("encoding a key: %w", err)
	}
	return keyPair{
		certificate: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}),
		key:         pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: encoded}),
	}, nil
}

// write leaves NAME.crt and NAME.key in the folder.
func (p keyPair) write(folder, name string) error {
	if err := writeFile(filepath.Join(folder, name+".crt"), p.certificate); err != nil {
		return err
	}
	return writeFile(filepath.Join(folder, name+".key"), p.key)
}

// kubeconfig is a client's configuration, with everything inside, so that the file can be copied out of the container.
func kubeconfig(server string, authority []byte, client keyPair) ([]byte, error) {
	const name = "default" // k3s's name for the cluster, the user and the context
	config := api.NewConfig()
	config.Clusters[name] = &api.Cluster{Server: server, CertificateAuthorityData: authority}
	config.AuthInfos[name] = &api.AuthInfo{ClientCertificateData: client.certificate, ClientKeyData: client.key}
	config.Contexts[name] = &api.Context{Cluster: name, AuthInfo: name}
	config.CurrentContext = name
	text, err := clientcmd.Write(*config)
	if err != nil {
		return nil, fmt.Errorf("encoding a kubeconfig: %w", err)
	}
	return text, nil
}

// writeFile writes a file, readable for root alone, in one step: whoever waits for it never sees half of it.
func writeFile(path string, content []byte) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	unfinished := path + ".unfinished"
	if err := os.WriteFile(unfinished, content, 0o600); err != nil {
		return err
	}
	return os.Rename(unfinished, path)
}
