package gate

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"fmt"
	"time"

	"github.com/headgate-io/headgate/rollout/tester/api"
)

const (
	defaultLinkTTL = 24 * time.Hour
	maxLinkTTL     = 7 * 24 * time.Hour
	maxLink        = 4096 // bytes of the secret of a link
	linkVersion    = 2
)

// A Ticket is what a signed link is good for.
type Ticket struct {
	Key      api.Key
	Action   string // open or reject
	Checksum string
	Expires  time.Time
	Issuer   string // the actor who made it; whether it may still decide is for the caller to judge

	decision uint64 // the last about the gate when the link was made; a later one ends the link
}

// The actions of links.
const (
	linkOpen   = "open"
	linkReject = "reject"
)

// Issue returns the secrets of two links for what waits at k now: one opens it
// for that checksum, one rejects it. Both end with the next decision about the
// gate, however that is made, and after ttl: at most 7 days, 0 is 24 hours.
func (b *Book) Issue(k api.Key, ttl time.Duration, actor string) (approve, reject string, expires time.Time, err error) {
	k = clone(named(k))
	if ttl == 0 {
		ttl = defaultLinkTTL
	}
	switch {
	case ttl < time.Second || ttl > maxLinkTTL:
		err = fmt.Errorf("%w: ttl: want from 1 second to 7 days", ErrInvalid)
	case k.Kind == api.KindRollback:
		err = fmt.Errorf("%w: kind: links are for gates: nobody waits at a %s switch", ErrInvalid, k.Kind)
	default:
		if err = checkKey(k); err == nil {
			err = checkText("actor", actor, maxPart)
		}
	}
	if err != nil {
		return "", "", time.Time{}, err
	}
	t := Ticket{Key: k, Issuer: actor}
	err = b.do(func(c *change) error {
		v := c.waits(k)
		if v == nil || c.state(k).passes(c.now, v.checksum) {
			return fmt.Errorf("%w: nobody waits at %s", ErrInvalid, k)
		}
		t.Checksum, t.Expires, t.decision = v.checksum, c.now.Add(ttl).Truncate(time.Second), c.decision(k)
		c.note(k, api.Entry{Action: "link", Checksum: t.Checksum, Actor: actor, Reason: "good until " + t.Expires.Format(time.RFC3339)})
		return nil
	})
	if err != nil {
		return "", "", time.Time{}, err
	}
	t.Action = linkOpen
	approve = b.sign(t)
	t.Action = linkReject
	return approve, b.sign(t), t.Expires, nil
}

// passes reports whether a check with the checksum would pass.
func (s *state) passes(now time.Time, checksum string) bool {
	v := s.judge(now, checksum)
	return v == pass || v == bind || v == spend
}

// Inspect says what a link is good for, and changes nothing: an error wraps [ErrLink].
func (b *Book) Inspect(secret string) (Ticket, error) {
	t, err := b.verify(secret)
	if err != nil {
		return Ticket{}, err
	}
	err = b.do(func(c *change) error { return c.good(t) })
	return t, err
}

// Redeem does what a link is good for, once: an error wraps [ErrLink], [ErrInvalid] or
// [ErrClosed], or is one of the write.
func (b *Book) Redeem(secret, actor, reason string) (api.Gate, error) {
	t, err := b.verify(secret)
	if err != nil {
		return api.Gate{}, err
	}
	by := api.Change{Checksum: t.Checksum, Actor: actor, Reason: reason}
	return b.decide(t.Key, by, func(c *change, k api.Key) error {
		if err := c.good(t); err != nil {
			return err
		}
		if t.Action == linkReject {
			return c.reject(k, by)
		}
		by.Mode = api.Bound
		if by.Checksum == "" {
			by.Mode = api.OneShot
		}
		return c.open(k, by, "open")
	})
}

// good returns an error unless the link may be used now.
func (c *change) good(t Ticket) error {
	v := c.waits(t.Key)
	switch {
	case c.decision(t.Key) != t.decision:
		return fmt.Errorf("%w: it was used, or somebody decided otherwise since", ErrLink)
	case v != nil && v.checksum != t.Checksum:
		return fmt.Errorf("%w: another revision waits now", ErrLink)
	case v == nil && t.Checksum == "":
		return fmt.Errorf("%w: nobody waits any more", ErrLink)
	}
	return nil
}

// sign returns the secret of a link: what it is good for, and the proof that
// this book said so.
func (b *Book) sign(t Ticket) string {
	text := []byte{linkVersion}
	text = binary.BigEndian.AppendUint64(text, t.decision)
	text = binary.BigEndian.AppendUint64(text, uint64(t.Expires.Unix()))
	for _, part := range []string{t.Action, string(t.Key.Kind), t.Key.Namespace, t.Key.Name, t.Key.Gate, t.Checksum, t.Issuer} {
		text = append(text, byte(len(part))) // which is at most maxPart
		text = append(text, part...)
	}
	return base64.RawURLEncoding.EncodeToString(append(text, b.proof(text)...))
}

func (b *Book) proof(text []byte) []byte {
	h := hmac.New(sha256.New, b.secret)
	h.Write(text)
	return h.Sum(nil)
}

// verify reads the secret of a link that this book made and that is not over.
func (b *Book) verify(secret string) (Ticket, error) {
	if len(secret) > maxLink {
		return Ticket{}, fmt.Errorf("%w: it is damaged", ErrLink)
	}
	text, err := base64.RawURLEncoding.Strict().DecodeString(secret)
	if err != nil || len(text) < sha256.Size {
		return Ticket{}, fmt.Errorf("%w: it is damaged", ErrLink)
	}
	cut := len(text) - sha256.Size
	if !hmac.Equal(text[cut:], b.proof(text[:cut])) {
		return Ticket{}, fmt.Errorf("%w: it is damaged, or another test runner made it", ErrLink)
	}
	t, ok := parseTicket(text[:cut])
	switch {
	case !ok:
		return Ticket{}, fmt.Errorf("%w: another version made it", ErrLink)
	case !b.now().Before(t.Expires):
		return Ticket{}, fmt.Errorf("%w: its time was over at %s", ErrLink, t.Expires.Format(time.RFC3339))
	}
	return t, nil
}

// parseTicket reads what was signed.
func parseTicket(text []byte) (Ticket, bool) {
	if len(text) < 17 || text[0] != linkVersion {
		return Ticket{}, false
	}
	t := Ticket{decision: binary.BigEndian.Uint64(text[1:]), Expires: time.Unix(int64(binary.BigEndian.Uint64(text[9:])), 0).UTC()}
	text = text[17:]
	var parts [7]string
	for i := range parts {
		if len(text) == 0 || len(text) <= int(text[0]) {
			return Ticket{}, false
		}
		end := 1 + int(text[0])
		parts[i], text = string(text[1:end]), text[end:]
	}
	t.Action, t.Checksum, t.Issuer = parts[0], parts[5], parts[6]
	t.Key = api.Key{Kind: api.Kind(parts[1]), Namespace: parts[2], Name: parts[3], Gate: parts[4]}
	known := t.Action == linkOpen || t.Action == linkReject
	return t, known && len(text) == 0 && checkKey(t.Key) == nil
}
