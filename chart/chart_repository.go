package chart

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"net/url"
	"strings"
	"time"

	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
	image "oras.land/oras-go/v2/registry"

	"github.com/headgate-io/headgate/artifact"
	"github.com/headgate-io/headgate/chart/index"
	"github.com/headgate-io/headgate/chart/internal/bundle"
	"github.com/headgate-io/headgate/internal/redact"
	"github.com/headgate-io/headgate/internal/transport"
	"github.com/headgate-io/headgate/oci"
	"github.com/headgate-io/headgate/source"
)

// A chartRepository is a repository of charts behind an index over HTTP.
type chartRepository struct {
	*opener
	repo    *source.PkgRepository
	http    *httpRepository
	index   func(context.Context) (io.ReadCloser, error)
	fetched *indexFile // file that index reads; nil if the index comes from elsewhere
}

func (u *chartRepository) close() {
	u.http.close()
	if u.fetched != nil {
		u.fetched.Close()
	}
}

func (u *chartRepository) find(ctx context.Context, name, want string) (*selectedVersion, error) {
	at := redact.URL(u.http.baseURL)
	content := &reopeningReader{open: func() (io.ReadCloser, error) { return u.index(ctx) }}
	if _, err := content.Seek(0, io.SeekStart); err != nil {
		return nil, stepError(source.StepResolve, indexFailed, err)
	}
	defer content.Close()
	entry, err := index.Select(index.Entries(content, name), want)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, stepError(source.StepResolve, badReference, fmt.Errorf("chart %s: %w", name, err))
	case errors.Is(err, index.ErrRange):
		return nil, badChart(fmt.Errorf("chart %s: %w", name, err))
	case err != nil:
		return nil, stepError(source.StepResolve, indexFailed, fmt.Errorf("index of %s: %w", at, err))
	}
	s := &selectedVersion{name: name, version: entry.Version, entry: entry}
	if entry.Digest != "" {
		s.digest = "sha256:" + strings.ToLower(strings.TrimPrefix(entry.Digest, "sha256:"))
	}
	if s.identity = s.digest; s.identity == "" {
		h, at := sha256.New(), *u.http.baseURL
		at.User = nil // without credentials; the URL counts because entry URLs may be relative to it
		transport.HashInto(h, at.String(), entry.Created.UTC().Format(time.RFC3339Nano))
		transport.HashInto(h, entry.URLs...)
		s.identity = hex.EncodeToString(h.Sum(nil))
	}
	return s, nil
}

// reopeningReader is an io.ReadSeeker that seeks to the start by opening its content again.
type reopeningReader struct {
	open func() (io.ReadCloser, error)
	io.ReadCloser
}

func (r *reopeningReader) Seek(int64, int) (int64, error) {
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

// fetch implements upstream. It verifies the chart first if the repository requires it and
// verify was not called.
func (u *chartRepository) fetch(ctx context.Context, s *selectedVersion) (*bundle.Chart, error) {
	if s.verified == nil && u.repo.Spec.Verify != nil {
		if _, err := u.verify(ctx, s, nil); err != nil {
			return nil, err
		}
	}
	c := s.verified
	if s.verified = nil; c == nil {
		digest := s.digest
		if u.http.localDir != "" {
			digest = "" // local files are not cached
		}
		var err error
		c, err = u.fromCache(ctx, s, digest, string(u.http.fingerprint[:]), func() (*bundle.Chart, error) {
			got, err := u.download(ctx, s)
			return got.Chart, err
		})
		if err != nil {
			return nil, err
		}
	}
	s.pin.Version, s.pin.Digest = s.version, c.Digest
	for _, text := range s.entry.URLs { // a cached chart gets the first usable URL, which download would try first
		if at, err := u.resolve(text); err == nil && s.pin.URL == "" {
			s.pin.URL = u.lockURL(at)
		}
	}
	return c, nil
}

// lockURL returns a URL in the form that locks hold: without user information, and without
// the query of the repository, which resolve adds.
func (u *chartRepository) lockURL(at *url.URL) string {
	to := *at
	to.User = nil
	if query := u.http.baseURL.RawQuery; query != "" && transport.SameOrigin(at, u.http.baseURL) {
		to.RawQuery = strings.TrimSuffix(strings.TrimSuffix(to.RawQuery, query), "&")
	}
	return to.String()
}

const (
	maxURLs    = 20      // URLs tried per entry
	maxAddress = 8 << 10 // bytes of one URL
)

// A downloadedChart is a chart with the URL that it came from.
type downloadedChart struct {
	*bundle.Chart
	from *url.URL
	prov []byte // provenance file that came with it, nil for none
}

// download tries the URLs of the entry in order and returns the first chart that matches
// the index.
func (u *chartRepository) download(ctx context.Context, s *selectedVersion) (downloadedChart, error) {
	var failed error
	for _, text := range s.entry.URLs[:min(len(s.entry.URLs), maxURLs)] {
		got, err := u.downloadFrom(ctx, s, text)
		if err == nil {
			s.pin.URL = u.lockURL(got.from)
			return got, nil
		}
		if failed != nil {
			err = fmt.Errorf("%w; %w", failed, err)
		}
		if failed = err; ctx.Err() != nil {
			break
		}
	}
	return downloadedChart{}, stepError(source.StepFetch, pullFailed, fmt.Errorf("chart %s %s: %w", s.name, s.version, failed))
}

// downloadFrom downloads the chart from one URL. Errors name the URL.
func (u *chartRepository) downloadFrom(ctx context.Context, s *selectedVersion, text string) (got downloadedChart, err error) {
	at, err := u.resolve(text)
	if err != nil {
		return got, err
	}
	if at.Scheme == "oci" {
		return u.pullFrom(ctx, s, at)
	}
	if s.digest == "" && at.Scheme == "http" && u.http.baseURL.Scheme == "https" {
		return got, errors.New("it leads from https to http, and the index has no digest to compare it with")
	}
	got.from = at
	err = u.get(ctx, at, "download chart", func(size int64, content io.Reader) (err error) {
		got.Chart, err = u.receive(s, size, content)
		return err
	})
	return got, err
}

// resolve returns the absolute form of a URL in an entry. A relative URL is resolved
// against the repository; on the repository's own server it also gets the query of the
// repository, which may hold credentials.
func (u *chartRepository) resolve(text string) (*url.URL, error) {
	if len(text) > maxAddress {
		return nil, fmt.Errorf("URL %.100q… has more than %d bytes", text, maxAddress)
	}
	to, err := url.Parse(strings.TrimSpace(text))
	if err != nil {
		return nil, fmt.Errorf("URL %.100q cannot be read", redact.String(text))
	}
	relative := !to.IsAbs() || u.env.Pin != nil // a lock holds relative URLs in resolved form
	at := u.http.baseURL.ResolveReference(to)
	if relative {
		at.RawQuery = to.RawQuery
		if transport.SameOrigin(at, u.http.baseURL) && u.http.baseURL.RawQuery != "" {
			at.RawQuery = strings.Trim(to.RawQuery+"&"+u.http.baseURL.RawQuery, "&")
		}
	}
	at.Fragment, at.RawFragment = "", ""
	switch {
	case at.Scheme != "http" && at.Scheme != "https" && at.Scheme != "oci":
		return nil, fmt.Errorf("URL %.100q: scheme %.20q: want http, https or oci", redact.String(text), at.Scheme)
	case at.Hostname() == "":
		return nil, fmt.Errorf("URL %.100q has no host", redact.String(text))
	}
	if password, ok := at.User.Password(); ok {
		u.secretReader.Conceal(password)
	}
	return at, nil
}

// receive reads the chart from content and compares its digest with the index, and its name
// and version with the selection.
func (u *chartRepository) receive(s *selectedVersion, size int64, content io.Reader) (*bundle.Chart, error) {
	c, err := s.read(content, size, u.env.Limits)
	if err != nil {
		return nil, err
	}
	if err = s.checkDigest(c.Digest); err == nil {
		err = s.check(c)
	}
	if err != nil {
		c.Close()
		return nil, err
	}
	return c, nil
}

// checkDigest returns an error unless digest is that of the index, or the index has none.
func (s *selectedVersion) checkDigest(digest string) error {
	if s.digest == "" || s.digest == digest {
		return nil
	}
	return fmt.Errorf("it is not what the index promises: %w", &artifact.DigestError{Want: s.digest, Got: digest})
}

// get calls use with the content at a URL and its size in bytes, negative if unknown.
// Errors name the URL.
func (u *chartRepository) get(ctx context.Context, at *url.URL, step string, use func(size int64, content io.Reader) error) error {
	read := func(size int64, content io.ReadCloser) error {
		defer content.Close()
		if err := use(size, content); err != nil {
			return fmt.Errorf("%s: %w", redact.URL(at), err)
		}
		return nil
	}
	if path, below := strings.CutPrefix(at.Path, u.http.baseURL.Path); below && u.http.localDir != "" && transport.SameOrigin(at, u.http.baseURL) {
		file, err := openLocal(u.http.localDir, path)
		if err != nil {
			return err
		}
		return read(-1, file)
	}
	return source.Within(ctx, timeout(u.repo), step, func(ctx context.Context) error {
		resp, err := u.http.get(ctx, at, http.Header{"Accept-Encoding": {"identity"}}) // the digest covers the bytes without a content coding
		if err != nil {
			return err
		}
		return read(resp.ContentLength, resp.Body)
	})
}

// pullFrom pulls the chart at an oci URL of the index. It uses the credentials of the
// PkgRepository of the namespace that has this URL; without such an object it pulls
// anonymously.
func (u *chartRepository) pullFrom(ctx context.Context, s *selectedVersion, at *url.URL) (got downloadedChart, err error) {
	if at.User != nil || at.RawQuery != "" {
		return got, fmt.Errorf("URL %s of a chart: want oci://HOST/PATH:TAG, without user information and query", redact.URL(at))
	}
	named, err := image.ParseReference(strings.TrimPrefix(at.String(), "oci://"))
	where := "oci://" + named.Registry + "/" + named.Repository
	if err == nil {
		err = oci.CheckURL(where)
	}
	if err != nil {
		return got, fmt.Errorf("URL %s of a chart: %w", redact.URL(at), err)
	}
	reference := cmp.Or(named.Reference, strings.ReplaceAll(s.version, "+", "_"))
	repo, err := u.findRepository(ctx, func(_ *source.PkgRepository, have string) bool {
		return strings.HasPrefix(have, "oci://") && strings.HasPrefix(where, have+"/")
	})
	if err != nil {
		return got, err
	}
	var by *oci.NetworkGuard
	if repo == nil {
		repo = anonymousRepository(where)
		repo.Spec.Timeout = u.repo.Spec.Timeout
		by = u.http.indexGuard
	}
	from, err := u.connect(ctx, repo, where, u.env, by)
	if err != nil {
		return got, err
	}
	defer from.Close()
	var subject ocispec.Descriptor
	err = source.Within(ctx, timeout(repo), "look up "+reference, func(ctx context.Context) (err error) {
		subject, err = from.Head(ctx, reference)
		return err
	})
	if err != nil {
		return got, err
	}
	if got, err = u.pull(ctx, s, from, repo, subject, u.repo.Spec.Verify != nil); err != nil {
		return got, err
	}
	if s.digest != subject.Digest.String() {
		if err := s.checkDigest(got.Digest); err != nil {
			got.Close()
			return got, fmt.Errorf("%s: %w", where, err)
		}
	}
	got.from = at
	if named.ValidateReferenceAsDigest() != nil {
		exact := *at
		exact.Path = strings.TrimSuffix(at.Path, ":"+named.Reference) + "@" + subject.Digest.String()
		got.from = &exact
	}
	return got, nil
}
