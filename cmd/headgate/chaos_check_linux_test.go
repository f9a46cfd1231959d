package main

import (
	"bytes"
	"compress/gzip"
	"context"
	"crypto/sha256"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"os"
	"path"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/headgate-io/headgate/source"
	"github.com/headgate-io/headgate/source/serve/api"
)

// chaosWait bounds each wait at the end of the test. It allows for a busy machine.
const chaosWait = 90 * time.Second

// download repeatedly downloads everything that a server publishes, until ctx is done.
func (w *chaos) download(ctx context.Context, s *chaosServer) {
	again := time.NewTicker(20 * time.Millisecond)
	defer again.Stop()
	for ctx.Err() == nil {
		all, _, err := s.client.Sources(ctx, api.Filter{})
		if err != nil && ctx.Err() == nil {
			w.Errorf("list sources: %v", err)
			return
		}
		for _, one := range all {
			if w.Failed() {
				return
			}
			if one.Artifact != nil && ctx.Err() == nil {
				w.compare(ctx, s, one)
			}
		}
		select {
		case <-again.C:
		case <-ctx.Done():
		}
	}
}

// compare downloads an artifact. It may be missing only if the status has changed since.
func (w *chaos) compare(ctx context.Context, s *chaosServer, one api.Source) {
	ref := source.Reference{Kind: one.Kind, Namespace: one.Namespace, Name: one.Name}
	for try := 0; ; try++ {
		status, body, err := w.fetch(ctx, s.serverURL(one.Artifact.URL))
		switch {
		case err != nil:
			if ctx.Err() == nil {
				w.Errorf("%s: %v", one.Artifact.URL, err)
			}
			return
		case status == http.StatusOK:
			w.downloads.Add(1)
			if digest := fmt.Sprintf("sha256:%x", sha256.Sum256(body)); digest != one.Artifact.Digest {
				w.Errorf("%s: %d bytes with the digest %s, the status says %s", one.Artifact.URL, len(body), digest, one.Artifact.Digest)
			}
			return
		}
		w.refusals.Add(1)
		now, err := s.client.Source(ctx, ref)
		if err != nil || now.Artifact == nil || now.Artifact.Path != one.Artifact.Path {
			return
		}
		if now.Phase != "removed" || try > 1000 { // the status disappears shortly after the artifact
			w.Errorf("%s: status %d, and the status of %s still has it: %+v", one.Artifact.URL, status, ref, now)
			return
		}
	}
}

// serverURL returns the URL at which a server serves a published URL.
func (s *chaosServer) serverURL(url string) string { return strings.Replace(url, chaosBase, s.url, 1) }

// fetch returns the status code and the body of a GET request.
func (w *chaos) fetch(ctx context.Context, url string) (int, []byte, error) {
	q, err := http.NewRequestWithContext(ctx, "GET", url, nil)
	if err != nil {
		return 0, nil, err
	}
	resp, err := w.http.Do(q)
	if err != nil {
		return 0, nil, err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	return resp.StatusCode, body, err
}

// checkRecovery starts a server without faults and checks that every object becomes ready with the newest
// content, that no resources leak, and that the server ends cleanly.
func (w *chaos) checkRecovery() {
	s := w.start(0)
	defer s.kill()
	w.awaitReady(s)
	before := w.usage(s)
	for range 100 {
		w.randomChange(s)
	}
	w.awaitReady(s)
	var after resourceCount
	w.waitFor("goroutines and files are as before", func() bool {
		after = w.usage(s)
		return after.goroutines <= before.goroutines+10 && after.files <= before.files+10
	}, func() string { return fmt.Sprintf("%+v, before %+v", after, before) })
	w.waitFor("superseded artifacts are gone", func() bool { return len(w.stored()) == len(w.objects) }, func() string { return strings.Join(w.stored(), "\n") })
	s.stopDownloads()
	s.Process.Signal(syscall.SIGTERM)
	<-s.ended
	if s.err != nil {
		w.Errorf("the end: %v\n%s", s.err, s.log)
	}
	w.checkLog(s)
	checkStore(w.T, w.store, false)
	w.checkNoLeftovers()
}

// waitFor waits until is returns true, for at most chaosWait.
func (w *chaos) waitFor(what string, is func() bool, reason func() string) {
	w.Helper()
	ctx, cancel := context.WithTimeout(w.Context(), chaosWait)
	defer cancel()
	again := time.NewTicker(50 * time.Millisecond)
	defer again.Stop()
	for !is() {
		select {
		case <-again.C:
		case <-ctx.Done():
			w.Fatalf("not within %s: %s\n%s", chaosWait, what, reason())
		}
	}
}

// awaitReady ends all faults and waits until every object is ready and has the newest content.
func (w *chaos) awaitReady(s *chaosServer) {
	w.Helper()
	w.origins.fail(0)
	os.Remove(filepath.Join(w.docs, "zz.yaml"))
	w.rotateSecret()
	for _, x := range w.objects {
		w.write(x, 1)
	}
	for i := range w.origins.moves {
		w.origins.move(i)
	}
	for _, x := range w.objects {
		w.waitFor(x.String()+" is resumed", func() bool {
			_, err := s.client.Resume(s.ctx, x.Reference, api.Change{})
			return err == nil
		}, func() string { return "" })
	}
	for _, x := range w.objects {
		reason := ""
		w.waitFor(x.String()+" is ready and new", func() bool {
			one, err := s.client.Source(s.ctx, x.Reference)
			if reason = fmt.Sprintf("%v, %+v", err, one); err != nil || one.Ready != "True" || one.Artifact == nil {
				return false
			}
			_, body, err := w.fetch(s.ctx, s.serverURL(one.Artifact.URL))
			return err == nil && bytes.Contains(decompress(body), []byte(w.mark(x)))
		}, func() string { return reason })
	}
}

// mark returns a text that only the newest content of an object contains.
func (w *chaos) mark(x chaosObject) string {
	if x.Kind == "PkgRepository" {
		return "web-" + w.origins.version() + ".tgz"
	}
	return w.origins.token(x.origin)
}

// decompress returns the decompressed content of a gzip file, or the file itself if it is not
// compressed.
func decompress(b []byte) []byte {
	z, err := gzip.NewReader(bytes.NewReader(b))
	if err != nil {
		return b
	}
	all, _ := io.ReadAll(z)
	return all
}

// A resourceCount counts the open resources of a process.
type resourceCount struct{ goroutines, files int }

// usage returns the open resources of a server.
func (w *chaos) usage(s *chaosServer) (u resourceCount) {
	w.http.CloseIdleConnections()
	_, body, err := w.fetch(s.ctx, s.url+"/debug/pprof/goroutine?debug=1")
	if err == nil {
		line, _, _ := strings.Cut(string(body), "\n")
		u.goroutines, err = strconv.Atoi(line[strings.LastIndex(line, " ")+1:])
	}
	files, err1 := os.ReadDir(fmt.Sprintf("/proc/%d/fd", s.Process.Pid))
	if err != nil || err1 != nil {
		w.Fatal(err, err1)
	}
	u.files = len(files)
	return u
}

// stored returns the paths of the artifacts in the store.
func (w *chaos) stored() (paths []string) {
	filepath.WalkDir(w.store, func(name string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return nil
		case strings.HasPrefix(d.Name(), ".") && d.IsDir():
			return fs.SkipDir
		case !d.IsDir() && !strings.HasPrefix(d.Name(), "."):
			paths = append(paths, name)
		}
		return nil
	})
	return paths
}

// checkNoLeftovers checks that no temporary files are left, and that every stored artifact and status
// belongs to an object.
func (w *chaos) checkNoLeftovers() {
	w.Helper()
	live := map[string]bool{}
	for _, x := range w.objects {
		live[strings.ToLower(x.Kind)+"/"+x.Namespace+"/"+x.Name] = true
	}
	for _, dir := range []string{filepath.Join(w.dir, "tmp"), filepath.Join(w.store, ".store", "tmp"), filepath.Join(w.store, ".cache", "tmp"), filepath.Join(w.store, ".cache", "lock")} {
		if list, err := os.ReadDir(dir); err == nil && len(list) > 0 {
			w.Errorf("left in %s: %v", dir, list)
		}
	}
	for _, name := range w.stored() {
		if name, _ = filepath.Rel(w.store, name); !live[path.Dir(path.Dir(filepath.ToSlash(name)))] {
			w.Errorf("left in the store: %s", name)
		}
	}
	saved := os.DirFS(filepath.Join(w.store, ".status"))
	fs.WalkDir(saved, ".", func(name string, d fs.DirEntry, err error) error {
		dir, base := path.Split(name)
		if dir == "" && strings.TrimLeft(base, ".") == "memo" { // Secret sums of all objects
			return nil
		}
		fileName, torn := strings.CutPrefix(base, ".") // a crash may leave a file that was being written
		ext := path.Ext(fileName)
		if err != nil || !d.IsDir() && (!live[dir+strings.TrimSuffix(fileName, ext)] || !torn && ext != ".yaml" && ext != ".state") {
			w.Errorf("left with the statuses: %s, %v", name, err)
		}
		return nil
	})
}
