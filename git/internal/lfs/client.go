package lfs

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/headgate-io/headgate/artifact"
	"github.com/headgate-io/headgate/internal/redact"
	"github.com/headgate-io/headgate/internal/transport"
)

const (
	batchSize   = 100 // objects in one request
	parallel    = 6   // transfers at a time
	maxAttempts = 4   // for one request
	maxRounds   = 3   // answers that are asked for because links have expired
	maxWait     = time.Minute
	firstWait   = time.Second // doubled for each further attempt
)

// A Client gets objects from an endpoint. It implements [Source], for one Fetch at a time.
type Client struct {
	// Endpoint finds the endpoint; it is called again when that expires.
	Endpoint func(context.Context) (Endpoint, error)
	HTTP     *http.Client // shows the credentials of the repository to its origin only
	Bare     *http.Client // shows none
	Cache    *artifact.Cache
	Scope    string // of entries in Cache: names the repository and the credentials

	// Now and Wait are the clock; nil means that of package time.
	Now  func() time.Time
	Wait func(context.Context, time.Duration) error

	at Endpoint // the last one found
}

// Close ends idle connections.
func (c *Client) Close() error {
	c.HTTP.CloseIdleConnections()
	c.Bare.CloseIdleConnections()
	return nil
}

// Fetch implements [Source].
func (c *Client) Fetch(ctx context.Context, objects []Object, spool *Spool) error {
	missing, err := c.fromCache(ctx, objects, spool)
	if err != nil {
		return err
	}
	for chunk := range slices.Chunk(missing, batchSize) {
		for round := 0; len(chunk) > 0; round++ {
			if round == maxRounds {
				return fmt.Errorf("git lfs: %s: %w %d times before it could be used: compare the clocks of server and client", describe(chunk[0]), errExpired, maxRounds)
			}
			from, err := c.ask(ctx, chunk)
			if err != nil {
				return fmt.Errorf("git lfs: ask for %d objects: %w", len(chunk), err)
			}
			if chunk, err = c.download(ctx, chunk, from, spool); err != nil {
				return fmt.Errorf("git lfs: %w", err)
			}
		}
	}
	return nil
}

func describe(o Object) string { return fmt.Sprintf("object %s of %s", o.OID, o.Path) }

// download gets objects from their addresses and returns those whose address has expired.
func (c *Client) download(ctx context.Context, objects []Object, from map[string]Endpoint, spool *Spool) ([]Object, error) {
	group, inner := errgroup.WithContext(ctx)
	group.SetLimit(parallel)
	var mu sync.Mutex
	var late []Object
	for _, o := range objects {
		group.Go(func() error {
			err := c.retry(inner, func() error { return c.get(inner, o, from[o.OID], spool) })
			if errors.Is(err, errExpired) {
				mu.Lock()
				defer mu.Unlock()
				late = append(late, o)
				return nil
			}
			if err != nil {
				return fmt.Errorf("%s: %w", describe(o), err)
			}
			c.toCache(o, spool)
			return nil
		})
	}
	err := group.Wait()
	return late, err
}

// get gets one object.
func (c *Client) get(ctx context.Context, o Object, from Endpoint, spool *Spool) error {
	if from.expired(c.now()) {
		return errExpired
	}
	resp, err := c.send(ctx, http.MethodGet, from, nil)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		if from.expired(c.now()) {
			return errExpired
		}
		return fmt.Errorf("%s: %w", redact.URL(from.URL), responseError(resp, c.now()))
	}
	if resp.ContentLength > o.Size {
		return &ContentError{fmt.Sprintf("the server sends %d bytes, its pointer tells %d", resp.ContentLength, o.Size)}
	}
	err = spool.Receive(ctx, o, resp.Body)
	if _, ok := errors.AsType[*ContentError](err); err == nil || ok || ctx.Err() != nil {
		return err
	}
	return &transientError{err, -1}
}

// retry calls try until it succeeds or fails for good, at most maxAttempts times.
func (c *Client) retry(ctx context.Context, try func() error) error {
	pause := firstWait
	for attempt := 1; ; attempt++ {
		err := try()
		again, ok := errors.AsType[*transientError](err)
		if !ok || attempt == maxAttempts {
			return err
		}
		wait := pause
		if again.after >= 0 {
			wait = again.after
		}
		if wait > maxWait {
			return fmt.Errorf("%w: it asks to wait %v, more than %v: try again later", err, wait, maxWait)
		}
		if deadline, ok := ctx.Deadline(); ok && c.now().Add(wait).After(deadline) {
			return fmt.Errorf("%w: there is no time left to try again after %v: raise spec.timeout", err, wait)
		}
		if err := c.wait(ctx, wait); err != nil {
			return err
		}
		pause *= 2
	}
}

func (c *Client) now() time.Time {
	if c.Now != nil {
		return c.Now()
	}
	return time.Now()
}

func (c *Client) wait(ctx context.Context, d time.Duration) error {
	if c.Wait != nil {
		return c.Wait(ctx, d)
	}
	return transport.Sleep(ctx, d)
}

// key is that of an object in the cache.
func (c *Client) key(o Object) string { return "lfs/sha256/" + o.OID + " " + c.Scope }

// fromCache takes objects from the cache and returns the others.
func (c *Client) fromCache(ctx context.Context, objects []Object, spool *Spool) (missing []Object, err error) {
	if c.Cache == nil {
		return objects, nil
	}
	for _, o := range objects {
		content, err := c.Cache.Open(c.key(o))
		if err == nil {
			err = spool.Receive(ctx, o, content)
			content.Close()
		}
		if ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
		if err != nil { // whatever is wrong with the entry, the server has another
			missing = append(missing, o)
		}
	}
	return missing, nil
}

// toCache puts an object into the cache. An object that has arrived counts also
// when the cache is broken or too small.
func (c *Client) toCache(o Object, spool *Spool) {
	if c.Cache == nil {
		return
	}
	c.Cache.Put(c.key(o), func(w io.Writer) error {
		_, err := io.Copy(w, io.NewSectionReader(spool.open(o), 0, o.Size))
		return err
	})
}
