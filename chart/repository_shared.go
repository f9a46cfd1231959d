package chart

import (
	"context"
	"crypto/sha256"
	"io"
	"strconv"
	"time"

	"github.com/headgate-io/headgate/chart/index"
	"github.com/headgate-io/headgate/internal/transport"
)

// A heard index is what a server said of it. Its content is in the cache.
type heard struct {
	unchanged bool // it is that of the validators
	size      int64
	digest    string
	summary   index.Summary
	validators
}

// ask is fetch with one answer for all who ask for the index with the same
// validators and credentials. Without a cache for the index each asks himself.
func (r *Repository) ask(ctx context.Context, from place, v validators, since time.Time) (*found, error) {
	w, ok := from.(*web)
	if !ok || r.env.Share == nil || r.env.Cache == nil {
		return r.fetch(ctx, from, v)
	}
	answer, err := r.env.Share.Do(ctx, r.question(w, v), since, func(ctx context.Context) (any, error) {
		defer from.close() // nobody else may use the connection after this
		return r.hear(ctx, w, v)
	})
	if err != nil {
		return nil, err
	}
	h := answer.(heard)
	if h.unchanged {
		return nil, nil
	}
	entry, err := r.env.Cache.Open(contentKey(w, h.digest))
	if err != nil { // it could not be kept, or not for so long
		return r.fetch(ctx, from, v)
	}
	return &found{file: entry, size: h.size, digest: h.digest, summary: h.summary, notes: w.notes, validators: h.validators}, nil
}

// hear asks for the index, and puts a new one into the cache.
func (r *Repository) hear(ctx context.Context, w *web, v validators) (heard, error) {
	f, err := r.fetch(ctx, w, v)
	if err != nil || f == nil {
		return heard{unchanged: true}, err
	}
	defer f.close()
	_ = r.env.Cache.Put(contentKey(w, f.digest), func(to io.Writer) error {
		_, err := io.Copy(to, io.NewSectionReader(f.file, 0, f.size))
		return err
	})
	return heard{size: f.size, digest: f.digest, summary: f.summary, validators: f.validators}, nil
}

// question names what is asked, of whom, and as whom. With credentials it is one
// of the namespace, since messages have the names of Secrets.
func (r *Repository) question(w *web, v validators) string {
	spec, h := &r.repo.Spec, sha256.New()
	transport.Note(h, string(w.print[:]), v.ETag, v.Modified, strconv.FormatInt(limitOf(r.env.Limits), 10))
	if spec.SecretRef != nil {
		transport.Note(h, r.repo.Metadata.Namespace, "secret", spec.SecretRef.Name)
	}
	if spec.CertSecretRef != nil {
		transport.Note(h, r.repo.Metadata.Namespace, "certificate", spec.CertSecretRef.Name)
	}
	return "index " + string(h.Sum(nil))
}

// contentKey names an index in the cache, and who may see it.
func contentKey(w *web, digest string) string {
	return "index of charts " + digest + " " + string(w.print[:])
}
