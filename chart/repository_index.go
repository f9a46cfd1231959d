package chart

import (
	"bufio"
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"hash"
	"io"
	"mime"
	"net/http"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/headgate-io/headgate/chart/index"
	"github.com/headgate-io/headgate/internal/redact"
	"github.com/headgate-io/headgate/internal/transport"
	"github.com/headgate-io/headgate/source"
)

const (
	nameOfIndex = "index.yaml"
	indexLimit  = 256 << 20 // bytes of an index, unless env.Limits sets another limit
)

// An indexFile is an index in a temporary file, which Close removes, or in the cache.
type indexFile struct {
	io.ReaderAt
	io.Closer
	size    int64
	digest  string // SHA-256 in hex
	summary index.Summary
	notes   []string
	validators
}

// reader returns the index from its start.
func (f *indexFile) reader() *io.SectionReader { return io.NewSectionReader(f, 0, f.size) }

// validators are the HTTP validators of one state of an index.
type validators struct {
	ETag     string `json:"etag,omitempty"`
	Modified string `json:"modified,omitempty"` // Last-Modified, as the server spells it
}

// maxValidator is the maximum size of a validator that is kept, in bytes.
const maxValidator = 1 << 10

// validatorsOf returns the validators in the header of a response. Without an ETag it
// ignores a Last-Modified of the current second, in which the index may change once more
// (RFC 9110 section 8.8.2.2).
func validatorsOf(h http.Header) (v validators) {
	if s := h.Get("ETag"); len(s) <= maxValidator {
		v.ETag = s
	}
	modified, err := http.ParseTime(h.Get("Last-Modified"))
	sent, unsent := http.ParseTime(h.Get("Date"))
	recent := err == nil && unsent == nil && !sent.After(modified)
	if s := h.Get("Last-Modified"); len(s) <= maxValidator && (v.ETag != "" || !recent) {
		v.Modified = s
	}
	return v
}

// header returns the header that requests the index only if it no longer matches v.
func (v validators) header() http.Header {
	h := http.Header{}
	if v.ETag != "" {
		h.Set("If-None-Match", v.ETag)
	}
	if v.Modified != "" {
		h.Set("If-Modified-Since", v.Modified)
	}
	return h
}

// An indexResponse is a response with an index as its body.
type indexResponse struct {
	body io.ReadCloser
	at   string // redacted URL
	html bool   // its Content-Type is HTML
	size int64  // -1 if unknown
	validators
}

// index requests the index. The answer is nil if the index still matches v.
func (w *httpRepository) index(ctx context.Context, v validators) (*indexResponse, error) {
	if w.localDir != "" {
		f, err := openLocal(w.localDir, nameOfIndex)
		if errors.Is(err, os.ErrNotExist) {
			err = fmt.Errorf("%w: run helm repo index %s", err, w.localDir)
		}
		if err != nil {
			return nil, err
		}
		return &indexResponse{body: f, at: w.localDir + "/" + nameOfIndex, size: -1}, nil
	}
	resp, err := w.get(ctx, fileURL(w.baseURL, nameOfIndex), v.header())
	if status, ok := errors.AsType[*StatusError](err); ok && errors.Is(err, os.ErrNotExist) {
		status.Hint = "spec.url must be the URL of the directory that " + nameOfIndex + " is in"
	}
	if err != nil {
		return nil, err
	}
	if resp.StatusCode == http.StatusNotModified {
		resp.Body.Close()
		return nil, nil
	}
	kind, _, _ := mime.ParseMediaType(resp.Header.Get("Content-Type"))
	return &indexResponse{body: resp.Body, at: redact.URL(resp.Request.URL), html: strings.HasSuffix(kind, "html"),
		size: resp.ContentLength, validators: validatorsOf(resp.Header)}, nil
}

// fetch downloads the index into a file and checks it while it arrives. It returns nil if
// the index still matches v.
func (r *Repository) fetch(ctx context.Context, w *httpRepository, v validators) (*indexFile, error) {
	a, err := w.index(ctx, v)
	if err != nil || a == nil {
		return nil, err
	}
	defer a.body.Close()
	file, err := r.env.Limits.Spool()
	if err != nil {
		return nil, fmt.Errorf("create spool: %w", err)
	}
	in := &indexDownload{ctx: ctx, body: a.body, file: file, sum: sha256.New(), limit: r.limit(), progress: r.progress(a.size)}
	summary, err := index.Check(in)
	if err == nil {
		err = in.receiveRest()
	}
	switch {
	case in.err != nil: // takes precedence over the error of Check
		err = in.err
	case err != nil && context.Cause(ctx) != nil:
		err = context.Cause(ctx)
	case err != nil:
		head := make([]byte, 512)
		n, _ := file.ReadAt(head, 0)
		if a.html || strings.HasPrefix(http.DetectContentType(head[:n]), "text/html") {
			err = fmt.Errorf("%w: the answer is a web page: spec.url must be the URL of the directory that %s is in", err, nameOfIndex)
		}
		err = &source.StepError{Step: source.StepResolve, Reason: indexFailed, Err: err}
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("%s: %w", a.at, err), file.Close())
	}
	return &indexFile{ReaderAt: file, Closer: file, size: in.size, digest: hex.EncodeToString(in.sum.Sum(nil)),
		summary: summary, notes: w.notes, validators: a.validators}, nil
}

// limit returns the maximum size of an index in bytes, negative for no limit.
func (r *Repository) limit() int64 { return cmp.Or(r.env.Limits.Bytes, indexLimit) }

// An indexDownload reads an index while it arrives and copies it to a file, up to a limit.
// After Seek it reads from the start of the file.
type indexDownload struct {
	ctx        context.Context
	body       io.Reader
	file       *os.File
	sum        hash.Hash
	size       int64 // bytes received so far
	limit      int64 // negative for none
	progress   func(int64)
	fileReader *io.SectionReader // of the file, nil until Seek is called
	err        error             // that ended the download, other than io.EOF
}

func (a *indexDownload) Read(p []byte) (int, error) {
	if err := context.Cause(a.ctx); err != nil {
		return 0, err
	}
	if a.fileReader != nil {
		return a.fileReader.Read(p)
	}
	n, err := a.body.Read(p)
	a.size += int64(n)
	a.sum.Write(p[:n])
	_, failed := a.file.Write(p[:n])
	switch {
	case failed != nil:
		a.err = fmt.Errorf("write spool: %w", failed)
	case a.limit >= 0 && a.size > a.limit:
		a.err = fmt.Errorf("the index is larger than %d bytes: raise the limit if the repository is trusted", a.limit)
	case err != nil && err != io.EOF:
		a.err = fmt.Errorf("receive index, after %d bytes: %w", a.size, err)
	default:
		a.progress(a.size)
		return n, err
	}
	return n, a.err
}

// Seek implements [io.Seeker] for the start. It first receives the rest, so that reading
// the index whole does not wait for the server.
func (a *indexDownload) Seek(int64, int) (int64, error) {
	if err := a.receiveRest(); err != nil {
		return 0, err
	}
	a.fileReader = io.NewSectionReader(a.file, 0, a.size)
	return 0, nil
}

// receiveRest receives the rest of the index.
func (a *indexDownload) receiveRest() error {
	if a.fileReader != nil {
		return nil
	}
	_, err := io.Copy(io.Discard, a)
	return err
}

// progress returns a function that takes the number of bytes received so far, of total, and
// reports it once per MiB.
func (r *Repository) progress(total int64) func(int64) {
	address, err := source.Address(r.repo)
	if r.env.Progress == nil || err != nil {
		return func(int64) {}
	}
	next := int64(0)
	return func(n int64) {
		if n >= next {
			next = n + 1<<20
			r.env.Progress(source.Progress{Object: address, Phase: "receiving index", Done: n, Total: max(total, 0), Unit: "bytes"})
		}
	}
}

// fetchShared is fetch, with one shared response for all objects that request the index with the
// same validators and credentials. Without a cache for the index, each object requests it
// itself.
func (r *Repository) fetchShared(ctx context.Context, w *httpRepository, v validators, since time.Time) (*indexFile, error) {
	if w.localDir != "" || r.env.Share == nil || r.env.Cache == nil {
		return r.fetch(ctx, w, v)
	}
	shared, err := r.env.Share.Do(ctx, r.shareKey(w, v), since, func(ctx context.Context) (any, error) {
		defer w.close() // nothing else may use the connection after this
		f, err := r.fetch(ctx, w, v)
		if err != nil || f == nil {
			return (*indexFile)(nil), err
		}
		defer f.Close()
		_ = r.env.Cache.Put(contentKey(w, f.digest), func(to io.Writer) error {
			_, err := io.Copy(to, f.reader())
			return err
		})
		return f, nil
	})
	if err != nil {
		return nil, err
	}
	f := shared.(*indexFile)
	if f == nil {
		return nil, nil
	}
	entry, err := r.env.Cache.Open(contentKey(w, f.digest))
	if err != nil { // the cache could not store it, or has evicted it
		return r.fetch(ctx, w, v)
	}
	result := *f
	result.ReaderAt, result.Closer, result.notes = entry, entry, w.notes
	return &result, nil
}

// shareKey returns the key of a request: server, validators, limit and credentials. With
// credentials it includes the namespace, since messages contain the names of Secrets.
func (r *Repository) shareKey(w *httpRepository, v validators) string {
	spec, h := &r.repo.Spec, sha256.New()
	transport.HashInto(h, string(w.fingerprint[:]), v.ETag, v.Modified, strconv.FormatInt(r.limit(), 10))
	if spec.SecretRef != nil {
		transport.HashInto(h, r.repo.Metadata.Namespace, "secret", spec.SecretRef.Name)
	}
	if spec.CertSecretRef != nil {
		transport.HashInto(h, r.repo.Metadata.Namespace, "certificate", spec.CertSecretRef.Name)
	}
	return "index " + string(h.Sum(nil))
}

// contentKey returns the cache key of an index that was fetched with the credentials of w.
func contentKey(w *httpRepository, digest string) string {
	return "index of charts " + digest + " " + string(w.fingerprint[:])
}

// fetchIndex opens the index of a repository for which no object has an artifact. env.Cache
// keeps the index by URL and credentials, and the request is conditional. It takes at most
// spec.timeout of repo. Errors are those of [Repository.Resolve].
func (o *opener) fetchIndex(ctx context.Context, repo *source.PkgRepository) (f *indexFile, err error) {
	r := &Repository{repo: repo, env: o.env, secretReader: o.secretReader}
	err = source.Within(ctx, timeout(repo), "fetch index", func(ctx context.Context) error {
		f, err = r.fetchCached(ctx)
		return err
	})
	if err != nil {
		return nil, stepError(source.StepFetch, "Failed", err)
	}
	return f, nil
}

// fetchCached returns the index, from the cache if the server says that it has not changed. A
// cache entry is a line with the validators, followed by the index. If the cache cannot
// store the index, the next run downloads it again.
func (r *Repository) fetchCached(ctx context.Context) (*indexFile, error) {
	w, err := r.connect(ctx)
	if err != nil {
		return nil, err
	}
	defer w.close()
	if w.localDir != "" || r.env.Cache == nil {
		return r.fetch(ctx, w, validators{})
	}
	key := "index of charts, at and as " + hex.EncodeToString(w.fingerprint[:])
	held := &indexFile{}
	if entry, err := r.env.Cache.Open(key); err == nil {
		line, err := bufio.NewReader(io.NewSectionReader(entry, 0, entry.Size())).ReadBytes('\n')
		if err == nil && json.Unmarshal(line, &held.validators) == nil {
			held.size, held.Closer = entry.Size()-int64(len(line)), entry
			held.ReaderAt = io.NewSectionReader(entry, int64(len(line)), held.size)
		} else {
			entry.Close()
		}
	}
	f, err := r.fetch(ctx, w, held.validators)
	if err == nil && f == nil {
		return held, nil
	}
	if held.Closer != nil {
		held.Close()
	}
	if err != nil || f.validators == (validators{}) {
		return f, err
	}
	line, _ := json.Marshal(f.validators)
	_ = r.env.Cache.Put(key, func(w io.Writer) error {
		_, failed := w.Write(append(line, '\n'))
		_, err := io.Copy(w, f.reader())
		return errors.Join(failed, err)
	})
	return f, nil
}
