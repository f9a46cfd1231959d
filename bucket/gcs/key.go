package gcs

import (
	"cmp"
	"crypto/rsa"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"net"
	"net/url"
	"strings"

	"github.com/headgate-io/headgate/bucket"
	"github.com/headgate-io/headgate/internal/transport"
)

// secretKey is where a Secret has the key of a service account.
const secretKey = "serviceaccount"

// Bounds of a key. crypto/rsa does not sign with less, and would take minutes with more.
const (
	maxKeyFile = 64 << 10 // bytes
	minKeyBits = 1024
	maxKeyBits = 16384
)

// keyType is the one type of file that holds a key and nothing to follow.
const keyType = "service_account"

// A key is the file that Google Cloud makes of the key of a service account.
type key struct {
	Type     string `json:"type"`
	Email    string `json:"client_email"`
	ID       string `json:"private_key_id"`
	Private  string `json:"private_key"`
	TokenURI string `json:"token_uri"`
	Universe string `json:"universe_domain"`

	tokenURI *url.URL // what TokenURI means
}

// readKey returns the key of a Secret. insecure allows a token service on
// loopback without TLS. Errors are *[transport.SecretError].
func readKey(s bucket.Secret, insecure bool) (*key, error) {
	problem := func(format string, args ...any) error {
		return &transport.SecretError{Secret: s.Name, Key: secretKey, Problem: fmt.Sprintf(format, args...)}
	}
	text := s.Data[secretKey]
	switch {
	case len(text) == 0:
		return nil, problem("is missing: it is the JSON key of a service account")
	case len(text) > maxKeyFile:
		return nil, problem("has %d bytes, at most %d are allowed", len(text), maxKeyFile)
	}
	k, err := parseKey(text, insecure)
	if err != nil {
		return nil, problem("%s", err)
	}
	return k, nil
}

// parseKey decodes the file that Google Cloud makes of a key. Errors show none of its values but the type.
func parseKey(text []byte, insecure bool) (*key, error) {
	var k key
	if json.Unmarshal(text, &k) != nil { // the error would show values
		return nil, errors.New("is not JSON: it is the JSON key of a service account")
	}
	if k.Type != keyType {
		return nil, fmt.Errorf("has the type %.40q: only %s is accepted, for other files say what to ask or to run; "+
			"without secretRef the identity of this program is used", k.Type, keyType)
	}
	if k.Email == "" {
		return nil, errors.New("has no client_email: download the key again")
	}
	if err := checkPrivate(k.Private); err != nil {
		return nil, err
	}
	k.TokenURI = cmp.Or(k.TokenURI, "https://oauth2."+cmp.Or(k.Universe, "googleapis.com")+"/token")
	var err error
	k.tokenURI, err = parseTokenURI(k.TokenURI, insecure)
	return &k, err
}

// checkPrivate reports why text is no private key to sign with.
func checkPrivate(text string) error {
	block, _ := pem.Decode([]byte(text))
	if block == nil {
		return errors.New("has no private_key in PEM form: download the key again")
	}
	parsed, err := x509.ParsePKCS8PrivateKey(block.Bytes)
	if err != nil {
		parsed, err = x509.ParsePKCS1PrivateKey(block.Bytes)
	}
	if err != nil {
		return errors.New("has a private_key that cannot be parsed: download the key again")
	}
	private, ok := parsed.(*rsa.PrivateKey)
	if !ok {
		return errors.New("has a private_key that is not RSA: download the key again")
	}
	if bits := private.N.BitLen(); bits < minKeyBits || bits > maxKeyBits {
		return fmt.Errorf("has a private_key of %d bits: want %d to %d", bits, minKeyBits, maxKeyBits)
	}
	return nil
}

// parseTokenURI returns where a key is exchanged.
func parseTokenURI(text string, insecure bool) (*url.URL, error) {
	u, err := url.Parse(text)
	if err != nil || u.Hostname() == "" || u.User != nil || u.Scheme != "https" && u.Scheme != "http" {
		return nil, errors.New("has a token_uri that is not an https URL")
	}
	if u.Scheme == "http" && !(insecure && loopback(u.Hostname())) {
		return nil, errors.New("has a token_uri that is not an https URL: http is for loopback, with spec.insecure")
	}
	return u, nil
}

func loopback(host string) bool {
	ip := net.ParseIP(host)
	return strings.EqualFold(host, "localhost") || ip != nil && ip.IsLoopback()
}
