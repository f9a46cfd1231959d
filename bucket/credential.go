package bucket

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"io"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"time"

	"github.com/headgate-io/headgate/source"
)

// Issued holds a credential that a service issues. It is replaced when four
// fifths of its life are over, and when the server refuses it. One that ends in
// less than ten seconds is that of a clock that is wrong, and used until it is
// refused. It is safe for concurrent use.
type Issued struct {
	issue func(context.Context) (source.Credential, error)
	mu    sync.Mutex // callers wait for the one that has a credential issued: the contexts of all end with the step
	held  *source.Credential
	until time.Time // when held is to be replaced; zero: when it is refused
}

const minLife = 10 * time.Second

// NewIssued returns the credentials that issue returns, and has the first one issued.
func NewIssued(ctx context.Context, issue func(context.Context) (source.Credential, error)) (*Issued, error) {
	i := &Issued{issue: issue}
	_, err := i.Get(ctx, nil)
	return i, err
}

// Get returns the credential to use: another one than refused, which may be nil.
// Errors are those of issuing and of ctx, and a *[source.StepError] when what was
// issued cannot be sent.
func (i *Issued) Get(ctx context.Context, refused *source.Credential) (*source.Credential, error) {
	i.mu.Lock()
	defer i.mu.Unlock()
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	if i.held != nil && i.held != refused && (i.until.IsZero() || time.Now().Before(i.until)) {
		return i.held, nil
	}
	if i.held != nil && i.held == refused && i.held.Refused != nil {
		i.held.Refused()
	}
	i.held = nil
	c, err := i.issue(ctx)
	if err != nil {
		return nil, err
	}
	unsendable := func(r rune) bool { return r <= ' ' || r > '~' }
	if c.Username+c.Token == "" || c.Username != "" && c.Password == "" || strings.ContainsFunc(c.Username+c.Token, unsendable) {
		return nil, stepError("AuthenticationFailed", errors.New("log in: the answer holds no token that can be sent"))
	}
	i.held, i.until = &c, time.Time{}
	if left := time.Until(c.Expires); left >= minLife {
		i.until = time.Now().Add(left / 5 * 4)
	}
	return i.held, nil
}

// A Bearer is a round tripper that sends a token with each request, and with
// another one, once a request, when the server answers 401.
type Bearer struct {
	Next   http.RoundTripper // must be set before the first request
	Tokens *Issued
}

// RoundTrip implements [http.RoundTripper].
func (b *Bearer) RoundTrip(req *http.Request) (*http.Response, error) {
	var refused *source.Credential
	for {
		c, err := b.Tokens.Get(req.Context(), refused)
		if err != nil {
			return nil, err
		}
		out := req.Clone(req.Context())
		out.Header.Set("Authorization", "Bearer "+c.Token)
		resp, err := b.Next.RoundTrip(out)
		if err != nil || resp.StatusCode != http.StatusUnauthorized || refused != nil {
			return resp, err
		}
		resp.Body.Close()
		refused = c
	}
}

// maxToken bounds the bytes of a token service's answer.
const maxToken = 1 << 20

// A TokenService is a round tripper for one use of a token service. It bounds answers,
// and makes errors of those that refuse. Libraries make texts of errors, and some send
// requests without a context: Failed has the error, and all requests end with the context.
type TokenService struct {
	ctx    context.Context
	access *Access
	client *http.Client
	hint   string
	sent   bool
	err    error
}

// TokenService returns the token service that client reaches. hint says what to do when it refuses.
func (a *Access) TokenService(ctx context.Context, client *http.Client, hint string) *TokenService {
	return &TokenService{ctx: ctx, access: a, client: client, hint: hint}
}

// Client returns the client to give to a library.
func (s *TokenService) Client() *http.Client {
	c := *s.client
	c.Transport = s
	return &c
}

// RoundTrip implements [http.RoundTripper].
func (s *TokenService) RoundTrip(req *http.Request) (*http.Response, error) {
	s.sent = true
	req = req.Clone(s.ctx)
	if req.Body != nil { // what it asserts must not show either
		text, err := io.ReadAll(req.Body) // of memory
		if err != nil {
			return nil, err
		}
		form, _ := url.ParseQuery(string(text))
		s.access.Vault.Conceal(form.Get("assertion"), form.Get("client_assertion"))
		req.GetBody = func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(text)), nil }
		req.Body, _ = req.GetBody()
	}
	req.Header.Set("User-Agent", "headgate")
	resp, err := s.client.Transport.RoundTrip(req)
	if err == nil && resp.StatusCode/100 == 2 {
		resp.Body = http.MaxBytesReader(nil, resp.Body, maxToken)
		return resp, nil
	}
	if err == nil {
		e := s.access.Refused(resp, nil)
		if e.Refused = e.Status/100 == 4 && e.Status != http.StatusTooManyRequests && e.Status != http.StatusRequestTimeout; e.Refused {
			e.Hint = cmp.Or(e.Hint, s.hint) // the status says nothing of the bucket
		}
		err = e
	}
	s.err = err
	return nil, err
}

// Failed returns the error of doing, given that of a library, whose text may show values and is not used.
func (s *TokenService) Failed(doing string, err error) error {
	if s.err == nil && !s.sent {
		s.err = errors.New("nothing was sent: the credentials are not what they should be")
	}
	if is[*http.MaxBytesError](err) || errors.Is(err, http.ErrSchemeMismatch) {
		s.err = err
	}
	return stepError("AuthenticationFailed", s.access.Explain(s.ctx, doing, cmp.Or(s.err, errors.New(""))))
}
