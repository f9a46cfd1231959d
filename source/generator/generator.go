package generator

import (
	"cmp"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"slices"
	"strings"

	"github.com/headgate-io/headgate/artifact"
	"github.com/headgate-io/headgate/source"
)

// originRevision is the metadata key for the revision of the origin of an artifact.
const originRevision = "org.opencontainers.image.revision"

type origin struct {
	obj   *source.ExternalArtifact
	env   source.Env
	needs []source.Reference
}

// New returns the origin of obj, which must have a Composition: a generator makes it.
func New(obj *source.ExternalArtifact, env source.Env) source.Origin {
	if env.Archives == nil {
		env.Archives = new(source.Archives)
	}
	return &origin{obj, env, obj.Plan().Needs}
}

// Resolve implements [source.Origin]. It builds the archive to compute its digest, unless
// composition and sources are those of the last run. The state has the digest of these and that of
// the archive.
func (o *origin) Resolve(ctx context.Context, last source.State) (rev source.Revision, _ source.State, err error) {
	if rev.Inputs, err = o.inputs(ctx); err != nil {
		return rev, nil, err
	}
	out := &o.obj.Composed.Artifact
	rev.File = out.Name + ".tar.gz"
	if out.OriginRevision != "" {
		a := o.input(out.OriginRevision, rev.Inputs)
		rev.Metadata = map[string]string{originRevision: cmp.Or(a.Metadata[originRevision], a.Revision)}
	}
	if o.env.Pin != nil {
		rev.ID = o.env.Pin.Revision
		return rev, nil, nil
	}
	of, digest, _ := strings.Cut(string(last), " ")
	sum := sha256.New()
	sum.Write(source.CanonicalSpec(o.obj))
	for _, a := range rev.Inputs {
		fmt.Fprintln(sum, a.Digest)
	}
	now, published := fmt.Sprintf("%x", sum.Sum(nil)), digest
	if a := o.obj.Artifact(); a != nil && strings.HasPrefix(a.Digest, "sha256:") {
		published = a.Digest // another run, for example with a lock, may have published it
	}
	if now != of {
		if digest, err = o.digest(ctx, rev.Inputs); err != nil {
			return rev, nil, err
		}
	}
	if rev.ID = "latest@" + digest; out.Revision != "" {
		rev.ID = o.input(out.Revision, rev.Inputs).Revision
		if digest != published {
			rev.Renew = "its content changed"
		}
	}
	return rev, source.State(now + " " + digest), nil
}

// inputs returns the artifacts of the sources, in the order of o.needs.
func (o *origin) inputs(ctx context.Context) (inputs []artifact.Artifact, err error) {
	needed, err := source.Needed(ctx, o.obj, o.env.Sources)
	for _, obj := range needed {
		a := obj.Artifact()
		if a == nil {
			err = source.NoArtifact(obj)
			break
		}
		inputs = append(inputs, *a)
	}
	if err != nil {
		return nil, o.unavailable(err)
	}
	return inputs, nil
}

func (o *origin) unavailable(err error) error {
	reason := "SourceFetchFailed"
	if errors.Is(err, source.ErrInvalid) {
		reason = "ValidationFailed"
	}
	return &source.StepError{Step: source.StepFetch, Reason: reason, Err: fmt.Errorf("%s: spec.sources: %w", o, err)}
}

// String names the generator.
func (o *origin) String() string {
	ref := o.obj.Spec.SourceRef
	return ref.Kind + "/" + ref.Namespace + "/" + ref.Name
}

// input returns the artifact of the source with an alias, given as @ALIAS.
func (o *origin) input(alias string, inputs []artifact.Artifact) artifact.Artifact {
	if i := slices.Index(o.needs, o.obj.Composed.Find(alias)); i >= 0 {
		return inputs[i]
	}
	return artifact.Artifact{} // the object was not validated
}

// digest builds the archive and returns its digest.
func (o *origin) digest(ctx context.Context, inputs []artifact.Artifact) (string, error) {
	c, err := o.build(ctx, inputs)
	if err != nil {
		return "", err
	}
	defer c.Close()
	sum := sha256.New()
	_, err = c.WriteTo(ctx, sum)
	return fmt.Sprintf("sha256:%x", sum.Sum(nil)), err
}

// Open implements [source.Origin].
func (o *origin) Open(ctx context.Context, rev source.Revision) (source.Content, error) {
	if len(rev.Inputs) != len(o.needs) {
		return nil, fmt.Errorf("the revision has %d inputs, the artifact is made of %d: resolve it again", len(rev.Inputs), len(o.needs))
	}
	return o.build(ctx, rev.Inputs)
}

// content is the content of an artifact. It implements [source.Explainer].
type content struct {
	origin   *origin
	tree     *Tree
	rules    *artifact.Rules
	releases []func() // release the sources
	spool    *os.File // extracted and merged files; nil if there are none
	notes    []string
}

// Verify implements [source.Content]. Only the sources have signatures.
func (c *content) Verify(context.Context) (source.Verification, error) {
	return source.Verification{}, nil
}

// WriteTo implements [source.Content].
func (c *content) WriteTo(ctx context.Context, w io.Writer) (source.Report, error) {
	report, err := c.origin.env.Cache.Pack(ctx, w, c.rules.View(ctx, c.tree))
	return source.Report{Report: report, Notes: c.notes, Emptied: c.rules.Emptied(report)}, err
}

// Explain implements [source.Explainer]. The tree is a [Tree].
func (c *content) Explain(context.Context) (fs.FS, *artifact.Rules, error) {
	return c.tree, c.rules, nil
}

// Close implements [source.Content].
func (c *content) Close() error {
	for _, end := range c.releases {
		end()
	}
	if c.spool != nil {
		return c.spool.Close()
	}
	return nil
}

type summary struct {
	obj *source.ArtifactGenerator
	env source.Env
}

// NewSummary returns the origin of a generator, which has no artifact: it checks whether all
// outputs of the generator are ready. env.Sources must have the ExternalArtifacts with their
// status. (It does not use [source.Needed], because a generator may need more objects than that
// allows, and nothing needs a generator.)
func NewSummary(obj *source.ArtifactGenerator, env source.Env) source.Origin {
	if env.Sources == nil {
		env.Sources = &source.Inventory{}
	}
	return &summary{obj, env}
}

// Resolve implements [source.Origin].
func (s *summary) Resolve(ctx context.Context, _ source.State) (rev source.Revision, _ source.State, err error) {
	var inputs []artifact.Artifact // of the sources
	seen := map[source.Reference]bool{}
	for _, ref := range s.obj.Plan().Needs {
		obj, missing := s.env.Sources.Source(ctx, ref)
		if missing != nil {
			return source.Revision{}, nil, &source.StepError{Step: source.StepBuild, Reason: "ReconciliationFailed",
				Err: fmt.Errorf("spec.artifacts: %w: %s: %w", source.ErrWaiting, ref, missing)}
		}
		var a artifact.Artifact
		if published := obj.Artifact(); published != nil {
			a = *published
		}
		rev.Inputs = append(rev.Inputs, a)
		for _, ref := range obj.Plan().Needs {
			if obj, missing := s.env.Sources.Source(ctx, ref); !seen[ref] && missing == nil && obj.Artifact() != nil {
				inputs = append(inputs, *obj.Artifact())
			}
			seen[ref] = true
		}
		if ready := obj.Common().Condition(source.ReadyCondition); err == nil && ready.Status != "True" {
			err = s.unready(obj, ready)
		}
	}
	rev.Ready = fmt.Sprintf("reconciliation succeeded, generated %d artifact(s)", len(rev.Inputs))
	rev.Inputs = append(rev.Inputs, inputs...)
	return rev, nil, err
}

// unready returns the error for an artifact that is not ready, with the reason of its condition.
func (s *summary) unready(obj source.Object, ready source.Condition) error {
	becomes := source.ErrWaiting
	if obj.Common().Condition(source.StalledCondition).Status == "True" {
		becomes = source.ErrInvalid
	}
	return &source.StepError{Step: source.StepBuild, Reason: cmp.Or(ready.Reason, "Progressing"),
		Err: fmt.Errorf("%w: %s is not ready: %s", becomes, obj.Head(), cmp.Or(ready.Message, "it was not made yet"))}
}

// Open implements [source.Origin]. It fails, because a generator has no content.
func (s *summary) Open(context.Context, source.Revision) (source.Content, error) {
	return nil, errors.ErrUnsupported
}
