package lfs

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"time"

	"github.com/headgate-io/headgate/internal/redact"
	"github.com/headgate-io/headgate/internal/transport"
)

const (
	mediaType   = "application/vnd.git-lfs+json"
	maxAnswer   = 10 << 20 // bytes of an answer of the endpoint
	maxReported = 5        // objects that one error tells of
	leeway      = 5 * time.Second
)

// A batchRequest asks for objects (batch API, "Requests").
type batchRequest struct {
	Operation string        `json:"operation"`
	Transfers []string      `json:"transfers"`
	HashAlgo  string        `json:"hash_algo"`
	Objects   []batchObject `json:"objects"`
}

type batchObject struct {
	OID  string `json:"oid"`
	Size int64  `json:"size"`
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
		Download *grant `json:"download"`
	} `json:"actions"`
	Error *struct {
		Code    int    `json:"code"`
		Message string `json:"message"`
	} `json:"error"`
}

// A grant is an address as servers write it, also in the answer of
// git-lfs-authenticate.
type grant struct {
	Href      string            `json:"href"`
	Header    map[string]string `json:"header"`
	ExpiresIn int64             `json:"expires_in"` // seconds
	ExpiresAt string            `json:"expires_at"`
}

// expires returns when g ceases to be valid, the zero time for never.
func (g *grant) expires(now time.Time) time.Time {
	if g.ExpiresIn != 0 {
		return now.Add(time.Duration(max(min(g.ExpiresIn, 1<<31), -1<<31)) * time.Second)
	}
	at, err := time.Parse(time.RFC3339, g.ExpiresAt)
	if err != nil || at.Year() <= 1 { // servers without expiry write what they like
		return time.Time{}
	}
	return at
}

// An action is a link that may expire.
type action struct {
	link
	expires time.Time
}

func (a action) expired(now time.Time) bool {
	return !a.expires.IsZero() && now.Add(leeway).After(a.expires)
}

// ask asks the endpoint for objects and returns their links by OID.
func (c *Client) ask(ctx context.Context, objects []Object) (links map[string]action, err error) {
	request := batchRequest{Operation: "download", Transfers: []string{"basic"}, HashAlgo: "sha256"}
	for _, o := range objects {
		request.Objects = append(request.Objects, batchObject{o.OID, o.Size})
	}
	body, err := json.Marshal(request)
	if err != nil {
		return nil, err
	}
	at, err := c.endpoint(ctx)
	if err != nil {
		return nil, err
	}
	batch := *at.URL.JoinPath("objects", "batch")
	to, err := newLink(at.URL, batch.String(), at.Header, at.Auth)
	if err != nil {
		return nil, err
	}
	err = c.patiently(ctx, func() error {
		answer, asked, err := c.post(ctx, to, body)
		if err == nil {
			links, err = readBatch(answer, asked, objects, at.Auth && transport.SameOrigin(asked.URL, at.URL), c.now())
		}
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("%s: %w", redact.URL(&batch), err)
	}
	return links, nil
}

// endpoint returns the endpoint; it looks for it when that was not done or has expired.
func (c *Client) endpoint(ctx context.Context) (Endpoint, error) {
	if c.at.URL != nil && !(action{expires: c.at.Expires}).expired(c.now()) {
		return c.at, nil
	}
	at, err := c.Endpoint(ctx)
	if err == nil {
		c.at = at
	}
	return at, err
}

// post sends a request and returns the answer and the request that it answers,
// which is another one after a redirect.
func (c *Client) post(ctx context.Context, to link, body []byte) ([]byte, *http.Request, error) {
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

// readBatch reads the answer to the request asked. Objects that were not
// asked for are passed over; every one that was must be there.
func readBatch(text []byte, asked *http.Request, objects []Object, auth bool, now time.Time) (map[string]action, error) {
	answers, err := parseBatch(text)
	if err != nil {
		return nil, err
	}
	links := make(map[string]action, len(objects))
	var faults []error
	for _, o := range objects {
		err := fmt.Errorf("%w: the answer does not mention it", ErrProtocol)
		if answer := answers[o.OID]; answer != nil {
			links[o.OID], err = answer.action(asked, auth, now)
		}
		if err != nil {
			faults = append(faults, fmt.Errorf("%s: %w", describe(o), err))
		}
	}
	return links, summary(faults)
}

// parseBatch returns what an answer says by OID.
func parseBatch(text []byte) (map[string]*objectAnswer, error) {
	var answer batchAnswer
	err := json.Unmarshal(text, &answer)
	switch {
	case err != nil && bytes.HasPrefix(bytes.TrimSpace(text), []byte("<")):
		return nil, fmt.Errorf("%w: the server answers with a web page: it has no Git LFS there", ErrProtocol)
	case err != nil:
		return nil, fmt.Errorf("%w: the answer is not what it should be: %s", ErrProtocol, clean(err.Error()))
	case answer.Transfer != "" && answer.Transfer != "basic":
		return nil, fmt.Errorf("%w: the server wants transfers of the kind %.40q, and only basic was offered", ErrProtocol, answer.Transfer)
	case answer.HashAlgo != "" && answer.HashAlgo != "sha256":
		return nil, fmt.Errorf("%w: the server has objects by %.40q, not by sha256", ErrProtocol, answer.HashAlgo)
	}
	answers := make(map[string]*objectAnswer, len(answer.Objects))
	for i := range answer.Objects {
		answers[answer.Objects[i].OID] = &answer.Objects[i]
	}
	return answers, nil
}

// action returns the link that the answer to asked gives for an object.
func (a *objectAnswer) action(asked *http.Request, auth bool, now time.Time) (action, error) {
	download := a.Actions.Download
	switch {
	case a.Error != nil:
		return action{}, statusError(a.Error.Code, a.Error.Message, secrets(asked)...)
	case download == nil:
		return action{}, fmt.Errorf("%w: the server tells no way to download it", ErrProtocol)
	}
	l, err := newLink(asked.URL, download.Href, download.Header, auth && !a.Authenticated)
	l.by = asked
	return action{l, download.expires(now)}, err
}

// summary is one error for several, of which it tells the first ones.
func summary(faults []error) error {
	if len(faults) <= maxReported {
		return errors.Join(faults...)
	}
	more := fmt.Errorf("and %d more", len(faults)-maxReported)
	return errors.Join(append(faults[:maxReported:maxReported], more)...)
}
