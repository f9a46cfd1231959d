package chart

import (
	"context"
	"crypto/sha256"
	"crypto/tls"
	"fmt"
	"net/http"
	"net/url"
	"regexp"
	"strconv"
	"strings"
	"sync"

	"github.com/headgate-io/headgate/internal/redact"
	"github.com/headgate-io/headgate/internal/transport"
	"github.com/headgate-io/headgate/source"
)

// A web is a repository of charts behind http or https, as the credentials of
// its object see it. It is safe for concurrent use.
type web struct {
	at    *url.URL          // of the repository, as parseURL has it, without user information
	notes []string          // what its owner should know of the Secrets
	print [sha256.Size]byte // of all that decides a request: the URL, credentials and who may see them

	way    transport.Config // to the repository
	secret string           // name of the Secret of spec.secretRef, "" for none
	pass   bool             // user name and password may be shown to other origins
	vault  *transport.Vault

	fence *transport.Fence // of the repository
	free  bool             // a directory stands in for it: the user alone chose where we go

	mu      sync.Mutex
	clients map[string]*http.Client // by origin, "" for that of the repository
}

// dial reads the Secrets that repo names. It asks no server. Errors are
// *[source.StepError], with the reason URLInvalid when the URL is to blame.
func dial(ctx context.Context, repo *source.PkgRepository, env source.Env, vault *transport.Vault) (*web, error) {
	at, err := parseURL(repo.Spec.URL)
	if err != nil {
		return nil, urlInvalid(fmt.Errorf("spec.url: %w", err))
	}
	w := &web{way: transport.Outside(env), pass: repo.Spec.PassCredentials, vault: vault, clients: map[string]*http.Client{}}
	w.at, w.way.Auth = transport.SplitUser(at)
	vault.Conceal(w.way.Auth.Password)
	secret, err := vault.Read(ctx, repo.Spec.SecretRef, "spec.secretRef")
	if err != nil {
		return nil, err
	}
	cert, err := vault.Read(ctx, repo.Spec.CertSecretRef, "spec.certSecretRef")
	if err != nil {
		return nil, err
	}
	if err := w.present(secret, cert); err != nil {
		return nil, &source.StepError{Step: source.StepResolve, Reason: "AuthenticationFailed", Err: err}
	}
	w.fence = transport.NewFence(w.at, nil)
	w.way.Origin, w.way.Fence = w.at, w.fence
	h := sha256.New()
	transport.Note(h, w.at.String(), w.way.Auth.Username, w.way.Auth.Password, strconv.FormatBool(w.pass))
	secret.Note(h)
	cert.Note(h)
	h.Sum(w.print[:0])
	return w, nil
}

// present takes the credentials of two Secrets: those of spec.secretRef take
// the place of those in the URL, and the TLS settings of spec.certSecretRef
// that of all in spec.secretRef.
func (w *web) present(secret, cert transport.Secret) error {
	w.secret = secret.Name
	auth, err := transport.RepositoryAuth(secret.Name, secret.Secret)
	if err != nil {
		return err
	}
	if auth != (transport.Auth{}) {
		w.way.Auth = auth
	}
	if cert.Name != "" {
		w.way.Settings = transport.Settings("cert", cert, transport.Secret{})
		w.way.TLS, err = transport.CertTLS(cert.Name, cert.Secret)
		return err
	}
	w.way.Settings = transport.Settings("repository", secret, transport.Secret{})
	settings, deprecated, err := transport.RepositoryTLS(secret.Name, secret.Secret)
	if len(deprecated) > 0 {
		w.notes = append(w.notes, fmt.Sprintf("secret %s: %s of spec.secretRef are deprecated: move them to the Secret of spec.certSecretRef, as ca.crt, tls.crt and tls.key",
			secret.Name, strings.Join(deprecated, ", ")))
	}
	w.way.TLS = settings
	return err
}

// get asks for u, with further header fields. The answer has the status 200, or
// 304 when header makes it conditional; others are *[StatusError]. Credentials
// go to the origin of the repository only, or user name and password to that
// of u too where spec.passCredentials allows it. The content is decompressed,
// unless header has a field Accept-Encoding.
func (w *web) get(ctx context.Context, u *url.URL, header http.Header) (*http.Response, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, u.String(), nil)
	if err != nil {
		return nil, err
	}
	for name, values := range header {
		req.Header[name] = values
	}
	resp, err := w.client(u).Do(req)
	if err != nil {
		return nil, unreached(err)
	}
	conditional := header.Get("If-None-Match") != "" || header.Get("If-Modified-Since") != ""
	switch {
	case resp.StatusCode == http.StatusNotModified && conditional:
		return resp, nil
	case resp.StatusCode != http.StatusOK:
		transport.Finish(resp)
		return nil, w.refusal(u, resp)
	}
	if coding := strings.Join(resp.Header.Values("Content-Encoding"), ", "); header.Get("Accept-Encoding") == "" && compresses.MatchString(coding) {
		resp.Body.Close()
		return nil, fmt.Errorf("GET %s: the answer is compressed with %q, which was not asked for", redact.URL(resp.Request.URL), coding)
	}
	return resp, nil
}

// compresses matches a Content-Encoding that changes the content (RFC 9110
// section 8.4.1). Servers also have names of character sets there, and
// aws-chunked, which an upload was sent with.
var compresses = regexp.MustCompile(`(?i)\b(gzip|deflate|compress|br|zstd)\b`)

// client returns who asks for u. What the repository is shown over TLS is not
// shown to others without.
func (w *web) client(u *url.URL) *http.Client {
	way, key := w.way, ""
	if !transport.SameOrigin(u, w.at) {
		key = u.Scheme + "://" + u.Host
		way.Origin, way.Auth, way.TLS = nil, transport.Auth{}, authorities(way.TLS)
		if w.pass && (u.Scheme == "https" || w.at.Scheme == "http") {
			way.Origin, way.Auth = &url.URL{Scheme: u.Scheme, Host: u.Host}, w.way.Auth
		}
		way.Fence = transport.NewFence(u, w.names())
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	c := w.clients[key]
	if c == nil {
		c = transport.Client(way)
		c.Transport = &transport.Patient{Next: c.Transport}
		w.clients[key] = c
	}
	return c
}

// names returns the fence of what the repository names. Where a directory stands
// in for it, nobody but the user does.
func (w *web) names() *transport.Fence {
	if w.free {
		return nil
	}
	return w.fence
}

// authorities returns c without the client certificate.
func authorities(c *tls.Config) *tls.Config {
	if c == nil {
		return nil
	}
	c = c.Clone()
	c.Certificates = nil
	return c
}

// close ends idle connections.
func (w *web) close() {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, c := range w.clients {
		c.CloseIdleConnections()
	}
}
