package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/fstest"

	"github.com/headgate-io/headgate/internal/testenv"
)

// chaosOrigins are servers of every kind. Their content changes, and some of their responses fail.
type chaosOrigins struct {
	t        *testing.T
	repos    []*testenv.Repo
	charts   *testenv.Charts
	bucket   *testenv.StoreBucket
	registry *testenv.Registry

	git, index, s3, oci string       // URLs or hosts for clients
	bad                 atomic.Int64 // percentage of requests that fail

	mu       sync.Mutex
	password string
	stalled  chan struct{} // closed to end all stalled requests
	moves    []int         // number of changes of each repository, chart, bucket and image
	rand     *rand.Rand
}

const chaosRepos = 5

func newOrigins(t *testing.T, seed uint64) *chaosOrigins {
	o := &chaosOrigins{t: t, stalled: make(chan struct{}), moves: make([]int, chaosRepos+3), rand: rand.New(rand.NewPCG(seed, 1))}
	repos := map[string]*testenv.Repo{}
	for i := range chaosRepos {
		o.repos = append(o.repos, testenv.NewRepo(t))
		repos[fmt.Sprintf("repo%d.git", i)] = o.repos[i]
	}
	git := testenv.ServeRepos(t, testenv.GitConfig{Allow: o.allow}, repos)
	o.charts = testenv.StartCharts(t, testenv.ChartsConfig{})
	s3 := testenv.StartS3(t, testenv.StoreConfig{})
	o.bucket = s3.Bucket("assets")
	o.registry = testenv.StartRegistry(t, testenv.RegistryConfig{})
	for _, server := range []interface {
		Break(*testenv.Defect) <-chan struct{}
	}{git, o.charts, s3, o.registry} {
		server.Break(&testenv.Defect{Do: testenv.Serve, Handler: o.serve})
	}
	o.git, o.index, o.s3, o.oci = git.URL, o.charts.URL(), s3.Host, o.registry.Host
	for i := range o.moves {
		o.move(i)
	}
	t.Cleanup(func() { o.fail(0) })
	return o
}

// allow permits all requests to every repository but the first, which requires the current
// password.
func (o *chaosOrigins) allow(r *http.Request) bool {
	if !strings.HasPrefix(r.URL.Path, "/repo0.git") {
		return true
	}
	_, password, _ := r.BasicAuth()
	o.mu.Lock()
	defer o.mu.Unlock()
	return password == o.password
}

// rotate sets a new password and returns it.
func (o *chaosOrigins) rotate() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.password = fmt.Sprintf("%x", o.rand.Uint64())
	return o.password
}

// token returns a text that only the newest content of an origin contains.
func (o *chaosOrigins) token(i int) string { return fmt.Sprintf("token-%d-%d.", i, o.moves[i]) }

// version returns the version of the newest chart.
func (o *chaosOrigins) version() string { return fmt.Sprintf("1.0.%d", o.moves[chaosRepos]) }

// move changes the content of an origin.
func (o *chaosOrigins) move(i int) {
	o.moves[i]++
	noise := make([]byte, o.rand.IntN(48<<10))
	for k := range noise {
		noise[k] = byte(o.rand.Uint32())
	}
	token := o.token(i)
	files := fstest.MapFS{"token": {Data: []byte(token), Mode: 0o644}, "noise": {Data: noise, Mode: 0o644}}
	switch i - chaosRepos {
	case 0:
		o.charts.Put(testenv.ChartVersion{Name: "web", Version: o.version(), Files: map[string]string{"token": token, "noise": string(noise)}})
	case 1:
		o.bucket.Replace(map[string]string{"token": token, "noise": string(noise)})
	case 2:
		o.registry.Push("team/app", "latest", testenv.Manifest{Layers: []testenv.Blob{testenv.TarGzip(o.t, files)}})
	default:
		o.repos[i].Commit(testenv.Commit{Branch: "main", Files: files})
	}
}

// fail makes the given percentage of requests fail. 0 also ends stalled requests.
func (o *chaosOrigins) fail(percent int64) {
	o.bad.Store(percent)
	o.mu.Lock()
	defer o.mu.Unlock()
	if percent == 0 {
		close(o.stalled)
		o.stalled = make(chan struct{})
	}
}

// serve handles a request with next, or makes it fail.
func (o *chaosOrigins) serve(w http.ResponseWriter, r *http.Request, next http.Handler) {
	if rand.Int64N(100) >= o.bad.Load() {
		next.ServeHTTP(w, r)
		return
	}
	switch rand.IntN(5) {
	case 0:
		w.Header().Set("Retry-After", "1")
		w.WriteHeader(http.StatusServiceUnavailable)
	case 1:
		w.WriteHeader(http.StatusInternalServerError)
	case 2:
		o.stall(r.Context())
	case 3:
		reset(w)
	case 4:
		next.ServeHTTP(&truncatingWriter{w, rand.IntN(2000)}, r)
	}
}

// stall blocks until the client gives up or the faults end. It then aborts the response.
func (o *chaosOrigins) stall(ctx context.Context) {
	o.mu.Lock()
	stalled := o.stalled
	o.mu.Unlock()
	select {
	case <-ctx.Done():
	case <-stalled:
	}
	panic(http.ErrAbortHandler)
}

// reset resets the connection, so that the client gets an error immediately.
func reset(w http.ResponseWriter) {
	if c, _, err := http.NewResponseController(w).Hijack(); err == nil {
		if tcp, ok := c.(*net.TCPConn); ok {
			tcp.SetLinger(0)
		}
		c.Close()
	}
}

// A truncatingWriter is a response writer that aborts the response after a number of bytes.
type truncatingWriter struct {
	http.ResponseWriter
	left int
}

func (w *truncatingWriter) Write(b []byte) (int, error) {
	if len(b) <= w.left {
		w.left -= len(b)
		return w.ResponseWriter.Write(b)
	}
	w.ResponseWriter.Write(b[:w.left])
	panic(http.ErrAbortHandler)
}
