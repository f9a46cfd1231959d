package artifact

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"net/url"
	"os"
	"strconv"
	"strings"
	"time"
)

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
