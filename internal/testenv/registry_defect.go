package testenv

import (
	"encoding/base64"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
)

// misbehave answers a request with a defect; next is the right answer.
func (g *Registry) misbehave(w http.ResponseWriter, r *http.Request, d Defect, next http.Handler) {
	if r.Method == http.MethodHead && d.Do != Slow {
		d.After = -1 // there is no body that anything could happen in
	}
	switch d.Do {
	case Serve:
		d.Handler(w, r, next)
	case Answer:
		d.answer(w, r)
	case Leak:
		leak(w, r, d)
	case Endless, Loop:
		d.turnPages(w, r)
	case Swell:
		d.swell(w, r, next)
	case End:
		next.ServeHTTP(&unsized{ResponseWriter: g.spoil(w, r, d)}, r)
	default:
		next.ServeHTTP(g.spoil(w, r, d), r)
	}
}

// unsized hides how long an answer was to be.
type unsized struct{ http.ResponseWriter }

func (w *unsized) WriteHeader(code int) {
	w.Header().Del("Content-Length")
	w.ResponseWriter.WriteHeader(code)
}

// leak answers with an error that repeats the credentials of the request, as
// they came and decoded.
func leak(w http.ResponseWriter, r *http.Request, d Defect) {
	said := []string{r.Header.Get("Authorization")}
	for _, field := range strings.Fields(said[0]) {
		said = append(said, field)
		if decoded, err := base64.StdEncoding.DecodeString(field); err == nil {
			said = append(said, string(decoded))
			_, password, _ := strings.Cut(string(decoded), ":")
			said = append(said, password)
		}
	}
	r.ParseForm()
	for _, values := range r.Form {
		said = append(said, values...)
	}
	for k, v := range d.Header {
		w.Header()[k] = v
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(d.Status)
	fmt.Fprintf(w, `{"errors":[{"code":"UNKNOWN","message":%q}]}`, "cannot serve "+strings.Join(said, ", "))
}

// turnPages answers with a page of tags and a next page, always.
func (d *Defect) turnPages(w http.ResponseWriter, r *http.Request) {
	at, next := 0, r.URL.RequestURI()
	fmt.Sscanf(r.URL.Query().Get("last"), "page-%d", &at)
	if d.Do == Endless {
		next = fmt.Sprintf("%s?n=2&last=page-%d", r.URL.Path, at+1)
	}
	w.Header().Set("Link", "<"+next+`>; rel="next"`)
	writeJSON(w, "application/json", map[string]any{"name": "x", "tags": []string{fmt.Sprintf("1.0.%d", at), fmt.Sprintf("page-%d", at+1)}})
}

// swell answers with d.After bytes of JSON that does not end.
func (d *Defect) swell(w http.ResponseWriter, r *http.Request, next http.Handler) {
	rec := httptest.NewRecorder()
	next.ServeHTTP(rec, r)
	for k, v := range rec.Header() {
		w.Header()[k] = v
	}
	w.Header().Del("Content-Length")
	w.WriteHeader(rec.Code)
	if r.Method == http.MethodHead {
		return
	}
	w.Write([]byte(`{"schemaVersion":2,"annotations":{"a":"`))
	d.pad(w)
}
