package transport

import (
	"crypto/tls"
	"errors"
	"net/url"

	"github.com/headgate-io/headgate/internal/secret"
	"github.com/headgate-io/headgate/source"
)

// The keys of Secrets, each with its older spellings.
var (
	keyUsername   = []string{"username"}
	keyPassword   = []string{"password"}
	keyCA         = []string{"ca.crt", "caFile"}
	keyCert       = []string{"tls.crt"}
	keyKey        = []string{"tls.key"}
	keyLegacyCert = []string{"tls.crt", "certFile"}
	keyLegacyKey  = []string{"tls.key", "keyFile"}
	keyOldCA      = []string{"caFile"}
	keyOldCert    = []string{"certFile"}
	keyOldKey     = []string{"keyFile"}
	keyIdentity   = []string{"identity"}
	keyKnownHosts = []string{"known_hosts"}
	keyAddress    = []string{"address"}
	keyRegistries = []string{".dockerconfigjson", ".dockercfg"}
	keyAccess     = []string{"accesskey"}
	keySecret     = []string{"secretkey"}
	keyToken      = []string{"token"}
	keyRole       = []string{"roleArn"}
)

// A SecretError says why a Secret cannot be used. It holds no value of the Secret.
type SecretError = secret.Error

// An Auth holds the credentials of an Authorization header. The zero value is none.
type Auth = secret.Auth

// IsAuthFailure reports whether our credentials cannot be used, or the server is not trusted: err
// is a *[SecretError], or a certificate was rejected. The reason of such a failure is
// AuthenticationFailed, whatever the operation.
func IsAuthFailure(err error) bool {
	_, secret := errors.AsType[*SecretError](err)
	_, certificate := errors.AsType[*tls.CertificateVerificationError](err)
	return secret || certificate
}

// A reader reads one Secret by key.
type reader struct{ secret.Reader }

func newReader(name string, s source.Secret) reader {
	return reader{secret.Reader{Name: name, Data: s.Data}}
}

// Registries returns the content that docker login stores, and its key: the text of a
// config.json with auths or, if legacy is set, that of auths alone.
func Registries(name string, s source.Secret) (text []byte, key string, legacy bool, err error) {
	r := newReader(name, s)
	text, key = r.Value(keyRegistries)
	if text == nil {
		err = r.Problem(key, "is missing: make the Secret with kubectl create secret docker-registry")
	}
	return text, key, key == keyRegistries[1], err
}

// BasicAuth returns the user name and password of a Secret, or the zero Auth if it has
// neither. A user name may come without a password, but a password needs a user name.
func BasicAuth(name string, s source.Secret) (Auth, error) { return newReader(name, s).Basic() }

// UserAuth returns the user name and password of a Secret for a registry. ok is false if
// the Secret holds the content of docker login instead, see [Registries]. A Secret with
// neither is an error.
func UserAuth(name string, s source.Secret) (a Auth, ok bool, err error) {
	r := newReader(name, s)
	if text, _ := r.Value(keyRegistries); text != nil {
		return Auth{}, false, nil
	}
	if a, err = RepositoryAuth(name, s); err == nil && a == (Auth{}) {
		err = r.Problem(keyRegistries[0], "is missing, and so are username and password: make the Secret with kubectl create secret docker-registry")
	}
	return a, err == nil, err
}

// RepositoryAuth returns the user name and password of the Secret of a PkgRepository: both
// of them, or the zero Auth if it has neither (reference A12).
func RepositoryAuth(name string, s source.Secret) (Auth, error) {
	a, err := BasicAuth(name, s)
	if err == nil && a.Username != "" && a.Password == "" {
		err = newReader(name, s).Problem("password", "is missing: username needs it")
	}
	return a, err
}

// GitAuth returns the credentials for git over http(s) of a Secret: a bearer
// token or a user name and password, never both. The zero Auth means that the
// Secret has neither.
func GitAuth(name string, s source.Secret) (Auth, error) {
	return newReader(name, s).Auth()
}

// SSH holds the credentials for git over ssh.
type SSH struct {
	Identity   []byte // private key, PEM
	Passphrase []byte // of Identity, nil for none
	KnownHosts []byte // as in OpenSSH's known_hosts
}

// GitSSH returns the credentials for git over ssh of a Secret. Private key and known hosts are both required.
func GitSSH(name string, s source.Secret) (SSH, error) {
	r := newReader(name, s)
	identity, _ := r.Value(keyIdentity)
	if identity == nil {
		return SSH{}, r.Problem("identity", "is missing: git over ssh needs a private key")
	}
	hosts, _ := r.Value(keyKnownHosts)
	if hosts == nil {
		return SSH{}, r.Problem("known_hosts", "is missing: git over ssh needs the keys of the server, see ssh-keyscan")
	}
	pass, _ := r.Value(keyPassword)
	return SSH{identity, pass, hosts}, nil
}

// SplitUser returns u without its user information, and the user information as an Auth.
// Requests and messages should use the returned URL.
func SplitUser(u *url.URL) (*url.URL, Auth) {
	clean := *u
	clean.User = nil
	if u.User == nil {
		return &clean, Auth{}
	}
	password, _ := u.User.Password()
	return &clean, Auth{Username: u.User.Username(), Password: password}
}

// S3Keys returns the keys for a bucket of a Secret, which must have both.
func S3Keys(name string, s source.Secret) (access, secret string, err error) {
	return newReader(name, s).textPair(keyAccess, keySecret, "S3 needs accesskey and secretkey")
}

// LDAP returns the user name and password for a token service of a Secret, which must have both.
func LDAP(name string, s source.Secret) (username, password string, err error) {
	return newReader(name, s).textPair(keyUsername, keyPassword, "LDAP needs username and password")
}

// WebIdentity returns the identity token of a Secret, and the role to assume with it, "" if
// the Secret has none.
func WebIdentity(name string, s source.Secret) (token, role string, err error) {
	r := newReader(name, s)
	if token, err = r.Text(keyToken); err != nil {
		return "", "", err
	}
	if token == "" {
		return "", "", r.Problem(keyToken[0], "is missing: it holds the identity token, a JWT")
	}
	role, err = r.Text(keyRole)
	return token, role, err
}

// textPair returns two values that need each other. purpose says what they are for.
func (r reader) textPair(first, second []string, purpose string) (one, other string, err error) {
	if one, err = r.Text(first); err != nil {
		return "", "", err
	}
	if other, err = r.Text(second); err != nil {
		return "", "", err
	}
	for _, missing := range []struct{ value, key string }{{one, first[0]}, {other, second[0]}} {
		if missing.value == "" {
			return "", "", r.Problem(missing.key, "is missing: %s", purpose)
		}
	}
	return one, other, nil
}

// GitTLS returns the TLS settings of the Secret of a GitRepository, nil if it has none: the
// CA to add to the system's, and the client certificate.
func GitTLS(name string, s source.Secret) (*tls.Config, error) {
	return newReader(name, s).TLS(keyCA, keyCert, keyKey)
}

// CertTLS returns the TLS settings of a Secret named by certSecretRef. A Secret
// without any is an error.
func CertTLS(name string, s source.Secret) (*tls.Config, error) {
	r := newReader(name, s)
	c, err := r.TLS(keyCA, keyLegacyCert, keyLegacyKey)
	if c == nil && err == nil {
		err = r.Problem(keyCA[0], "is missing, and so are %s and %s: set it, or both of them", keyCert[0], keyKey[0])
	}
	return c, err
}

// RepositoryTLS returns the TLS settings of the Secret of a PkgRepository, nil if it has
// none, and their keys, which are all deprecated.
func RepositoryTLS(name string, s source.Secret) (c *tls.Config, deprecated []string, err error) {
	r := newReader(name, s)
	for _, keys := range [][]string{keyOldCA, keyOldCert, keyOldKey} {
		if v, key := r.Value(keys); v != nil {
			deprecated = append(deprecated, key)
		}
	}
	c, err = r.TLS(keyOldCA, keyOldCert, keyOldKey)
	return c, deprecated, err
}
