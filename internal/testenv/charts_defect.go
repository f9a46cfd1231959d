package testenv

import (
	"fmt"
	"net/http"
	"strings"
)

// misbehave answers a request with a defect; next is the right answer.
func (s *Charts) misbehave(w http.ResponseWriter, r *http.Request, d Defect, next http.Handler) {
	switch d.Do {
	case Serve:
		d.Handler(w, r, next)
	case Answer:
		d.answer(w, r)
	case Leak:
		leak(w, r, d)
	case Endless:
		endlessIndex(w)
	case Swell:
		fmt.Fprint(w, "apiVersion: v1\nentries:\n  ")
		d.pad(w)
	case End:
		next.ServeHTTP(&unsized{ResponseWriter: s.spoil(w, r, d)}, r)
	default:
		next.ServeHTTP(s.spoil(w, r, d), r)
	}
}

// endlessIndex answers with versions of one chart until nobody listens.
func endlessIndex(w http.ResponseWriter) {
	if _, err := fmt.Fprint(w, "apiVersion: v1\nentries:\n  endless:\n"); err != nil {
		return
	}
	var b strings.Builder
	for major := 1; ; major++ {
		b.Reset()
		for minor := range 500 {
			fmt.Fprintf(&b, "  - name: endless\n    version: %d.%d.0\n    urls:\n    - endless.tgz\n", major, minor)
		}
		if _, err := fmt.Fprint(w, b.String()); err != nil {
			return
		}
	}
}
