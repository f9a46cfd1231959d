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

// A faultInjector answers requests correctly or with faults, at random.
type faultInjector struct {
	r    *bucketHistory
	rate int // percentage of requests with a fault

	mu     sync.Mutex
	random *rand.Rand
	frozen bool // requests do not change the bucket; some are still served after the run that sent them
}

func (c *faultInjector) n(below int) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.random.IntN(below)
}

// change replaces one object by content of a random size, or removes it.
func (c *faultInjector) change() {
	content := strings.Repeat(fmt.Sprintf("%08d\n", c.n(1000)), []int{1, 10, 3000, 20000}[c.n(4)])
	if c.n(3) == 0 {
		content = ""
	}
	c.r.put(fmt.Sprintf("%c/%d", 'a'+c.n(3), c.n(4)), content)
}

// changeDuringRequest changes the bucket during a request, unless c is frozen.
func (c *faultInjector) changeDuringRequest() {
	c.mu.Lock()
	calm := c.frozen
	c.mu.Unlock()
	if !calm {
		c.change()
	}
}

func (c *faultInjector) setFrozen(calm bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.frozen = calm
}

// serve answers a request, with a fault or without.
func (c *faultInjector) serve(w http.ResponseWriter, q *http.Request, next http.Handler) {
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
	case 3: // send a part of the response and break the connection
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
		c.changeDuringRequest()
		next.ServeHTTP(w, q)
	case 5:
		next.ServeHTTP(w, q)
		c.changeDuringRequest()
	case 6:
		c.changeDuringRequest()
		testenv.IgnoreHeaders("If-Match").Handler(w, q, next)
	case 7:
		testenv.IgnoreHeaders("Range").Handler(w, q, next)
	case 8:
		testenv.SetHeader("ETag", `"0"`).Handler(w, q, next)
	case 9:
		testenv.SetHeader("Content-Length", "").Handler(w, q, next)
	default:
		next.ServeHTTP(w, q)
	}
}

// TestFaults checks that each run, whatever faults occur, either publishes a state that the
// bucket has had, or fails and keeps the previous artifact. A run without faults publishes
// the current state. Pages of one listing may show different states, which cannot be
// detected; then only each object for itself must have existed.
func TestFaults(t *testing.T) {
	t.Parallel()
	for seed := range uint64(12) {
		t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) {
			t.Parallel()
			r := newBucketHistory(t, testenv.StoreConfig{AccessKey: "AKIA", SecretKey: canary, PageSize: []int{0, 0, 0, 3}[seed%4]})
			r.paged = seed%4 == 3
			c := &faultInjector{r: r, random: rand.New(rand.NewPCG(seed, 0)), rate: []int{5, 15, 40}[seed%3]}
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
					c.setFrozen(true)
					r.requireCurrent(obj)
					c.setFrozen(false)
				}
			}
		})
	}
}

// requireCurrent reconciles obj and checks that the artifact is the current content of the bucket.
func (r *bucketHistory) requireCurrent(obj *source.Bucket) {
	r.Helper()
	r.mu.Lock()
	r.states = []map[string]string{r.b.Contents()}
	r.mu.Unlock()
	paged := r.paged
	r.paged = false
	defer func() { r.paged = paged }()
	if result, err := r.reconcile(obj); err != nil {
		r.Errorf("outcome %q, error %v", result.Outcome, err)
	}
}
