package bucket_test

import (
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/headgate-io/headgate/internal/testenv"
	"github.com/headgate-io/headgate/internal/testenv/measure"
	"github.com/headgate-io/headgate/source"
)

// A threat is what a store does while a bucket with a good artifact
// is fetched anew, and while one is that has none.
type threat struct {
	name   string
	config testenv.StoreConfig // keys are added
	clock  time.Duration       // how far that of the store is ahead
	defect func(*bucketHistory) *testenv.Defect
	spec   func(*source.BucketSpec)
	reason string   // of the failure, "" when there is a good artifact in the end
	says   []string // parts of the error
	never  bool     // such a store cannot be read at all: there is no artifact before
}

const (
	failed     = "BucketOperationFailed"
	authFailed = "AuthenticationFailed"
)

// some objects, of which one takes several packets.
var some = []string{"a", "one", "b/c", "two", "b/d", "", "ignored/x", "never read", "large", strings.Repeat("0123456789abcdef\n", 1<<14)}

func (h threat) try(t *testing.T) {
	h.config.AccessKey, h.config.SecretKey = "AKIA", canary
	h.config.LDAPUsername, h.config.LDAPPassword = "user", canary
	r := newScene(t, h.config)
	r.secrets["ldap"] = data("username", "user", "password", canary)
	object := func() *source.Bucket {
		obj := r.object(h.spec)
		ignore := "/ignored/"
		obj.Spec.Ignore = &ignore
		if obj.Spec.STS != nil {
			obj.Spec.SecretRef, obj.Spec.STS.Endpoint = nil, r.s.Base
		}
		return obj
	}
	for _, before := range []string{"nothing", "good"} {
		obj := object()
		if before == "good" && !h.never {
			obj.Spec.Timeout = source.Duration(time.Minute)
			r.holds("a", "before", "large", "before too")
			r.stored(obj)
			kept := obj.Status
			obj = object()
			obj.Status = kept
		}
		r.holds(some...)
		r.s.Shift(h.clock)
		if h.defect != nil {
			r.s.Break(h.defect(r))
		}
		if h.reason == "" {
			r.stored(obj)
		} else {
			r.refused(obj, obj.Artifact(), h.reason, h.says...)
		}
		r.s.Break(nil)
		r.s.Shift(0)
	}
}

func try(t *testing.T, threats []threat) {
	for _, h := range threats {
		t.Run(h.name, func(t *testing.T) {
			t.Parallel()
			h.try(t)
		})
	}
}

// always returns a defect whatever the scene is.
func always(d testenv.Defect) func(*bucketHistory) *testenv.Defect {
	return func(*bucketHistory) *testenv.Defect { return &d }
}

// times is how often a phase has a defect.
func times(n int, phase testenv.Phase, d *testenv.Defect) func(*bucketHistory) *testenv.Defect {
	d.Times, d.Phase = n, phase
	return always(*d)
}

func busy(status int, code string) *testenv.Defect {
	d := testenv.S3Failure(status, code, "Please try again.")
	d.Header.Set("Retry-After", "0")
	return d
}

// served answers requests of a phase by a handler.
func served(phase testenv.Phase, handler func(n int, w http.ResponseWriter, q *http.Request, next http.Handler)) func(*bucketHistory) *testenv.Defect {
	return func(*bucketHistory) *testenv.Defect {
		var n atomic.Int64
		return &testenv.Defect{Phase: phase, Do: testenv.Serve, Handler: func(w http.ResponseWriter, q *http.Request, next http.Handler) {
			handler(int(n.Add(1)), w, q, next)
		}}
	}
}

// part writes the first n bytes of the right answer, and breaks the connection.
func part(n int, w http.ResponseWriter, q *http.Request, next http.Handler) {
	rec := httptest.NewRecorder()
	next.ServeHTTP(rec, q)
	for k, v := range rec.Header() {
		w.Header()[k] = v
	}
	w.WriteHeader(rec.Code)
	w.Write(rec.Body.Bytes()[:min(n, rec.Body.Len())])
	http.NewResponseController(w).Flush()
	panic(http.ErrAbortHandler)
}

// ofLarge answers requests for the large object by a handler, others well.
func ofLarge(handler func(n int, w http.ResponseWriter, q *http.Request, next http.Handler)) func(*bucketHistory) *testenv.Defect {
	return func(r *bucketHistory) *testenv.Defect {
		var n atomic.Int64
		return served(testenv.GetObject, func(_ int, w http.ResponseWriter, q *http.Request, next http.Handler) {
			if strings.HasSuffix(q.URL.Path, "/large") {
				handler(int(n.Add(1)), w, q, next)
				return
			}
			next.ServeHTTP(w, q)
		})(r)
	}
}

// Stores that are busy or break connections.
func TestStoresThatFail(t *testing.T) {
	try(t, []threat{
		{name: "listing slowed down", defect: times(3, testenv.ListObjects, busy(503, "SlowDown"))},
		{name: "objects slowed down", defect: times(4, testenv.GetObject, busy(503, "SlowDown"))},
		{name: "objects that fail for a while", defect: times(4, testenv.GetObject, busy(500, "InternalError"))},
		{name: "too many requests", defect: times(3, "", busy(429, "TooManyRequests"))},
		{name: "listing always slowed down", defect: always(*busy(503, "SlowDown")), reason: failed, says: []string{"SlowDown", "503"}},
		{name: "objects always slowed down", defect: times(0, testenv.GetObject, busy(503, "SlowDown")), reason: failed, says: []string{"SlowDown", "503"}},
		{name: "slowed down for long", defect: func(*bucketHistory) *testenv.Defect { return slowDown("3000") }, reason: failed, says: []string{"SlowDown", "50m0s"}},
		{name: "reset at the first byte", defect: always(testenv.Defect{Phase: testenv.GetObject, Do: testenv.Cut, Times: 3})},
		{name: "reset after one byte", defect: always(testenv.Defect{Phase: testenv.GetObject, Do: testenv.Cut, After: 1, Times: 3})},
		{name: "reset in the middle", defect: always(testenv.Defect{Phase: testenv.GetObject, Do: testenv.Cut, After: 100_000, Times: 5})},
		{name: "reset at the last byte", defect: ofLarge(func(n int, w http.ResponseWriter, q *http.Request, next http.Handler) {
			if n > 1 {
				next.ServeHTTP(w, q)
				return
			}
			part(17<<14-1, w, q, next)
		})},
		{name: "reset again and again", defect: always(testenv.Defect{Phase: testenv.GetObject, Do: testenv.Cut}), reason: failed},
		{name: "end before the end", defect: always(testenv.Defect{Phase: testenv.GetObject, Do: testenv.End, After: 100_000, Times: 5})},
		{name: "end before the end, always", defect: always(testenv.Defect{Phase: testenv.GetObject, Do: testenv.End, After: 1}), reason: failed, says: []string{"times within 64 KiB"}},
		{name: "range ignored", defect: ofLarge(func(n int, w http.ResponseWriter, q *http.Request, next http.Handler) {
			if n == 1 {
				part(1000, w, q, next)
			}
			q.Header.Del("Range")
			next.ServeHTTP(w, q)
		})},
		{name: "range of something else", defect: ofLarge(func(n int, w http.ResponseWriter, q *http.Request, next http.Handler) {
			if n == 1 {
				part(1000, w, q, next)
			}
			q.Header.Set("Range", "bytes=17-")
			next.ServeHTTP(w, q)
		}), reason: failed},
		{name: "changed when it is resumed", defect: func(r *bucketHistory) *testenv.Defect {
			return ofLarge(func(n int, w http.ResponseWriter, q *http.Request, next http.Handler) {
				if n == 1 {
					r.put("large", strings.Repeat("fedcba9876543210\n", 1<<14))
					q.Header.Del("If-Match")
				}
				next.ServeHTTP(w, q)
			})(r)
		}},
		{name: "listing reset", defect: always(testenv.Defect{Phase: testenv.ListObjects, Do: testenv.Cut, After: 300}), reason: failed, says: []string{"list"}},
		{name: "listing that ends early", defect: always(testenv.Defect{Phase: testenv.ListObjects, Do: testenv.End, After: 300}), reason: failed, says: []string{"list"}},
		{name: "content encoded", defect: func(*bucketHistory) *testenv.Defect {
			return of(testenv.GetObject, testenv.With("Content-Encoding", "gzip"))
		}},
	})
}

// Stores whose objects change while they are read.
func TestStoresThatMove(t *testing.T) {
	change := func(phase testenv.Phase, times int64, key string, content func(i int) string) func(*bucketHistory) *testenv.Defect {
		return func(r *bucketHistory) *testenv.Defect {
			d := changing(r, phase, func(i int) (string, string) { return key, content(i) })
			d.Times = int(times)
			return d
		}
	}
	grows := func(i int) string { return strings.Repeat("0123456789abcdef\n", 1<<14) + strings.Repeat("more\n", i) }
	vanishes := func(int) string { return "" }
	try(t, []threat{
		{name: "grows once", defect: change(testenv.GetObject, 1, "large", grows)},
		{name: "grows twice", defect: change(testenv.GetObject, 2, "large", grows)},
		{name: "grows after the page", defect: change(testenv.ListObjects, 1, "a", grows), config: testenv.StoreConfig{PageSize: 100}},
		{name: "grows always", defect: change(testenv.GetObject, 0, "large", grows), reason: failed, says: []string{"changed"}},
		{name: "vanishes", defect: change(testenv.GetObject, 1, "large", vanishes)},
		{name: "another appears", defect: change(testenv.GetObject, 1, "new", grows)},
		{name: "grows, and preconditions are ignored", defect: func(r *bucketHistory) *testenv.Defect {
			return served(testenv.GetObject, func(n int, w http.ResponseWriter, q *http.Request, next http.Handler) {
				if n == 1 {
					r.put("large", grows(1))
					r.put("a", "changed")
				}
				q.Header.Del("If-Match")
				next.ServeHTTP(w, q)
			})(r)
		}},
		{name: "another object than was asked for", defect: func(*bucketHistory) *testenv.Defect { return of(testenv.GetObject, testenv.With("ETag", `"0"`)) }, reason: failed},
		{name: "no ETag", defect: func(*bucketHistory) *testenv.Defect { return of(testenv.GetObject, testenv.With("ETag", "")) }, reason: failed},
		{name: "longer than listed", defect: always(testenv.Defect{Phase: testenv.GetObject, Do: testenv.Swell, After: 100}), reason: failed},
		{name: "far longer than listed", defect: always(testenv.Defect{Phase: testenv.GetObject, Do: testenv.Swell, After: 1 << 40}), reason: failed},
	})
}

// Stores that refuse credentials, sooner or later.
func TestStoresThatRefuse(t *testing.T) {
	expire := func(phase testenv.Phase, at int) func(*bucketHistory) *testenv.Defect {
		return func(r *bucketHistory) *testenv.Defect {
			return served(phase, func(n int, w http.ResponseWriter, q *http.Request, next http.Handler) {
				if n == at {
					r.s.Expire()
				}
				next.ServeHTTP(w, q)
			})(r)
		}
	}
	try(t, []threat{
		{name: "clock ahead", clock: time.Hour, reason: authFailed, says: []string{"RequestTimeTooSkewed", "clock"}},
		{name: "clock behind", clock: -time.Hour, reason: authFailed, says: []string{"RequestTimeTooSkewed", "clock"}},
		{name: "clock a little ahead", clock: 10 * time.Minute},
		{name: "keys that expire while listing", config: testenv.StoreConfig{PageSize: 1}, spec: withLDAP, defect: expire(testenv.ListObjects, 2)},
		{name: "keys that expire while fetching", spec: withLDAP, defect: expire(testenv.GetObject, 2)},
		{name: "keys that expire at once", config: testenv.StoreConfig{Uses: 1, PageSize: 1}, spec: withLDAP, never: true, reason: authFailed, says: []string{"ExpiredToken"}},
		{name: "session that expired", defect: func(*bucketHistory) *testenv.Defect {
			return testenv.S3Failure(400, "ExpiredToken", "The provided token has expired.")
		}, reason: authFailed, says: []string{"ExpiredToken"}},
		{name: "token service that leaks", spec: withLDAP, defect: always(testenv.Defect{Phase: testenv.AssumeRole, Do: testenv.Leak, Status: 400}), reason: authFailed},
		{name: "token service that does not end", spec: withLDAP, defect: always(testenv.Defect{Phase: testenv.AssumeRole, Do: testenv.Swell, After: 1 << 40}), reason: authFailed},
	})
}

// A hundred thousand keys, of which few are wanted, are listed and no more.
func TestManyKeys(t *testing.T) {
	r := newScene(t, testenv.StoreConfig{AccessKey: "AKIA", SecretKey: canary})
	contents := map[string]string{"a": "one", "ignored": "two", "z/z": "three"}
	for i := range 100_000 {
		contents[fmt.Sprintf("ignored/%d/%06d", i%10, i)] = ""
	}
	delete(contents, "ignored")
	r.replace(contents)
	ignore := "/ignored/"
	obj := r.object(func(s *source.BucketSpec) { s.Ignore = &ignore })
	r.stored(obj)
	if names := r.Names(obj.Artifact()); strings.Join(names, " ") != "a z/z" {
		t.Errorf("%q", names)
	}
	pages := 101
	if n := r.s.Count(testenv.ListObjects); n < pages || n > pages+2 {
		t.Errorf("%d pages were asked for", n)
	}
}

// A gigabyte is offered wherever a store answers. What is read of it is
// bounded, and so is what that takes.
func TestGigabytes(t *testing.T) {
	const most = 128 << 20 // what all of a run may allocate, the store's part and that of the race detector included
	for _, c := range []struct {
		phase  testenv.Phase
		key    string // of an object
		spec   func(*source.BucketSpec)
		reason string
	}{
		{testenv.ListObjects, "a", nil, failed},
		{testenv.GetObject, "a", nil, failed},
		{testenv.GetObject, ".sourceignore", nil, failed},
		{testenv.AssumeRole, "a", withLDAP, authFailed},
	} {
		t.Run(string(c.phase)+" "+c.key, func(t *testing.T) {
			r := newScene(t, testenv.StoreConfig{AccessKey: "AKIA", SecretKey: canary, LDAPUsername: "user", LDAPPassword: canary})
			r.secrets["ldap"] = data("username", "user", "password", canary)
			r.holds(c.key, "content")
			r.s.Break(&testenv.Defect{Phase: c.phase, Do: testenv.Swell, After: 1 << 30})
			obj := r.object(c.spec)
			if obj.Spec.STS != nil {
				obj.Spec.SecretRef, obj.Spec.STS.Endpoint = nil, r.s.Base
			}
			if n := measure.Allocated(func() { r.refused(obj, nil, c.reason) }); n > most {
				t.Errorf("%d MiB were allocated", n>>20)
			}
		})
	}
}

// A chaos answers requests well or not, as a generator has it.
type chaos struct {
	r    *bucketHistory
	rate int // percent of requests that meet something

	mu     sync.Mutex
	random *rand.Rand

	still sync.Mutex
	calm  bool // requests change nothing: some are still answered after the run that made them
}

func (c *chaos) n(below int) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.random.IntN(below)
}

// content returns one of a few, of very different sizes.
func (c *chaos) content() string {
	return strings.Repeat(fmt.Sprintf("%08d\n", c.n(1000)), []int{1, 10, 3000, 20000}[c.n(4)])
}

func (c *chaos) key() string { return fmt.Sprintf("%c/%d", 'a'+c.n(3), c.n(4)) }

// change changes what the bucket holds: one object.
func (c *chaos) change() {
	if c.n(3) == 0 {
		c.r.put(c.key(), "")
		return
	}
	c.r.put(c.key(), c.content())
}

// meanwhile is change while a request is answered.
func (c *chaos) meanwhile() {
	c.still.Lock()
	defer c.still.Unlock()
	if !c.calm {
		c.change()
	}
}

func (c *chaos) setCalm(calm bool) {
	c.still.Lock()
	defer c.still.Unlock()
	c.calm = calm
}

// faults are what may happen to one request.
var faults = []func(c *chaos, w http.ResponseWriter, q *http.Request, next http.Handler){
	func(_ *chaos, w http.ResponseWriter, q *http.Request, next http.Handler) {
		refuse(w, q, busy(503, "SlowDown"))
	},
	func(_ *chaos, w http.ResponseWriter, q *http.Request, next http.Handler) {
		refuse(w, q, busy(500, "InternalError"))
	},
	func(c *chaos, w http.ResponseWriter, q *http.Request, next http.Handler) {
		part(c.n([]int{2, 1000, 200_000}[c.n(3)]), w, q, next)
	},
	func(c *chaos, w http.ResponseWriter, q *http.Request, next http.Handler) {
		c.meanwhile()
		next.ServeHTTP(w, q)
	},
	func(c *chaos, w http.ResponseWriter, q *http.Request, next http.Handler) {
		next.ServeHTTP(w, q)
		c.meanwhile()
	},
	func(c *chaos, w http.ResponseWriter, q *http.Request, next http.Handler) {
		c.meanwhile()
		testenv.Without("If-Match").Handler(w, q, next)
	},
	func(_ *chaos, w http.ResponseWriter, q *http.Request, next http.Handler) {
		testenv.Without("Range").Handler(w, q, next)
	},
	func(_ *chaos, w http.ResponseWriter, q *http.Request, next http.Handler) {
		testenv.With("ETag", `"0"`).Handler(w, q, next)
	},
	func(_ *chaos, w http.ResponseWriter, q *http.Request, next http.Handler) {
		testenv.With("Content-Length", "").Handler(w, q, next)
	},
	func(_ *chaos, w http.ResponseWriter, q *http.Request, next http.Handler) {
		refuse(w, q, testenv.S3Failure(403, "AccessDenied", "Access Denied"))
	},
}

func refuse(w http.ResponseWriter, _ *http.Request, d *testenv.Defect) {
	for k, v := range d.Header {
		w.Header()[k] = v
	}
	w.WriteHeader(d.Status)
	fmt.Fprint(w, d.Body)
}

func (c *chaos) serve(w http.ResponseWriter, q *http.Request, next http.Handler) {
	if c.n(100) >= c.rate {
		next.ServeHTTP(w, q)
		return
	}
	faults[c.n(len(faults))](c, w, q, next)
}

// TestFaults: whatever happens to requests, each run ends in an artifact that is
// the bucket at some time, or in an error and the artifact from before; and once
// nothing happens any more, in the bucket as it is. Pages of a listing that are
// of different times cannot be told from others: what they list was there, each
// object for itself.
func TestFaults(t *testing.T) {
	for seed := range uint64(12) {
		t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) {
			t.Parallel()
			r := newScene(t, testenv.StoreConfig{AccessKey: "AKIA", SecretKey: canary, PageSize: []int{0, 0, 0, 3}[seed%4]})
			r.paged = seed%4 == 3
			c := &chaos{r: r, random: rand.New(rand.NewPCG(seed, 0)), rate: []int{5, 15, 40}[seed%3]}
			for range 10 {
				c.change()
			}
			outcomes := map[source.Outcome]int{}
			obj := r.object(nil)
			for range 12 {
				c.change()
				before := r.JSON(obj.Artifact())
				r.s.Break(&testenv.Defect{Do: testenv.Serve, Handler: c.serve})
				result, err := r.reconcile(obj)
				if outcomes[result.Outcome]++; err != nil && r.JSON(obj.Artifact()) != before {
					t.Errorf("%v, and the artifact was %s, is %+v", err, before, obj.Artifact())
				}
				if c.n(3) == 0 {
					r.s.Break(nil)
					c.setCalm(true)
					r.settles(obj)
					c.setCalm(false)
				}
			}
			t.Logf("%v", outcomes)
		})
	}
}

// settles reconciles obj and demands that the artifact is what the bucket holds.
func (r *bucketHistory) settles(obj *source.Bucket) {
	r.Helper()
	r.mu.Lock()
	r.held = []map[string]string{r.b.Contents()}
	r.mu.Unlock()
	paged := r.paged
	r.paged = false
	defer func() { r.paged = paged }()
	if result, err := r.reconcile(obj); err != nil {
		r.Errorf("outcome %q, error %v", result.Outcome, err)
	}
}
