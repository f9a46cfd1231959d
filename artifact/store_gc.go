package artifact

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"time"
)

// A GCConfig says what [Store.GC] removes.
type GCConfig struct {
	// Keep, which must be given, reports whether something still refers to an
	// artifact. It is called while the lock of the object is held, so what
	// is recorded of the object does not change meanwhile.
	Keep func(Artifact) bool
	// DryRun lists what would be removed, and removes nothing.
	DryRun bool
}

// GC removes the artifacts that nothing refers to, of objects that are gone
// as well, and returns them. Those stored less than KeepFor ago (the default,
// when it is negative) stay: whoever refers to them may not have said so yet.
func (s *Store) GC(ctx context.Context, c GCConfig) ([]Artifact, error) {
	if c.Keep == nil {
		return nil, fmt.Errorf("collect garbage: %w: GCConfig.Keep says nothing of what to keep", fs.ErrInvalid)
	}
	var removed []Artifact
	for dir, err := range s.objects("") {
		if err != nil {
			return removed, fmt.Errorf("collect garbage: %w", err)
		}
		gone, err := s.collect(ctx, dir, c)
		removed = append(removed, gone...)
		if err != nil {
			return removed, fmt.Errorf("collect garbage: %w", err)
		}
	}
	return removed, nil
}

func (s *Store) collect(ctx context.Context, dir string, c GCConfig) (removed []Artifact, err error) {
	unlock, err := s.Lock(ctx, dir)
	if err != nil {
		return nil, err
	}
	defer unlock()
	list, err := s.list(dir)
	for _, e := range list {
		a := s.describe(e.storePath, s.digest(e.storePath), e.info)
		if s.now().Sub(e.info.ModTime()) < s.grace() || c.Keep(a) {
			continue
		}
		if !c.DryRun {
			if err1 := s.drop(e.storePath); err1 != nil {
				err = errors.Join(err, err1)
				continue
			}
		}
		removed = append(removed, a)
	}
	return removed, err
}

// grace is how long a new artifact need not be referred to.
func (s *Store) grace() time.Duration {
	if s.keepFor < 0 {
		return defaultKeepFor
	}
	return s.keepFor
}
