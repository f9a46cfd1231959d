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

// expires returns when a ceases to be valid, the zero time for never.
func (a *action) expires(now time.Time) time.Time {
	if a.ExpiresIn != 0 {
		return now.Add(time.Duration(max(min(a.ExpiresIn, 1<<31), -1<<31)) * time.Second)
	}
	at, err := time.Parse(time.RFC3339, a.ExpiresAt)
	if err != nil || at.Year() <= 1 { // servers without expiry write what they like
		return time.Time{}
	}
	return at
}

// ask asks the endpoint for objects and returns their addresses by OID.
func (c *Client) ask(ctx context.Context, objects []Object) (found map[string]Endpoint, err error) {
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
	batch := at.URL.JoinPath("objects", "batch")
	to, err := newEndpoint(at.URL, batch.String(), at.Header, at.Auth)
	if err != nil {
		return nil, err
	}
	err = c.retry(ctx, func() error {
		answer, asked, err := c.post(ctx, to, body)
		if err == nil {
			found, err = readBatch(answer, asked, objects, at.Auth && transport.SameOrigin(asked.URL, at.URL), c.now())
		}
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("%s: %w", redact.URL(batch), err)
	}
	return found, nil
}

// endpoint returns the endpoint; it looks for it when that was not done or has expired.
func (c *Client) endpoint(ctx context.Context) (Endpoint, error) {
	if c.at.URL != nil && !c.at.expired(c.now()) {
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

// readBatch reads the answer to the request asked. Objects that were not
// asked for are ignored; every one that was must be there.
func readBatch(text []byte, asked *http.Request, objects []Object, auth bool, now time.Time) (map[string]Endpoint, error) {
	answers, err := parseBatch(text)
	if err != nil {
		return nil, err
	}
	found := make(map[string]Endpoint, len(objects))
	var faults []error
	for _, o := range objects {
		err := fmt.Errorf("%w: the answer does not mention it", ErrProtocol)
		if answer := answers[o.OID]; answer != nil {
			found[o.OID], err = answer.endpoint(asked, auth, now)
		}
		if err != nil {
			faults = append(faults, fmt.Errorf("%s: %w", describe(o), err))
		}
	}
	if n := len(faults) - maxReported; n > 0 {
		faults = append(faults[:maxReported], fmt.Errorf("and %d more", n))
	}
	return found, errors.Join(faults...)
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

// endpoint returns the address that the answer to asked gives for an object.
func (a *objectAnswer) endpoint(asked *http.Request, auth bool, now time.Time) (Endpoint, error) {
	download := a.Actions.Download
	switch {
	case a.Error != nil:
		return Endpoint{}, statusError(a.Error.Code, a.Error.Message, secrets(asked)...)
	case download == nil:
		return Endpoint{}, fmt.Errorf("%w: the server tells no way to download it", ErrProtocol)
	}
	to, err := newEndpoint(asked.URL, download.Href, download.Header, auth && !a.Authenticated)
	to.by, to.Expires = asked, download.expires(now)
	return to, err
}
