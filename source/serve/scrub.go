package serve

import (
	"cmp"
	"context"
	"errors"
	"io"
	"io/fs"
	"math/rand/v2"
	"path"
	"slices"
	"time"

	"github.com/headgate-io/headgate/artifact"
	"github.com/headgate-io/headgate/source"
)

// scrub keeps the store in order until ctx ends: it removes what belongs to
// no object, and hashes all artifacts again, one at a time and not faster than Scrub bytes
// a second. An object whose artifact is damaged runs at once; the store does
// not serve it until then.
func (c *Controller) scrub(ctx context.Context) {
	for {
		c.clean(ctx)
		if c.Scrub >= 0 {
			c.scrubAll(ctx)
		}
		if !sleep(ctx, cmp.Or(c.ScrubIdle, 24*time.Hour)) {
			return
		}
	}
}

// scrubAll hashes all artifacts once, in an order of its own: else short lives
// of the controller would hash the same ones again and again.
func (c *Controller) scrubAll(ctx context.Context) {
	c.mu.Lock()
	all := c.sorted
	c.mu.Unlock()
	p := &pacer{rate: cmp.Or(c.Scrub, 32<<20), start: time.Now()}
	for _, i := range rand.Perm(len(all)) {
		if ctx.Err() != nil {
			return
		}
		c.scrubOne(ctx, all[i].ref, p)
	}
}

// scrubOne hashes the artifact of an object.
func (c *Controller) scrubOne(ctx context.Context, ref source.Reference, p *pacer) {
	a := c.artifact(ref)
	if a == nil {
		return
	}
	err := c.hash(ctx, *a, p)
	if !damaged(err) {
		return
	}
	// Now the store is to know, and it may have been replaced meanwhile.
	err = c.Store.Verify(ctx, *a)
	if now := c.artifact(ref); !damaged(err) || now == nil || now.Path != a.Path {
		return
	}
	c.tell(ref, "ArtifactVerificationFailed", err)
	c.mu.Lock()
	defer c.mu.Unlock()
	if e, err := c.live(ref); err == nil {
		c.kick(e, Repair, 0)
		c.pump()
	}
}

// artifact returns the artifact of an object that is in the store, nil when there is none.
func (c *Controller) artifact(ref source.Reference) *artifact.Artifact {
	v, err := c.View(ref)
	if err != nil || external(v.Object) {
		return nil
	}
	return v.Object.Artifact()
}

// damaged reports whether an artifact is not what it was, or not there.
func damaged(err error) bool {
	var corrupt *artifact.DigestError
	return errors.As(err, &corrupt) || errors.Is(err, fs.ErrNotExist)
}

// hash reads an artifact to its end, which fails when it has another digest.
func (c *Controller) hash(ctx context.Context, a artifact.Artifact, p *pacer) error {
	f, err := c.Store.Open(a)
	if err != nil {
		return err
	}
	defer f.Close()
	buf := make([]byte, 64<<10)
	for {
		n, err := f.Read(buf)
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return err
		}
		if !p.spend(ctx, int64(n)) {
			return ctx.Err()
		}
	}
}

// A pacer bounds how many bytes go by in a second.
type pacer struct {
	rate  int64 // bytes a second
	start time.Time
	done  int64 // bytes since start
}

// lag is how far behind its rate a pacer may be and still catch up.
const lag = time.Second

// spend waits until n bytes more may go by. It returns false when ctx ends.
func (p *pacer) spend(ctx context.Context, n int64) bool {
	p.done += n
	ahead := time.Duration(float64(p.done)/float64(p.rate)*float64(time.Second)) - time.Since(p.start)
	if ahead < -lag {
		p.start, p.done = time.Now(), 0
	}
	if ahead < time.Millisecond {
		return ctx.Err() == nil
	}
	return sleep(ctx, ahead)
}

// sleep waits, and returns false when ctx ends.
func sleep(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// clean removes what killed processes left in the store, and the artifacts of
// objects that neither the feed nor the ledger knows.
func (c *Controller) clean(ctx context.Context) {
	err := c.cleanStore(ctx)
	if ctx.Err() == nil {
		c.tell(source.Reference{}, removalFailed, err)
	}
}

func (c *Controller) cleanStore(ctx context.Context) error {
	if _, err := c.Store.Sweep(ctx); err != nil || c.Ledger == nil {
		return err
	}
	refs, err := c.Ledger.References()
	if err != nil {
		return nil // what it has is unknown now
	}
	known := make(map[string]bool)
	for _, ref := range refs {
		known[directory(ref)] = true
	}
	removed, err := c.Store.GC(ctx, artifact.GCConfig{Keep: func(a artifact.Artifact) bool {
		dir := path.Dir(path.Dir(a.Path))
		return known[dir] || c.knows(dir)
	}})
	if err == nil && len(removed) > 0 {
		_, err = c.Store.Sweep(ctx)
	}
	return err
}

// knows reports whether an object has a directory of the store now. The store
// holds its lock, so that no run is about to save the object.
func (c *Controller) knows(dir string) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.ContainsFunc(c.sorted, func(e *entry) bool { return directory(e.ref) == dir })
}
