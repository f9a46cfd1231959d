package main

import (
	"bufio"
	"bytes"
	"context"
	"flag"
	"fmt"
	"math/rand/v2"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/headgate-io/headgate/internal/testenv/measure"
	"github.com/headgate-io/headgate/source"
	"github.com/headgate-io/headgate/source/serve/api"
)

var chaosSeed = flag.Uint64("chaos.seed", 1, "seed of TestServeChaos")

// A chaos runs a server of sources that is killed repeatedly, changes its inputs, and downloads
// from it.
type chaos struct {
	*testing.T
	rand    *rand.Rand
	dir     string
	docs    string
	store   string
	origins *chaosOrigins
	http    *http.Client
	edits   int
	edition int
	objects []chaosObject

	downloads, refusals atomic.Int64
	fullDisk            int // generations that ran with a full disk
}

// A chaosObject is a source. Its spec has a placeholder for a number, which each edit changes.
type chaosObject struct {
	source.Reference
	spec   string
	origin int // index of the origin of its content
}

func newChaos(t *testing.T) *chaos {
	w := &chaos{T: t, rand: rand.New(rand.NewPCG(*chaosSeed, 2)), dir: t.TempDir(), origins: newOrigins(t, *chaosSeed), http: &http.Client{Transport: &http.Transport{}}}
	w.docs, w.store = filepath.Join(w.dir, "docs"), filepath.Join(w.dir, "store")
	for _, dir := range []string{w.docs, filepath.Join(w.dir, "tmp")} {
		must(t, os.MkdirAll(dir, 0o700))
	}
	o := w.origins
	add := func(kind, name string, origin int, spec string) {
		w.objects = append(w.objects, chaosObject{source.Reference{Kind: kind, Namespace: "default", Name: name}, spec, origin})
	}
	for i := range 2 * chaosRepos {
		extraFields := []string{"", ", include: [{repository: {name: g4}, toPath: in}]"}[i/chaosRepos]
		if i%chaosRepos == 0 {
			extraFields += ", secretRef: {name: login}"
		}
		add("GitRepository", fmt.Sprintf("g%d", i), i%chaosRepos, fmt.Sprintf("url: %q, ref: {branch: main}, ignore: \"/ignored-%%d\"%s", o.git+fmt.Sprintf("/repo%d.git", i%chaosRepos), extraFields))
	}
	add("PkgRepository", "charts", chaosRepos, fmt.Sprintf("url: %q, timeout: %%ds", o.index))
	add("PkgChart", "web", chaosRepos, `chart: web, version: "*", sourceRef: {kind: PkgRepository, name: charts}, ignoreMissingValuesFiles: true, valuesFiles: [values.yaml, "v%d.yaml"]`)
	add("Bucket", "assets", chaosRepos+1, fmt.Sprintf("endpoint: %q, bucketName: assets, insecure: true, ignore: \"/ignored-%%d\"", o.s3))
	add("OCIRepository", "app", chaosRepos+2, fmt.Sprintf("url: \"oci://%s/team/app\", insecure: true, ref: {tag: latest}, ignore: \"/ignored-%%d\"", o.oci))
	w.rotateSecret()
	for _, x := range w.objects {
		w.write(x, 1)
	}
	return w
}

// file returns the path of an object's document.
func (w *chaos) file(x chaosObject) string { return filepath.Join(w.docs, x.Kind+"-"+x.Name+".yaml") }

// document returns an object's document.
func (w *chaos) document(x chaosObject, interval int) string {
	w.edition++
	return fmt.Sprintf("apiVersion: source.headgate.dev/v1\nkind: %s\nmetadata: {name: %s}\nspec: {interval: %ds, %s}\n", x.Kind, x.Name, interval, fmt.Sprintf(x.spec, 2+w.edition%7))
}

func (w *chaos) write(x chaosObject, interval int) { w.replace(w.file(x), w.document(x, interval)) }

// replace writes a file as editors do: by renaming a new file, or in place.
func (w *chaos) replace(file, text string) {
	w.edits++
	next := file + ".next"
	if w.rand.IntN(2) == 0 {
		next = file
	}
	err := os.WriteFile(next, []byte(text), 0o600)
	if err == nil && next != file {
		err = os.Rename(next, file)
	}
	must(w, err)
}

// rotateSecret rotates the password of the first repository.
func (w *chaos) rotateSecret() {
	w.replace(filepath.Join(w.docs, "login.yaml"), fmt.Sprintf("apiVersion: v1\nkind: Secret\nmetadata: {name: login}\nstringData: {username: ci, password: %q}\n", w.origins.rotate()))
}

// randomChange makes a random change that a server must tolerate.
func (w *chaos) randomChange(s *chaosServer) {
	x := w.objects[w.rand.IntN(len(w.objects))]
	invalidFile := filepath.Join(w.docs, "zz.yaml")
	switch w.rand.IntN(24) {
	default:
		w.write(x, 1+w.rand.IntN(2))
	case 0, 1, 2, 3:
		w.origins.move(w.rand.IntN(chaosRepos + 3))
	case 4, 5:
		w.rotateSecret()
	case 6:
		os.Remove(w.file(x))
	case 7: // truncated, until the next edit
		w.replace(w.file(x), w.document(x, 1)[:60])
	case 8:
		w.replace(invalidFile, "kind: [\n")
	case 9:
		os.Remove(invalidFile)
	case 10, 11:
		w.origins.fail([]int64{0, 10, 40, 100}[w.rand.IntN(4)])
	case 12, 13:
		_, _, _ = s.client.Reconcile(s.ctx, x.Reference, api.Change{By: "chaos"}, 0) // the server may be killed, the object suspended or removed
	case 14:
		_, _ = s.client.Suspend(s.ctx, x.Reference, api.Change{By: "chaos"})
	case 15:
		_, _ = s.client.Resume(s.ctx, x.Reference, api.Change{By: "chaos"})
	}
}

// A chaosServer is one process of the server.
type chaosServer struct {
	*exec.Cmd
	ctx           context.Context // done when the server is killed
	kill          func()
	stopDownloads func() // ends the downloads and waits for them
	ended         chan struct{}
	err           error // result of Wait
	log           *bytes.Buffer
	url           string // "" if the server did not start listening
	client        *api.Client
	loaders       sync.WaitGroup
}

// chaosBase is the base URL in statuses. It stands for the address of each server.
const chaosBase = "http://sources.example.org"

// start starts a server and kills it after length unless length is 0.
func (w *chaos) start(length time.Duration) *chaosServer {
	w.Helper()
	s := &chaosServer{ended: make(chan struct{}), log: new(bytes.Buffer)}
	s.Cmd = exec.Command("headgate", "serve", "-f", w.docs, "--store", w.store, "--addr", "127.0.0.1:0", "--base-url", chaosBase, "--profiles", "--retention", "3s", "--log-level", "error",
		"--min-retry-delay", "50ms", "--max-retry-delay", "1s", "--artifact-retention-ttl", "3s")
	s.Env = append(os.Environ(), "TMPDIR="+filepath.Join(w.dir, "tmp"), "GORACE=atexit_sleep_ms=0")
	s.Stderr = s.log
	out, err := s.StdoutPipe()
	if err == nil {
		err = s.Start()
	}
	must(w, err)
	var cancel context.CancelFunc
	s.ctx, cancel = context.WithCancel(w.Context())
	s.kill = sync.OnceFunc(func() {
		cancel() // first, so that failed requests are not reported
		s.Process.Kill()
	})
	if length > 0 {
		time.AfterFunc(length, s.kill)
	}
	line, _ := bufio.NewReader(out).ReadString('\n')
	_, s.url, _ = strings.Cut(strings.TrimSpace(line), " at ")
	go func() {
		defer close(s.ended)
		s.err = s.Wait()
	}()
	s.client = &api.Client{Base: s.url, HTTP: w.http}
	if s.url == "" && s.ctx.Err() == nil {
		<-s.ended
		w.Fatalf("headgate serve did not begin: %v\n%s", s.err, s.log)
	}
	if s.url != "" {
		load, stop := context.WithCancel(s.ctx)
		s.stopDownloads = func() {
			stop()
			s.loaders.Wait()
		}
		s.loaders.Go(func() { w.download(load, s) })
	}
	return s
}

// killAndCheck kills a server, waits for its end, and checks the state that it leaves.
func (w *chaos) killAndCheck(s *chaosServer) {
	w.Helper()
	s.kill()
	<-s.ended
	s.loaders.Wait()
	w.http.CloseIdleConnections()
	if status, ok := s.ProcessState.Sys().(syscall.WaitStatus); !ok || status.Signal() != syscall.SIGKILL {
		w.Errorf("headgate serve ended by itself: %v", s.ProcessState)
	}
	w.checkLog(s)
	checkStore(w.T, w.store, false)
}

// checkLog checks the log of a server.
func (w *chaos) checkLog(s *chaosServer) {
	w.Helper()
	if text := s.log.String(); strings.Contains(text, "DATA RACE") || strings.Contains(text, "panic:") || strings.Contains(text, "goroutine ") || w.Failed() {
		w.Errorf("headgate serve said:\n%.8000s", text)
	}
}

// TestServeChaos kills real servers at random moments while their inputs change and fail. Every
// artifact that a server publishes, over HTTP and on disk, must exist and match its digest. The
// last server must bring every object up to date, and must leave nothing behind.
func TestServeChaos(t *testing.T) {
	t.Parallel()
	w := newChaos(t)
	const kills = 4
	began := time.Now()
	n := 0
	for ; n < kills && *chaosFor == 0 || time.Since(began) < *chaosFor; n++ {
		length := time.Duration((0.05 + w.rand.ExpFloat64()*0.3) * float64(time.Second))
		if measure.RaceEnabled() {
			length *= 3
		}
		s := w.start(length)
		if n%3 == 1 && s.url != "" { // writes fail beyond this file size
			room := uint64([]int{0, 300, 2000, 8 << 10}[w.rand.IntN(4)])
			if unix.Prlimit(s.Process.Pid, unix.RLIMIT_FSIZE, &unix.Rlimit{Cur: room, Max: room}, nil) == nil {
				w.fullDisk++
			}
		}
		for s.ctx.Err() == nil {
			w.randomChange(s)
		}
		w.killAndCheck(s)
		if t.Failed() {
			t.FailNow()
		}
	}
	w.checkRecovery()
	t.Logf("seed %d: %d kills, %d without room, %d edits, %d moves, %d downloads, %d refused", *chaosSeed, n, w.fullDisk, w.edits, sum(w.origins.moves), w.downloads.Load(), w.refusals.Load())
}

func sum(numbers []int) (n int) {
	for _, x := range numbers {
		n += x
	}
	return n
}
