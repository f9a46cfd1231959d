package bucket_test

import (
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	"github.com/headgate-io/headgate/internal/testenv"
	"github.com/headgate-io/headgate/source"
)

// A chaos answers requests well or not, as a generator has it.
type chaos struct {
	r    *bucketHistory
	rate int // percent of requests that meet something

	mu     sync.Mutex
	random *rand.Rand
	calm   bool // requests change nothing: some are still answered after the run that made them
}

func (c *chaos) n(below int) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.random.IntN(below)
}

// change changes what the bucket holds: one object, to one of contents of very different sizes, or to none.
func (c *chaos) change() {
	content := strings.Repeat(fmt.Sprintf("%08d\n", c.n(1000)), []int{1, 10, 3000, 20000}[c.n(4)])
	if c.n(3) == 0 {
		content = ""
	}
	c.r.put(fmt.Sprintf("%c/%d", 'a'+c.n(3), c.n(4)), content)
}

// meanwhile is change while a request is answered.
func (c *chaos) meanwhile() {
	c.mu.Lock()
	calm := c.calm
	c.mu.Unlock()
	if !calm {
		c.change()
	}
}

func (c *chaos) setCalm(calm bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.calm = calm
}

// serve lets something happen to a request, or nothing.
func (c *chaos) serve(w http.ResponseWriter, q *http.Request, next http.Handler) {
	refuse := func(d *testenv.Defect) {
		d.Header.Set("Retry-After", "0")
		for k, v := range d.Header {
			w.Header()[k] = v
		}
		w.WriteHeader(d.Status)
		fmt.Fprint(w, d.Body)
	}
	happens := c.n(10)
	if c.n(100) >= c.rate {
		happens = -1
	}
	switch happens {
	case 0:
		refuse(testenv.S3Failure(503, "SlowDown", "Please try again."))
	case 1:
		refuse(testenv.S3Failure(500, "InternalError", "Please try again."))
	case 2:
		refuse(testenv.S3Failure(403, "AccessDenied", "Access Denied"))
	case 3: // a part of the answer, and the connection breaks
		rec := httptest.NewRecorder()
		next.ServeHTTP(rec, q)
		for k, v := range rec.Header() {
			w.Header()[k] = v
		}
		w.WriteHeader(rec.Code)
		w.Write(rec.Body.Bytes()[:min(c.n([]int{2, 1000, 200_000}[c.n(3)]), rec.Body.Len())])
		http.NewResponseController(w).Flush()
		panic(http.ErrAbortHandler)
	case 4:
		c.meanwhile()
		next.ServeHTTP(w, q)
	case 5:
		next.ServeHTTP(w, q)
		c.meanwhile()
	case 6:
		c.meanwhile()
		testenv.Without("If-Match").Handler(w, q, next)
	case 7:
		testenv.Without("Range").Handler(w, q, next)
	case 8:
		testenv.With("ETag", `"0"`).Handler(w, q, next)
	case 9:
		testenv.With("Content-Length", "").Handler(w, q, next)
	default:
		next.ServeHTTP(w, q)
	}
}

// TestFaults: whatever happens to requests, each run ends in an artifact that is
// the bucket at some time, or in an error and the artifact from before; and once
// nothing happens any more, in the bucket as it is. Pages of a listing that are
// of different times cannot be told from others: what they list was there, each
// object for itself.
func TestFaults(t *testing.T) {
	t.Parallel()
	for seed := range uint64(12) {
		t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) {
			t.Parallel()
			r := newScene(t, testenv.StoreConfig{AccessKey: "AKIA", SecretKey: canary, PageSize: []int{0, 0, 0, 3}[seed%4]})
			r.paged = seed%4 == 3
			c := &chaos{r: r, random: rand.New(rand.NewPCG(seed, 0)), rate: []int{5, 15, 40}[seed%3]}
			for range 10 {
				c.change()
			}
			obj := r.object(nil)
			for range 5 {
				c.change()
				before := r.JSON(obj.Artifact())
				r.s.Break(&testenv.Defect{Do: testenv.Serve, Handler: c.serve})
				if _, err := r.reconcile(obj); err != nil && r.JSON(obj.Artifact()) != before {
					t.Errorf("%v, and the artifact was %s, is %+v", err, before, obj.Artifact())
				}
				if c.n(3) == 0 {
					r.s.Break(nil)
					c.setCalm(true)
					r.settles(obj)
					c.setCalm(false)
				}
			}
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
