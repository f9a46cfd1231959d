package chart

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"io/fs"
	"path"
	"strings"
	"time"

	"github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"

	"github.com/headgate-io/headgate/artifact"
	"github.com/headgate-io/headgate/chart/index"
	"github.com/headgate-io/headgate/chart/internal/bundle"
	"github.com/headgate-io/headgate/internal/transport"
	"github.com/headgate-io/headgate/oci"
	"github.com/headgate-io/headgate/source"
)

// An upstream is a repository of charts: an index behind a URL, or a registry.
// It is safe for concurrent use. Errors are *[source.StepError] with the
// reasons of reference A2; each request is bounded by the timeout of the
// repository.
type upstream interface {
	// find returns the version of the named chart that want selects, a version or a range
	// (reference A13). The error wraps fs.ErrNotExist if there is none, which may change
	// later, and source.ErrInvalid if name or want can never be valid.
	find(ctx context.Context, name, want string) (*selectedVersion, error)
	// trusts returns a fingerprint of the keys and identities whose signatures
	// verify accepts; "" when neither the chart (trust) nor the repository asks
	// for a signature.
	trustFingerprint(ctx context.Context, trust *source.OCIRepositoryVerification) (string, error)
	// verify checks the signature of a selected version as the chart (trust) or the
	// repository requires. If neither does, it returns the zero Verification. Errors wrap
	// source.ErrVerification if a signature was rejected or is missing.
	verify(ctx context.Context, s *selectedVersion, trust *source.OCIRepositoryVerification) (source.Verification, error)
	// fetch returns the chart after checking its digest, name and version. After verify it
	// returns the chart that was verified. The caller closes the chart.
	fetch(ctx context.Context, s *selectedVersion) (*bundle.Chart, error)
	close()
}

// selectedVersion is one version of a chart in an upstream. It is not safe for concurrent use.
type selectedVersion struct {
	name, version string
	identity      string // differs if the same version is published again, for example the digest

	entry   index.Entry        // in an index
	digest  string             // sha256:HEX, "" if the index has none
	subject ocispec.Descriptor // the manifest in a registry

	verified *bundle.Chart   // chart that verify fetched, until fetch takes it
	pin      source.ChartPin // set by fetch: pins this version in a lock
}

// pinnedVersion returns the version of the named chart that a lock pins.
func pinnedVersion(name string, pin source.ChartPin) *selectedVersion {
	entry := index.Entry{Version: pin.Version, URLs: []string{pin.URL}}
	return &selectedVersion{name: name, version: pin.Version, identity: pin.Digest, entry: entry,
		digest: pin.Digest, subject: ocispec.Descriptor{Digest: digest.Digest(pin.Digest)}}
}

// release closes the chart that verify fetched.
func (s *selectedVersion) release() {
	if s.verified != nil {
		s.verified.Close()
		s.verified = nil
	}
}

// check compares the name and version in a chart with the selected ones. It ignores a
// leading v in versions and the folders in the name.
func (s *selectedVersion) check(c *bundle.Chart) error {
	if m := c.Metadata; m.Name != path.Base(s.name) || trimV(m.Version) != trimV(s.version) {
		return fmt.Errorf("the archive holds chart %.200q in version %.200q, not %q in version %q: it was published in the wrong place", m.Name, m.Version, path.Base(s.name), s.version)
	}
	return nil
}

func trimV(version string) string { return strings.TrimPrefix(version, "v") }

// read reads the archive of the chart. size is its size in bytes, negative if unknown.
func (s *selectedVersion) read(content io.Reader, size int64, l artifact.Limits) (*bundle.Chart, error) {
	if l = bundle.Limits(l); l.Bytes > 0 && size > l.Bytes {
		return nil, &artifact.LimitError{What: "bytes", Limit: l.Bytes}
	}
	return bundle.ReadArchive(content, l)
}

// An opener opens upstreams for one object, with the Secrets of its namespace.
type opener struct {
	env          source.Env
	secretReader *transport.SecretReader
	technologies map[string]oci.Technology
}

// open returns the upstream that repo describes. Each call of index opens its index anew;
// if index is nil, open fetches the index once.
func (o *opener) open(ctx context.Context, repo *source.PkgRepository, index func(context.Context) (io.ReadCloser, error)) (upstream, error) {
	if inRegistry(repo) {
		return o.openRegistry(repo)
	}
	w, err := dial(ctx, repo, o.env, o.secretReader)
	if err != nil {
		return nil, err
	}
	u := &chartRepository{opener: o, repo: repo, http: w, index: index}
	if index == nil {
		if u.fetched, err = o.fetchIndex(ctx, repo); err != nil {
			return nil, err
		}
		u.index = func(context.Context) (io.ReadCloser, error) { return io.NopCloser(u.fetched.reader()), nil }
	}
	return u, nil
}

// fromCache returns the chart with a digest from the cache, or else from download, and then
// stores it in the cache. Of several callers that need the same chart with the same access,
// one downloads it. A broken or small cache does no harm.
func (o *opener) fromCache(ctx context.Context, s *selectedVersion, digest, access string, download func() (*bundle.Chart, error)) (*bundle.Chart, error) {
	cache := o.env.Cache
	if cache == nil || digest == "" {
		return download()
	}
	key := "chart/" + digest + " " + access
	if end, err := cache.Lock(ctx, key); err == nil {
		defer end()
	}
	if entry, err := cache.Open(key); err == nil {
		c, err := s.read(entry, -1, o.env.Limits)
		entry.Close()
		if err == nil && c.Digest == digest && s.check(c) == nil {
			return c, nil
		}
		if err == nil {
			c.Close()
		}
	}
	c, err := download()
	if err == nil && c.Digest == digest {
		_ = cache.Put(key, func(w io.Writer) error {
			_, err := c.WriteTo(w)
			return err
		})
	}
	return c, err
}

// inRegistry reports whether repo is one of type oci.
func inRegistry(repo *source.PkgRepository) bool {
	return repo.Spec.Type == source.RepositoryOCI || strings.HasPrefix(repo.Spec.URL, "oci://")
}

// defaultTimeout bounds each request if the repository sets no timeout.
const defaultTimeout = 60 * time.Second

// timeout bounds each request to repo.
func timeout(repo *source.PkgRepository) time.Duration {
	return cmp.Or(time.Duration(repo.Spec.Timeout), defaultTimeout)
}

// anonymousRepository returns a repository with a URL and no other settings.
func anonymousRepository(url string) *source.PkgRepository {
	return &source.PkgRepository{Spec: source.PkgRepositorySpec{URL: url}}
}

// dependencyRepository returns the PkgRepository of the namespace that a dependency names by its URL or,
// as @NAME and alias:NAME, by its name. If no object has the URL, it returns a repository
// without credentials.
func (o *opener) dependencyRepository(ctx context.Context, text string) (*source.PkgRepository, error) {
	if name, ok := aliasOf(text); ok {
		found, err := o.findRepository(ctx, func(p *source.PkgRepository, _ string) bool { return p.Metadata.Name == name })
		if found == nil && err == nil {
			err = fmt.Errorf("%s: %w", source.Reference{Kind: "PkgRepository", Namespace: o.secretReader.Namespace, Name: name}, fs.ErrNotExist)
		}
		return found, err
	}
	want, err := normalise(text)
	if err != nil {
		return nil, fmt.Errorf("URL of a repository: %w", err)
	}
	found, err := o.findRepository(ctx, func(_ *source.PkgRepository, have string) bool { return have == want })
	if found != nil || err != nil {
		return found, err
	}
	for local := range o.env.Local {
		if other, err := normalise(local); err == nil && other == want {
			want = local // spelling of the URL in env.Local
		}
	}
	return anonymousRepository(want), nil
}

// findRepository returns the PkgRepository of the namespace with the longest normalised URL
// that fits accepts, the first among equals, or nil. fits gets "" for an invalid URL.
// findRepository reads only the spec of an object, because its status may be written
// concurrently.
func (o *opener) findRepository(ctx context.Context, fits func(p *source.PkgRepository, url string) bool) (best *source.PkgRepository, err error) {
	if o.env.Sources == nil {
		return nil, nil
	}
	all, err := o.env.Sources.List(ctx, "PkgRepository", o.secretReader.Namespace)
	if err != nil {
		return nil, fmt.Errorf("list the PkgRepository objects of namespace %s: %w", o.secretReader.Namespace, err)
	}
	longest := -1
	for _, object := range all {
		p, ok := object.(*source.PkgRepository)
		if !ok {
			continue
		}
		url, err := normalise(p.Spec.URL)
		if err != nil {
			url = ""
		}
		if len(url) > longest && fits(p, url) {
			longest, best = len(url), specOf(p)
		}
	}
	return best, nil
}

// specOf returns a repository with only the name, namespace and spec of p.
func specOf(p *source.PkgRepository) *source.PkgRepository {
	c := &source.PkgRepository{Spec: p.Spec}
	c.Metadata.Namespace, c.Metadata.Name = p.Metadata.Namespace, p.Metadata.Name
	return c
}
