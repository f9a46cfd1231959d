package chart

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"os"
	"strings"

	"github.com/headgate-io/headgate/artifact"
	"github.com/headgate-io/headgate/chart/index"
	"github.com/headgate-io/headgate/internal/redact"
	"github.com/headgate-io/headgate/source"
)

const (
	indexFile  = "index.yaml"
	indexLimit = 256 << 20 // bytes of an index, where env.Limits has no other limit
)

// A place is where an index comes from.
type place interface {
	// name tells the place, and with which credentials it is looked at, from
	// others. No credential can be read from it.
	name() string
	// ask returns the index, nil when it is the one that v belongs to.
	ask(ctx context.Context, v validators) (*answer, error)
	close()
}

// An answer is an index that begins to arrive.
type answer struct {
	body io.ReadCloser
	at   string // the URL as it may show
	page bool   // the server calls it a web page
	size int64  // -1 when it is not known
	validators
}

// name implements place. The credentials take part with 16 bits: enough to
// notice that they are others, and too few to find out what they are.
func (w *web) name() string { return redact.URL(w.at) + " " + hex.EncodeToString(w.print[:2]) }

// ask implements place: it asks for index.yaml.
func (w *web) ask(ctx context.Context, v validators) (*answer, error) {
	resp, err := w.get(ctx, below(w.at, indexFile), v.header())
	if status, ok := errors.AsType[*StatusError](err); ok && errors.Is(err, os.ErrNotExist) {
		status.Hint = "spec.url must be the URL of the directory that " + indexFile + " is in"
	}
	if err != nil {
		return nil, err
	}
	if resp.StatusCode == http.StatusNotModified {
		resp.Body.Close()
		return nil, nil
	}
	kind, _, _ := mime.ParseMediaType(resp.Header.Get("Content-Type"))
	return &answer{body: resp.Body, at: redact.URL(resp.Request.URL), page: strings.HasSuffix(kind, "html"),
		size: resp.ContentLength, validators: validatorsOf(resp.Header)}, nil
}

// A directory stands in for a repository.
type directory string

func (d directory) name() string { return "directory " + string(d) }
func (directory) close()         {}

func (d directory) ask(context.Context, validators) (*answer, error) {
	root, err := os.OpenRoot(string(d))
	if err != nil {
		return nil, fmt.Errorf("local directory %s: %w", string(d), err)
	}
	defer root.Close()
	f, err := openRegular(root, indexFile)
	if errors.Is(err, os.ErrNotExist) {
		return nil, fmt.Errorf("local directory %s: %w: run helm repo index %s", string(d), err, string(d))
	}
	if err != nil {
		return nil, fmt.Errorf("local directory %s: %w", string(d), err)
	}
	return &answer{body: f, at: string(d) + "/" + indexFile, size: -1}, nil
}

// openRegular opens a file that is neither a directory nor a device.
func openRegular(root *os.Root, name string) (*os.File, error) {
	info, err := root.Stat(name)
	if err != nil {
		return nil, err
	}
	if !info.Mode().IsRegular() {
		return nil, fmt.Errorf("%s is no file", name)
	}
	return root.Open(name)
}

// A spooled index can be read anywhere.
type spooled interface {
	io.ReaderAt
	io.Closer
}

// A found is an index in a file that disappears once it is closed.
type found struct {
	file    spooled
	size    int64
	digest  string // SHA-256 in hex
	summary index.Summary
	notes   []string
	validators
}

func (f *found) close() error { return f.file.Close() }

// remembered returns what the next run is to know. An index that says what the
// published one says is that one.
func (f *found) remembered(from place, before memory) memory {
	m := memory{Place: from.name(), validators: f.validators, Digest: f.digest, Sum: f.summary.Sum}
	if before.Sum == m.Sum && before.Digest != "" {
		m.Digest = before.Digest
	}
	return m
}

// fetch reads the index of a place into a file and checks it on the way, nil
// when it is the one that v belongs to.
func (r *Repository) fetch(ctx context.Context, from place, v validators) (*found, error) {
	a, err := from.ask(ctx, v)
	if err != nil || a == nil {
		return nil, err
	}
	defer a.body.Close()
	file, err := r.env.Limits.Spool()
	if err != nil {
		return nil, fmt.Errorf("create spool: %w", err)
	}
	f := &found{file: file, validators: a.validators}
	if w, ok := from.(*web); ok {
		f.notes = w.notes
	}
	if err := r.receive(ctx, a, f, file); err != nil {
		return nil, errors.Join(fmt.Errorf("%s: %w", a.at, err), file.Close())
	}
	return f, nil
}

// receive spools what arrives and checks it on the way.
func (r *Repository) receive(ctx context.Context, a *answer, f *found, file io.Writer) error {
	sum := sha256.New()
	in := &intake{ctx: ctx, r: a.body, limit: limitOf(r.env.Limits), progress: r.progress(a)}
	all := &arrival{ctx: ctx, in: io.TeeReader(in, io.MultiWriter(file, sum)), file: f.file}
	var err error
	if f.summary, err = index.Check(all); err == nil {
		err = all.rest()
	}
	switch {
	case all.err != nil: // whatever Check made of it
		return all.err
	case context.Cause(ctx) != nil:
		return context.Cause(ctx)
	case err != nil:
		return &source.StepError{Step: source.StepResolve, Reason: "IndexationFailed", Err: fmt.Errorf("%w%s", err, hintOf(a, f))}
	}
	f.size, f.digest = in.n, hex.EncodeToString(sum.Sum(nil))
	return nil
}

// An arrival is an index that is read while it arrives in a file. Once all of it
// is there, it can be read again from its start.
type arrival struct {
	ctx   context.Context
	in    io.Reader // what arrives, which writes itself to the file
	file  io.ReaderAt
	size  int64             // of what arrived
	again *io.SectionReader // of the file, nil until Seek is called
	err   error             // that ended what arrives, other than io.EOF
}

func (a *arrival) Read(p []byte) (int, error) {
	if a.again != nil {
		if err := context.Cause(a.ctx); err != nil {
			return 0, err
		}
		return a.again.Read(p)
	}
	n, err := a.in.Read(p)
	a.size += int64(n)
	if err != nil && err != io.EOF {
		a.err = err
	}
	return n, err
}

// Seek implements [io.Seeker] for the start. It waits until all has arrived, so
// that nothing waits for the sender while the index is read whole.
func (a *arrival) Seek(int64, int) (int64, error) {
	if err := a.rest(); err != nil {
		return 0, err
	}
	a.again = io.NewSectionReader(a.file, 0, a.size)
	return 0, nil
}

// rest reads to the end of what arrives.
func (a *arrival) rest() error {
	if a.again != nil {
		return nil
	}
	_, err := io.Copy(io.Discard, a)
	return err
}

// hintOf tells what an answer that is no index seems to be.
func hintOf(a *answer, f *found) string {
	head := make([]byte, 512)
	n, _ := f.file.ReadAt(head, 0)
	if kind := http.DetectContentType(head[:n]); a.page || strings.HasPrefix(kind, "text/html") {
		return ": the answer is a web page: spec.url must be the URL of the directory that " + indexFile + " is in"
	}
	return ""
}

// limitOf returns how many bytes an index may have.
func limitOf(l artifact.Limits) int64 {
	if l.Bytes == 0 {
		return indexLimit
	}
	return l.Bytes
}

// An intake counts what arrives, up to a limit.
type intake struct {
	ctx      context.Context
	r        io.Reader
	n, limit int64 // limit < 0: none
	progress func(int64)
}

func (in *intake) Read(p []byte) (int, error) {
	n, err := in.r.Read(p)
	in.n += int64(n)
	if err == nil {
		err = context.Cause(in.ctx)
	}
	switch {
	case in.limit >= 0 && in.n > in.limit:
		return n, fmt.Errorf("the index is larger than %d bytes: raise the limit if the repository is trusted", in.limit)
	case err == io.EOF:
		return n, err
	case err != nil:
		return n, fmt.Errorf("receive index, after %d bytes: %w", in.n, err)
	}
	in.progress(in.n)
	return n, nil
}

// reportEvery is how many bytes lie between two reports of progress.
const reportEvery = 1 << 20

// progress returns what is told how many bytes of a arrived.
func (r *Repository) progress(a *answer) func(int64) {
	address, err := source.Address(r.repo)
	if r.env.Progress == nil || err != nil {
		return func(int64) {}
	}
	next := int64(0)
	return func(n int64) {
		if n < next {
			return
		}
		next = n + reportEvery
		r.env.Progress(source.Progress{Object: address, Phase: "receiving index", Done: n, Total: max(a.size, 0), Unit: "bytes"})
	}
}
