package s3

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/minio/minio-go/v7/pkg/s3utils"
	"github.com/minio/minio-go/v7/pkg/signer"

	"github.com/headgate-io/headgate/bucket"
)

const (
	userAgent = "headgate"
	emptySum  = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855" // SHA-256 of nothing
	freshFor  = 5 * time.Minute                                                    // how old a signature may be before its age is why it was refused
	maxMoves  = 3                                                                  // of a bucket from region to region
	maxBreaks = 3                                                                  // tries of an answer that breaks off
)

// A query is a request for the bucket, or for an object in it.
type query struct {
	doing  string // for messages
	key    string // "" for the bucket
	values url.Values
	header map[string]string
}

// A cure is what may make a request that was refused succeed.
type cure int

const (
	none   cure = iota
	move        // to another region
	rekey       // with other keys
	resign      // now: it waited for too long
)

// do sends q, and returns the answer when that is a success. What can be cured
// is asked again, once for each cure.
func (d *driver) do(ctx context.Context, q query) (*http.Response, error) {
	tried := map[cure]bool{none: true}
	for {
		at := d.site()
		k, err := d.keys.get(ctx)
		if err != nil {
			return nil, err
		}
		signed := time.Now()
		req, err := at.request(ctx, q, k)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", q.doing, err)
		}
		resp, err := at.client.Do(req)
		if err != nil {
			return nil, d.unanswered(ctx, q, at, err, d.secrets(req)...)
		}
		if resp.StatusCode == http.StatusOK || resp.StatusCode == http.StatusPartialContent {
			return resp, nil
		}
		r := refusalOf(resp, q.doing, d.secrets(req)...)
		c := r.cure(at.region, signed)
		if tried[c] {
			return nil, r.status(d.hints(k))
		}
		tried[c] = true
		if cured, err := d.apply(ctx, c, r, at, k); !cured || err != nil {
			return nil, cmp.Or[error](err, r.status(d.hints(k)))
		}
	}
}

// apply does what c needs, and reports whether it is worth another try.
func (d *driver) apply(ctx context.Context, c cure, r *refusal, at site, k *keys) (bool, error) {
	switch c {
	case move:
		return d.move(at, r.region), nil
	case rekey:
		return d.keys.renew(ctx, k)
	}
	return true, nil
}

// move looks for the bucket in another region than at, unless somebody did
// already. It reports whether the driver is elsewhere now.
func (d *driver) move(at site, region string) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.at.region == at.region && d.moves < maxMoves {
		d.moves++
		d.at = d.locate(region)
	}
	return d.at.region != at.region
}

func (d *driver) site() site {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.at
}

// secrets returns what an answer to req must not show.
func (d *driver) secrets(req *http.Request) []string {
	secrets := append(d.access.Vault.Values(), req.Header.Get("X-Amz-Security-Token"))
	for part := range strings.FieldsFuncSeq(req.Header.Get("Authorization"), func(r rune) bool { return r == ' ' || r == ',' }) {
		if name, value, found := strings.Cut(part, "="); found && name != "SignedHeaders" {
			secrets = append(secrets, value)
		}
	}
	return secrets
}

// unanswered says why there was no answer, without the query of the request and secrets.
func (d *driver) unanswered(ctx context.Context, q query, at site, err error, secrets ...string) error {
	if ctx.Err() != nil {
		err = context.Cause(ctx)
	}
	return fmt.Errorf("%s at %s: %w", q.doing, at.base.Host, bare(err, tlsOfEndpoint, secrets...))
}

// request returns q as it is sent to a site, signed with k.
func (at site) request(ctx context.Context, q query, k *keys) (*http.Request, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, at.base.String(), nil)
	if err != nil {
		return nil, err
	}
	req.URL.Path = at.path + q.key
	req.URL.RawPath = s3utils.EncodePath(req.URL.Path)
	req.URL.RawQuery = strings.ReplaceAll(q.values.Encode(), "+", "%20")
	req.Header.Set("User-Agent", userAgent)
	req.Header.Set("Accept-Encoding", "identity") // objects come as they are stored
	for name, value := range q.header {
		req.Header.Set(name, value)
	}
	if k.access == "" {
		return req, nil
	}
	req.Header.Set("X-Amz-Content-Sha256", emptySum)
	return signer.SignV4(*req, k.access, k.secret, k.session, at.region), nil
}

// readWhole hands the answer to q to use, and asks again when it breaks off. It
// has limit bytes at most.
func (d *driver) readWhole(ctx context.Context, q query, limit int64, use func(text string) error) error {
	for try := 1; ; try++ {
		resp, err := d.do(ctx, q)
		if err != nil {
			return err
		}
		text, err := whole(resp, limit)
		switch {
		case err == nil:
			if err = use(text); err != nil {
				return fmt.Errorf("%s: %w", q.doing, err)
			}
			return nil
		case errors.Is(err, errTooLarge):
			return fmt.Errorf("%s: %w", q.doing, err)
		case ctx.Err() != nil, try == maxBreaks:
			return d.unanswered(ctx, q, d.site(), fmt.Errorf("the answer breaks off: %w", err), d.access.Vault.Values()...)
		}
	}
}

// whole reads the content of resp, of limit bytes at most, and closes it.
func whole(resp *http.Response, limit int64) (string, error) {
	defer resp.Body.Close()
	var b strings.Builder
	b.Grow(int(min(max(resp.ContentLength, 64<<10), limit)))
	_, err := io.Copy(&b, &bounded{resp.Body, limit})
	return b.String(), err
}

// hints returns what to do about refusals of k.
func (d *driver) hints(k *keys) map[string]string {
	switch {
	case k.access == "":
		return hintsOfNobody
	case d.keys.issue != nil:
		return hintsOfIssued
	}
	return hintsOfKeys
}

var _ bucket.Driver = (*driver)(nil)
