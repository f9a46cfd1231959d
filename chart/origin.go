package chart

import (
	"context"
	"fmt"
	"io"
	"strings"
	"sync"

	"github.com/headgate-io/headgate/artifact"
	"github.com/headgate-io/headgate/internal/transport"
	"github.com/headgate-io/headgate/oci"
	"github.com/headgate-io/headgate/source"
)

// An Origin is the upstream of one PkgChart. It is safe for concurrent use.
type Origin struct {
	chart        *source.PkgChart
	env          source.Env
	technologies map[string]oci.Technology
	vault        transport.Vault
	trusted      transport.Trusted // by the last Resolve

	mu   sync.Mutex
	kept kept
}

// kept is what Resolve leaves to Open.
type kept struct {
	id    string // of the revision
	found located
	offer *offer // of a repository, nil when it was not asked
}

// New returns the origin of c. technologies are what signatures of charts in
// registries can be verified with, by spec.verify.provider. It does no I/O; what
// is wrong with c surfaces from [Origin.Resolve].
func New(c *source.PkgChart, env source.Env, technologies map[string]oci.Technology) *Origin {
	return &Origin{chart: c, env: env, technologies: technologies,
		vault: transport.Vault{Namespace: c.Metadata.Namespace, From: env.Secrets}}
}

// Resolve implements [source.Origin]: it returns the version that the source of
// the chart has now, or that spec.version selects in it. A source that did not
// change is not read; a registry is asked each time.
//
// Errors are *[source.StepError] with the reasons of reference A2. They wrap
// [source.ErrInvalid] when the spec or the source must change, and
// [source.ErrWaiting] when the source is not there yet.
func (o *Origin) Resolve(ctx context.Context, last source.State) (source.Revision, source.State, error) {
	rev, state, err := o.resolve(ctx, recallChart(last))
	if err != nil {
		return source.Revision{Inputs: rev.Inputs}, nil, stepError(source.StepResolve, pullFailed, err)
	}
	return rev, state, nil
}

func (o *Origin) resolve(ctx context.Context, before chartMemory) (rev source.Revision, state source.State, err error) {
	s, err := o.sources(ctx)
	if err != nil {
		return rev, nil, err
	}
	rev.Inputs = s.inputs
	now := chartMemory{Source: s.ref.String(), Digest: s.inputs[0].Digest, Revision: s.inputs[0].Revision, Files: o.chart.Spec.ValuesFiles}
	var k kept
	if s.repository != nil {
		k, err = o.findInRepository(ctx, s, before, &now)
	} else {
		k.found, err = o.findInTree(ctx, s, before, &now)
	}
	if err != nil {
		return rev, nil, err
	}
	now.Found = k.found
	if now.ID, err = o.version(s, k.found.Version); err != nil {
		return rev, nil, err
	}
	if rev.File, err = fileName(k.found.Name, now.ID); err != nil {
		return rev, nil, err
	}
	if now.Borrowed, err = o.borrow(ctx, s, before.Borrowed); err != nil {
		return rev, nil, err
	}
	k.id, rev.ID, rev.Verify = now.ID, now.ID, s.verification()
	rev.Reverify = now.Trust != before.Trust
	o.compare(s, &rev, before, &now)
	o.mu.Lock()
	o.kept = k
	o.mu.Unlock()
	state, err = now.state()
	return rev, state, err
}

// fileName is the name of the artifact (reference A4).
func fileName(name, version string) (string, error) {
	if file := name + "-" + version + ".tgz"; !strings.HasPrefix(file, ".") {
		return file, nil
	}
	return "", badChart(fmt.Errorf("the name %q of the chart begins with a dot: nothing can be stored under it", name))
}

// Open implements [source.Origin]. The archive of a chart in a repository is not
// fetched before [source.Content.WriteTo].
func (o *Origin) Open(ctx context.Context, rev source.Revision) (source.Content, error) {
	c, err := o.open(ctx, rev)
	if err != nil {
		return nil, stepError(source.StepFetch, pullFailed, err)
	}
	return c, nil
}

func (o *Origin) open(ctx context.Context, rev source.Revision) (*content, error) {
	s, err := o.sources(ctx)
	if err != nil {
		return nil, err
	}
	if len(rev.Inputs) != len(s.inputs) {
		return nil, fmt.Errorf("the revision has %d inputs, the spec names %d: resolve it again", len(rev.Inputs), len(s.inputs))
	}
	s.inputs = rev.Inputs
	c := &content{shelf: shelf{o, s, map[string]*artifact.Tree{}}, rev: rev}
	if s.repository == nil {
		return c, nil
	}
	if c.upstream, err = o.upstream(ctx, s); err != nil {
		return nil, err
	}
	if c.offer, err = o.offered(ctx, c); err != nil {
		c.upstream.close()
		return nil, err
	}
	return c, nil
}

// upstream opens the repository of s.
func (o *Origin) upstream(ctx context.Context, s *sources) (upstream, error) {
	supply := o.supply()
	return supply.open(ctx, s.repository, func(ctx context.Context) (io.ReadCloser, error) {
		index, err := source.OpenArtifact(ctx, o.env.Sources, s.inputs[0])
		if err != nil {
			return nil, s.unreadable(s.ref, err)
		}
		return index, nil
	})
}

func (o *Origin) supply() *supply {
	return &supply{env: o.env, vault: &o.vault, technologies: o.technologies}
}

// offered returns what the revision of c was called, and is still offered.
func (o *Origin) offered(ctx context.Context, c *content) (offer, error) {
	o.mu.Lock()
	k := o.kept
	o.mu.Unlock()
	if k.offer != nil && k.id == c.rev.ID {
		return *k.offer, nil
	}
	now, err := o.ask(ctx, c.upstream, c.sources)
	if err != nil {
		return offer{}, err
	}
	f := foundIn(now)
	id, err := o.version(c.sources, f.Version)
	if err == nil && (id != c.rev.ID || k.id == id && k.found.Identity != f.Identity) {
		err = fmt.Errorf("%w: version %s became %s", source.ErrMoved, c.rev.ID, id)
	}
	return now, err
}

// Secrets returns the credentials that were given to the origin so far, which
// the [source.Reconciler] keeps out of conditions, events and errors.
func (o *Origin) Secrets() []string { return o.vault.Values() }
