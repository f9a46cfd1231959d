package serve

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"io/fs"
	"slices"
	"sync"

	"github.com/headgate-io/headgate/source"
)

// A question names a Secret, or the service account whose Secrets are asked for.
type question struct {
	account         bool
	namespace, name string
}

// A lookup is a question for Secrets and a sum of the answer.
type lookup struct {
	question
	sum [sha256.Size]byte
}

// A recorder is the [source.Secrets] of one run: it records what was asked.
type recorder struct {
	source.Secrets

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

// note records the first answer to each question.
func (r *recorder) note(q question, err error, secrets ...source.Secret) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !slices.ContainsFunc(r.lookups, func(l lookup) bool { return l.question == q }) {
		r.lookups = append(r.lookups, lookup{q, sumSecrets(err, secrets)})
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
func (q question) answer(ctx context.Context, from source.Secrets) (sum [sha256.Size]byte) {
	defer func() {
		if v := recover(); v != nil {
			sum = sumSecrets(panicked(v), nil)
		}
	}()
	if q.account {
		secrets, err := from.PullSecrets(ctx, q.namespace, q.name)
		return sumSecrets(err, secrets)
	}
	secret, err := from.Secret(ctx, q.namespace, q.name)
	return sumSecrets(err, []source.Secret{secret})
}

func sumSecrets(err error, secrets []source.Secret) [sha256.Size]byte {
	var answer any = secrets
	switch {
	case errors.Is(err, fs.ErrNotExist):
		answer = "missing"
	case err != nil:
		answer = "unreadable"
	}
	text, _ := json.Marshal(answer)
	return sha256.Sum256(text)
}

// review asks from all that the last runs of entries asked for again, and has
// those run for which an answer is another.
func (c *Controller) review(ctx context.Context, from source.Secrets, entries []*entry) {
	now := make(map[question][sha256.Size]byte)
	c.mu.Lock()
	for _, e := range entries {
		for _, l := range e.lookups {
			now[l.question] = l.sum
		}
	}
	c.mu.Unlock()
	for q := range now {
		now[q] = q.answer(ctx, from)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, e := range entries {
		if e.state == running { // its secrets are reviewed when it ends
			continue
		}
		if slices.ContainsFunc(e.lookups, func(l lookup) bool { sum, asked := now[l.question]; return asked && sum != l.sum }) {
			c.kick(e, Secret, 0)
		}
	}
	c.pump()
}
