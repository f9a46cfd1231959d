package listen

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"time"

	"github.com/headgate-io/headgate/internal/reload"
)

// TLS says how connections are encrypted, and whether clients have to show who
// they are. The files are PEM, and read again when they change, once a second
// at most; what is wrong then leaves those in use that were read before.
type TLS struct {
	Cert, Key string // of the server
	ClientCA  string // who issues the certificates of clients; "" for none
	Optional  bool   // clients may have none

	Warn func(error)      // is told what is wrong with a file that was changed; nil for nobody
	Now  func() time.Time // nil for time.Now
}

// config returns how connections are encrypted, nil when they are not.
func (t TLS) config() (*tls.Config, error) {
	switch {
	case (t.Cert == "") != (t.Key == ""):
		return nil, errors.New("a certificate and its key go together")
	case t.ClientCA != "" && t.Cert == "":
		return nil, errors.New("certificates of clients need TLS: a certificate and its key")
	case t.Optional && t.ClientCA == "":
		return nil, errors.New("certificates of clients that may be missing need a CA")
	case t.Cert == "":
		return nil, nil
	}
	return t.Config()
}

// Config reads the files.
func (t TLS) Config() (*tls.Config, error) {
	names := []string{t.Cert, t.Key}
	if t.ClientCA != "" {
		names = append(names, t.ClientCA)
	}
	files, err := reload.Open(t.Now, t.Warn, t.read, names...)
	if err != nil {
		return nil, fmt.Errorf("read certificates: %w", err)
	}
	config := files.Value().Clone()
	config.GetConfigForClient = func(*tls.ClientHelloInfo) (*tls.Config, error) { return files.Value(), nil }
	return config, nil
}

func (t TLS) read(names []string, contents [][]byte) (*tls.Config, []error, error) {
	pair, err := tls.X509KeyPair(contents[0], contents[1])
	if err != nil {
		return nil, nil, fmt.Errorf("certificate %s with key %s: %w", names[0], names[1], err)
	}
	config := &tls.Config{
		MinVersion: tls.VersionTLS12, Certificates: []tls.Certificate{pair}, NextProtos: []string{"h2", "http/1.1"},
	}
	if t.ClientCA == "" {
		return config, nil, nil
	}
	config.ClientCAs = x509.NewCertPool()
	if !config.ClientCAs.AppendCertsFromPEM(contents[2]) {
		return nil, nil, fmt.Errorf("%s: %w", names[2], errors.New("it holds no certificate in PEM form"))
	}
	config.SessionTicketsDisabled = true // who resumed a session would be who it was under an earlier CA
	config.ClientAuth = tls.RequireAndVerifyClientCert
	if t.Optional {
		config.ClientAuth = tls.VerifyClientCertIfGiven
	}
	return config, nil, nil
}
