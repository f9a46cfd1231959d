package controller

import (
	"bytes"
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"hash"
	"io/fs"
	"maps"
	"slices"
	"sync"

	"github.com/headgate-io/headgate/source"
)

// A lookup is one question for Secrets and a keyed sum of the answer.
type lookup struct {
	question
	sum  [16]byte
	size int // of the sum, in bytes: what was saved is shorter
}

// is reports whether sum is that of the answer, as far as l knows it.
func (l lookup) is(sum [16]byte) bool { return bytes.Equal(l.sum[:l.size], sum[:l.size]) }

// A question names a Secret, or the service account whose Secrets are asked for.
type question struct {
	account         bool
	namespace, name string
}

// A recorder is the [source.Secrets] of one run: it notes what was asked.
type recorder struct {
	source.Secrets
	key []byte

	mu      sync.Mutex
	lookups []lookup
}

// Secret implements [source.Secrets].
func (r *recorder) Secret(ctx context.Context, namespace, name string) (source.Secret, error) {
	secret, err := r.Secrets.Secret(ctx, namespace, name)
	r.note(question{false, namespace, name}, err, secret)
	return secret, err
}

// PullSecrets implements [source.Secrets].
func (r *recorder) PullSecrets(ctx context.Context, namespace, account string) ([]source.Secret, error) {
	secrets, err := r.Secrets.PullSecrets(ctx, namespace, account)
	r.note(question{true, namespace, account}, err, secrets...)
	return secrets, err
}

// note remembers the first answer to each question.
func (r *recorder) note(q question, err error, secrets ...source.Secret) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !slices.ContainsFunc(r.lookups, func(l lookup) bool { return l.question == q }) {
		r.lookups = append(r.lookups, lookup{q, sumSecrets(r.key, err, secrets), 16})
	}
}

// noted returns what was asked so far.
func (r *recorder) noted() []lookup {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.lookups
}

// answer asks from the question and returns the sum of the answer. A panic of
// from is an error like others.
func (q question) answer(ctx context.Context, key []byte, from source.Secrets) (sum [16]byte) {
	defer func() {
		if v := recover(); v != nil {
			sum = sumSecrets(key, panicked(v), nil)
		}
	}()
	if q.account {
		secrets, err := from.PullSecrets(ctx, q.namespace, q.name)
		return sumSecrets(key, err, secrets)
	}
	secret, err := from.Secret(ctx, q.namespace, q.name)
	return sumSecrets(key, err, []source.Secret{secret})
}

// sumSecrets returns a sum that tells nothing about its Secrets without the key.
func sumSecrets(key []byte, err error, secrets []source.Secret) (sum [16]byte) {
	h := hmac.New(sha256.New, key)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		h.Write([]byte("missing"))
	case err != nil:
		h.Write([]byte("unreadable"))
	default:
		for _, s := range secrets {
			addText(h, []byte(s.Type))
			for _, name := range slices.Sorted(maps.Keys(s.Data)) {
				addText(h, []byte(name))
				addText(h, s.Data[name])
			}
			addText(h, nil)
		}
	}
	copy(sum[:], h.Sum(nil))
	return sum
}

func addText(h hash.Hash, text []byte) {
	h.Write(binary.BigEndian.AppendUint64(nil, uint64(len(text))))
	h.Write(text)
}

// once returns a function that asks from each question once.
func (c *Controller) once(ctx context.Context, from source.Secrets) func(question) [16]byte {
	answers := make(map[question][16]byte)
	return func(q question) [16]byte {
		sum, known := answers[q]
		if !known {
			sum = q.answer(ctx, c.key, from)
			answers[q] = sum
		}
		return sum
	}
}

// review looks up all Secrets again that were asked for, and has those run for
// which one is another.
func (c *Controller) review(ctx context.Context, from source.Secrets) {
	c.mu.Lock()
	used := make(map[question]bool)
	for _, e := range c.sorted {
		for _, l := range e.lookups {
			used[l.question] = true
		}
	}
	c.mu.Unlock()
	now := c.once(ctx, from)
	for q := range used {
		now(q)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, e := range c.sorted {
		if e.state == running { // the end of its run finds out
			continue
		}
		if slices.ContainsFunc(e.lookups, func(l lookup) bool { return used[l.question] && !l.is(now(l.question)) }) {
			c.kick(e, Secret, 0)
		}
	}
	c.pump()
}
