package bucket

import (
	"archive/tar"
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math/rand/v2"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/klauspost/compress/gzip"

	"github.com/headgate-io/headgate/artifact"
	"github.com/headgate-io/headgate/internal/transport"
)

// Whatever objects there are, however long each takes, and whatever happens to
// one of them: a fetch comes to its end, for a bubble of which all wait fails.
func TestFetchEnds(t *testing.T) {
	for seed := range uint64(9) {
		synctest.Test(t, func(t *testing.T) {
			r := rand.New(rand.NewPCG(seed, 5))
			sizes := map[string]int64{}
			for i := range 20 + r.IntN(120) {
				size := []int64{0, 1, 4 << 10, pieceSize, 3 * pieceSize, 256<<10 + 1, 40 * pieceSize}[r.IntN(6+r.IntN(2))]
				sizes[fmt.Sprintf("%c%c%03d", 'a'+r.IntN(4), "/-.0"[r.IntN(4)], i)] = size
			}
			c := holding(t, nil, sizes)
			list := c.snapshot.list
			slow := func(key string) time.Duration { // the same each time
				return time.Duration(rand.New(rand.NewPCG(seed, uint64(len(key))+uint64(key[len(key)-1])<<8)).IntN(500)) * time.Millisecond
			}
			bad, why := "", errors.New("refused")
			if seed%3 == 1 {
				bad = list.key(r.IntN(list.len()))
			}
			c.snapshot.driver = &shop{open: func(ctx context.Context, o Object, offset int64) (io.ReadCloser, error) {
				switch err := transport.Sleep(ctx, slow(o.Key)); {
				case err != nil:
					return nil, err
				case o.Key == bad:
					return nil, &StatusError{Status: 403, Message: why.Error()}
				case offset == 0 && o.Size > 1:
					return cut(o, 0, o.Size/2, syscall.ECONNRESET), nil
				}
				return nil, nil
			}}
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			if seed%3 == 2 {
				time.AfterFunc(time.Duration(r.IntN(3000))*time.Millisecond, cancel)
			}
			f := newFetch(ctx, c.snapshot, copied(t, c.snapshot, r), func() {})
			var out bytes.Buffer
			_, err := artifact.Pack(f.ctx, &out, f.tree)
			if err == nil {
				err = f.wait()
			}
			f.close()
			switch {
			case seed%3 == 0 && err != nil:
				t.Errorf("seed %d: %v", seed, err)
			case err == nil:
				checked(t, &out, sizes)
			}
		})
	}
}

// copied returns an earlier artifact that has some of the objects of s, others, or none.
func copied(t *testing.T, s *snapshot, r *rand.Rand) *previousArtifact {
	share := r.IntN(4)
	if share == 0 {
		return nil
	}
	e := &previousArtifact{same: make([]bool, s.list.len())}
	all := s.tree(false, func(i int) (io.ReadCloser, error) {
		o := s.list.at(i)
		return body(o, 0, o.Size), nil
	})
	for i := range s.list.len() {
		if r.IntN(3) < share {
			e.same[i] = true
			e.count++
		}
	}
	var archive bytes.Buffer
	if _, err := artifact.Pack(t.Context(), &archive, all); err != nil {
		t.Fatal(err)
	}
	e.archive = io.NopCloser(&archive)
	e.rest = bufio.NewReader(e.archive)
	var err error
	if e.gzip, err = gzip.NewReader(e.rest); err != nil {
		t.Fatal(err)
	}
	e.gzip.Multistream(false)
	e.tar = tar.NewReader(e.gzip)
	return e
}

// What Explain returns is good until Close, however often it is called.
func TestExplainAgain(t *testing.T) {
	d := &shop{open: func(ctx context.Context, _ Object, _ int64) (io.ReadCloser, error) { return nil, context.Cause(ctx) }}
	c := holding(t, d, map[string]int64{"a": 9})
	first, _, err := c.Explain(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	var calls sync.WaitGroup
	for range 4 {
		calls.Go(func() { c.Explain(t.Context()) })
	}
	calls.Wait()
	if _, err := fs.ReadFile(first, "a"); err != nil {
		t.Error(err)
	}
	c.Close()
	if _, err := fs.ReadFile(first, "a"); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
}
