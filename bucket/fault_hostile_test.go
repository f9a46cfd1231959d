package bucket_test

import (
	"fmt"
	"math/rand/v2"
	"net/http"
	"strings"
	"sync"
	"testing"

	"github.com/headgate-io/headgate/internal/testenv"
	"github.com/headgate-io/headgate/source"
)

// A chaos answers requests well or not, as a generator has it.
type chaos struct {
	r    *scene
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
func (r *scene) settles(obj *source.Bucket) {
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
