package chart

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/dustin/go-humanize"

	"github.com/headgate-io/headgate/artifact"
	"github.com/headgate-io/headgate/internal/redact"
	"github.com/headgate-io/headgate/internal/transport"
	"github.com/headgate-io/headgate/source"
)

// A Repository is the origin of one PkgRepository. It is safe for concurrent use.
//
// The artifact is the index as the server sends it. An index whose bytes differ from the
// published one only in timestamps or order makes no new artifact. A repository of type oci
// has no artifact.
type Repository struct {
	repo         *source.PkgRepository
	env          source.Env
	secretReader *transport.SecretReader

	moved atomic.Bool // Open found another index: the next Resolve ignores the last state

	mu   sync.Mutex
	kept *indexFile // index that the last Resolve fetched, until Open takes it
}

// NewRepository returns the origin of p. It does no I/O; [Repository.Resolve] reports what
// is wrong with p.
func NewRepository(p *source.PkgRepository, env source.Env) *Repository {
	return &Repository{repo: p, env: env, secretReader: &transport.SecretReader{Namespace: p.Metadata.Namespace, From: env.Secrets}}
}

// repositoryState is the state that a PkgRepository keeps between runs.
type repositoryState struct {
	Place string `json:"place,omitempty"` // where the index came from, and with which credentials
	validators
	Digest string `json:"digest,omitempty"` // of the published index, SHA-256 in hex
	Sum    string `json:"sum,omitempty"`    // of its content
}

// decodeRepositoryState decodes a state. It returns the zero state if text cannot be
// decoded, or if it is about another repository or other credentials.
func decodeRepositoryState(text source.State, w *httpRepository) (s repositoryState) {
	if json.Unmarshal(text, &s) != nil || s.Place != w.name() || s.Digest == "" {
		return repositoryState{}
	}
	return s
}

// revisionOf returns the revision of the index with the given digest (reference A4).
func revisionOf(digest string) source.Revision {
	return source.Revision{ID: "sha256:" + digest, File: "index-" + digest + ".yaml"}
}

// Resolve implements [source.Origin]. It requests the index, and reads all of it unless the
// server answers that it has not changed since the last run.
//
// Errors are *[source.StepError]. They wrap [source.ErrInvalid] if the spec cannot work,
// and fs.ErrNotExist if the server has no index there. The reason is IndexationFailed for
// content that is not an index.
func (r *Repository) Resolve(ctx context.Context, last source.State) (source.Revision, source.State, error) {
	r.keep(nil) // an index kept earlier was fetched with the Secrets of that time
	rev, state, err := r.resolve(ctx, last)
	if err != nil {
		return source.Revision{}, nil, stepError(source.StepResolve, "Failed", err)
	}
	return rev, state, nil
}

func (r *Repository) resolve(ctx context.Context, last source.State) (rev source.Revision, state source.State, err error) {
	if err := r.validate(); err != nil || r.repo.Spec.Type == source.RepositoryOCI {
		return rev, nil, err
	}
	w, err := dial(ctx, r.repo, r.env, r.secretReader)
	if err != nil {
		return rev, nil, err
	}
	defer w.close()
	before, since := repositoryState{}, time.Now() // after a move, do not reuse earlier answers
	if !r.moved.Swap(false) {
		before, since = decodeRepositoryState(last, w), r.env.Since
	}
	f, err := r.fetchShared(ctx, w, before.validators, since)
	if err != nil {
		return rev, nil, err
	}
	now := before
	if f != nil {
		now = repositoryState{Place: w.name(), validators: f.validators, Digest: f.digest, Sum: f.summary.Sum}
		if before.Sum == now.Sum && before.Digest != "" {
			now.Digest = before.Digest // same content: keep the published one
		}
		published := r.repo.Status.Artifact
		if f.digest != now.Digest || published != nil && published.Revision == revisionOf(f.digest).ID {
			f.Close() // it will not be opened
		} else {
			r.keep(f)
		}
	}
	state, err = json.Marshal(now)
	return revisionOf(now.Digest), state, err
}

// Open implements [source.Origin]. It fetches the index again unless the last Resolve kept
// it. The error wraps [source.ErrMoved] if the index has changed since.
func (r *Repository) Open(ctx context.Context, rev source.Revision) (source.Content, error) {
	f, err := r.open(ctx, rev)
	if err != nil {
		return nil, stepError(source.StepFetch, "Failed", err)
	}
	at, err := parseURL(r.repo.Spec.URL)
	if err != nil {
		at = &url.URL{}
	}
	return &repositoryContent{indexFile: f, at: redact.URL(at)}, nil
}

func (r *Repository) open(ctx context.Context, rev source.Revision) (*indexFile, error) {
	r.mu.Lock()
	f := r.kept
	if f != nil && revisionOf(f.digest).ID == rev.ID {
		r.kept = nil
		r.mu.Unlock()
		return f, nil
	}
	r.mu.Unlock()
	w, err := r.connect(ctx)
	if err != nil {
		return nil, err
	}
	defer w.close()
	if f, err = r.fetch(ctx, w, validators{}); err != nil {
		return nil, err
	}
	if id := revisionOf(f.digest).ID; id != rev.ID {
		f.Close()
		r.moved.Store(true)
		return nil, fmt.Errorf("%w: its revision was %s and is %s", source.ErrMoved, rev.ID, id)
	}
	return f, nil
}

// connect returns the HTTP repository of the index.
func (r *Repository) connect(ctx context.Context) (*httpRepository, error) {
	if err := r.validate(); err != nil {
		return nil, err
	}
	if r.repo.Spec.Type == source.RepositoryOCI {
		return nil, errors.New("a repository of type oci has no index")
	}
	return dial(ctx, r.repo, r.env, r.secretReader)
}

// validate validates the spec, which may have been built in Go and never decoded. It returns
// the first defect.
func (r *Repository) validate() error {
	spec, named := &r.repo.Spec, specOf(r.repo)
	named.Metadata.Name = cmp.Or(named.Metadata.Name, "unnamed") // a repository made for a dependency has no name
	if defect, ok := errors.AsType[*source.DocumentError](source.Validate(named)); ok {
		if defect.Field == "spec.url" {
			return badURL(defect.Err)
		}
		return invalid(fmt.Errorf("%s: %w", defect.Field, defect.Err))
	}
	if scheme, _, _ := strings.Cut(spec.URL, "://"); spec.Type != source.RepositoryOCI && strings.EqualFold(scheme, "oci") {
		return badURL(errors.New("a registry has no index: set spec.type: oci"))
	}
	return nil
}

// Secrets returns the credentials that were given to the origin so far.
func (r *Repository) Secrets() []string { return r.secretReader.Values() }

// keep closes the kept index and replaces it by f, which may be nil.
func (r *Repository) keep(f *indexFile) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.kept != nil {
		r.kept.Close()
	}
	r.kept = f
}

// repositoryContent is an index that is to be published.
type repositoryContent struct {
	*indexFile
	at string // redacted URL for messages
}

// Verify implements [source.Content]. It does nothing: spec.verify is about each chart, and
// is checked when the chart is fetched.
func (c *repositoryContent) Verify(context.Context) (source.Verification, error) {
	return source.Verification{}, nil
}

// WriteTo implements [source.Content]. It writes the index unchanged.
func (c *repositoryContent) WriteTo(ctx context.Context, w io.Writer) (source.Report, error) {
	report := source.Report{Message: fmt.Sprintf("stored fetched index of size %s from '%s'", formatSize(c.size), c.at), Notes: c.notes}
	n, err := io.Copy(w, c.reader())
	report.Report = artifact.Report{Files: 1, Bytes: n}
	if total := c.summary.SkippedTotal; total > 0 {
		report.Notes = append(report.Notes[:len(c.notes):len(c.notes)], c.describeSkipped(total))
	}
	return report, err
}

// describeSkipped describes the entries of the index that cannot be used, the first five one by
// one.
func (c *repositoryContent) describeSkipped(total int) string {
	var text []string
	for _, m := range c.summary.Skipped[:min(len(c.summary.Skipped), 5)] {
		text = append(text, fmt.Sprintf("chart %.80q version %.80q (line %d): %.200s", m.Chart, m.Version, m.Line, redact.String(m.Problem)))
	}
	if more := total - len(text); more > 0 {
		text = append(text, fmt.Sprintf("and %d more", more))
	}
	entries := "entries"
	if total == 1 {
		entries = "entry"
	}
	return fmt.Sprintf("%d %s of the index cannot be used: %s", total, entries, strings.Join(text, "; "))
}

// formatSize returns a size as people read it, in powers of 1000 (reference A3).
func formatSize(bytes int64) string {
	size, prefix := humanize.ComputeSI(float64(bytes))
	return fmt.Sprintf("%.4g%sB", size, prefix)
}
