package testenv

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
)

// GCSFailure returns a defect that answers as Google Cloud Storage refuses.
func GCSFailure(status int, reason, message string) *Defect {
	text, _ := json.Marshal(map[string]any{"error": gcsRefusal(status, reason, message)})
	return &Defect{Do: Answer, Status: status, Header: http.Header{"Content-Type": {"application/json; charset=UTF-8"}}, Body: string(text)}
}

// misbehave answers a request with a defect; next is the right answer.
func (s *GCS) misbehave(w http.ResponseWriter, r *http.Request, d Defect, next http.Handler) {
	switch d.Do {
	case Serve:
		d.Handler(w, r, next)
	case Answer:
		d.answer(w, r)
	case Leak:
		r.ParseForm()
		said := []string{r.Header.Get("Authorization"), r.PostFormValue("assertion")}
		if r.URL.Path == tokenPath {
			refuseToken(w, "invalid_grant", strings.Join(said, ", "))
			return
		}
		gcsRefusal(d.Status, "unknown", "cannot serve "+strings.Join(said, ", ")).write(w, r)
	case Endless, Loop:
		d.turnGCSPages(w, r)
	case Swell:
		d.swellGCS(w)
	case End:
		next.ServeHTTP(&unsized{ResponseWriter: s.spoil(w, r, d)}, r)
	default:
		next.ServeHTTP(s.spoil(w, r, d), r)
	}
}

// turnGCSPages answers with a page of a listing and a page token, always.
func (d *Defect) turnGCSPages(w http.ResponseWriter, r *http.Request) {
	p := gcsPage{Next: "again"}
	if d.Do == Endless {
		at := 0
		fmt.Sscanf(r.URL.Query().Get("pageToken"), "page-%d", &at)
		p.Next = fmt.Sprintf("page-%d", at+1)
		for i := range 2 {
			p.Items = append(p.Items, gcsListed{Name: fmt.Sprintf("endless/%09d-%d", at, i), ETag: "e", Size: "0", Generation: "1"})
		}
	}
	p.write(w, gcsFields)
}

// swellGCS answers with a page whose last name is of d.After bytes, and does not end.
func (d *Defect) swellGCS(w http.ResponseWriter) {
	w.Header().Set("Content-Type", "application/json; charset=UTF-8")
	w.Write([]byte(`{"items":[{"name":"`))
	d.pad(w)
}
