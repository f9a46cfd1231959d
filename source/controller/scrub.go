package controller

import (
	"cmp"
	"context"
	"errors"
	"io"
	"io/fs"
	"math/rand/v2"
	"time"

	"github.com/headgate-io/headgate/artifact"
	"github.com/headgate-io/headgate/source"
)

// scrub keeps the store in order until ctx ends: it removes what nobody knows,
// and hashes all artifacts again, one at a time and not faster than Scrub bytes
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
	c.tell(ref, "ArtifactVerificationFailed", err.Error())
	c.repair(ref)
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
