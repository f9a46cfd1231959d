package gcs

import (
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

// A key is that of a service account.
type key struct {
	email, id string
	tokenURI  *url.URL
	audience  string // token_uri as it is written
	private   *rsa.PrivateKey
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
	var file struct {
		Type     string `json:"type"`
		Email    string `json:"client_email"`
		ID       string `json:"private_key_id"`
		Private  string `json:"private_key"`
		TokenURI string `json:"token_uri"`
		Universe string `json:"universe_domain"`
	}
	if json.Unmarshal(text, &file) != nil { // the error would show values
		return nil, errors.New("is not JSON: it is the JSON key of a service account")
	}
	if file.Type != keyType {
		return nil, fmt.Errorf("has the type %.40q: only %s is accepted, for other files say what to ask or to run; "+
			"without secretRef the identity of this program is used", file.Type, keyType)
	}
	k := &key{email: file.Email, id: file.ID, audience: file.TokenURI}
	if k.email == "" {
		return nil, errors.New("has no client_email: download the key again")
	}
	var err error
	if k.private, err = parsePrivate(file.Private); err != nil {
		return nil, err
	}
	if k.audience == "" {
		k.audience = "https://oauth2.googleapis.com/token"
		if file.Universe != "" {
			k.audience = "https://oauth2." + file.Universe + "/token"
		}
	}
	k.tokenURI, err = parseTokenURI(k.audience, insecure)
	return k, err
}

func parsePrivate(text string) (*rsa.PrivateKey, error) {
	block, _ := pem.Decode([]byte(text))
	if block == nil {
		return nil, errors.New("has no private_key in PEM form: download the key again")
	}
	parsed, err := x509.ParsePKCS8PrivateKey(block.Bytes)
	if err != nil {
		parsed, err = x509.ParsePKCS1PrivateKey(block.Bytes)
	}
	if err != nil {
		return nil, errors.New("has a private_key that cannot be parsed: download the key again")
	}
	private, ok := parsed.(*rsa.PrivateKey)
	if !ok {
		return nil, errors.New("has a private_key that is not RSA: download the key again")
	}
	if bits := private.N.BitLen(); bits < minKeyBits || bits > maxKeyBits {
		return nil, fmt.Errorf("has a private_key of %d bits: want %d to %d", bits, minKeyBits, maxKeyBits)
	}
	return private, nil
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
