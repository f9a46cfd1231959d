package bucket

import (
	"context"
	"errors"
	"net/http"
	"net/url"
	"sync"

	"github.com/headgate-io/headgate/internal/transport"
	"github.com/headgate-io/headgate/source"
)

// A Vault remembers what must not show in texts. A [Provider] needs two of its
// methods: Conceal(values ...string) adds values, and Values() []string returns
// all of them, for [Said].
type Vault = transport.Vault

// A Secret is a [source.Secret] and, in its field Name, NAMESPACE/NAME, which is
// "" where the spec names none.
type Secret = transport.Secret

// A Config says how a server is reached. A [Provider] hands it on, from Way or
// STSWay of its [Access] to [Access.Client].
type Config = transport.Config

// An Access is what a [Provider] needs to know.
type Access struct {
	Spec   *source.BucketSpec
	Secret Secret // of spec.secretRef
	Way    Config // how the endpoint is reached: the TLS of spec.certSecretRef, the proxy of spec.proxySecretRef
	STS    Secret // of spec.sts.secretRef
	STSWay Config // how the token service is reached: the TLS of spec.sts.certSecretRef, the same proxy
	Vault  *Vault // what must not show in texts

	login source.LoginFunc
	mu    sync.Mutex
	web   []*http.Client // that were handed out
}

// newAccess reads the Secrets that spec names. Errors are *[source.StepError].
func newAccess(ctx context.Context, spec *source.BucketSpec, env source.Env, v *Vault) (*Access, error) {
	a := &Access{Spec: spec, Vault: v, login: env.Login}
	var err error
	if a.Secret, err = v.Read(ctx, spec.SecretRef, "spec.secretRef"); err != nil {
		return nil, err
	}
	proxy, err := v.Read(ctx, spec.ProxySecretRef, "spec.proxySecretRef")
	if err != nil {
		return nil, err
	}
	if a.Way, err = way(ctx, v, spec.CertSecretRef, "spec.certSecretRef", proxy, env); err != nil {
		return nil, err
	}
	var sts source.BucketSTSSpec
	if spec.STS != nil {
		sts = *spec.STS
	}
	if a.STS, err = v.Read(ctx, sts.SecretRef, "spec.sts.secretRef"); err != nil {
		return nil, err
	}
	if a.STSWay, err = way(ctx, v, sts.CertSecretRef, "spec.sts.certSecretRef", proxy, env); err != nil {
		return nil, err
	}
	return a, nil
}

// way returns how a server is reached: with the TLS settings of the Secret that
// ref, the field of the spec, names, and a proxy, which is trusted as the server is.
func way(ctx context.Context, v *Vault, ref *source.LocalReference, field string, proxy Secret, env source.Env) (c Config, err error) {
	c = transport.Outside(env)
	cert, err := v.Read(ctx, ref, field)
	if err == nil && cert.Name != "" {
		c.TLS, err = transport.CertTLS(cert.Name, cert.Secret)
	}
	if err != nil {
		return c, err
	}
	c.Settings = transport.Settings("cert", cert, proxy)
	if proxy.Name == "" {
		return c, nil
	}
	p, err := transport.ProxyFromSecret(proxy.Name, proxy.Secret, c.TLS)
	if err != nil {
		return c, err
	}
	c.Proxy = p.For
	return c, nil
}

// LogIn returns what spec.provider issues to the identity of the program, or of
// spec.serviceAccountName, for the bucket at, which is s3://HOST/BUCKET,
// gs://HOST/BUCKET or azblob://HOST/CONTAINER. AWS issues keys: Username is the
// access key, Password the secret key and Token the session token, "" for none.
// The others issue bearer tokens.
func (a *Access) LogIn(ctx context.Context, at *url.URL) (source.Credential, error) {
	if a.login == nil {
		return source.Credential{}, errors.ErrUnsupported
	}
	return a.Vault.LogIn(ctx, a.login, a.Way, source.LoginRequest{Provider: a.Spec.Provider, URL: at, ServiceAccount: a.Spec.ServiceAccountName})
}

// Client returns a client for the server at origin, nil for any, reached by way. Credentials
// and the client certificate go to that origin only, redirects are not followed,
// and requests that a busy server refuses are sent again.
func (a *Access) Client(origin *url.URL, way Config) *http.Client {
	way.Origin = origin
	c := transport.Client(way)
	c.Transport = &transport.Patient{Next: c.Transport, Busy: []int{http.StatusInternalServerError, http.StatusRequestTimeout}}
	c.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	a.mu.Lock()
	defer a.mu.Unlock()
	a.web = append(a.web, c)
	return c
}

// close ends idle connections.
func (a *Access) close() {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, c := range a.web {
		c.CloseIdleConnections()
	}
}
