package artifact

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math/rand/v2"
	"net"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/headgate-io/headgate/internal/durable"
	"github.com/headgate-io/headgate/internal/redact"
)

// A Client fetches artifacts by their URL (reference A7). The zero value works.
//
// An artifact without a digest is refused, and nothing of its content is
// handed out before all of it has been checked. Requests carry no credentials.
// Redirects, five at most, lead to http and https only, and never from https
// to http.
type Client struct {
	// HTTP sends the requests; its CheckRedirect is not used. Default: a
	// client that knows no proxy and no cookies, and connects anew for each
	// artifact.
	HTTP *http.Client
	// Local allows file URLs, which a [Store] without a base URL gives out.
	Local    bool
	MaxBytes int64         // size of an artifact; default 1 GiB, negative means no limit
	Attempts int           // requests for one artifact, first one included; default 5
	Pause    time.Duration // before the second request, doubled for each further one; default 500ms, negative means none
	MaxPause time.Duration // longest pause, one that the server asks for included; default 30s
	Idle     time.Duration // longest time without a byte from the server; default 30s
	// Temp creates the spool, as [Limits.Temp] does.
	Temp func() (*os.File, error)
	// Cache, when given, is asked first and keeps what was fetched.
	Cache *Cache
}

// Open fetches a and checks its digest. Close the content to remove the spool.
//
// It tries again, from where the transfer broke when the server can continue,
// after errors of the connection, a stall, and the statuses 408, 429 and 5xx.
//
// The error wraps [fs.ErrNotExist] when the server says that there is no such
// artifact, [fs.ErrPermission] when it refuses access, [fs.ErrInvalid] when
// a has no digest or no usable URL; it is a [DigestError] when the content has
// another digest, and a [LimitError] when it is larger than MaxBytes.
func (c *Client) Open(ctx context.Context, a Artifact) (io.ReadSeekCloser, error) {
	content, err := c.open(ctx, a)
	if err != nil {
		return nil, redact.Error(fmt.Errorf("fetch artifact %s: %w", a.URL, err))
	}
	return content, nil
}

func (c *Client) open(ctx context.Context, a Artifact) (io.ReadSeekCloser, error) {
	u, digest, err := wanted(a)
	switch {
	case err != nil:
		return nil, fmt.Errorf("%w: %w", fs.ErrInvalid, err)
	case u.Scheme == "file" && !c.Local:
		return nil, fmt.Errorf("%w: file URLs are not allowed here", fs.ErrInvalid)
	case u.Scheme == "file":
		return c.openLocal(ctx, u, digest)
	}
	key := "artifact " + digest
	if c.Cache != nil {
		if content, err := c.Cache.Open(key); err == nil {
			return content, nil
		}
	}
	f, err := c.fetch(ctx, u, a.Size, digest)
	if err != nil {
		return nil, err
	}
	if c.Cache != nil {
		c.keep(key, f)
	}
	if _, err := f.Seek(0, io.SeekStart); err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return f, nil
}

// wanted returns where a is, and its digest with the algorithm spelt out.
func wanted(a Artifact) (u *url.URL, digest string, err error) {
	if a.Digest == "" {
		return nil, "", errors.New("it has no digest, so its content cannot be checked")
	}
	algorithm, sum, err := ParseDigest(a.Digest)
	if err != nil {
		return nil, "", err
	}
	u, err = url.Parse(a.URL)
	switch {
	case err != nil:
		return nil, "", errors.New("its URL is malformed") // err would print credentials
	case u.User != nil:
		return nil, "", errors.New("its URL holds credentials, which are never sent")
	case u.Scheme == "file", (u.Scheme == "http" || u.Scheme == "https") && u.Host != "":
		return u, string(algorithm) + ":" + sum, nil
	}
	return nil, "", errors.New("its URL is not http://HOST/… or https://HOST/…")
}

// keep puts a fetched artifact into the cache. An artifact that has arrived is
// used even if the cache is broken or too small.
func (c *Client) keep(key string, f *os.File) {
	c.Cache.Put(key, func(w io.Writer) error {
		_, err := io.Copy(w, io.NewSectionReader(f, 0, 1<<62))
		return err
	})
}

// openLocal opens a file of a store on this machine.
func (c *Client) openLocal(ctx context.Context, u *url.URL, digest string) (_ io.ReadSeekCloser, err error) {
	name, err := filePath(u)
	if err != nil {
		return nil, err
	}
	info, err := os.Stat(name)
	if err != nil {
		return nil, err
	}
	limit := bound(c.MaxBytes, 1<<30)
	switch {
	case !info.Mode().IsRegular():
		return nil, fmt.Errorf("%w: it is no regular file", fs.ErrInvalid)
	case info.Size() > limit:
		return nil, &LimitError{What: "bytes", Limit: limit}
	}
	f, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	r, err := VerifyReader(f, digest)
	if err == nil {
		_, err = io.Copy(&sink{ctx: ctx, w: io.Discard}, r)
	}
	if err == nil {
		_, err = f.Seek(0, io.SeekStart)
	}
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return f, nil
}

// filePath returns the path that a file URL names: the inverse of fileURL.
func filePath(u *url.URL) (string, error) {
	name := filepath.FromSlash(u.Path)
	if rest := name[min(1, len(name)):]; filepath.VolumeName(rest) != "" {
		name = rest // \C:\store
	}
	if u.Host != "" && u.Host != "localhost" {
		name = `\\` + u.Host + name
	}
	if !filepath.IsAbs(name) {
		return "", fmt.Errorf("%w: its URL names no file of this machine", fs.ErrInvalid)
	}
	return name, nil
}

// fetch transfers the artifact at u into a spool and checks it.
func (c *Client) fetch(ctx context.Context, u *url.URL, size int64, digest string) (*os.File, error) {
	temp := c.Temp
	if temp == nil {
		temp = durable.TempFile
	}
	f, err := temp()
	if err != nil {
		return nil, err
	}
	client, done := c.client()
	defer done()
	t := &transfer{
		client: client, url: u.String(), file: f, digest: digest, size: size,
		limit: bound(c.MaxBytes, 1<<30), idle: cmp.Or(c.Idle, 30*time.Second),
	}
	for attempt := 1; ; attempt++ {
		err := t.attempt(ctx)
		if err == nil {
			return f, nil
		}
		var again *transientError
		switch {
		case ctx.Err() != nil:
			err = context.Cause(ctx)
		case errors.As(err, &again) && attempt < cmp.Or(c.Attempts, 5):
			if err = c.pause(ctx, attempt, again.after); err == nil {
				continue
			}
		case attempt > 1:
			err = fmt.Errorf("after %d attempts: %w", attempt, err)
		}
		return nil, errors.Join(err, f.Close())
	}
}

// client returns the HTTP client with our redirect policy, and what to call
// when it is done with.
func (c *Client) client() (*http.Client, func()) {
	client, done := http.Client{}, func() {}
	if c.HTTP != nil {
		client = *c.HTTP
	} else {
		transport := &http.Transport{
			DialContext:            (&net.Dialer{Timeout: 10 * time.Second}).DialContext,
			TLSHandshakeTimeout:    10 * time.Second,
			ForceAttemptHTTP2:      true,
			MaxResponseHeaderBytes: 64 << 10,
		}
		client.Transport, done = transport, transport.CloseIdleConnections
	}
	client.CheckRedirect = checkRedirect
	return &client, done
}

// errRedirect is wrapped by errors about redirects that are not followed.
var errRedirect = errors.New("redirect refused")

func checkRedirect(r *http.Request, via []*http.Request) error {
	last := via[len(via)-1].URL
	switch {
	case len(via) > 5:
		return fmt.Errorf("%w: more than five", errRedirect)
	case r.URL.Scheme != "https" && (r.URL.Scheme != "http" || last.Scheme == "https"):
		return fmt.Errorf("%w: from %s to %s", errRedirect, last.Scheme, r.URL.Scheme)
	}
	r.URL.User = nil
	r.Header.Del("Referer")
	return nil
}

// pause waits before the next attempt: as long as the server asked for, or
// twice as long as the last time, give or take a quarter.
func (c *Client) pause(ctx context.Context, attempt int, asked time.Duration) error {
	longest := cmp.Or(c.MaxPause, 30*time.Second)
	wait := max(0, min(cmp.Or(c.Pause, 500*time.Millisecond)<<min(attempt-1, 16), longest))
	wait = wait*3/4 + rand.N(wait/2+1)
	timer := time.NewTimer(min(max(wait, asked), longest))
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-timer.C:
		return nil
	}
}

// A transfer brings one artifact into a file, in as many requests as it takes.
type transfer struct {
	client *http.Client
	url    string
	digest string
	size   int64         // what the artifact says, 0 when it says nothing
	limit  int64         // most bytes to take
	idle   time.Duration // longest time without a byte

	file    *os.File
	n       int64  // bytes in file
	etag    string // strong validator of what is in file
	resumed bool   // file holds pieces of several answers
}

// A transientError is one that another attempt may not meet.
type transientError struct {
	err   error
	after time.Duration // what the server asks to wait
}

func (e *transientError) Error() string { return e.err.Error() }
func (e *transientError) Unwrap() error { return e.err }

// attempt sends one request and takes what comes.
func (t *transfer) attempt(ctx context.Context) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	stalled := fmt.Errorf("no data for %v: %w", t.idle, os.ErrDeadlineExceeded)
	watch := time.AfterFunc(t.idle, func() { cancel(stalled) })
	defer watch.Stop()

	resp, err := t.request(ctx)
	if err != nil {
		return cause(ctx, err)
	}
	defer resp.Body.Close()
	if err := t.accept(resp); err != nil {
		return err
	}
	if err := t.receive(resp.Body, func() { watch.Reset(t.idle) }); err != nil {
		return cause(ctx, err)
	}
	watch.Stop()
	return t.verify(ctx)
}

// cause returns why ctx ended, when that is what made err.
func cause(ctx context.Context, err error) error {
	if ctx.Err() == nil {
		return err
	}
	return &transientError{err: context.Cause(ctx)}
}

// request asks for the artifact, or for what is missing of it.
func (t *transfer) request(ctx context.Context) (*http.Response, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, t.url, nil)
	if err != nil {
		return nil, err
	}
	req.Header.Set("Accept-Encoding", "identity") // the digest is that of the bytes as they are
	if t.n > 0 && t.etag != "" {
		req.Header.Set("Range", fmt.Sprintf("bytes=%d-", t.n))
		req.Header.Set("If-Range", t.etag)
	}
	resp, err := t.client.Do(req)
	if err == nil {
		return resp, nil
	}
	var wrapped *url.Error
	if errors.As(err, &wrapped) {
		err = wrapped.Err // without the URL, which the caller names
	}
	var certificate *tls.CertificateVerificationError
	if errors.Is(err, errRedirect) || errors.As(err, &certificate) {
		return nil, err
	}
	return nil, &transientError{err: err}
}

// accept judges the status and decides where the body goes.
func (t *transfer) accept(resp *http.Response) error {
	switch status := resp.StatusCode; {
	case status == http.StatusOK:
		if err := t.restart(); err != nil {
			return err
		}
	case status == http.StatusPartialContent && t.n > 0:
		if !strings.HasPrefix(resp.Header.Get("Content-Range"), fmt.Sprintf("bytes %d-", t.n)) {
			return t.again(errors.New("the server continues at another place than asked"))
		}
		t.resumed = true
	case status == http.StatusRequestedRangeNotSatisfiable && t.n > 0:
		return t.again(errors.New("the server cannot continue"))
	default:
		return statusError(resp)
	}
	if t.etag = resp.Header.Get("ETag"); !strings.HasPrefix(t.etag, `"`) {
		t.etag = "" // weak ones do not promise the same bytes
	}
	return t.fits(resp.ContentLength)
}

// statusErrors are the statuses that mean something to a caller.
var statusErrors = map[int]error{
	http.StatusNotFound:     fs.ErrNotExist,
	http.StatusGone:         fs.ErrNotExist,
	http.StatusUnauthorized: fs.ErrPermission,
	http.StatusForbidden:    fs.ErrPermission,
}

func statusError(resp *http.Response) error {
	err := fmt.Errorf("the server answers %d %s", resp.StatusCode, http.StatusText(resp.StatusCode))
	if known := statusErrors[resp.StatusCode]; known != nil {
		return fmt.Errorf("%w: %w", err, known)
	}
	switch status := resp.StatusCode; {
	case status >= 500, status == http.StatusTooManyRequests, status == http.StatusRequestTimeout:
		return &transientError{err: err, after: retryAfter(resp.Header.Get("Retry-After"))}
	}
	return err
}

// retryAfter reads the field of that name (RFC 9110, 10.2.3).
func retryAfter(field string) time.Duration {
	if seconds, err := strconv.ParseUint(field, 10, 31); err == nil {
		return time.Duration(seconds) * time.Second
	}
	if at, err := http.ParseTime(field); err == nil {
		return max(time.Until(at), 0)
	}
	return 0
}

// fits reports whether more bytes may come; a negative number is unknown.
func (t *transfer) fits(more int64) error {
	switch {
	case more > t.limit-t.n:
		return &LimitError{What: "bytes", Limit: t.limit}
	case t.size > 0 && more > t.size-t.n:
		return fmt.Errorf("the server sends more than the %d bytes of the artifact", t.size)
	}
	return nil
}

// receive appends a body to the file; progress is called before each read.
func (t *transfer) receive(body io.Reader, progress func()) error {
	buf := make([]byte, 64<<10)
	for {
		progress()
		n, err := body.Read(buf)
		if err := t.fits(int64(n)); err != nil {
			return err
		}
		if _, err := t.file.WriteAt(buf[:n], t.n); err != nil {
			return err
		}
		t.n += int64(n)
		if err == io.EOF && t.n >= t.size {
			return nil
		}
		if err == io.EOF {
			err = io.ErrUnexpectedEOF
		}
		if err != nil {
			return &transientError{err: fmt.Errorf("the connection broke after %d bytes: %w", t.n, err)}
		}
	}
}

// verify checks the digest of the file.
func (t *transfer) verify(ctx context.Context) error {
	r, err := VerifyReader(io.NewSectionReader(t.file, 0, t.n), t.digest)
	if err == nil {
		_, err = io.Copy(&sink{ctx: ctx, w: io.Discard}, r)
	}
	var corrupt *DigestError
	if errors.As(err, &corrupt) && t.resumed {
		return t.again(err) // the pieces are not of one file
	}
	return err
}

// again gives up what has arrived, for another attempt.
func (t *transfer) again(err error) error {
	return errors.Join(&transientError{err: err}, t.restart())
}

// restart empties the file.
func (t *transfer) restart() error {
	t.n, t.etag, t.resumed = 0, "", false
	return t.file.Truncate(0)
}
