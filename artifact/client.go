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
	"strings"
	"time"

	"github.com/headgate-io/headgate/internal/redact"
	"github.com/headgate-io/headgate/internal/retry"
)

// A Client fetches artifacts by their URL (reference A7). The zero value works.
//
// The client refuses an artifact without a digest, and returns no content before it has checked all
// of it. Requests carry no credentials. It follows at most five redirects, only to http and https,
// and never from https to http. A connection that delivers no byte for 30 seconds counts as broken.
type Client struct {
	// HTTP sends the requests; its CheckRedirect is ignored. Default: a client without a proxy and
	// cookies that opens a connection for each request.
	HTTP *http.Client
	// Allow returns an error if no request may be sent to a URL, including the target of a
	// redirect. Default: all are allowed.
	Allow    func(*url.URL) error
	MaxBytes int64         // size of an artifact; default 1 GiB, negative: no limit
	Attempts int           // requests for one artifact, including the first; default 5
	Pause    time.Duration // before the second request, doubled for each further one; default 500ms, negative: none
	// Temp creates the spool, as [Limits.Temp] does.
	Temp func() (*os.File, error)
}

const (
	maxPause = 30 * time.Second // between requests, even if the server asks for more
	idleTime = 30 * time.Second // without a byte from the server
)

// Open fetches a and checks its digest. The caller must close the content, which removes the spool.
//
// It retries after connection errors, a stall, and the statuses 408, 429 and 5xx except 501. It
// resumes where the transfer broke if the server supports that. It waits as long as the server
// asks, at most 30 seconds.
//
// The error wraps [fs.ErrNotExist] if the server says that there is no such artifact,
// [fs.ErrPermission] if it refuses access, and [fs.ErrInvalid] if a has no digest or no usable URL.
// It is a [DigestError] if the content has another digest, and a [LimitError] if it is larger than
// MaxBytes.
func (c *Client) Open(ctx context.Context, a Artifact) (io.ReadSeekCloser, error) {
	content, err := c.open(ctx, a)
	if err != nil {
		return nil, redact.Error(fmt.Errorf("fetch artifact %s: %w", a.URL, err))
	}
	return content, nil
}

func (c *Client) open(ctx context.Context, a Artifact) (*os.File, error) {
	if err := c.checkFetchable(a); err != nil {
		return nil, fmt.Errorf("%w: %w", fs.ErrInvalid, err)
	}
	f, err := Limits{Temp: c.Temp}.Spool()
	if err != nil {
		return nil, err
	}
	t := &transfer{Artifact: a, client: c.client(), limit: limitOrDefault(c.MaxBytes, 1<<30), file: f}
	for attempt := 1; ; attempt++ {
		err := t.attempt(ctx)
		if err == nil {
			_, err = f.Seek(0, io.SeekStart)
		}
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

// checkFetchable returns an error unless a can be fetched.
func (c *Client) checkFetchable(a Artifact) error {
	if a.Digest == "" {
		return errors.New("it has no digest, so its content cannot be checked")
	}
	u, err := url.Parse(a.URL)
	switch {
	case err != nil:
		return errors.New("its URL is malformed") // err would print credentials
	case u.User != nil:
		return errors.New("its URL holds credentials, which are never sent")
	case u.Scheme != "http" && u.Scheme != "https" || u.Host == "":
		return errors.New("its URL is not http://HOST/… or https://HOST/…")
	}
	if _, _, err = ParseDigest(a.Digest); err == nil && c.Allow != nil {
		err = c.Allow(u)
	}
	return err
}

// client returns the HTTP client with our redirect policy.
func (c *Client) client() *http.Client {
	client := http.Client{Transport: &http.Transport{
		DialContext:            (&net.Dialer{Timeout: 10 * time.Second}).DialContext,
		TLSHandshakeTimeout:    10 * time.Second,
		ForceAttemptHTTP2:      true,
		DisableKeepAlives:      true,
		MaxResponseHeaderBytes: 64 << 10,
	}}
	if c.HTTP != nil {
		client = *c.HTTP
	}
	client.CheckRedirect = c.checkRedirect
	return &client
}

// errRedirect is wrapped by the errors for refused redirects.
var errRedirect = errors.New("redirect refused")

func (c *Client) checkRedirect(r *http.Request, via []*http.Request) error {
	last := via[len(via)-1].URL
	switch {
	case len(via) > 5:
		return fmt.Errorf("%w: more than five", errRedirect)
	case r.URL.Scheme != "https" && (r.URL.Scheme != "http" || last.Scheme == "https"):
		return fmt.Errorf("%w: from %s to %s", errRedirect, last.Scheme, r.URL.Scheme)
	}
	if c.Allow != nil {
		if err := c.Allow(r.URL); err != nil {
			return fmt.Errorf("%w: %w", errRedirect, err)
		}
	}
	r.URL.User = nil
	r.Header.Del("Referer")
	return nil
}

// pause waits before the next attempt: as long as the server asked for, or twice as long as the
// last time, plus or minus a quarter.
func (c *Client) pause(ctx context.Context, attempt int, retryAfter time.Duration) error {
	if c.Pause < 0 {
		return nil
	}
	wait := min(cmp.Or(c.Pause, 500*time.Millisecond)<<min(attempt-1, 16), maxPause)
	return retry.Sleep(ctx, min(max(wait*3/4+rand.N(wait/2+1), retryAfter), maxPause))
}

// A transientError is an error after which another attempt may succeed.
type transientError struct {
	error
	after time.Duration // how long the server asks to wait
}

func (e *transientError) Unwrap() error { return e.error }

// A transfer downloads one artifact into a file, in as many requests as it takes.
type transfer struct {
	Artifact
	client *http.Client
	limit  int64 // maximum number of bytes to accept

	file    *os.File
	written int64         // bytes in file
	content *verifyReader // has hashed them
	etag    string        // strong validator of the content in file; if "", the next request is for all of it
	resumed bool          // file has pieces of several responses
}

// attempt sends one request for the artifact, or for its missing part, and writes the response to
// the file.
func (t *transfer) attempt(ctx context.Context) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	stalled := fmt.Errorf("no data for %v: %w", idleTime, os.ErrDeadlineExceeded)
	watch := time.AfterFunc(idleTime, func() { cancel(stalled) })
	defer watch.Stop()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, t.URL, nil)
	if err != nil {
		return err
	}
	req.Header.Set("Accept-Encoding", "identity") // the digest covers the unencoded bytes
	if t.etag != "" {
		req.Header.Set("Range", fmt.Sprintf("bytes=%d-", t.written))
		req.Header.Set("If-Range", t.etag)
	}
	resp, err := t.client.Do(req)
	if err != nil {
		return connectionError(ctx, err)
	}
	defer resp.Body.Close()
	if err := t.accept(resp); err != nil {
		return err
	}
	limit, exceeded := t.limit, error(&LimitError{What: "bytes", Limit: t.limit})
	if t.Size > 0 && t.Size < limit {
		limit, exceeded = t.Size, fmt.Errorf("the server sends more than the %d bytes of the artifact", t.Size)
	}
	buf, announced := make([]byte, 64<<10), t.written+resp.ContentLength
	for err == nil {
		var n int
		n, err = t.content.Read(buf)
		watch.Reset(idleTime)
		if max(t.written+int64(n), announced) > limit {
			return exceeded
		}
		if _, failed := t.file.WriteAt(buf[:n], t.written); failed != nil {
			return failed
		}
		t.written += int64(n)
	}
	if err == io.EOF {
		return nil
	}
	if _, mismatch := errors.AsType[*DigestError](err); mismatch {
		switch {
		case t.written < t.Size:
			err = io.ErrUnexpectedEOF
		case t.resumed: // the pieces may be of different versions
			t.etag = ""
			return &transientError{error: err}
		default:
			return err
		}
	}
	return connectionError(ctx, fmt.Errorf("the connection broke after %d bytes: %w", t.written, err))
}

// accept checks the status and prepares the file for the body.
func (t *transfer) accept(resp *http.Response) error {
	switch status := resp.StatusCode; {
	case status == http.StatusOK:
		content, err := VerifyReader(resp.Body, t.Digest)
		if err != nil {
			return err
		}
		t.content, t.written, t.resumed = content.(*verifyReader), 0, false
		if t.etag = resp.Header.Get("ETag"); !strings.HasPrefix(t.etag, `"`) {
			t.etag = "" // weak ones do not promise the same bytes
		}
		return t.file.Truncate(0)
	case t.etag == "":
	case status == http.StatusPartialContent && strings.HasPrefix(resp.Header.Get("Content-Range"), fmt.Sprintf("bytes %d-", t.written)):
		t.content.r, t.resumed = resp.Body, true
		return nil
	case status == http.StatusPartialContent, status == http.StatusRequestedRangeNotSatisfiable:
		t.etag = ""
		return &transientError{error: errors.New("the server does not continue where it was asked to")}
	}
	return statusError(resp)
}

// connectionError classifies the error of a request or of reading its response.
func connectionError(ctx context.Context, err error) error {
	if wrapped, ok := errors.AsType[*url.Error](err); ok {
		err = wrapped.Err // without the URL, which the caller names
	}
	_, certificate := errors.AsType[*tls.CertificateVerificationError](err)
	switch {
	case ctx.Err() != nil:
		err = context.Cause(ctx)
	case errors.Is(err, errRedirect), certificate:
		return err
	}
	return &transientError{error: err}
}

// statusErrors are the errors for statuses that callers distinguish.
var statusErrors = map[int]error{
	http.StatusNotFound:     fs.ErrNotExist,
	http.StatusGone:         fs.ErrNotExist,
	http.StatusUnauthorized: fs.ErrPermission,
	http.StatusForbidden:    fs.ErrPermission,
}

// statusError returns the error for a response without content.
func statusError(resp *http.Response) error {
	err := fmt.Errorf("the server answers %d %s", resp.StatusCode, http.StatusText(resp.StatusCode))
	switch status := resp.StatusCode; {
	case statusErrors[status] != nil:
		return fmt.Errorf("%w: %w", err, statusErrors[status])
	case retry.IsRetryable(status), status == http.StatusRequestTimeout:
		after, _ := retry.After(resp.Header, time.Now())
		return &transientError{err, after}
	}
	return err
}
