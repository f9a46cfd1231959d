package chart

import (
	"bufio"
	"context"
	"encoding/hex"
	"encoding/json"
	"errors"
	"io"
	"time"

	"github.com/headgate-io/headgate/source"
)

// fetchIndex opens the index of a repository that no object holds the artifact
// of: kept in env.Cache by URL and credentials, and asked for conditionally.
// It takes spec.timeout of repo at most. Errors are as those of [Repository.Resolve].
func (s *supply) fetchIndex(ctx context.Context, repo *source.PkgRepository) (in *snapshot, err error) {
	r := &Repository{repo: repo, env: s.env, vault: s.vault}
	err = source.Within(ctx, time.Duration(repo.Spec.Timeout), "fetch index", func(ctx context.Context) error {
		in, err = r.cached(ctx)
		return err
	})
	if err != nil {
		return nil, r.failed(source.StepFetch, err)
	}
	return in, nil
}

// cached returns the index, out of the cache where the server says that it is still the one.
func (r *Repository) cached(ctx context.Context) (*snapshot, error) {
	if err := r.admit(); err != nil {
		return nil, err
	}
	if r.repo.Spec.Type == source.RepositoryOCI {
		return nil, errNoIndex
	}
	from, err := r.from(ctx)
	if err != nil {
		return nil, err
	}
	defer from.close()
	entry, v := r.entry(from)
	f, err := r.fetch(ctx, from, v)
	if err == nil && f == nil {
		return entry, nil
	}
	if entry != nil {
		entry.Close()
	}
	if err != nil {
		return nil, err
	}
	r.save(from, f)
	return &snapshot{io.NewSectionReader(f.file, 0, f.size), f.close}, nil
}

// A snapshot is an index as it was at one moment, which can be read many times.
type snapshot struct {
	*io.SectionReader
	close func() error
}

// Close releases the index.
func (s *snapshot) Close() error { return s.close() }

// entry opens the cached index of a place, behind its validators; nil when
// there is none.
func (r *Repository) entry(from place) (*snapshot, validators) {
	key := cacheKey(from)
	if r.env.Cache == nil || key == "" {
		return nil, validators{}
	}
	e, err := r.env.Cache.Open(key)
	if err != nil {
		return nil, validators{}
	}
	var v validators
	line, err := bufio.NewReader(io.NewSectionReader(e, 0, e.Size())).ReadBytes('\n')
	if err == nil {
		err = json.Unmarshal(line, &v)
	}
	if err != nil || v == (validators{}) {
		e.Close()
		return nil, validators{}
	}
	first := int64(len(line))
	return &snapshot{io.NewSectionReader(e, first, e.Size()-first), e.Close}, v
}

// save puts an index into the cache, with its validators in the line before
// it. A cache that does not take it costs the next run the transfer and nothing else.
func (r *Repository) save(from place, f *found) {
	key := cacheKey(from)
	if r.env.Cache == nil || key == "" || f.validators == (validators{}) {
		return
	}
	line, err := json.Marshal(f.validators)
	if err != nil {
		return
	}
	_ = r.env.Cache.Put(key, func(w io.Writer) error {
		_, failed := w.Write(append(line, '\n'))
		_, err := io.Copy(w, io.NewSectionReader(f.file, 0, f.size))
		return errors.Join(failed, err)
	})
}

// cacheKey names what the index of a place depends on, "" for what is not kept.
// Of the key the cache keeps its hash alone.
func cacheKey(from place) string {
	if w, ok := from.(*web); ok {
		return "index of charts, at and as " + hex.EncodeToString(w.print[:])
	}
	return ""
}
