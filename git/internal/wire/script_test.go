package wire_test

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing/iotest"
)

const (
	zeros = "0000000000000000000000000000000000000000"
	ones  = "1111111111111111111111111111111111111111"
	caps2 = "version 2\nagent=x\nls-refs=unborn\nfetch=shallow filter\nserver-option\nobject-format=sha1"
	flush = "0000"
	delim = "0001"
)

// pkt frames each line of s.
func pkt(s string) string {
	var b strings.Builder
	for line := range strings.Lines(s) {
		fmt.Fprintf(&b, "%04x%s", len(line)+4, line)
	}
	return b.String()
}

// band frames b in a band.
func band(n byte, b string) string { return fmt.Sprintf("%04x%c%s", len(b)+5, n, b) }

var greeting2 = pkt(caps2) + flush

// A script is a server that answers with fixed texts. After an answer that ends
// in stall it waits until the client is gone.
type script struct {
	greeting, refs, fetch string
	stalled               chan struct{}
}

const stall = "STALL"

func (s *script) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	text, kind := s.greeting, "advertisement"
	if r.Method == http.MethodPost {
		body, _ := io.ReadAll(r.Body)
		text, kind = s.answer(body), "result"
	}
	w.Header().Set("Content-Type", "application/x-git-upload-pack-"+kind)
	text, stalls := strings.CutSuffix(text, stall)
	if stalls && text == "" { // not even the status
		s.stalled <- struct{}{}
		<-r.Context().Done()
		return
	}
	io.WriteString(w, text)
	if stalls {
		w.(http.Flusher).Flush()
		s.stalled <- struct{}{}
		<-r.Context().Done()
	}
}

func (s *script) answer(request []byte) string {
	if bytes.Contains(request, []byte("command=ls-refs")) {
		return s.refs
	}
	return s.fetch
}

// A rewriter replaces text in the greeting of a server.
type rewriter struct {
	h        http.Handler
	old, new string
}

func (rw *rewriter) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.Method != http.MethodGet {
		rw.h.ServeHTTP(w, r)
		return
	}
	rec := httptest.NewRecorder()
	rw.h.ServeHTTP(rec, r)
	w.Header().Set("Content-Type", rec.Header().Get("Content-Type"))
	io.WriteString(w, strings.ReplaceAll(rec.Body.String(), rw.old, rw.new))
}

// readAll reads by single bytes.
func readAll(r io.Reader) ([]byte, error) { return io.ReadAll(iotest.OneByteReader(r)) }
