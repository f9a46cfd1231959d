package lfs

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/net/http/httpguts"
	"golang.org/x/sync/errgroup"

	"github.com/headgate-io/headgate/artifact"
	"github.com/headgate-io/headgate/git/internal/config"
	"github.com/headgate-io/headgate/internal/redact"
	"github.com/headgate-io/headgate/internal/transport"
)

const (
	mediaType    = "application/vnd.git-lfs+json"
	userAgent    = "git-lfs/3.0 (headgate)"
	batchSize    = 100 // objects in one request
	parallel     = 6   // transfers at a time
	maxAttempts  = 4   // for one request
	maxRounds    = 3   // requests for the links of an object, if they expire
	maxWait      = time.Minute
	firstWait    = time.Second // doubled for each further attempt
	leeway       = 5 * time.Second
	maxRedirects = 5
	maxConfig    = 64 << 10 // bytes of .lfsconfig
	maxAnswer    = 10 << 20 // bytes of an answer of the endpoint
	maxAddress   = 8 << 10  // bytes of an address that a server sends
	maxHeader    = 64 << 10 // bytes of the header fields that come with an address
	maxErrorPage = 4 << 10  // bytes read of an error page
	maxMessage   = 300      // bytes of a server's message that are repeated
	maxReported  = 5        // objects that one error names
)

// The kinds of failure that callers tell apart with errors.Is.
var (
	// ErrAuth: the endpoint refused the credentials, or wants some. It is fs.ErrPermission.
	ErrAuth error = &kind{"authentication failed", fs.ErrPermission}
	// ErrNotFound: there is no such endpoint or object. It is fs.ErrNotExist.
	ErrNotFound error = &kind{"not found", fs.ErrNotExist}
	// ErrProtocol: the answer does not follow the protocol.
	ErrProtocol = errors.New("protocol error")
	// ErrRefused: the server sends the client to an address that is not allowed.
	ErrRefused = errors.New("address refused")
	// errRemote: the server reported an error.
	errRemote = errors.New("remote error")
	// errExpired: the link to an object is too old.
	errExpired = errors.New("the link has expired")
)

type kind struct {
	text string
	std  error
}

func (k *kind) Error() string        { return k.text }
func (k *kind) Is(target error) bool { return target == k.std }

// A transientError is an error after which another attempt may succeed.
type transientError struct {
	err   error
	after time.Duration // the wait that the server asks for, negative if none
}

func (e *transientError) Error() string { return e.err.Error() }
func (e *transientError) Unwrap() error { return e.err }

// A Client gets objects from an endpoint, for one Fetch at a time.
type Client struct {
	// Endpoint finds the endpoint; it is called again when that expires.
	Endpoint func(context.Context) (Endpoint, error)
	HTTP     *http.Client // sends the credentials of the repository to its origin only
	Bare     *http.Client // sends no credentials
	Cache    *artifact.Cache
	Scope    string // of entries in Cache: names the repository and the credentials

	// Now and Wait are the clock; nil means package time.
	Now  func() time.Time
	Wait func(context.Context, time.Duration) error

	current Endpoint // the last one found
}

// Fetch fetches objects, from the cache or the endpoint, and writes them to spool.
func (c *Client) Fetch(ctx context.Context, objects []Object, spool *Spool) error {
	defer c.HTTP.CloseIdleConnections()
	defer c.Bare.CloseIdleConnections()
	var missing []Object
	for _, o := range objects {
		if c.receiveCached(ctx, o, spool) != nil { // the server replaces an entry that cannot be used
			missing = append(missing, o)
		}
	}
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	for chunk := range slices.Chunk(missing, batchSize) {
		for round := 0; len(chunk) > 0; round++ {
			if round == maxRounds {
				return fmt.Errorf("git lfs: %s: %w %d times before it could be used: compare the clocks of server and client", chunk[0], errExpired, maxRounds)
			}
			from, err := c.requestBatch(ctx, chunk)
			if err != nil {
				return fmt.Errorf("git lfs: ask for %d objects: %w", len(chunk), err)
			}
			if chunk, err = c.download(ctx, chunk, from, spool); err != nil {
				return fmt.Errorf("git lfs: %w", err)
			}
		}
	}
	return nil
}

// key returns the key of an object in the cache.
func (c *Client) key(o Object) string { return "lfs/sha256/" + o.OID + " " + c.Scope }

func (c *Client) receiveCached(ctx context.Context, o Object, spool *Spool) error {
	if c.Cache == nil {
		return fs.ErrNotExist
	}
	content, err := c.Cache.Open(c.key(o))
	if err != nil {
		return err
	}
	defer content.Close()
	return spool.Receive(ctx, o, content)
}

// requestBatch asks the endpoint for objects and returns their addresses by OID.
func (c *Client) requestBatch(ctx context.Context, objects []Object) (found map[string]Endpoint, err error) {
	list := make([]map[string]any, len(objects))
	for i, o := range objects {
		list[i] = map[string]any{"oid": o.OID, "size": o.Size}
	}
	body, err := json.Marshal(map[string]any{"operation": "download", "transfers": []string{"basic"}, "hash_algo": "sha256", "objects": list})
	if err == nil && (c.current.URL == nil || c.current.expired(c.now())) {
		c.current, err = c.Endpoint(ctx)
	}
	if err != nil {
		return nil, err
	}
	batch := c.current.URL.JoinPath("objects", "batch")
	to, err := newEndpoint(c.current.URL, batch.String(), c.current.Header, c.current.Auth)
	if err != nil {
		return nil, err
	}
	err = c.retry(ctx, func() error {
		answer, req, err := c.post(ctx, to, body)
		if err == nil {
			found, err = readBatch(answer, req, objects, c.current.Auth && transport.SameOrigin(req.URL, c.current.URL), c.now())
		}
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("%s: %w", redact.URL(batch), err)
	}
	return found, nil
}

// download gets objects from their addresses and returns those whose address has expired.
func (c *Client) download(ctx context.Context, objects []Object, from map[string]Endpoint, spool *Spool) (late []Object, err error) {
	group, inner := errgroup.WithContext(ctx)
	group.SetLimit(parallel)
	var mu sync.Mutex
	for _, o := range objects {
		group.Go(func() error {
			err := c.retry(inner, func() error { return c.get(inner, o, from[o.OID], spool) })
			switch {
			case errors.Is(err, errExpired):
				mu.Lock()
				defer mu.Unlock()
				late = append(late, o)
			case err != nil:
				return fmt.Errorf("%s: %w", o, err)
			case c.Cache != nil: // a failure to cache the object does not matter
				c.Cache.Put(c.key(o), func(w io.Writer) error {
					_, err := io.Copy(w, spool.open(o))
					return err
				})
			}
			return nil
		})
	}
	err = group.Wait()
	return late, err
}

// get downloads one object to spool.
func (c *Client) get(ctx context.Context, o Object, from Endpoint, spool *Spool) error {
	if from.expired(c.now()) {
		return errExpired
	}
	resp, err := c.send(ctx, http.MethodGet, from, nil)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	switch {
	case resp.StatusCode != http.StatusOK && from.expired(c.now()):
		return errExpired
	case resp.StatusCode != http.StatusOK:
		return fmt.Errorf("%s: %w", redact.URL(from.URL), responseError(resp, c.now()))
	case resp.ContentLength > o.Size:
		return fmt.Errorf("%w: the server sends %d bytes, its pointer tells %d", errContent, resp.ContentLength, o.Size)
	}
	if err = spool.Receive(ctx, o, resp.Body); err == nil || errors.Is(err, errContent) || ctx.Err() != nil {
		return err
	}
	return &transientError{err, -1}
}

// retry calls try until it succeeds or fails for good, at most maxAttempts times.
func (c *Client) retry(ctx context.Context, try func() error) error {
	pause := firstWait
	for attempt := 1; ; attempt++ {
		err := try()
		again, ok := errors.AsType[*transientError](err)
		if !ok || attempt == maxAttempts {
			return err
		}
		wait := pause
		if again.after >= 0 {
			wait = again.after
		}
		if wait > maxWait {
			return fmt.Errorf("%w: it asks to wait %v, more than %v: try again later", err, wait, maxWait)
		}
		if deadline, ok := ctx.Deadline(); ok && c.now().Add(wait).After(deadline) {
			return fmt.Errorf("%w: there is no time left to try again after %v: raise spec.timeout", err, wait)
		}
		sleep := c.Wait
		if sleep == nil {
			sleep = transport.Sleep
		}
		if err := sleep(ctx, wait); err != nil {
			return err
		}
		pause *= 2
	}
}

func (c *Client) now() time.Time {
	if c.Now != nil {
		return c.Now()
	}
	return time.Now()
}

// post sends a request. It returns the answer and the request that was answered,
// which differs from the first after a redirect.
func (c *Client) post(ctx context.Context, to Endpoint, body []byte) ([]byte, *http.Request, error) {
	resp, err := c.send(ctx, http.MethodPost, to, body)
	if err != nil {
		return nil, nil, err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return nil, nil, responseError(resp, c.now())
	}
	answer, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswer+1))
	switch {
	case ctx.Err() != nil:
		return nil, nil, context.Cause(ctx)
	case err != nil:
		return nil, nil, &transientError{err, -1}
	case len(answer) > maxAnswer:
		return nil, nil, fmt.Errorf("%w: the answer has more than %d bytes", ErrProtocol, maxAnswer)
	}
	return answer, resp.Request, nil
}

// send sends a request and follows redirects, with the same method. The caller
// closes the body.
func (c *Client) send(ctx context.Context, method string, to Endpoint, body []byte) (*http.Response, error) {
	for range maxRedirects + 1 {
		resp, err := c.sendOnce(ctx, method, to, body)
		if err != nil {
			return nil, err
		}
		switch resp.StatusCode {
		case http.StatusMovedPermanently, http.StatusFound, http.StatusSeeOther, http.StatusTemporaryRedirect, http.StatusPermanentRedirect:
		default:
			return resp, nil
		}
		resp.Body.Close()
		next, err := newEndpoint(to.URL, resp.Header.Get("Location"), nil, to.Auth)
		if err != nil {
			return nil, fmt.Errorf("redirect: %w", err)
		}
		if transport.SameOrigin(next.URL, to.URL) {
			next.Header = to.Header
		}
		next.referrer = resp.Request
		to = next
	}
	return nil, fmt.Errorf("%w: more than %d redirects in a row", ErrRefused, maxRedirects)
}

// hopByHop are header fields that a server cannot set: they concern the connection,
// or belong to the client.
var hopByHop = map[string]bool{
	"Connection": true, "Content-Length": true, "Expect": true, "Host": true, "Keep-Alive": true,
	"Proxy-Authorization": true, "Proxy-Connection": true, "Range": true, "Te": true, "Trailer": true,
	"Transfer-Encoding": true, "Upgrade": true, "Accept-Encoding": true, "Cookie": true,
}

// sendOnce sends one request.
func (c *Client) sendOnce(ctx context.Context, method string, to Endpoint, body []byte) (*http.Response, error) {
	req, err := http.NewRequestWithContext(ctx, method, to.URL.String(), bytes.NewReader(body))
	if err != nil {
		return nil, fmt.Errorf("%w: the address is malformed", ErrProtocol)
	}
	for name, value := range to.Header {
		if key := http.CanonicalHeaderKey(name); !hopByHop[key] {
			req.Header.Set(key, value)
		}
	}
	req.Header.Set("User-Agent", userAgent)
	if body != nil {
		req.Header.Set("Accept", mediaType)
		req.Header.Set("Content-Type", mediaType)
	} else {
		req.Header.Set("Accept-Encoding", "identity") // the digest is that of the uncompressed content
	}
	if to.referrer != nil { // lets package transport withhold credentials and refuse narrower networks after a redirect
		req.Response = &http.Response{Request: to.referrer}
	}
	client := *c.Bare
	if to.Auth {
		client = *c.HTTP
	}
	client.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	resp, err := client.Do(req)
	if err == nil {
		return resp, nil
	}
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	if wrapped, ok := errors.AsType[*url.Error](err); ok {
		err = wrapped.Err // the text of wrapped repeats the URL with its query
	}
	op, _ := errors.AsType[*net.OpError](err)
	_, untrusted := errors.AsType[*tls.CertificateVerificationError](err)
	_, proxy := errors.AsType[*transport.ProxyError](err)
	if err = fmt.Errorf("%s: %w", redact.URL(to.URL), err); untrusted || proxy || op != nil && op.Op == "dial" {
		return nil, err
	}
	return nil, &transientError{err, -1}
}

// An Endpoint is an address that a server sent: that of the batch API, without
// /objects/batch at the end, or that of an object.
type Endpoint struct {
	URL     *url.URL          // without user information
	Header  map[string]string // to be sent there, besides the credentials
	Expires time.Time         // of the address or its header; zero: never
	Auth    bool              // send the credentials of the repository, if the address is on its origin

	referrer *http.Request // the request whose answer held the address, nil for none
}

func (e Endpoint) expired(now time.Time) bool {
	return !e.Expires.IsZero() && now.Add(leeway).After(e.Expires)
}

// newEndpoint checks an address that the server at from sent, and returns it as an
// Endpoint.
func newEndpoint(from *url.URL, href string, header map[string]string, auth bool) (Endpoint, error) {
	if len(href) > maxAddress {
		return Endpoint{}, fmt.Errorf("%w: an address has more than %d bytes", ErrProtocol, maxAddress)
	}
	to, err := from.Parse(href)
	if err != nil || href == "" {
		return Endpoint{}, fmt.Errorf("%w: the address is malformed", ErrProtocol)
	}
	to.User, to.Fragment, to.RawFragment = nil, "", ""
	if err := checkAddress(from, to); err != nil {
		return Endpoint{}, err
	}
	size := 0
	for name, value := range header {
		if size += len(name) + len(value); size > maxHeader {
			return Endpoint{}, fmt.Errorf("%w: header fields of more than %d bytes for %s", ErrProtocol, maxHeader, redact.URL(to))
		}
		if !httpguts.ValidHeaderFieldName(name) || !httpguts.ValidHeaderFieldValue(value) {
			return Endpoint{}, fmt.Errorf("%w: an invalid header field for %s", ErrProtocol, redact.URL(to))
		}
		if http.CanonicalHeaderKey(name) == "Authorization" && value != "" {
			auth = false
		}
	}
	return Endpoint{URL: to, Header: header, Auth: auth}, nil
}

// checkAddress returns an error if the server at from must not send its client to the
// address to.
func checkAddress(from, to *url.URL) error {
	reason := ""
	switch {
	case to.Scheme != "http" && to.Scheme != "https" || to.Hostname() == "":
		reason = "it is no HTTP address"
	case from.Scheme == "https" && to.Scheme == "http":
		reason = "it leads from https to http"
	default:
		return nil
	}
	return fmt.Errorf("%w: %s: %s", ErrRefused, redact.URL(to), reason)
}

// ConfiguredURL returns lfs.url of the file .lfsconfig at the top of tree, ""
// when there is none. Nothing else is read from there.
func ConfiguredURL(tree fs.FS) (value string, err error) {
	const name = ".lfsconfig"
	if info, err := fs.Stat(tree, name); errors.Is(err, fs.ErrNotExist) || err == nil && !info.Mode().IsRegular() {
		return "", nil
	}
	text, err := readLimited(tree, name, maxConfig)
	if err != nil {
		return "", err
	}
	for e, err := range config.Parse(text) {
		if err != nil {
			return "", fmt.Errorf("%s: %w", name, err)
		}
		if e.Name() == "lfs.url" {
			value = e.Value
		}
	}
	return value, nil
}

// Discover returns the endpoint of the repository at u: configured, the lfs.url of
// its .lfsconfig, or else .git/info/lfs below u, over https for an ssh URL (git-lfs,
// "Server Discovery"). configured may lead to the origin of u, or over https to any
// other, which gets no credentials.
func Discover(u *url.URL, configured string) (Endpoint, error) {
	if configured == "" {
		at := url.URL{Scheme: u.Scheme, Host: u.Host, Path: u.Path, RawPath: u.RawPath}
		if u.Scheme == "ssh" {
			at.Scheme, at.Host = "https", u.Hostname()
			if strings.Contains(at.Host, ":") {
				at.Host = "[" + at.Host + "]"
			}
		}
		for _, p := range []*string{&at.Path, &at.RawPath} {
			if *p != "" {
				*p = strings.TrimSuffix(strings.TrimRight(*p, "/"), ".git") + ".git/info/lfs"
			}
		}
		return Endpoint{URL: &at, Auth: u.Scheme != "ssh"}, nil
	}
	at, err := url.Parse(configured)
	if err != nil || len(configured) > maxAddress {
		return Endpoint{}, fmt.Errorf("%w: lfs.url in .lfsconfig is no URL", ErrRefused)
	}
	at = &url.URL{Scheme: at.Scheme, Host: at.Host, Path: at.Path, RawPath: at.RawPath}
	sameOrigin := transport.SameOrigin(u, at)
	if !sameOrigin && at.Scheme != "https" {
		return Endpoint{}, fmt.Errorf("%w: lfs.url in .lfsconfig is %s://%s: it must be https, or have the scheme, host and port of the repository", ErrRefused, at.Scheme, at.Host)
	}
	if err := checkAddress(u, at); err != nil {
		return Endpoint{}, fmt.Errorf("lfs.url in .lfsconfig: %w", err)
	}
	return Endpoint{URL: at, Auth: sameOrigin}, nil
}

// Granted returns the endpoint that an answer of git-lfs-authenticate names for the
// repository at u.
func Granted(u *url.URL, answer []byte, now time.Time) (Endpoint, error) {
	var g action
	if err := json.Unmarshal(answer, &g); err != nil {
		return Endpoint{}, fmt.Errorf("%w: git-lfs-authenticate: %s", ErrProtocol, clean(err.Error()))
	}
	at, err := Discover(u, "")
	if err == nil && g.Href != "" {
		var to Endpoint
		if to, err = newEndpoint(u, g.Href, g.Header, false); err != nil {
			err = fmt.Errorf("git-lfs-authenticate: %w", err)
		}
		at.URL = to.URL
	}
	at.Header, at.Expires = g.Header, g.expires(now)
	return at, err
}

// A batchAnswer tells where objects are (batch API, "Successful Responses").
type batchAnswer struct {
	Transfer string         `json:"transfer"`
	HashAlgo string         `json:"hash_algo"`
	Objects  []objectAnswer `json:"objects"`
}

type objectAnswer struct {
	OID           string `json:"oid"`
	Authenticated bool   `json:"authenticated"`
	Actions       struct {
		Download *action `json:"download"`
	} `json:"actions"`
	Error *struct {
		Code    int    `json:"code"`
		Message string `json:"message"`
	} `json:"error"`
}

// An action is an address as servers write it, also in the answer of
// git-lfs-authenticate.
type action struct {
	Href      string            `json:"href"`
	Header    map[string]string `json:"header"`
	ExpiresIn int64             `json:"expires_in"` // seconds
	ExpiresAt string            `json:"expires_at"`
}

// expires returns when a expires, the zero time for never.
func (a *action) expires(now time.Time) time.Time {
	if a.ExpiresIn != 0 {
		return now.Add(time.Duration(max(min(a.ExpiresIn, 1<<31), -1<<31)) * time.Second)
	}
	at, err := time.Parse(time.RFC3339, a.ExpiresAt)
	if err != nil || at.Year() <= 1 { // servers without expiry send arbitrary values
		return time.Time{}
	}
	return at
}

// readBatch reads the answer to req. It ignores objects that were not
// asked for; a missing object is an error.
func readBatch(text []byte, req *http.Request, objects []Object, auth bool, now time.Time) (map[string]Endpoint, error) {
	var answer batchAnswer
	err := json.Unmarshal(text, &answer)
	switch {
	case err != nil && bytes.HasPrefix(bytes.TrimSpace(text), []byte("<")):
		return nil, fmt.Errorf("%w: the server answers with a web page: it has no Git LFS there", ErrProtocol)
	case err != nil:
		return nil, fmt.Errorf("%w: the answer is invalid: %s", ErrProtocol, clean(err.Error()))
	case answer.Transfer != "" && answer.Transfer != "basic":
		return nil, fmt.Errorf("%w: the server wants transfers of the kind %.40q, and only basic was offered", ErrProtocol, answer.Transfer)
	case answer.HashAlgo != "" && answer.HashAlgo != "sha256":
		return nil, fmt.Errorf("%w: the server has objects by %.40q, not by sha256", ErrProtocol, answer.HashAlgo)
	}
	answers := make(map[string]*objectAnswer, len(answer.Objects))
	for i := range answer.Objects {
		answers[answer.Objects[i].OID] = &answer.Objects[i]
	}
	found := make(map[string]Endpoint, len(objects))
	var faults []error
	for _, o := range objects {
		err := fmt.Errorf("%w: the answer does not mention it", ErrProtocol)
		if a := answers[o.OID]; a != nil {
			found[o.OID], err = a.endpoint(req, auth, now)
		}
		if err != nil {
			faults = append(faults, fmt.Errorf("%s: %w", o, err))
		}
	}
	if n := len(faults) - maxReported; n > 0 {
		faults = append(faults[:maxReported], fmt.Errorf("and %d more", n))
	}
	return found, errors.Join(faults...)
}

// endpoint returns the address that the answer to req gives for an object.
func (a *objectAnswer) endpoint(req *http.Request, auth bool, now time.Time) (Endpoint, error) {
	download := a.Actions.Download
	switch {
	case a.Error != nil:
		return Endpoint{}, statusError(a.Error.Code, a.Error.Message, secrets(req)...)
	case download == nil:
		return Endpoint{}, fmt.Errorf("%w: the server tells no way to download it", ErrProtocol)
	}
	to, err := newEndpoint(req.URL, download.Href, download.Header, auth && !a.Authenticated)
	to.referrer, to.Expires = req, download.expires(now)
	return to, err
}

// statuses tells what an HTTP status, or the code of an object, means and what
// to do about it.
var statuses = map[int]struct {
	kind error
	hint string
}{
	http.StatusUnauthorized:        {ErrAuth, "check the credentials in the Secret, and that they may read LFS objects"},
	http.StatusForbidden:           {ErrAuth, "the credentials may not read LFS objects of this repository"},
	http.StatusNotFound:            {ErrNotFound, "the server has no such LFS object, or no LFS for this repository"},
	http.StatusGone:                {ErrNotFound, "the object was removed from the server"},
	http.StatusUnprocessableEntity: {errRemote, "the server does not accept the pointer"},
	http.StatusNotImplemented:      {errRemote, "the server has no Git LFS"},
	http.StatusInsufficientStorage: {errRemote, "the server has no space left"},
	509:                            {errRemote, "the bandwidth quota of the repository is used up"},
}

// statusError returns the error for a status and the message of the server. shown are
// secrets of the request, which the message may repeat.
func statusError(status int, message string, shown ...string) error {
	text := fmt.Sprintf("status %d", status)
	if message = clean(message, shown...); message != "" {
		text += " (" + message + ")"
	}
	if s, ok := statuses[status]; ok {
		return fmt.Errorf("%w: %s: %s", s.kind, text, s.hint)
	}
	return fmt.Errorf("%w: %s", errRemote, text)
}

// responseError returns the error for a response that is no success.
func responseError(resp *http.Response, now time.Time) error {
	page, _ := io.ReadAll(io.LimitReader(resp.Body, maxErrorPage))
	var answer struct{ Message string }
	if json.Unmarshal(page, &answer) != nil && strings.HasPrefix(resp.Header.Get("Content-Type"), "text/plain") {
		answer.Message = string(page)
	}
	err := statusError(resp.StatusCode, answer.Message, secrets(resp.Request)...)
	switch resp.StatusCode {
	case http.StatusTooManyRequests, http.StatusInternalServerError, http.StatusBadGateway,
		http.StatusServiceUnavailable, http.StatusGatewayTimeout:
		after, given := transport.RetryAfter(resp.Header, now)
		if !given {
			after = -1
		}
		return &transientError{err, after}
	}
	return err
}

// clean prepares a server's text for an error: it redacts secrets, and cuts between
// words, because a part of a secret would not be recognized and redacted.
func clean(text string, secrets ...string) string {
	text = strings.Join(strings.Fields(redact.String(truncateWords(text, maxErrorPage), secrets...)), " ")
	if short := truncateWords(text, maxMessage); short != text {
		text = short + "…"
	}
	return text
}

// truncateWords returns the words of text that end within limit bytes.
func truncateWords(text string, limit int) string {
	if len(text) <= limit {
		return text
	}
	return text[:max(strings.LastIndexAny(text[:limit+1], blank), 0)]
}

// plainFields are header fields that hold no secret.
var plainFields = map[string]bool{"Accept": true, "Accept-Encoding": true, "Content-Type": true, "User-Agent": true}

// secrets returns the values of a request that may be credentials: header fields, and
// the query of a link.
func secrets(req *http.Request) (all []string) {
	for name, values := range req.Header {
		if plainFields[name] {
			continue
		}
		for _, v := range values {
			_, credential, _ := strings.Cut(v, " ")
			all = append(all, v, credential)
		}
	}
	for _, values := range req.URL.Query() {
		all = append(all, values...)
	}
	return all
}
