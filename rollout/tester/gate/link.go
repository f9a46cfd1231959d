package gate

import (
	"cmp"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"time"

	"github.com/headgate-io/headgate/rollout/tester/api"
)

// MaxLinkTTL is the longest time for which a link is valid.
const MaxLinkTTL = 7 * 24 * time.Hour

const maxLink = 8 << 10 // bytes of the secret of a link

// A Ticket is the content of a signed link.
type Ticket struct {
	Key      api.Key   `json:"key"`
	Action   string    `json:"action"` // open or reject
	Checksum string    `json:"checksum"`
	Expires  time.Time `json:"expires"`
	Issuer   string    `json:"issuer"`   // the actor who made it; the caller checks whether it may still decide
	Decision uint64    `json:"decision"` // number of the gate's last decision when the link was made; a later one ends the link
}

// Issue returns the secrets of two links about the revision that waits at k: approve
// opens the gate for its checksum, reject rejects it. Both end with the next decision
// about the gate, however it is made, and after ttl: at least a second, at most 7 days;
// 0 means 24 hours. An error wraps [ErrInvalid] or [ErrClosed], or comes from the write.
func (s *Store) Issue(k api.Key, ttl time.Duration, actor string) (approve, reject string, expires time.Time, err error) {
	k.Gate, ttl = cmp.Or(k.Gate, api.DefaultGate), cmp.Or(ttl, 24*time.Hour)
	t := Ticket{Key: k, Issuer: actor}
	switch {
	case ttl < time.Second || ttl > MaxLinkTTL:
		err = fmt.Errorf("%w: ttl: want from 1 second to 7 days", ErrInvalid)
	case k.Kind == api.KindRollback:
		err = fmt.Errorf("%w: kind: links are for gates: no revision waits at a %s switch", ErrInvalid, k.Kind)
	default:
		err = cmp.Or(checkKey(k), checkText("actor", actor, maxPart))
	}
	if err == nil {
		err = s.update(func(c *stagedChange) error {
			r := c.gates[k]
			w := c.currentWait(r, c.now)
			if w == nil || !r.refuses(w, c.now) {
				return fmt.Errorf("%w: no revision is waiting at %s", ErrInvalid, k)
			}
			t.Checksum, t.Expires, t.Decision = w.Checksum, c.now.Add(ttl).Truncate(time.Second), r.Decision
			c.addEntry(k, api.Entry{Action: "link", Checksum: t.Checksum, Actor: actor, Reason: "good until " + t.Expires.Format(time.RFC3339)})
			return nil
		})
	}
	if err != nil {
		return "", "", time.Time{}, err
	}
	t.Action = "open"
	approve = s.sign(t)
	t.Action = "reject"
	return approve, s.sign(t), t.Expires, nil
}

// Inspect returns the content of a link that can be used now, and decides nothing. An error
// wraps [ErrLink] or [ErrClosed], or comes from a write that was due.
func (s *Store) Inspect(secret string) (Ticket, error) {
	t, err := s.verify(secret)
	if err == nil {
		err = s.update(func(c *stagedChange) error { return c.checkLink(t) })
	}
	return t, err
}

// Redeem carries out the action of a link, once. An error wraps [ErrLink], [ErrInvalid] or
// [ErrClosed], or comes from the write.
func (s *Store) Redeem(secret, actor, reason string) (api.Gate, error) {
	t, err := s.verify(secret)
	if err != nil {
		return api.Gate{}, err
	}
	by := api.Change{Checksum: t.Checksum, Actor: actor, Reason: reason}
	if by.Checksum == "" && t.Action == "open" {
		by.Mode = api.OneShot
	}
	return s.decide(t.Action, t.Key, by, &t)
}

// checkLink returns an error unless the link may be used now.
func (c *stagedChange) checkLink(t Ticket) error {
	r := c.gates[t.Key]
	w := c.currentWait(r, c.now)
	switch {
	case r.Decision != t.Decision:
		return fmt.Errorf("%w: it was used, or there was another decision", ErrLink)
	case w != nil && w.Checksum != t.Checksum:
		return fmt.Errorf("%w: another revision waits now", ErrLink)
	case w == nil && t.Checksum == "":
		return fmt.Errorf("%w: no revision is waiting any more", ErrLink)
	}
	return nil
}

// sign returns the secret of a link: the ticket as JSON, and an HMAC of it by the key of
// this store.
func (s *Store) sign(t Ticket) string {
	text, _ := json.Marshal(t) // texts, numbers and a time of this century always marshal
	return base64.RawURLEncoding.EncodeToString(append(text, s.mac(text)...))
}

func (s *Store) mac(text []byte) []byte {
	h := hmac.New(sha256.New, s.secret)
	h.Write(text)
	return h.Sum(nil)
}

// verify decodes the secret of a link. The error wraps [ErrLink] if this store did not make
// the link, or if it has expired.
func (s *Store) verify(secret string) (t Ticket, err error) {
	text, decodeErr := base64.RawURLEncoding.Strict().DecodeString(secret[:min(len(secret), maxLink)])
	macStart := max(0, len(text)-sha256.Size)
	switch {
	case decodeErr != nil || !hmac.Equal(text[macStart:], s.mac(text[:macStart])):
		err = fmt.Errorf("%w: it is damaged, or another test runner made it", ErrLink)
	case json.Unmarshal(text[:macStart], &t) != nil:
		err = fmt.Errorf("%w: another version made it", ErrLink)
	case !time.Now().Before(t.Expires):
		err = fmt.Errorf("%w: its time was over at %s", ErrLink, t.Expires.Format(time.RFC3339))
	}
	return t, err
}
