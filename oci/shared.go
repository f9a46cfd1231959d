package oci

import (
	"context"
	"crypto/sha256"
	"io"
	"net/url"

	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
	"oras.land/oras-go/v2/registry"

	"github.com/headgate-io/headgate/internal/transport"
	"github.com/headgate-io/headgate/source"
)

// maxSharedBlob is the size in bytes up to which a blob is put into the cache for others.
const maxSharedBlob = 256 << 20

// sharedAnswers is a holder that several objects ask the same questions: env.Share
// answers for tags, references and manifests, and env.Cache keeps blobs.
type sharedAnswers struct {
	holder
	env   source.Env
	scope string // differs between repositories, credentials and ways to reach them
	vault *transport.Vault
}

// shareScope hashes the address, the way and the credentials, so that objects share
// answers only if all are equal. Messages have the names of Secrets, so they count too.
func shareScope(to *url.URL, at registry.Reference, settings string, k credentials) string {
	h := sha256.New()
	transport.Note(h, to.String(), at.Repository, settings, k.Username, k.Password, k.Token, k.Refresh, k.origin)
	for _, e := range k.chain {
		c := e.credential
		transport.Note(h, e.host, e.path, c.Username, c.Password, c.Token, c.Refresh, e.secret)
	}
	return "oci " + string(h.Sum(nil)) + " "
}

// An answer, an error too, comes with the secrets that must not show in it: a token
// may have been issued for it.
type answer[T any] struct {
	value   T
	secrets []string
	weight  int64
}

// Weight tells the bytes of the answer.
func (a answer[T]) Weight() int64 { return a.weight }

// share asks a question once for all objects. ask returns the answer and its bytes.
func share[T any](ctx context.Context, s *sharedAnswers, question string, ask func(context.Context) (T, int64, error)) (T, error) {
	shared, err := s.env.Share.Do(ctx, s.scope+question, s.env.Since, func(ctx context.Context) (any, error) {
		defer s.holder.close() // the connection may have no other user after this
		value, weight, err := ask(ctx)
		return answer[T]{value, s.vault.Values(), weight}, err
	})
	a, _ := shared.(answer[T])
	s.vault.Conceal(a.secrets...)
	return a.value, err
}

func (s *sharedAnswers) head(ctx context.Context, reference string) (ocispec.Descriptor, error) {
	return share(ctx, s, "head "+reference, func(ctx context.Context) (ocispec.Descriptor, int64, error) {
		d, err := s.holder.head(ctx, reference)
		return d, 0, err
	})
}

func (s *sharedAnswers) tags(ctx context.Context) ([]string, error) {
	return share(ctx, s, "tags", func(ctx context.Context) (list []string, weight int64, err error) {
		list, err = s.holder.tags(ctx)
		for _, name := range list {
			weight += 16 + int64(len(name))
		}
		return list, weight, err
	})
}

// A rawManifest is a manifest as it came.
type rawManifest struct {
	mediaType string
	content   []byte
}

func (s *sharedAnswers) manifest(ctx context.Context, reference string) (string, []byte, error) {
	m, err := share(ctx, s, "manifest "+reference, func(ctx context.Context) (rawManifest, int64, error) {
		mediaType, content, err := s.holder.manifest(ctx, reference)
		return rawManifest{mediaType, content}, int64(len(content)), err
	})
	return m.mediaType, m.content, err
}

// blob transfers a blob once for all objects, as long as the cache keeps it. A cache
// that cannot take it costs no more than another transfer.
func (s *sharedAnswers) blob(ctx context.Context, d ocispec.Descriptor) (io.ReadCloser, error) {
	if s.env.Cache == nil || d.Size > maxSharedBlob {
		return s.holder.blob(ctx, d)
	}
	key := s.scope + "blob " + d.Digest.String()
	unlock, err := s.env.Cache.Lock(ctx, key)
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	if err != nil {
		return s.holder.blob(ctx, d)
	}
	defer unlock()
	if e, err := s.env.Cache.Open(key); err == nil {
		return e, nil
	}
	if failed := s.store(ctx, key, d); failed != nil {
		return nil, failed
	}
	if e, err := s.env.Cache.Open(key); err == nil {
		return e, nil
	}
	return s.holder.blob(ctx, d)
}

// store puts a blob into the cache, as far as that takes it. The error is that of the transfer.
func (s *sharedAnswers) store(ctx context.Context, key string, d ocispec.Descriptor) error {
	body, err := s.holder.blob(ctx, d)
	if err != nil {
		return err
	}
	from := newVerifyReader(body, d, true)
	defer from.Close()
	_ = s.env.Cache.Put(key, func(w io.Writer) error {
		_, err := io.Copy(w, from)
		return err
	})
	if from.err == io.EOF {
		return nil
	}
	return from.err // nil if writing failed
}
