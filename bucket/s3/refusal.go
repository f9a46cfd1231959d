package s3

import (
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/headgate-io/headgate/bucket"
	"github.com/headgate-io/headgate/internal/redact"
	"github.com/headgate-io/headgate/internal/transport"
)

const (
	maxRefusal = 16 << 10
	maxCause   = 1 << 10
)

// A refusal is an answer other than a success.
type refusal struct {
	doing         string
	code          int
	reason        string // the store's word for it, for example NoSuchBucket
	message       string
	region        string        // of the bucket, as the store has it, "" for none
	elsewhere     string        // the server that a redirect leads to
	ahead         time.Duration // of the clock of this machine
	after         time.Duration
	mistaken      bool // it is that of a server which expected TLS
	known, dating bool // whether the store said who it is, and the time
}

// refusalOf reads the refusal resp, and closes it. secrets is what it may repeat.
func refusalOf(resp *http.Response, doing string, secrets ...string) *refusal {
	defer resp.Body.Close()
	now := time.Now()
	r := &refusal{doing: doing, code: resp.StatusCode, region: resp.Header.Get("X-Amz-Bucket-Region")}
	r.after, _ = transport.RetryAfter(resp.Header, now)
	if date, err := http.ParseTime(resp.Header.Get("Date")); err == nil {
		r.ahead, r.dating = now.Sub(date).Round(time.Second), true
	}
	if to, err := resp.Location(); err == nil && to.Host != "" {
		r.elsewhere = bucket.Said(to.Scheme+"://"+to.Host, secrets...)
	}
	text, err := io.ReadAll(io.LimitReader(resp.Body, maxRefusal))
	if err != nil {
		return r
	}
	r.mistaken = r.code == http.StatusBadRequest && resp.Request.URL.Scheme == "http" && strings.Contains(string(text), "HTTPS")
	r.parse(text, secrets)
	return r
}

// parse reads what a store says, and what a token service does, which puts it
// into an element of its own.
func (r *refusal) parse(text []byte, secrets []string) {
	var body struct {
		Code, Message, Region string
		Error                 struct{ Code, Message string }
	}
	if xml.Unmarshal(text, &body) != nil {
		return
	}
	if body.Error.Code != "" {
		body.Code, body.Message = body.Error.Code, body.Error.Message
	}
	r.known = body.Code != ""
	r.reason, r.message = bucket.Said(body.Code, secrets...), bucket.Said(body.Message, secrets...)
	if body.Region != "" {
		r.region = body.Region
	}
}

// outdated are the reasons why keys that were good are not any more.
var outdated = map[string]bool{
	"ExpiredToken":          true,
	"ExpiredTokenException": true,
	"TokenRefreshRequired":  true,
	"InvalidToken":          true,
	"InvalidTokenId":        true,
	"InvalidAccessKeyId":    true,
	"InvalidClientTokenId":  true,
}

const tooSkewed = "RequestTimeTooSkewed"

// cure returns what could be done about r, which answers a request that was
// signed for region at a time.
func (r *refusal) cure(region string, signed time.Time) cure {
	switch {
	case r.region != "" && r.region != region && regionForm.MatchString(r.region):
		return move
	case outdated[r.reason]:
		return rekey
	case r.reason == tooSkewed && time.Since(signed) > freshFor:
		return resign
	}
	return none
}

// status returns r as an error, with what hints say about its reason.
func (r *refusal) status(hints map[string]string) *bucket.StatusError {
	e := &bucket.StatusError{Doing: r.doing, Status: r.code, Code: r.reason, Message: r.message, After: r.after, Hint: hints[r.reason],
		Refused: outdated[r.reason]}
	if e.Hint == "" {
		e.Hint = hintsOfAll[r.reason]
	}
	switch {
	case r.mistaken:
		e.Hint = tlsOfEndpoint.over
	case r.dating && (r.reason == tooSkewed || r.code == http.StatusForbidden && r.ahead.Abs() > freshFor):
		e.Hint = skewed(r.ahead)
	case r.elsewhere != "" && r.code/100 == 3:
		e.Hint = fmt.Sprintf("it redirects to %s, which is not followed: set spec.endpoint and spec.region to where the bucket is", r.elsewhere)
	case e.Hint == "" && r.code/100 == 3:
		e.Hint = hintsOfAll["PermanentRedirect"]
	case e.Hint == "" && !r.known:
		e.Hint = "that is not how a store of S3 answers: check spec.endpoint"
	}
	return e
}

// skewed says what is wrong with the clock of this machine, which is ahead of the server's.
func skewed(ahead time.Duration) string {
	way := "ahead of"
	if ahead < 0 {
		way = "behind"
	}
	if ahead.Abs() < freshFor {
		return "signatures are good for 15 minutes: check the clocks of this machine and of the store"
	}
	return fmt.Sprintf("the clock of this machine is %s %s that of the store: set it right", ahead.Abs(), way)
}

// What to do about a reason, by whose keys were refused.
var (
	hintsOfAll = map[string]string{
		"NoSuchBucket":                 "check spec.bucketName, and that spec.endpoint and spec.region are where it is",
		"PermanentRedirect":            "set spec.endpoint and spec.region to where the bucket is",
		"AuthorizationHeaderMalformed": "set spec.region to that of the bucket",
		"InvalidRegion":                "set spec.region to that of the bucket",
		"InvalidObjectState":           "it is archived: restore it, or exclude it with spec.ignore",
		"NotImplemented":               "the store lacks ListObjectsV2 or GetObject with If-Match, which this needs",
		"MethodNotAllowed":             "check spec.endpoint: that is no store of S3, or its console",
	}
	hintsOfNobody = map[string]string{
		"AccessDenied": "not everybody may read the bucket: set spec.secretRef to a Secret with accesskey and secretkey",
	}
	hintsOfKeys = map[string]string{
		"AccessDenied":          "the keys need s3:ListBucket on the bucket and s3:GetObject on its objects",
		"InvalidAccessKeyId":    "check accesskey in the Secret of spec.secretRef",
		"SignatureDoesNotMatch": "check secretkey in the Secret of spec.secretRef",
	}
	hintsOfIssued = map[string]string{
		"AccessDenied":          "who the keys were issued to needs s3:ListBucket on the bucket and s3:GetObject on its objects",
		"InvalidAccessKeyId":    "the store does not know the keys that were issued: check that spec.endpoint goes with who issues them",
		"SignatureDoesNotMatch": "the store does not know the keys that were issued: check that spec.endpoint goes with who issues them",
		"ExpiredToken":          "the keys that were issued just now have expired: check the clocks of this machine and of who issues them",
	}
	hintsOfService = map[string]string{
		"InvalidParameterValue": "check the Secret of spec.sts.secretRef",
		"AccessDenied":          "check the Secret of spec.sts.secretRef",
		"NoSuchBucket":          "spec.sts.endpoint is no token service: check it",
		"MethodNotAllowed":      "spec.sts.endpoint is no token service: check it",
		"NotImplemented":        "the token service does not know spec.sts.provider",
	}
)

// A wire says what to do when only one of the two ends speaks TLS.
type wire struct{ over, without string }

var (
	tlsOfEndpoint = wire{"the store speaks TLS: remove spec.insecure", "the store speaks no TLS: set spec.insecure if that is meant to be"}
	tlsOfService  = wire{"the token service speaks TLS: write https:// in spec.sts.endpoint", "the token service speaks no TLS: write http:// in spec.sts.endpoint if that is meant to be"}
)

// bare returns the cause of what an [http.Client] reports, without its URL and
// secrets, and says what to do where that is known.
func bare(err error, w wire, secrets ...string) error {
	if e, ok := errors.AsType[*url.Error](err); ok {
		err = e.Err
	}
	if text := err.Error(); len(text) > maxCause { // it repeats what the other side wrote
		err = errors.New(bucket.Said(text, secrets...))
	}
	switch text := err.Error(); {
	case errors.Is(err, http.ErrSchemeMismatch):
		return fmt.Errorf("%w: %s", err, w.without)
	case strings.Contains(text, `malformed HTTP response "\x15\x03`): // an alert of TLS
		return fmt.Errorf("%w: %s", redact.Error(err, secrets...), w.over)
	}
	return redact.Error(err, secrets...)
}
