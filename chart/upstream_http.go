package chart

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"iter"
	"strings"
	"sync"
	"time"

	"github.com/Masterminds/semver/v3"

	"github.com/headgate-io/headgate/artifact"
	"github.com/headgate-io/headgate/chart/index"
	"github.com/headgate-io/headgate/chart/internal/bundle"
	"github.com/headgate-io/headgate/internal/redact"
	"github.com/headgate-io/headgate/internal/transport"
	"github.com/headgate-io/headgate/source"
)

// A site is a repository of charts behind an index over HTTP.
type site struct {
	supply *supply
	repo   *source.PkgRepository
	web    *web
	index  func(context.Context) (io.ReadCloser, error)
	local  string // directory that stands in for the repository, "" for none

	mu   sync.Mutex
	kept map[*listed]*fetched // what verify fetched, until it is taken
}

// listed is what an offer of a site comes from.
type listed struct {
	entry  index.Entry
	digest string // sha256:HEX, "" when the index does not tell
}

// openSite returns the repository behind an index.
func (s *supply) openSite(ctx context.Context, repo *source.PkgRepository, index func(context.Context) (io.ReadCloser, error)) (upstream, error) {
	w, err := dial(ctx, repo, s.env, s.vault)
	if err != nil {
		return nil, err
	}
	if w.at.Scheme != "http" && w.at.Scheme != "https" {
		return nil, urlInvalid(fmt.Errorf("spec.url: scheme %q: want http or https, or oci", w.at.Scheme))
	}
	u := &site{supply: s, repo: repo, web: w, index: index, kept: map[*listed]*fetched{}}
	u.local, w.free = s.env.Local[repo.Spec.URL]
	return u, nil
}

// name returns the URL of the repository as it may show.
func (u *site) name() string { return redact.URL(u.web.at) }

func (u *site) find(ctx context.Context, name, want string) (offer, error) {
	entry, err := u.choose(ctx, name, want)
	if err != nil {
		return offer{}, err
	}
	l := &listed{entry: entry}
	o := offer{name: name, version: entry.Version, from: l}
	if l.digest, err = digestOf(entry.Digest); err != nil {
		err = fmt.Errorf("index of %s, line %d: chart %s %s: %w", u.name(), entry.Line, name, entry.Version, err)
		return offer{}, stepError(source.StepResolve, pullFailed, err)
	}
	if o.identity = l.digest; o.identity == "" {
		h, at := sha256.New(), *u.web.at
		at.User = nil // the place counts, which the URLs are relative to
		transport.Note(h, at.String(), entry.Created.UTC().Format(time.RFC3339Nano))
		transport.Note(h, entry.URLs...)
		o.identity = hex.EncodeToString(h.Sum(nil))
	}
	if u.repo.Spec.Verify != nil {
		o.verifies = provenanceMode
	}
	return o, nil
}

// choose returns the entry of the index that want selects.
func (u *site) choose(ctx context.Context, name, want string) (index.Entry, error) {
	content := &reopening{open: func() (io.ReadCloser, error) { return u.index(ctx) }}
	if _, err := content.Seek(0, io.SeekStart); err != nil {
		return index.Entry{}, stepError(source.StepResolve, indexFailed, err)
	}
	defer content.Close()
	any := false
	var broken error
	entry, err := index.Select(watch(index.Entries(content, name), &any, &broken), want)
	switch {
	case err == nil:
		return entry, checkVersion(entry.Version)
	case broken != nil:
		return entry, stepError(source.StepResolve, indexFailed, fmt.Errorf("index of %s: %w", u.name(), broken))
	case !any && errors.Is(err, fs.ErrNotExist):
		err = fmt.Errorf("%w in the index of %s: look at its spelling", errNoChart, u.name())
	}
	return entry, unselected(badReference, name, err)
}

// A reopening is content that is read from its start by opening it again.
type reopening struct {
	open func() (io.ReadCloser, error)
	io.ReadCloser
}

func (r *reopening) Seek(int64, int) (int64, error) {
	again, err := r.open()
	if err != nil {
		return 0, err
	}
	if r.ReadCloser != nil {
		r.Close()
	}
	r.ReadCloser = again
	return 0, nil
}

// errNoChart is fs.ErrNotExist in other words.
var errNoChart = noChart{}

type noChart struct{}

func (noChart) Error() string        { return "there is no such chart" }
func (noChart) Is(target error) bool { return target == fs.ErrNotExist }

// watch tells whether there were any entries, and what was wrong with their list.
func watch(entries iter.Seq2[index.Entry, error], any *bool, broken *error) iter.Seq2[index.Entry, error] {
	return func(yield func(index.Entry, error) bool) {
		for entry, err := range entries {
			*any, *broken = true, err
			if !yield(entry, err) {
				return
			}
		}
	}
}

// unselected says why no version was selected. What is not there may come, for
// the given reason; what is no version or range never can be.
func unselected(reason, name string, err error) error {
	if !errors.Is(err, fs.ErrNotExist) {
		reason, err = badReference, invalid(err)
	}
	return &source.StepError{Step: source.StepResolve, Reason: reason, Err: fmt.Errorf("chart %s: %w", name, err)}
}

// checkVersion keeps what is no version out of names of files.
func checkVersion(version string) error {
	if _, err := semver.NewVersion(version); err != nil {
		return stepError(source.StepResolve, pullFailed, fmt.Errorf("version %.200q: %w", version, err))
	}
	return nil
}

// digestOf returns the digest of an entry as sha256:HEX, "" when it has none.
func digestOf(text string) (string, error) {
	if text == "" {
		return "", nil
	}
	algorithm, value, err := artifact.ParseDigest(strings.ToLower(text))
	if err != nil || algorithm != artifact.SHA256 {
		return "", fmt.Errorf("digest %.200q: want sha256:HEX", text)
	}
	return string(algorithm) + ":" + value, nil
}

// fetch implements upstream. Where the repository asks for verification, what was
// not verified yet is verified here.
func (u *site) fetch(ctx context.Context, o offer) (*bundle.Archive, error) {
	l, ok := o.from.(*listed)
	if !ok {
		return nil, stepError(source.StepFetch, pullFailed, foreign(o))
	}
	got, err := u.take(l), error(nil)
	switch {
	case got != nil:
	case u.repo.Spec.Verify != nil:
		got, _, err = u.verified(ctx, o, l)
	default:
		got, err = u.obtain(ctx, o, l, true)
	}
	if err != nil {
		return nil, err
	}
	return got.Archive, nil
}

// take returns what verify kept of l, nil if it did not.
func (u *site) take(l *listed) *fetched {
	u.mu.Lock()
	defer u.mu.Unlock()
	got := u.kept[l]
	delete(u.kept, l)
	return got
}

// keep replaces what is kept of l.
func (u *site) keep(l *listed, got *fetched) {
	u.mu.Lock()
	old := u.kept[l]
	u.kept[l] = got
	u.mu.Unlock()
	if old != nil {
		old.Close()
	}
}

func (u *site) close() {
	u.mu.Lock()
	defer u.mu.Unlock()
	for _, got := range u.kept {
		got.Close()
	}
	clear(u.kept)
	u.web.close()
}
