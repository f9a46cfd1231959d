package chart

import (
	"context"
	"crypto/sha256"
	"crypto/tls"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/headgate-io/headgate/internal/redact"
	"github.com/headgate-io/headgate/internal/transport"
	"github.com/headgate-io/headgate/source"
)

// An httpRepository accesses a repository over HTTP or HTTPS with the credentials of its
// object. It is safe for concurrent use.
type httpRepository struct {
	baseURL     *url.URL          // from parseURL, without user information
	localDir    string            // directory that replaces the server, "" for none
	notes       []string          // warnings about the Secrets for the owner of the object
	fingerprint [sha256.Size]byte // hash of all that decides a request: the URL, credentials and where they are sent

	config          transport.Config // for requests to the repository
	secret          string           // name of the Secret of spec.secretRef, "" for none
	passCredentials bool             // user name and password may be sent to other origins
	secretReader    *transport.SecretReader
	indexGuard      *transport.NetworkGuard // limits the servers that the index names; nil for a local directory, whose index the user provides

	mu      sync.Mutex
	clients map[string]*http.Client // by origin, "" for that of the repository
}

// dial reads the Secrets that repo names, unless a local directory replaces the server. It
// sends no request. Errors are *[source.StepError], with the reason URLInvalid if the URL
// is invalid.
func dial(ctx context.Context, repo *source.PkgRepository, env source.Env, secretReader *transport.SecretReader) (*httpRepository, error) {
	at, err := parseURL(repo.Spec.URL)
	if err == nil && at.Scheme != "http" && at.Scheme != "https" {
		err = fmt.Errorf("scheme %q: want http or https, or oci", at.Scheme)
	}
	if err != nil {
		return nil, badURL(err)
	}
	w := &httpRepository{localDir: env.Local[repo.Spec.URL], config: transport.ConfigFromEnv(env), passCredentials: repo.Spec.PassCredentials, secretReader: secretReader, clients: map[string]*http.Client{}}
	w.baseURL, w.config.Auth = transport.SplitUser(at)
	secretReader.Conceal(w.config.Auth.Password)
	var secret, cert transport.Secret
	if w.localDir == "" {
		if secret, cert, err = readSecrets(ctx, repo, secretReader); err != nil {
			return nil, err
		}
	}
	if err := w.setCredentials(secret, cert); err != nil {
		return nil, &source.StepError{Step: source.StepResolve, Reason: "AuthenticationFailed", Err: err}
	}
	w.config.Origin, w.config.Guard = w.baseURL, transport.NewNetworkGuard(w.baseURL, nil)
	if w.localDir == "" {
		w.indexGuard = w.config.Guard
	}
	h := sha256.New()
	transport.HashInto(h, w.baseURL.String(), w.config.Auth.Username, w.config.Auth.Password, strconv.FormatBool(w.passCredentials))
	secret.HashInto(h)
	cert.HashInto(h)
	h.Sum(w.fingerprint[:0])
	return w, nil
}

// readSecrets reads the Secrets that repo names.
func readSecrets(ctx context.Context, repo *source.PkgRepository, secretReader *transport.SecretReader) (secret, cert transport.Secret, err error) {
	if secret, err = secretReader.Read(ctx, repo.Spec.SecretRef, "spec.secretRef"); err == nil {
		cert, err = secretReader.Read(ctx, repo.Spec.CertSecretRef, "spec.certSecretRef")
	}
	return secret, cert, err
}

// setCredentials takes the credentials of two Secrets: those of spec.secretRef replace those in
// the URL, and the TLS settings of spec.certSecretRef replace all those of spec.secretRef.
func (w *httpRepository) setCredentials(secret, cert transport.Secret) error {
	w.secret = secret.Name
	auth, err := transport.RepositoryAuth(secret.Name, secret.Secret)
	if err != nil {
		return err
	}
	if auth != (transport.Auth{}) {
		w.config.Auth = auth
	}
	if cert.Name != "" {
		w.config.Settings = transport.Settings("cert", cert, transport.Secret{})
		w.config.TLS, err = transport.CertTLS(cert.Name, cert.Secret)
		return err
	}
	w.config.Settings = transport.Settings("repository", secret, transport.Secret{})
	settings, deprecated, err := transport.RepositoryTLS(secret.Name, secret.Secret)
	if len(deprecated) > 0 {
		w.notes = append(w.notes, fmt.Sprintf("secret %s: %s of spec.secretRef are deprecated: move them to the Secret of spec.certSecretRef, as ca.crt, tls.crt and tls.key",
			secret.Name, strings.Join(deprecated, ", ")))
	}
	w.config.TLS = settings
	return err
}

// name identifies the repository and the credentials for it. The credentials contribute 16
// bits of a hash: enough to notice a change, and too few to find out the credentials.
func (w *httpRepository) name() string {
	if w.localDir != "" {
		return "directory " + w.localDir
	}
	return redact.URL(w.baseURL) + " " + hex.EncodeToString(w.fingerprint[:2])
}

// get requests u, with additional header fields. The response has status 200, or 304 if
// header makes the request conditional; other statuses are *[StatusError]. Credentials are
// sent to the origin of the repository only; where spec.passCredentials allows it, user
// name and password are sent to that of u too. The content is decompressed, unless header
// has a field Accept-Encoding. The caller closes the body.
func (w *httpRepository) get(ctx context.Context, u *url.URL, header http.Header) (*http.Response, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, u.String(), nil)
	if err != nil {
		return nil, err
	}
	for name, values := range header {
		req.Header[name] = values
	}
	resp, err := w.client(u).Do(req)
	if err != nil {
		return nil, requestError(err)
	}
	conditional := header.Get("If-None-Match") != "" || header.Get("If-Modified-Since") != ""
	switch {
	case resp.StatusCode == http.StatusNotModified && conditional:
		return resp, nil
	case resp.StatusCode != http.StatusOK:
		transport.DrainAndClose(resp)
		return nil, w.refusal(u, resp)
	}
	if coding := strings.Join(resp.Header.Values("Content-Encoding"), ", "); header.Get("Accept-Encoding") == "" && contentCodings.MatchString(coding) {
		resp.Body.Close()
		return nil, fmt.Errorf("GET %s: the answer is compressed with %q, which was not asked for", redact.URL(resp.Request.URL), coding)
	}
	return resp, nil
}

// contentCodings matches a Content-Encoding that changes the content (RFC 9110 section 8.4.1).
// Servers also send names of character sets in it, and aws-chunked, which is left over from
// an upload.
var contentCodings = regexp.MustCompile(`(?i)\b(gzip|deflate|compress|br|zstd)\b`)

// client returns the client for requests to u. Credentials that the repository gets over
// TLS are not sent to other servers without TLS.
func (w *httpRepository) client(u *url.URL) *http.Client {
	config, key := w.config, ""
	if !transport.SameOrigin(u, w.baseURL) {
		key = u.Scheme + "://" + u.Host
		config.Origin, config.Auth, config.TLS = nil, transport.Auth{}, withoutClientCert(config.TLS)
		if w.passCredentials && (u.Scheme == "https" || w.baseURL.Scheme == "http") {
			config.Origin, config.Auth = &url.URL{Scheme: u.Scheme, Host: u.Host}, w.config.Auth
		}
		config.Guard = transport.NewNetworkGuard(u, w.indexGuard)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	c := w.clients[key]
	if c == nil {
		c = transport.Client(config)
		c.Transport = &transport.RetryTransport{Next: c.Transport}
		w.clients[key] = c
	}
	return c
}

// withoutClientCert returns c without the client certificate.
func withoutClientCert(c *tls.Config) *tls.Config {
	if c == nil {
		return nil
	}
	c = c.Clone()
	c.Certificates = nil
	return c
}

// close ends idle connections.
func (w *httpRepository) close() {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, c := range w.clients {
		c.CloseIdleConnections()
	}
}

// refusal returns the error for a response that refuses the request for u. It leaves out
// the body, which may repeat credentials and is hardly ever more than a web page.
func (w *httpRepository) refusal(u *url.URL, resp *http.Response) *StatusError {
	e := &StatusError{URL: redact.URL(resp.Request.URL), Status: resp.StatusCode}
	e.After, _ = transport.RetryAfter(resp.Header, time.Now())
	switch {
	case e.Status == http.StatusNotModified:
		e.Hint = "the server answers as if it had been asked whether something changed"
	case errors.Is(e, fs.ErrPermission) && transport.SameOrigin(u, resp.Request.URL):
		e.Hint = w.advice(u)
	}
	return e
}

// advice returns what to do about credentials that were refused at u, or "" if it has no
// advice.
func (w *httpRepository) advice(u *url.URL) string {
	sameOrigin, none := transport.SameOrigin(u, w.baseURL), w.config.Auth == transport.Auth{}
	switch {
	case sameOrigin && none && w.secret != "":
		return "secret " + w.secret + " in spec.secretRef of its PkgRepository has no username and password"
	case sameOrigin && none:
		return "the repository may want the user name and password of a Secret in spec.secretRef of its PkgRepository"
	case sameOrigin:
		return "check the user name and password, which are in spec.secretRef or spec.url of its PkgRepository"
	case !none && !w.passCredentials:
		return "user name and password were sent to " + w.baseURL.Host + " only: spec.passCredentials of its PkgRepository sends them to the servers of its charts as well"
	}
	return ""
}

// openLocal opens a regular file in, or below, a directory that replaces a repository.
func openLocal(dir, path string) (f *os.File, err error) {
	defer func() {
		if err != nil {
			err = fmt.Errorf("local directory %s: %w", dir, err)
		}
	}()
	name := filepath.FromSlash(path)
	root, err := os.OpenRoot(dir)
	if err != nil {
		return nil, err
	}
	defer root.Close()
	info, err := root.Stat(name)
	if err != nil {
		return nil, err
	}
	if !info.Mode().IsRegular() {
		return nil, fmt.Errorf("%q is no file", name)
	}
	return root.Open(name)
}

// normalise returns the URL of a repository in the form that is compared and requested
// (reference A12, "URL normalisation"): the path ends with exactly one slash, or with none
// for oci, and has no doubled slashes; scheme and host are in lower case; there is no
// fragment. Query and the spelling of the path are kept. "" stays "".
func normalise(text string) (string, error) {
	if text == "" {
		return "", nil
	}
	u, err := parseURL(text)
	if err != nil {
		return "", err
	}
	return u.String(), nil
}

var slashes = regexp.MustCompile(`/{2,}`)

// parseURL parses the URL of a repository and normalises it. Errors repeat nothing of text.
func parseURL(text string) (*url.URL, error) {
	u, err := url.Parse(text)
	if err != nil {
		if e, ok := errors.AsType[*url.Error](err); ok {
			err = e.Err
		}
		return nil, fmt.Errorf("parse URL: %w", err)
	}
	if u.Host == "" {
		return nil, errors.New("parse URL: no host: want SCHEME://HOST/PATH")
	}
	path := strings.TrimRight(slashes.ReplaceAllString(u.EscapedPath(), "/"), "/")
	if u.Scheme != "oci" {
		path += "/"
	}
	if u.Path, err = url.PathUnescape(path); err != nil {
		return nil, fmt.Errorf("parse URL: %w", err)
	}
	u.RawPath, u.Host = path, strings.ToLower(u.Host)
	u.Fragment, u.RawFragment = "", ""
	return u, nil
}

// fileURL returns the URL of a file of the repository at base, whose path ends
// in a slash. The query is that of base.
func fileURL(base *url.URL, file string) *url.URL {
	u := *base
	u.Path += file
	u.RawPath += url.PathEscape(file)
	return &u
}
