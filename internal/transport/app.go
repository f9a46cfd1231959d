package transport

import (
	"crypto/rsa"
	"crypto/x509"
	"encoding/pem"
	"regexp"
	"strings"

	"github.com/headgate-io/headgate/source"
)

// The keys of a Secret for provider github (reference A9).
const (
	keyAppID        = "githubAppID"
	keyInstallation = "githubAppInstallationID"
	keyOwner        = "githubAppInstallationOwner"
	keyAppKey       = "githubAppPrivateKey"
	keyAppURL       = "githubAppBaseURL"
)

// An App is a GitHub App as a Secret describes it.
type App struct {
	ID           string // id of the app, or its client id
	Installation string // id of the installation; "" when Owner is set
	Owner        string // user or organisation that it is installed for; "" when Installation is set
	BaseURL      string // of the API, "" for the default
	Key          *rsa.PrivateKey
}

var (
	appForm    = regexp.MustCompile(`^[A-Za-z0-9._-]{1,64}$`)
	numberForm = regexp.MustCompile(`^[0-9]{1,20}$`)
	ownerForm  = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9_-]{0,99}$`)
)

// IsApp reports whether a Secret is for provider github.
func IsApp(s source.Secret) bool { return len(s.Data[keyAppID]) > 0 || len(s.Data[keyAppKey]) > 0 }

// GitHubApp returns the app of a Secret. Its private key is RSA with at least
// 1024 bits, as PEM of at most 16 KiB in the form of PKCS #1 or PKCS #8.
func GitHubApp(name string, s source.Secret) (App, error) {
	r := newReader(name, s)
	var app App
	for _, f := range []struct {
		key  string
		into *string
		form *regexp.Regexp
		want string
	}{
		{keyAppID, &app.ID, appForm, "is not the id of an app"},
		{keyInstallation, &app.Installation, numberForm, "is not the id of an installation, which is a number"},
		{keyOwner, &app.Owner, ownerForm, "is not the name of a user or an organisation"},
		{keyAppURL, &app.BaseURL, nil, ""},
	} {
		v, err := r.Text([]string{f.key})
		if err != nil {
			return App{}, err
		}
		if v != "" && f.form != nil && !f.form.MatchString(v) {
			return App{}, r.Problem(f.key, "%s", f.want)
		}
		*f.into = v
	}
	switch {
	case app.ID == "":
		return App{}, r.Problem(keyAppID, "is missing: it is the id of the GitHub App")
	case app.Installation == "" && app.Owner == "":
		return App{}, r.Problem(keyInstallation, "is missing: set it, or %s", keyOwner)
	case app.Installation != "" && app.Owner != "":
		return App{}, r.Problem(keyInstallation, "and %s exclude each other: remove one", keyOwner)
	}
	var err error
	app.Key, err = r.rsaKey(keyAppKey)
	return app, err
}

// Limits of the key of an app: a longer key would take minutes to sign with, and crypto/rsa
// does not sign with a shorter one.
const (
	maxKey  = 16 << 10 // bytes of text, enough for 16384 bits
	minBits = 1024
)

// rsaKey returns the private key under key.
func (r reader) rsaKey(key string) (*rsa.PrivateKey, error) {
	v, _ := r.Value([]string{key})
	if v == nil {
		return nil, r.Problem(key, "is missing: it is the private key of the GitHub App, PEM")
	}
	if len(v) > maxKey {
		return nil, r.Problem(key, "has %d bytes, at most %d are allowed", len(v), maxKey)
	}
	block, err := r.Block(v, key, "PRIVATE KEY")
	if err != nil {
		return nil, err
	}
	parsed, err := parseKey(block)
	if err != nil {
		return nil, r.Problem(key, "holds a private key that cannot be parsed: %s", strings.TrimPrefix(err.Error(), "x509: "))
	}
	k, ok := parsed.(*rsa.PrivateKey)
	switch {
	case !ok:
		return nil, r.Problem(key, "is not an RSA key: download the key of the GitHub App")
	case k.N.BitLen() < minBits:
		return nil, r.Problem(key, "is an RSA key of %d bits, at least %d are needed: download the key of the GitHub App", k.N.BitLen(), minBits)
	}
	return k, nil
}

func parseKey(b *pem.Block) (any, error) {
	switch b.Type {
	case "RSA PRIVATE KEY":
		return x509.ParsePKCS1PrivateKey(b.Bytes)
	case "EC PRIVATE KEY":
		return x509.ParseECPrivateKey(b.Bytes)
	}
	return x509.ParsePKCS8PrivateKey(b.Bytes)
}
