package source

import (
	"context"
	"maps"
	"sync"
	"time"

	"github.com/headgate-io/headgate/artifact"
)

// Archives lets objects that are made of the same artifacts read them once. The zero
// value is ready to use. It is safe for concurrent use.
type Archives struct {
	mu   sync.Mutex
	open map[string]*openArchive // by digest
}

type openArchive struct {
	reading sync.Mutex
	tree    *artifact.Tree
	users   int
}

// linger is how long an archive that has no user stays open.
const linger = 5 * time.Second

// Open is [OpenArchive]. Release, which is never nil, is called in the place of Close.
func (s *Archives) Open(ctx context.Context, from Sources, a artifact.Artifact, l artifact.Limits) (tree *artifact.Tree, release func(), err error) {
	o := s.use(a.Digest)
	o.reading.Lock()
	defer o.reading.Unlock()
	if o.tree == nil {
		o.tree, err = OpenArchive(ctx, from, a, l)
	}
	return o.tree, func() { s.release(a.Digest, o) }, err
}

// use adds a user of an archive.
func (s *Archives) use(digest string) *openArchive {
	s.mu.Lock()
	defer s.mu.Unlock()
	o := s.open[digest]
	if o == nil {
		o = new(openArchive)
		put(&s.open, digest, o)
	}
	o.users++
	return o
}

// release ends what use began.
func (s *Archives) release(digest string, o *openArchive) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if o.users--; o.users == 0 {
		time.AfterFunc(linger, func() { s.close(digest, o) })
	}
}

// close closes an archive that has no user.
func (s *Archives) close(digest string, o *openArchive) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if o.users > 0 || s.open[digest] != o {
		return
	}
	if delete(s.open, digest); o.tree != nil {
		o.tree.Close()
	}
}

// Close closes the archives that have no user.
func (s *Archives) Close() {
	s.mu.Lock()
	all := maps.Clone(s.open)
	s.mu.Unlock()
	for digest, o := range all {
		s.close(digest, o)
	}
}
