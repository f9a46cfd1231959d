package metric

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"time"

	"github.com/headgate-io/headgate/internal/notify"
	"github.com/headgate-io/headgate/internal/origin"
	"github.com/headgate-io/headgate/internal/redact"
	"github.com/headgate-io/headgate/internal/secret"
)

const (
	answerTimeout = 5 * time.Second // of a whole request
	maxAnswer     = 1 << 20
	maxShown      = 1 << 10 // of what a server says in an error
	maxRedirects  = 10
)

// sameOrigin lets redirects lead nowhere else.
func sameOrigin(req *http.Request, via []*http.Request) error {
	first := via[0].URL
	switch {
	case len(via) >= maxRedirects:
		return fmt.Errorf("stopped after %d redirects", maxRedirects)
	case origin.Of(req.URL) != origin.Of(first):
		return fmt.Errorf("redirect to %s refused: give the address that answers", redact.URL(req.URL))
	}
	return nil
}

// An answer is what a server said.
type answer struct {
	status      int
	contentType string
	body        []byte // at most maxAnswer bytes
	secrets     []string
}

// fetch asks the endpoint for u. Errors show no secrets.
func (q *Querier) fetch(ctx context.Context, e endpoint, u *url.URL) (answer, error) {
	held, err := q.credentials(ctx, e, u.User)
	if err != nil {
		return answer{}, err
	}
	u.User = nil
	limit := cmp.Or(q.timeout, answerTimeout)
	within, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	req, err := http.NewRequestWithContext(within, http.MethodGet, u.String(), nil)
	if err != nil {
		return answer{}, errors.New("the address is no URL")
	}
	held.sign(req)
	transport, err := q.pool.Get(notify.Setting{Insecure: e.InsecureSkipVerify, HTTP2: true}, secret.Reader{}, q.Proxy)
	if err != nil {
		return answer{}, err
	}
	defer q.pool.Release(transport)
	a, err := read(&http.Client{Transport: transport, CheckRedirect: sameOrigin}, req)
	a.secrets = held.secrets
	switch {
	case err == nil:
		return a, nil
	case ctx.Err() != nil:
		return a, context.Cause(ctx)
	case within.Err() != nil:
		return a, fmt.Errorf("no answer within %s", limit)
	}
	return a, redact.Error(err, held.secrets...)
}

// read sends req and reads what it is answered.
func read(client *http.Client, req *http.Request) (answer, error) {
	resp, err := client.Do(req)
	if err != nil {
		if at, ok := errors.AsType[*url.Error](err); ok {
			err = at.Err
		}
		return answer{}, err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswer+1))
	a := answer{status: resp.StatusCode, contentType: resp.Header.Get("Content-Type"), body: body}
	switch {
	case a.status >= http.StatusBadRequest: // whatever of it came
		return a, nil
	case err != nil:
		return a, fmt.Errorf("read the answer: %w", err)
	case len(body) > maxAnswer:
		return a, fmt.Errorf("the answer is longer than %d KiB", maxAnswer>>10)
	}
	return a, nil
}

// quiet returns err, which may repeat what the server said, bounded and without
// what the server was shown.
func (a answer) quiet(err error) error {
	if _, none := errors.AsType[noValue](err); none || err == nil {
		return err
	}
	return errors.New(shown(err.Error(), a.secrets))
}

// shown returns the beginning of text that came from elsewhere, for an error.
func shown(text string, secrets []string) string { return redact.Excerpt(text, maxShown, secrets...) }
