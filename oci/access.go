package oci

import (
	"cmp"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"net/url"
	"regexp"
	"strconv"
	"strings"

	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
	"oras.land/oras-go/v2/registry"

	"github.com/headgate-io/headgate/internal/transport"
	"github.com/headgate-io/headgate/source"
)

// An Access describes the location of a repository and how to connect to it.
//
// # Entries
//
// A Secret contains entries in the format of docker login, with auth, username and
// password, identitytoken or registrytoken. Credential helpers that it names are not run.
// The name of an entry is [https://]HOST[:PORT][/PATH]; v1 or v2 at the beginning of the
// path is the version of the API and ignored. Host and port must be
// those of the repository, and PATH its name or a parent folder. The labels of
// HOST may be patterns with *, ? and [a-z], each for one label. docker.io,
// index.docker.io and registry-1.docker.io all name Docker Hub. The entry with the longest
// path is used, then the host with fewer patterns, then the first of a.Secret and the
// pull secrets.
//
// # Rules
//
//   - Credentials and tokens are sent only to the registry's origin (scheme, host and
//     port) and to its token service, not to hosts that either redirects to.
//   - A token service must use TLS, or be on the host of a registry without TLS.
//     Credentials are sent only to a token service on the registry's host, in its
//     registrable domain, or with an entry of its own ([RealmError]); without
//     credentials any token service may be used.
//   - A host that the registry redirects or refers to must not be in a narrower network
//     than the registry (public, private, this machine or link). Networks are compared by
//     address, or by name if a proxy resolves the names. An entry for the host
//     permits it, and so does env.Networks.
//   - Requests that a busy registry refuses are retried, with at most 5 attempts in
//     total and within the context. Requests that change something are retried only
//     after status 429.
type Access struct {
	URL            string                 // oci://HOST[:PORT]/PATH
	Provider       string                 // the issuer of credentials: "" or generic for none
	ServiceAccount string                 // its pull secrets are used
	Secret         *source.LocalReference // a Secret of type kubernetes.io/dockerconfigjson or kubernetes.io/dockercfg; see UserSecret
	Cert           *source.LocalReference // CA and client certificate
	Proxy          *source.LocalReference
	Insecure       bool // plain HTTP; if TLS is used nevertheless, certificates are checked

	// UserSecret allows Secret to contain username and password instead, for the
	// registry in URL.
	UserSecret bool
	// From is the network guard of the server that named the registry; nil if the user named it.
	From *NetworkGuard
}

// A SecretReader reads the Secrets of one namespace, and records their values for
// redaction. Its zero value is usable, without Secrets. Its fields are
//
//	Namespace string         // of the object
//	From      source.Secrets // nil: there are none
//
// and its method Values() []string returns the values to redact.
type SecretReader = transport.SecretReader

// A NetworkGuard prevents a server, and hosts that it names, from directing requests into a
// narrower network than its own.
type NetworkGuard = transport.NetworkGuard

// A Secret is a [source.Secret]; its field Name is NAMESPACE/NAME.
type Secret = transport.Secret

// Connect returns the repository that a names, with the Secrets of v. It reads
// Secrets and logs in with the provider, but sends no request to the registry. The caller
// closes the repository.
//
// If env.Local has a directory for a.URL, which must be an image layout, that is used as
// the repository, and the other fields of a are ignored.
//
// The credentials are those of the first of these that has some for the repository:
// a.Secret and the pull secrets of a.ServiceAccount together (the most specific
// entry is used), a.Provider, and env.Keychain if a names none of these.
//
// Errors are *[source.StepError] with the reason URLInvalid, AuthenticationFailed
// or InvalidProviderConfiguration, and those of a layout that cannot be read.
func Connect(ctx context.Context, a Access, env source.Env, v *SecretReader) (*Repository, error) {
	at, err := parseAddress(a.URL)
	if err != nil {
		return nil, &source.StepError{Step: source.StepResolve, Reason: "URLInvalid",
			Err: fmt.Errorf("%w: spec.url: %w", source.ErrInvalid, err)}
	}
	if dir, ok := env.Local[a.URL]; ok {
		l, err := openLayout(dir)
		if err != nil {
			return nil, fmt.Errorf("stand-in for %s: %w", a.URL, err)
		}
		return &Repository{address: at, backend: l, web: transport.Client(transport.Config{})}, nil
	}
	network, err := a.network(ctx, env, v)
	if err != nil {
		return nil, stepError(source.StepResolve, "AuthenticationFailed", err)
	}
	keys, err := a.credentials(ctx, at, network, env, v)
	if err != nil {
		return nil, stepError(source.StepResolve, "AuthenticationFailed", err)
	}
	web := transport.Client(transport.Config{Proxy: network.Proxy, Networks: network.Networks})
	to := &url.URL{Scheme: "https", Host: at.Host(), Path: "/"}
	if a.Insecure {
		to.Scheme = "http"
	}
	s := newServer(at, newAuthTransport(to, network, keys, a.From, v.Conceal))
	r := &Repository{address: at, backend: s, upload: s, web: web}
	if env.Share != nil && a.From == nil {
		r.backend = &sharedAnswers{s, env, shareScope(to, at, network.Settings, keys), v}
	}
	return r, nil
}

// network returns the TLS settings and the proxy of the spec.
func (a Access) network(ctx context.Context, env source.Env, v *transport.SecretReader) (c transport.Config, err error) {
	c = transport.ConfigFromEnv(env)
	cert, err := v.Read(ctx, a.Cert, "spec.certSecretRef")
	if err != nil {
		return c, err
	}
	if cert.Name != "" {
		if c.TLS, err = transport.CertTLS(cert.Name, cert.Secret); err != nil {
			return c, err
		}
	}
	proxy, err := v.Read(ctx, a.Proxy, "spec.proxySecretRef")
	c.Settings = transport.Settings("cert", cert, proxy)
	if err != nil || proxy.Name == "" {
		return c, err
	}
	p, err := transport.ProxyFromSecret(proxy.Name, proxy.Secret, c.TLS)
	if err == nil {
		c.Proxy = p.For
	}
	return c, err
}

// hubNames are the names of Docker Hub. Requests use the host of [registry.Reference.Host].
var hubNames = map[string]bool{"docker.io": true, "index.docker.io": true, "registry-1.docker.io": true}

// hostForm matches host names; labels may contain underscores.
var hostForm = regexp.MustCompile(`^[a-z0-9](?:[a-z0-9_-]{0,61}[a-z0-9])?(?:\.[a-z0-9](?:[a-z0-9_-]{0,61}[a-z0-9])?)*$`)

const (
	maxAddress = 2048 // bytes of a URL
	maxPath    = 255  // bytes of the path, as in the reference implementation of registries
)

// CheckURL returns an error if url is not a valid URL of a repository, see [Access].
func CheckURL(url string) error {
	_, err := parseAddress(url)
	return err
}

// parseAddress parses oci://HOST[:PORT]/PATH. It returns docker.io for Docker Hub, and
// prepends library/ to a repository there that has no slash.
func parseAddress(s string) (at registry.Reference, err error) {
	if len(s) > maxAddress {
		return at, fmt.Errorf("it has %d bytes, at most %d are allowed", len(s), maxAddress)
	}
	rest, ok := strings.CutPrefix(s, "oci://")
	at.Registry, at.Repository, _ = strings.Cut(rest, "/")
	if hubNames[at.Registry] {
		at.Registry = "docker.io"
		if !strings.Contains(at.Repository, "/") {
			at.Repository = "library/" + at.Repository
		}
	}
	switch {
	case !ok:
		return at, errors.New("it should read oci://HOST/PATH")
	case strings.Contains(at.Registry, "@"):
		return at, errors.New("it holds a user name: put credentials into a Secret, and name that in spec.secretRef")
	case strings.ToLower(rest) != rest:
		return at, errors.New("it has upper case letters, which names of repositories cannot have: write it in lower case")
	case strings.ContainsAny(at.Repository, ":@"):
		return at, errors.New("it holds a tag or digest: put that into spec.ref")
	case !isHost(at.Registry):
		return at, fmt.Errorf("%q is no host, or has no port behind its colon", at.Registry)
	case len(at.Repository) > maxPath || at.ValidateRepository() != nil:
		return at, fmt.Errorf("%q is no name of a repository: lower case letters and digits, single . _ - between them, / between the parts, at most %d bytes", at.Repository, maxPath)
	}
	return at, nil
}

// isHost reports whether host is a host name, an IPv4 address or an IPv6 address in
// brackets, with or without a port.
func isHost(host string) bool {
	u, err := url.Parse("//" + host)
	if err != nil || u.Host != host || strings.HasSuffix(host, ":") {
		return false
	}
	if port, err := strconv.ParseUint(cmp.Or(u.Port(), "443"), 10, 16); err != nil || port == 0 {
		return false
	}
	if strings.HasPrefix(host, "[") {
		ip, err := netip.ParseAddr(u.Hostname())
		return err == nil && ip.Is6() && ip.Zone() == ""
	}
	return hostForm.MatchString(u.Hostname())
}

// isTag reports whether text is a valid tag, which has at most 128 bytes.
func isTag(text string) bool {
	return registry.Reference{Reference: text}.ValidateReferenceAsTag() == nil
}

// maxSharedBlob is the maximum size in bytes of a blob that is cached for other objects.
const maxSharedBlob = 256 << 20

// sharedAnswers is a backend whose results several objects share: env.Share shares the
// results for tags, references and manifests, and env.Cache stores blobs.
type sharedAnswers struct {
	backend
	env          source.Env
	scope        string // differs between repositories, credentials and network settings
	secretReader *transport.SecretReader
}

// shareScope hashes the address, the network settings and the credentials, so that objects
// share results only if all are equal. Names of Secrets are included, because messages
// contain them.
func shareScope(to *url.URL, at registry.Reference, settings string, k credentials) string {
	h := sha256.New()
	transport.HashInto(h, to.String(), at.Repository, settings, k.Username, k.Password, k.Token, k.Refresh, k.origin)
	for _, e := range k.chain {
		c := e.credential
		transport.HashInto(h, e.host, e.path, c.Username, c.Password, c.Token, c.Refresh, e.secret)
	}
	return "oci " + string(h.Sum(nil)) + " "
}

// An answer is a shared result with the secrets to redact in texts about it and in its
// error: for example tokens that were issued for the request.
type answer[T any] struct {
	value   T
	secrets []string
	weight  int64
}

// Weight returns the size of the answer in bytes.
func (a answer[T]) Weight() int64 { return a.weight }

// share calls ask once for all objects with the same question. ask returns the result and
// its size in bytes.
func share[T any](ctx context.Context, s *sharedAnswers, question string, ask func(context.Context) (T, int64, error)) (T, error) {
	shared, err := s.env.Share.Do(ctx, s.scope+question, s.env.Since, func(ctx context.Context) (any, error) {
		defer s.backend.close() // the requesting object may be closed already
		value, weight, err := ask(ctx)
		return answer[T]{value, s.secretReader.Values(), weight}, err
	})
	a, _ := shared.(answer[T])
	s.secretReader.Conceal(a.secrets...)
	return a.value, err
}

func (s *sharedAnswers) head(ctx context.Context, reference string) (ocispec.Descriptor, error) {
	return share(ctx, s, "head "+reference, func(ctx context.Context) (ocispec.Descriptor, int64, error) {
		d, err := s.backend.head(ctx, reference)
		return d, 0, err
	})
}

func (s *sharedAnswers) tags(ctx context.Context) ([]string, error) {
	return share(ctx, s, "tags", func(ctx context.Context) (list []string, weight int64, err error) {
		list, err = s.backend.tags(ctx)
		for _, name := range list {
			weight += 16 + int64(len(name))
		}
		return list, weight, err
	})
}

// A rawManifest is a manifest as the registry sent it.
type rawManifest struct {
	mediaType string
	content   []byte
}

func (s *sharedAnswers) manifest(ctx context.Context, reference string) (string, []byte, error) {
	m, err := share(ctx, s, "manifest "+reference, func(ctx context.Context) (rawManifest, int64, error) {
		mediaType, content, err := s.backend.manifest(ctx, reference)
		return rawManifest{mediaType, content}, int64(len(content)), err
	})
	return m.mediaType, m.content, err
}

// blob downloads a blob once for all objects, as long as the cache keeps it. If the cache
// fails, the blob is downloaded again.
func (s *sharedAnswers) blob(ctx context.Context, d ocispec.Descriptor) (io.ReadCloser, error) {
	if s.env.Cache == nil || d.Size > maxSharedBlob {
		return s.backend.blob(ctx, d)
	}
	key := s.scope + "blob " + d.Digest.String()
	unlock, err := s.env.Cache.Lock(ctx, key)
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	if err != nil {
		return s.backend.blob(ctx, d)
	}
	defer unlock()
	if e, err := s.env.Cache.Open(key); err == nil {
		return e, nil
	}
	if failed := s.store(ctx, key, d); failed != nil {
		return nil, failed
	}
	if e, err := s.env.Cache.Open(key); err == nil {
		return e, nil
	}
	return s.backend.blob(ctx, d)
}

// store downloads a blob into the cache. It returns errors of the download only, not of
// the cache.
func (s *sharedAnswers) store(ctx context.Context, key string, d ocispec.Descriptor) error {
	body, err := s.backend.blob(ctx, d)
	if err != nil {
		return err
	}
	from := newVerifyReader(body, d, true)
	defer from.Close()
	_ = s.env.Cache.Put(key, func(w io.Writer) error {
		_, err := io.Copy(w, from)
		return err
	})
	if from.err == io.EOF {
		return nil
	}
	return from.err // nil if writing failed
}
