package chart

import (
	"context"
	"errors"
	"io"

	"github.com/headgate-io/headgate/chart/internal/bundle"
	"github.com/headgate-io/headgate/internal/transport"
	"github.com/headgate-io/headgate/oci"
	"github.com/headgate-io/headgate/source"
)

var errTODO = errors.New("not done yet")

// An upstream is a repository of charts: an index behind a URL, or a registry.
// It is safe for concurrent use. Errors are *[source.StepError] with the
// reasons of reference A2; each request is bounded by the timeout of the
// repository.
type upstream interface {
	// find returns the version of the named chart that want, a version or a
	// range, selects (reference A13).
	find(ctx context.Context, name, want string) (offer, error)
	// verify checks the signature of what was offered as the chart (trust) or the
	// repository asks for, the zero Verification when neither does.
	verify(ctx context.Context, o offer, trust *source.OCIRepositoryVerification) (source.Verification, error)
	// fetch returns what was offered: digest, name and version are what they
	// should be. The caller closes it.
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
	return nil, errTODO
}

// named returns the PkgRepository of the namespace whose URL is url once both
// are normalised; one without credentials for it when there is none.
func (s *supply) named(ctx context.Context, url string) (*source.PkgRepository, error) {
	return nil, errTODO
}
