package tester

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/headgate-io/headgate/internal/answer"
	"github.com/headgate-io/headgate/internal/redact"
	"github.com/headgate-io/headgate/rollout/tester/access"
	"github.com/headgate-io/headgate/rollout/tester/api"
)

const (
	maxName  = 512              // bytes of a name, a phase and a checksum
	bodyTime = 30 * time.Second // for a body to arrive
)

// Keys of metadata.
const (
	tokenKey = "token" // says who the caller is
	gateKey  = "gate"
	trialKey = "headgate.trial" // "true": nothing waits for the answer

	ownPrefix = "headgate." // of keys that tell the test runner about the canary: no test gets them
)

// gateKeys are those that count in payloads of gates.
var gateKeys = []string{gateKey, tokenKey, trialKey, "headgate.revision", "headgate.weight", "headgate.step", "headgate.threshold", "headgate.failures"}

const maxAbout = 253 // bytes of what a payload says for people

// about returns what the payload says of its canary for people, bounded and
// without control characters and credentials.
func (p *payload) about() api.About {
	text := func(key string) string {
		value := p.Metadata[ownPrefix+key]
		if value == "" {
			return ""
		}
		return redact.String(strings.ToValidUTF8(value[:min(len(value), maxAbout)], ""))
	}
	return api.About{Revision: text("revision"), Weight: text("weight"), Step: text("step"), Threshold: text("threshold"), Failures: text("failures")}
}

// A payload is the body of a webhook (specification, "Webhook call payload"),
// and what the bodies that open and close gates have besides.
type payload struct {
	Name      string   `json:"name"`
	Namespace string   `json:"namespace"`
	Phase     string   `json:"phase"`
	Checksum  string   `json:"checksum"`
	Metadata  metadata `json:"metadata"`

	Gate   string   `json:"gate"`
	Mode   api.Mode `json:"mode"`
	TTL    string   `json:"ttl"`
	Reason string   `json:"reason"`
	Actor  string   `json:"actor"`
}

// check returns which name is too long.
func (p *payload) check() error {
	for _, field := range []struct{ name, value string }{
		{"name", p.Name}, {"namespace", p.Namespace}, {"phase", p.Phase}, {"checksum", p.Checksum}, {"gate", p.Gate}, {"metadata gate", p.Metadata[gateKey]},
	} {
		if len(field.value) > maxName {
			return fmt.Errorf("%s: longer than %d bytes", field.name, maxName)
		}
	}
	return nil
}

// body calls use with the body of a request, which is only good until use
// returns. When it is too long or does not arrive the error is a refusal.
func (s *Server) body(w http.ResponseWriter, r *http.Request, use func([]byte) error) error {
	return s.bodies.Body(w, r, s.maxBody(), use)
}

func (s *Server) maxBody() int64 {
	if s.MaxBody <= 0 {
		return defaultMaxBody
	}
	return s.MaxBody
}

// payload reads the payload of a request and says who sent it, also when there
// is none. Metadata does not have its token any more; of keys other than those
// given it may have none, nil stands for all.
func (s *Server) payload(w http.ResponseWriter, r *http.Request, keys []string) (payload, caller, error) {
	first, denied := s.Guard.Identify(r, "")
	if denied != nil && !missing(denied) {
		return payload{}, caller{}, denied // before the body is read
	}
	var p payload
	err := s.body(w, r, func(text []byte) error { return decode(text, &p, keys) })
	if err != nil {
		if denied != nil && !errors.Is(err, answer.ErrFull) { // else nobody knows what it says
			err = denied
		}
		return payload{}, caller{Grant: first}, err
	}
	c := caller{Grant: first}
	if token, ok := p.Metadata[tokenKey]; ok {
		c.token = token
		delete(p.Metadata, tokenKey)
		if c.Grant, denied = s.Guard.Identify(r, token); denied == nil {
			return p, c, nil
		}
	}
	return p, c, denied
}

// A caller is who sent a request.
type caller struct {
	access.Grant
	token string // of the payload
}

// missing reports whether a caller was refused because it did not say who it is.
func missing(err error) bool {
	denial, ok := errors.AsType[*access.Denial](err)
	return ok && denial.Kind == "missing"
}

// decode reads a JSON object as webhooks send it; for keys see payload.
func decode(text []byte, p *payload, keys []string) error {
	if readPlain(text, p, keys) {
		return p.refusal()
	}
	if err := json.Unmarshal(text, p); err != nil {
		return answer.Refuse(http.StatusBadRequest, "%s", answer.Describe(err))
	}
	return p.refusal()
}

// refusal returns what check has to say, as a refusal.
func (p *payload) refusal() error {
	if err := p.check(); err != nil {
		return &answer.Refusal{Status: http.StatusBadRequest, Err: err}
	}
	return nil
}

// trial reports whether a person tries out what a rollout would send.
func (p *payload) trial() bool { return p.Metadata[trialKey] == "true" }

// over ends the waits of a canary whose rollout is, except that at the gate that
// the payload asks.
func (s *Server) over(p payload, asked api.Key) {
	if (p.Phase == "Failed" || p.Phase == "Succeeded") && !p.trial() {
		s.Gates.EndWaits(p.Namespace, p.Name, asked)
	}
}

// key returns the gate of a request.
func (p *payload) key(kind api.Kind, name string) api.Key {
	for _, other := range []string{p.Gate, p.Metadata[gateKey], api.DefaultGate} {
		if name == "" {
			name = other
		}
	}
	return api.Key{Kind: kind, Namespace: p.Namespace, Name: p.Name, Gate: name}
}
