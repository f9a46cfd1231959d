package tester

import (
	"cmp"
	"encoding/json"
	"errors"
	"maps"
	"net/http"
	"slices"
	"strings"

	"github.com/headgate-io/headgate/internal/httpserve"
	"github.com/headgate-io/headgate/internal/redact"
	"github.com/headgate-io/headgate/rollout/tester/api"
)

const (
	maxName  = 512 // bytes of a name, a phase and a checksum
	maxAbout = 253 // bytes of what a payload says for people

	ownPrefix = "headgate." // of keys of metadata that tell the test runner about the canary: no test gets them
)

// A payload is the body of a webhook (specification, "Webhook call payload"),
// and what the bodies that open and close gates have besides.
type payload struct {
	Name      string            `json:"name"`
	Namespace string            `json:"namespace"`
	Phase     string            `json:"phase"`
	Checksum  string            `json:"checksum"`
	Metadata  map[string]string `json:"metadata"`

	Gate   string   `json:"gate"`
	Mode   api.Mode `json:"mode"`
	TTL    string   `json:"ttl"`
	Reason string   `json:"reason"`
	Actor  string   `json:"actor"`
}

// describe says what is wrong with a payload, and names the key of metadata that is no text.
func describe(text []byte, err error) error {
	var values struct{ Metadata map[string]json.RawMessage }
	wrong, ok := errors.AsType[*json.UnmarshalTypeError](err)
	if ok && wrong.Field == "metadata" && json.Unmarshal(text, &values) == nil {
		for _, key := range slices.Sorted(maps.Keys(values.Metadata)) {
			var value string
			if inner, ok := errors.AsType[*json.UnmarshalTypeError](json.Unmarshal(values.Metadata[key], &value)); ok {
				wrong = inner
				wrong.Field = "metadata." + redact.String(shorten(key, 80))
				break
			}
		}
		err = wrong
	}
	return httpserve.Refuse(http.StatusBadRequest, "%s", httpserve.Describe(err))
}

// payload reads the payload of a request and says who sent it, also when the payload is
// none. Metadata does not have its token any more.
func (s *Server) payload(w http.ResponseWriter, r *http.Request) (p payload, g grant, token string, err error) {
	g, denied := s.Guard.Identify(r, "")
	if denied != nil && !missing(denied) {
		return p, g, "", denied // before the body is read
	}
	err = s.bodies.Read(w, r, func(text []byte) error {
		if err := json.Unmarshal(text, &p); err != nil {
			return describe(text, err)
		}
		return p.check()
	})
	if err != nil {
		if own, ok := errors.AsType[*httpserve.Refusal](err); denied != nil && !(ok && own.Status == http.StatusServiceUnavailable) {
			err = denied // a caller that is not known is told no more
		}
		return payload{}, g, "", err
	}
	token, given := p.Metadata["token"]
	if delete(p.Metadata, "token"); given {
		g, denied = s.Guard.Identify(r, token)
	}
	return p, g, token, denied
}

// missing reports whether a caller was refused because it did not say who it is.
func missing(err error) bool {
	denial, ok := errors.AsType[*httpserve.Denial](err)
	return ok && denial.Kind == "missing"
}

// check returns which name is too long.
func (p *payload) check() error {
	return cmp.Or(checkName("name", p.Name), checkName("namespace", p.Namespace), checkName("phase", p.Phase), checkName("checksum", p.Checksum),
		checkName("gate", p.Gate), checkName("metadata gate", p.Metadata["gate"]))
}

func checkName(field, name string) error {
	if len(name) > maxName {
		return httpserve.Refuse(http.StatusBadRequest, "%s: longer than %d bytes", field, maxName)
	}
	return nil
}

// key returns the gate of a request; name is that of the URL, "" for none.
func (p *payload) key(kind api.Kind, name string) api.Key {
	return api.Key{Kind: kind, Namespace: p.Namespace, Name: p.Name, Gate: cmp.Or(name, p.Gate, p.Metadata["gate"], api.DefaultGate)}
}

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

// trial reports whether a person tries out what a rollout would send.
func (p *payload) trial() bool { return p.Metadata[ownPrefix+"trial"] == "true" }

// over ends the waits of a canary whose rollout is, except that at the gate that
// the payload asks.
func (s *Server) over(p payload, asked api.Key) {
	if (p.Phase == "Failed" || p.Phase == "Succeeded") && !p.trial() {
		s.Gates.EndWaits(p.Namespace, p.Name, asked)
	}
}
