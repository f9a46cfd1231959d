package oci

import (
	"bytes"
	"context"
	"crypto/sha256"
	"hash"
	"io"
	"iter"
	"net/url"

	ocispec "github.com/opencontainers/image-spec/specs-go/v1"

	"github.com/headgate-io/headgate/internal/transport"
	"github.com/headgate-io/headgate/source"
)

// maxSharedBlob is the size in bytes up to which a blob is put into the cache for others.
const maxSharedBlob = 256 << 20

// A shared is a holder of which several objects ask the same: tags, what names
// mean and manifests are answers of env.Share, blobs come by env.Cache.
type shared struct {
	holder
	env   source.Env
	who   string // tells the repository, and who asks as whom, from others
	vault *transport.Vault
}

// identify returns what tells the repository at, and who asks it as whom, from others.
// Of it are the names of Secrets too, since messages have them.
func identify(registry *url.URL, at address, settings string, k credentials) string {
	h := sha256.New()
	transport.Note(h, registry.String(), at.path, settings, k.Username, k.Password, k.Token, k.Refresh, k.origin)
	for _, e := range k.chain {
		c := e.credential
		transport.Note(h, e.host, e.path, c.Username, c.Password, c.Token, c.Refresh, e.secret)
	}
	return "oci " + string(h.Sum(nil)) + " "
}

// A told answer comes with what must not show of it, an error too: who asked may
// have been issued a token.
type told[T any] struct {
	value   T
	secrets []string
	weight  int64
}

// Weight tells the bytes of the answer.
func (t told[T]) Weight() int64 { return t.weight }

// share has a question asked once.
func share[T any](ctx context.Context, s *shared, question string, ask func(context.Context) (T, int64, error)) (T, error) {
	answer, err := s.env.Share.Do(ctx, s.who+question, s.env.Since, func(ctx context.Context) (any, error) {
		defer s.holder.close() // nobody else may use the connection after this
		value, weight, err := ask(ctx)
		return told[T]{value, s.vault.Values(), weight}, err
	})
	t, _ := answer.(told[T])
	s.vault.Conceal(t.secrets...)
	return t.value, err
}

func (s *shared) head(ctx context.Context, reference string) (ocispec.Descriptor, error) {
	return share(ctx, s, "head "+reference, func(ctx context.Context) (ocispec.Descriptor, int64, error) {
		d, err := s.holder.head(ctx, reference)
		return d, 0, err
	})
}

func (s *shared) tags(ctx context.Context) iter.Seq2[string, error] {
	return func(yield func(string, error) bool) {
		list, err := share(ctx, s, "tags", func(ctx context.Context) (list []string, weight int64, err error) {
			for name, err := range s.holder.tags(ctx) {
				if err != nil {
					return list, weight, err
				}
				weight += 16 + int64(len(name))
				if list = append(list, name); len(list) > maxTags {
					break
				}
			}
			return list, weight, nil
		})
		for _, name := range list {
			if !yield(name, nil) {
				return
			}
		}
		if err != nil {
			yield("", err)
		}
	}
}

// A sheet is a manifest as it came.
type sheet struct {
	mediaType string
	content   []byte
}

func (s *shared) manifest(ctx context.Context, reference string) (string, io.ReadCloser, error) {
	d, err := share(ctx, s, "manifest "+reference, func(ctx context.Context) (sheet, int64, error) {
		mediaType, body, err := s.holder.manifest(ctx, reference)
		if err != nil {
			return sheet{}, 0, err
		}
		defer body.Close()
		content, err := readAll(body, maxManifest)
		return sheet{mediaType, content}, int64(len(content)), err
	})
	return d.mediaType, io.NopCloser(bytes.NewReader(d.content)), err
}

// blob has a blob transferred once for all who want it, as long as the cache
// keeps it. A cache that cannot take it costs no more than another transfer.
func (s *shared) blob(ctx context.Context, d ocispec.Descriptor) (io.ReadCloser, error) {
	hash, err := hasher(d.Digest)
	if s.env.Cache == nil || d.Size > maxSharedBlob || err != nil {
		return s.holder.blob(ctx, d)
	}
	key := s.who + "blob " + d.Digest.String()
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
	if failed := s.store(ctx, key, d, hash); failed != nil {
		return nil, failed
	}
	if e, err := s.env.Cache.Open(key); err == nil {
		return e, nil
	}
	return s.holder.blob(ctx, d)
}

// store puts a blob into the cache, as far as that takes it. The error is that of the transfer.
func (s *shared) store(ctx context.Context, key string, d ocispec.Descriptor, hash hash.Hash) (failed error) {
	body, err := s.holder.blob(ctx, d)
	if err != nil {
		return err
	}
	from := &checked{from: body, hash: hash, digest: d.Digest, size: d.Size, left: d.Size}
	defer from.Close()
	_ = s.env.Cache.Put(key, func(w io.Writer) error {
		out := &sink{w: w}
		_, err := io.Copy(out, from)
		if out.err == nil {
			failed = err
		}
		return err
	})
	return failed
}

// A sink remembers why writing failed.
type sink struct {
	w   io.Writer
	err error
}

func (s *sink) Write(p []byte) (int, error) {
	n, err := s.w.Write(p)
	if err != nil {
		s.err = err
	}
	return n, err
}
