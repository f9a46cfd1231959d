package rollout

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"github.com/headgate-io/headgate/internal/secret"
)

// SignatureHeader is what a webhook whose Secret has an hmacKey is signed by:
//
//	t=1767323045,v1=<hexadecimal HMAC-SHA256 of "1767323045." and the body>
//
// A receiver computes the same of the body as it came, compares in constant
// time, and refuses times too far from its own: an old request repeated.
const SignatureHeader = "X-Headgate-Signature"

// credentials are what a webhook is shown besides the payload.
type credentials struct {
	header  http.Header
	signing []byte   // key of signatures, nil for none
	private []string // what answers and errors must not show
}

// signature returns that of a body sent at a time.
func signature(key, body []byte, now time.Time) string {
	at := strconv.FormatInt(now.Unix(), 10)
	mac := hmac.New(sha256.New, key)
	mac.Write([]byte(at + "."))
	mac.Write(body)
	return "t=" + at + ",v1=" + hex.EncodeToString(mac.Sum(nil))
}

// credentials returns those of a webhook: of its Secret, else of its URL.
func (c *Caller) credentials(ctx context.Context, namespace string, ref *SecretRef, user *url.Userinfo) (credentials, error) {
	found := credentials{header: http.Header{}}
	var auth secret.Auth
	if ref != nil {
		r, err := c.secret(ctx, namespace, ref)
		if err == nil {
			auth, err = found.read(r)
		}
		if err != nil {
			return found, fmt.Errorf("secretRef: %w", err)
		}
	}
	if user != nil && auth == (secret.Auth{}) && found.header.Get("Authorization") == "" {
		password, _ := user.Password()
		auth = secret.Auth{Username: user.Username(), Password: password}
	}
	if value := auth.Header(); value != "" {
		found.header.Set("Authorization", value)
		found.private = append(found.private, value, auth.Bearer, auth.Password)
		if auth.Password == "" {
			found.private = append(found.private, auth.Username) // a token
		}
	}
	return found, nil
}

// hide makes answers and errors not show the user and password of a proxy.
func (c *credentials) hide(proxy *url.URL) {
	if proxy == nil || proxy.User == nil {
		return
	}
	password, _ := proxy.User.Password()
	auth := secret.Auth{Username: proxy.User.Username(), Password: password}
	c.private = append(c.private, auth.Header(), password)
}

// read takes what a Secret has and returns its user or bearer token.
func (c *credentials) read(r secret.Reader) (secret.Auth, error) {
	headers, auth, err := r.Credentials([]string{"bearerToken"}, SignatureHeader)
	if err != nil {
		return auth, err
	}
	c.header = headers
	for _, values := range headers {
		c.private = append(c.private, values...)
	}
	c.signing, _ = r.Value([]string{"hmacKey"})
	if auth == (secret.Auth{}) && len(c.header) == 0 && c.signing == nil {
		return auth, r.Problem("bearerToken", "is missing, and so are username, headers and hmacKey: set one")
	}
	return auth, nil
}

// secret returns the Secret of a webhook of a canary in namespace.
func (c *Caller) secret(ctx context.Context, namespace string, ref *SecretRef) (secret.Reader, error) {
	if ref.Name == "" {
		return secret.Reader{}, errors.New("name is missing")
	}
	return secret.Get(ctx, c.Secrets, namespace, ref.Name)
}

// Event posts an event to a webhook of type event (specification, "Events").
// Answer and errors are those of [Caller.Call].
//
// The metadata has eventMessage, eventType and timestamp always; then what the
// webhook has; then, unless they are zero or the webhook has them, eventCode,
// eventSequence, canaryWeight, maxWeight, iteration, failedChecks, hook and
// reason.
func (c *Caller) Event(ctx context.Context, hook Hook, event Event) (Answer, error) {
	if hook.Type != HookEvent {
		return Answer{}, fmt.Errorf("webhook %s: type: %q is not %s", hook.Name, hook.Type, HookEvent)
	}
	if event.Time.IsZero() {
		event.Time = c.now()
	}
	return c.Call(ctx, hook, Payload{
		Name:      event.Name,
		Namespace: event.Namespace,
		Phase:     event.Phase,
		Checksum:  event.Checksum,
		Metadata:  eventMetadata(event, hook.Metadata),
	})
}

func eventMetadata(event Event, own map[string]string) map[string]string {
	all := map[string]string{}
	for key, value := range map[string]string{"eventCode": string(event.Code), "hook": event.Hook, "reason": event.Reason} {
		if value != "" {
			all[key] = value
		}
	}
	for key, value := range map[string]int64{
		"eventSequence": event.Sequence,
		"canaryWeight":  int64(event.Weight),
		"maxWeight":     int64(event.MaxWeight),
		"iteration":     int64(event.Iteration),
		"failedChecks":  int64(event.FailedChecks),
	} {
		if value != 0 {
			all[key] = strconv.FormatInt(value, 10)
		}
	}
	maps.Copy(all, own)
	all["eventMessage"] = event.Message
	all["eventType"] = "Normal"
	if event.Warning {
		all["eventType"] = "Warning"
	}
	all["timestamp"] = strconv.FormatInt(event.Time.UnixMilli(), 10)
	return all
}
