package notify

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"strings"

	"github.com/headgate-io/headgate/internal/deliver"
	"github.com/headgate-io/headgate/internal/secret"
	"github.com/headgate-io/headgate/rollout"
)

// A target is where and how one message is posted, with what only the service may know.
type target struct {
	deliver.Target
	token string
}

// The keys of Secrets.
var (
	keyAddress = []string{"address"}
	keyToken   = []string{"token", "apiToken"} // the second in some releases of the reference
)

// target reads the Secrets of the provider.
func (n *Notifier) target(ctx context.Context) (*target, error) {
	spec := &n.Provider.Spec
	if err := n.Provider.Check(); err != nil {
		return nil, deliver.Permanent{Err: err}
	}
	s, t := services[spec.Type], &target{}
	address, at, err := n.address(ctx, s, t)
	if err != nil {
		return nil, err
	}
	if t.URL, err = deliver.ParseURL(address); err != nil {
		return nil, fmt.Errorf("%s %w", at, err)
	}
	if s.suffix != "" && !strings.HasSuffix(t.URL.Path, "/"+s.suffix) {
		t.URL = t.URL.JoinPath(s.suffix)
	}
	if t.Proxy, err = n.proxy(t.URL); err != nil {
		return nil, err
	}
	return t, n.certificates(ctx, t)
}

// address returns the address of the service and where that stands; a token
// that stands beside it goes into t.
func (n *Notifier) address(ctx context.Context, s *service, t *target) (address, at string, err error) {
	spec := &n.Provider.Spec
	if spec.SecretRef == nil {
		return spec.Address, "spec.address", nil
	}
	r, err := n.secret(ctx, "spec.secretRef", spec.SecretRef)
	if err != nil {
		return "", "", err
	}
	address, err = r.Text(keyAddress)
	if err == nil && s.token {
		t.token, err = r.Text(keyToken)
	}
	switch {
	case err != nil:
		return "", "", deliver.Permanent{Err: fmt.Errorf("spec.secretRef: %w", err)}
	case address != "":
		return address, "spec.secretRef: secret " + r.Name + ": key address", nil
	case spec.Address != "":
		return spec.Address, "spec.address", nil
	case t.token != "" && s.address != "":
		return s.address, "", nil
	}
	return "", "", deliver.Permanent{Err: fmt.Errorf("spec.secretRef: %w", r.Problem(keyAddress[0], "is missing, and so is spec.address: set one of them"))}
}

// proxy returns the proxy to u, nil for none.
func (n *Notifier) proxy(u *url.URL) (*url.URL, error) {
	if text := n.Provider.Spec.Proxy; text != "" {
		proxy, err := deliver.ParseProxy(text)
		if err != nil {
			return nil, fmt.Errorf("spec.proxy %w", err)
		}
		return proxy, nil
	}
	if n.Proxy == nil {
		return nil, nil
	}
	proxy, err := n.Proxy(&http.Request{Method: http.MethodPost, URL: u, Header: http.Header{}, Host: u.Host})
	if err != nil {
		return nil, fmt.Errorf("proxy: %w", err)
	}
	return proxy, nil
}

// certificates reads the TLS settings of the provider into t.
func (n *Notifier) certificates(ctx context.Context, t *target) error {
	ref := n.Provider.Spec.CertSecretRef
	if ref == nil {
		return t.Secure(nil)
	}
	r, err := n.secret(ctx, "spec.certSecretRef", ref)
	if err != nil {
		return err
	}
	if err := t.Secure(&r); err != nil {
		return fmt.Errorf("spec.certSecretRef: %w", err)
	}
	return nil
}

func (n *Notifier) secret(ctx context.Context, field string, ref *rollout.SecretRef) (secret.Reader, error) {
	if n.Secrets == nil {
		return secret.Reader{}, deliver.Settings("%s: there are no Secrets here", field)
	}
	at := namespace(n.Provider.Metadata.Namespace)
	data, err := n.Secrets(ctx, at, ref.Name)
	if err != nil {
		return secret.Reader{}, fmt.Errorf("%s: %w", field, secret.Unreadable("secret "+at+"/"+ref.Name, err))
	}
	return secret.Reader{Name: ref.Name, Data: data}, nil
}

// secrets returns what must not be seen of t.
func (t *target) secrets() []string { return append(deliver.Private(t.URL), t.token) }
