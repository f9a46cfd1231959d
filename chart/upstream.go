package chart

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"strings"
	"time"

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
	// find returns the version of the named chart that want, a version or a
	// range, selects (reference A13). The error wraps fs.ErrNotExist when there is
	// none, which may pass, and source.ErrInvalid when name or want cannot be right.
	find(ctx context.Context, name, want string) (offer, error)
	// trusts returns a fingerprint of whose signatures verify accepts, which
	// differs when keys or identities do; "" when neither the chart (trust) nor
	// the repository asks for any.
	trusts(ctx context.Context, trust *source.OCIRepositoryVerification) (string, error)
	// verify checks the signature of what was offered as the chart (trust) or the
	// repository asks for, the zero Verification when neither does. Errors wrap
	// source.ErrVerification when a signature was refused or there is none.
	verify(ctx context.Context, o offer, trust *source.OCIRepositoryVerification) (source.Verification, error)
	// fetch returns what was offered: digest, name and version are what they
	// should be. After verify it is what that has seen. The caller closes it.
	fetch(ctx context.Context, o offer) (*bundle.Archive, error)
	close()
}

// An offer is one version of a chart that an upstream has.
type offer struct {
	name, version string
	identity      string // differs when the same version is published again, for example the digest
	verifies      string // the verification that the repository asks for, "" for none
	from          any    // what the upstream needs to fetch it
}

// A supply opens upstreams for one object, with the Secrets of its namespace.
type supply struct {
	env          source.Env
	vault        *transport.Vault
	technologies map[string]oci.Technology
}

// open returns the upstream that repo describes. index opens its index anew at
// each call; with nil it is fetched.
func (s *supply) open(ctx context.Context, repo *source.PkgRepository, index func(context.Context) (io.ReadCloser, error)) (upstream, error) {
	if inRegistry(repo) {
		return s.openRegistry(repo)
	}
	if index == nil {
		index = func(ctx context.Context) (io.ReadCloser, error) { return s.fetchIndex(ctx, repo) }
	}
	return s.openSite(ctx, repo, index)
}

// The reasons of failures (reference A2).
const (
	badReference = "InvalidChartReference"
	pullFailed   = "ChartPullError"
	indexFailed  = "IndexationFailed"
	verifyFailed = "ChartVerificationError"
)

// inRegistry reports whether repo is one of type oci.
func inRegistry(repo *source.PkgRepository) bool {
	return repo.Spec.Type == source.RepositoryOCI || strings.HasPrefix(repo.Spec.URL, "oci://")
}

// named returns the PkgRepository of the namespace whose URL is url once both
// are normalised; one without credentials for it when there is none.
func (s *supply) named(ctx context.Context, url string) (*source.PkgRepository, error) {
	want, err := normalise(url)
	if err != nil {
		return nil, fmt.Errorf("URL of a repository: %w", err)
	}
	found, err := s.repository(ctx, func(have string) int {
		if have == want {
			return 1
		}
		return 0
	})
	if found != nil || err != nil {
		return found, err
	}
	for local := range s.env.Local {
		if other, err := normalise(local); err == nil && other == want {
			want = local // which is what the stand-in goes by
		}
	}
	return anonymous(want), nil
}

// anonymous is a repository that nothing but the URL is known of.
func anonymous(url string) *source.PkgRepository {
	p := &source.PkgRepository{Spec: source.PkgRepositorySpec{URL: url, Timeout: source.Duration(defaultTimeout)}}
	if inRegistry(p) {
		p.Spec.Type = source.RepositoryOCI
	}
	return p
}

// defaultTimeout bounds each request where the repository does not tell.
const defaultTimeout = 60 * time.Second

// timeout bounds each request to repo.
func timeout(repo *source.PkgRepository) time.Duration {
	return cmp.Or(time.Duration(repo.Spec.Timeout), defaultTimeout)
}

// repository returns the PkgRepository of the namespace whose URL, normalised,
// fits best, of equals the first; nil when none fits at all. Of an object it
// reads the spec alone: its status may be written at the same time.
func (s *supply) repository(ctx context.Context, fit func(url string) int) (best *source.PkgRepository, err error) {
	if s.env.Sources == nil {
		return nil, nil
	}
	all, err := s.env.Sources.List(ctx, "PkgRepository", s.vault.Namespace)
	if err != nil {
		return nil, fmt.Errorf("list the PkgRepository objects of namespace %s: %w", s.vault.Namespace, err)
	}
	most := 0
	for _, object := range all {
		p, ok := object.(*source.PkgRepository)
		if !ok {
			continue
		}
		url, err := normalise(p.Spec.URL)
		if err != nil {
			continue // which its own reconciliation tells
		}
		if n := fit(url); n > most {
			most, best = n, &source.PkgRepository{Spec: p.Spec}
			best.Metadata.Namespace, best.Metadata.Name = s.vault.Namespace, p.Metadata.Name
		}
	}
	return best, nil
}
