package sourcetest

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"sync"
	"testing/fstest"
	"time"

	"github.com/headgate-io/headgate/artifact"
	"github.com/headgate-io/headgate/source"
)

// Memory is a kind whose origin is a tree in memory: the smallest kind there
// is, and the example to copy. This file has, in this order, the three parts
// that every kind has: the object, the origin with its content, and the
// upstream for the suite.
func Memory() Kind {
	return Kind{
		Name:  "MemoryRepository",
		Open:  func(TB) Upstream { return new(memory) },
		Drift: func(obj source.Object) { obj.(*MemoryRepository).Spec.Ignore = "*.md" },
		Failures: []Failure{
			{Gone, source.Failed, source.FetchFailedCondition, "MemoryOperationFailed", "no such tree"},
			{Denied, source.Failed, source.FetchFailedCondition, "AuthenticationFailed", "credentials are refused"},
			{Invalid, source.Stalled, source.FetchFailedCondition, "URLInvalid", "spec.url"},
			{Waits, source.Waiting, source.IncludeUnavailableCondition, "NotFound", "no artifact yet"},
			{Truncated, source.Failed, source.StorageOperationFailedCondition, "ArchiveOperationFailed", "unexpected EOF"},
			{Forged, source.Failed, source.SourceVerifiedCondition, "VerificationError", "nobody we know"},
			{Leaking, source.Failed, source.FetchFailedCondition, "MemoryOperationFailed", "refused: memory://host/tree"},
		},
		Stalls:       []Defect{StallResolve, StallFetch},
		Verifies:     true,
		Hostile:      []string{`a\b`, "nul\x00byte"},
		IgnoreFile:   ".sourceignore",
		IgnoreNested: true,
	}
}

// A MemoryRepository is the object: header, spec and status, as in a document.
type MemoryRepository struct {
	source.Header
	Spec   MemoryRepositorySpec   `json:"spec"`
	Status MemoryRepositoryStatus `json:"status,omitzero"`
}

// MemoryRepositorySpec is what a MemoryRepository asks for.
type MemoryRepositorySpec struct {
	URL      string          `json:"url"`
	Interval source.Duration `json:"interval"`
	Timeout  source.Duration `json:"timeout,omitempty"`
	Ignore   string          `json:"ignore,omitempty"`
	Verify   string          `json:"verify,omitempty"`
	Suspend  bool            `json:"suspend,omitempty"`
}

// MemoryRepositoryStatus is what was observed: the common part, and every
// field of the spec that shapes the artifact.
type MemoryRepositoryStatus struct {
	source.Status
	ObservedIgnore string `json:"observedIgnore,omitempty"`
}

// Head implements [source.Object].
func (m *MemoryRepository) Head() *source.Header { return &m.Header }

// Common implements [source.Object].
func (m *MemoryRepository) Common() *source.Status { return &m.Status.Status }

// Artifact implements [source.Source].
func (m *MemoryRepository) Artifact() *artifact.Artifact { return m.Status.Artifact }

// Interval implements [source.Source].
func (m *MemoryRepository) Interval() time.Duration { return time.Duration(m.Spec.Interval) }

// Plan implements [source.Object].
func (m *MemoryRepository) Plan() source.Plan {
	return source.Plan{
		Timeout: time.Duration(m.Spec.Timeout),
		Suspend: m.Spec.Suspend,
		Verify:  m.Spec.Verify,
		Words:   source.Words{Latest: "latest.tar.gz", Stored: "stored artifact for revision '%s'", Failed: "MemoryOperationFailed"},
	}
}

// Drift implements [source.Object].
func (m *MemoryRepository) Drift(source.Revision) string {
	if m.Spec.Ignore != m.Status.ObservedIgnore {
		return "spec.ignore"
	}
	return ""
}

// Observe implements [source.Object].
func (m *MemoryRepository) Observe(source.Revision) { m.Status.ObservedIgnore = m.Spec.Ignore }

// A memoryOrigin fetches what a MemoryRepository asks for.
type memoryOrigin struct {
	repo   *MemoryRepository
	memory *memory
}

// Resolve implements [source.Origin]. Whatever is wrong with the spec is found here.
func (o memoryOrigin) Resolve(ctx context.Context, _ source.State) (source.Revision, source.State, error) {
	if o.repo.Spec.URL == "" {
		err := fmt.Errorf("spec.url is empty, set it: %w", source.ErrInvalid)
		return source.Revision{}, nil, &source.StepError{Reason: "URLInvalid", Err: err}
	}
	revision, err := o.memory.head(ctx, o.repo.Spec.URL)
	if err != nil {
		return source.Revision{}, nil, err
	}
	return source.Revision{ID: "memory@sha256:" + revision, File: revision + ".tar.gz"}, nil, nil
}

// Open implements [source.Origin].
func (o memoryOrigin) Open(ctx context.Context, rev source.Revision) (source.Content, error) {
	tree, signature, err := o.memory.fetch(ctx)
	if err != nil {
		return nil, fmt.Errorf("fetch %s: %w", rev.ID, err)
	}
	return &memoryContent{o.repo, tree, signature}, nil
}

// Secrets returns the credentials that the origin has used, so that the
// reconciler can keep them out of all texts.
func (o memoryOrigin) Secrets() []string { return []string{secret} }

// memoryContent is the content of one revision.
type memoryContent struct {
	repo      *MemoryRepository
	tree      fs.FS
	signature string
}

// Verify implements [source.Content].
func (c *memoryContent) Verify(context.Context) (source.Verification, error) {
	if c.repo.Spec.Verify == "" {
		return source.Verification{}, nil
	}
	if c.signature != "good" {
		return source.Verification{}, fmt.Errorf("signed by nobody we know: %w", source.ErrVerification)
	}
	return source.Verification{Mode: c.repo.Spec.Verify, Signer: "memory", Message: "verified signature of tree"}, nil
}

// WriteTo implements [source.Content].
func (c *memoryContent) WriteTo(ctx context.Context, w io.Writer) (source.Report, error) {
	ignore := artifact.Ignore{File: ".sourceignore", Extra: c.repo.Spec.Ignore}
	rules, err := ignore.Compile(ctx, c.tree)
	if err != nil {
		return source.Report{}, err
	}
	report, err := artifact.Pack(ctx, w, rules.View(ctx, c.tree))
	return source.Report{Report: report}, err
}

// Close implements [source.Content].
func (c *memoryContent) Close() error { return nil }

// secret is planted where a real kind has its credentials.
const secret = "canary-0f9e8d7c"

// A memory is the upstream, and in place of a protocol.
type memory struct {
	mu      sync.Mutex
	tree    fstest.MapFS
	traffic Traffic
	defect  Defect
	meet    func() // says that a request has met the defect
}

// Publish implements [Upstream].
func (m *memory) Publish(tree fstest.MapFS) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.tree = maps.Clone(tree)
	return nil
}

// Break implements [Upstream].
func (m *memory) Break(defect Defect) <-chan struct{} {
	m.mu.Lock()
	defer m.mu.Unlock()
	met := make(chan struct{})
	m.defect, m.meet = defect, sync.OnceFunc(func() { close(met) })
	return met
}

// Object implements [Upstream].
func (m *memory) Object() source.Object {
	m.mu.Lock()
	defer m.mu.Unlock()
	obj := new(MemoryRepository)
	obj.APIVersion, obj.Kind = "source.headgate.dev/v1", "MemoryRepository"
	obj.Metadata.Namespace, obj.Metadata.Name = "default", "sample"
	obj.Spec.URL = "memory://user:" + secret + "@host/tree"
	obj.Spec.Interval, obj.Spec.Timeout = source.Duration(time.Hour), source.Duration(time.Minute)
	switch m.defect {
	case Invalid:
		obj.Spec.URL = ""
	case Signed, Forged:
		obj.Spec.Verify = "tree"
	}
	return obj
}

// Origin implements [Upstream].
func (m *memory) Origin(obj source.Object) source.Origin {
	return memoryOrigin{obj.(*MemoryRepository), m}
}

// Traffic implements [Upstream].
func (m *memory) Traffic() Traffic {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.traffic
}

// Secrets implements [Upstream].
func (m *memory) Secrets() []string { return []string{secret} }

// head is the request for the revision.
func (m *memory) head(ctx context.Context, url string) (string, error) {
	tree, defect, meet := m.request(0)
	switch defect {
	case Gone:
		return "", fmt.Errorf("no such tree: %w", fs.ErrNotExist)
	case Denied:
		return "", &source.StepError{Reason: "AuthenticationFailed", Err: errors.New("credentials are refused, check the Secret")}
	case Leaking:
		return "", fmt.Errorf("refused: %s, password %s", url, secret)
	case Waits:
		return "", &source.StepError{Step: source.StepInclude, Err: fmt.Errorf("no artifact yet: %w", source.ErrWaiting)}
	case StallResolve:
		return "", stalled(ctx, meet)
	}
	text, err := json.Marshal(tree)
	return fmt.Sprintf("%x", sha256.Sum256(text)), err
}

// fetch is the request for the content.
func (m *memory) fetch(ctx context.Context) (tree fs.FS, signature string, err error) {
	held, defect, meet := m.request(1)
	switch defect {
	case StallFetch:
		return nil, "", stalled(ctx, meet)
	case Truncated:
		return truncated{held}, "", nil
	case Signed:
		return held, "good", nil
	}
	return held, "bad", nil
}

// request counts a request and returns what it is answered from.
func (m *memory) request(content int64) (tree fstest.MapFS, defect Defect, meet func()) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.traffic.Requests++
	m.traffic.Content += content
	return m.tree, m.defect, m.meet
}

// stalled waits for the end of ctx.
func stalled(ctx context.Context, meet func()) error {
	meet()
	<-ctx.Done()
	return ctx.Err()
}

// A truncated tree has no whole file.
type truncated struct{ fs.FS }

// Open implements [fs.FS].
func (t truncated) Open(name string) (fs.File, error) {
	f, err := t.FS.Open(name)
	if err != nil {
		return nil, err
	}
	if _, dir := f.(fs.ReadDirFile); dir {
		return f, nil
	}
	return cut{f}, nil
}

// A cut file ends too early.
type cut struct{ fs.File }

// Read implements [io.Reader].
func (cut) Read([]byte) (int, error) { return 0, io.ErrUnexpectedEOF }
