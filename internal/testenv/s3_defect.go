package testenv

import (
	"bytes"
	"encoding/xml"
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"strings"
)

// S3Failure returns a defect that answers as S3 refuses.
func S3Failure(status int, code, message string) *Defect {
	text, _ := xml.Marshal(s3Refusal(status, code, message))
	return &Defect{Do: Answer, Status: status, Header: http.Header{"Content-Type": {"application/xml"}}, Body: xml.Header + string(text)}
}

// Without returns a defect by which a server ignores headers of requests.
func Without(headers ...string) *Defect {
	return &Defect{Do: Serve, Handler: func(w http.ResponseWriter, r *http.Request, next http.Handler) {
		for _, name := range headers {
			r.Header.Del(name)
		}
		next.ServeHTTP(w, r)
	}}
}

// With returns a defect by which a header of answers has another value, or none when that is "".
func With(header, value string) *Defect {
	return &Defect{Do: Serve, Handler: func(w http.ResponseWriter, r *http.Request, next http.Handler) {
		next.ServeHTTP(&relabelled{ResponseWriter: w, header: header, value: value}, r)
	}}
}

// relabelled has another value in a header.
type relabelled struct {
	http.ResponseWriter
	header, value string
	begun         bool
}

func (w *relabelled) WriteHeader(code int) {
	w.begun = true
	w.Header().Set(w.header, w.value)
	if w.value == "" {
		w.Header().Del(w.header)
	}
	w.ResponseWriter.WriteHeader(code)
}

func (w *relabelled) Write(b []byte) (int, error) {
	if !w.begun {
		w.WriteHeader(http.StatusOK)
	}
	return w.ResponseWriter.Write(b)
}

// misbehave answers a request with a defect; next is the right answer.
func (s *S3) misbehave(w http.ResponseWriter, r *http.Request, d Defect, next http.Handler) {
	if r.Method == http.MethodHead {
		d.After = -1 // there is no body that anything could happen in
	}
	switch d.Do {
	case Serve:
		d.Handler(w, r, next)
	case Answer:
		d.answer(w, r)
	case Leak:
		s3Refusal(d.Status, "UnknownError", "cannot serve "+strings.Join(credentialsOf(r), ", ")).write(w, r)
	case Endless, Loop:
		d.turnS3Pages(w, r)
	case Swell:
		d.swellS3(w, r, next)
	case End:
		next.ServeHTTP(&unsized{ResponseWriter: s.spoil(w, r, d)}, r)
	default:
		next.ServeHTTP(s.spoil(w, r, d), r)
	}
}

// credentialsOf returns all that a request says about who sent it.
func credentialsOf(r *http.Request) []string {
	said := []string{r.Header.Get("Authorization"), r.Header.Get("X-Amz-Security-Token")}
	for field := range strings.FieldsSeq(said[0]) {
		_, value, _ := strings.Cut(strings.TrimSuffix(field, ","), "=")
		said = append(said, value)
	}
	r.ParseForm()
	for _, values := range r.Form {
		said = append(said, values...)
	}
	return said
}

// turnS3Pages answers with a page of a listing and a continuation token, always.
func (d *Defect) turnS3Pages(w http.ResponseWriter, r *http.Request) {
	query := r.URL.Query()
	p := s3Page{Prefix: query.Get("prefix"), EncodingType: query.Get("encoding-type"), MaxKeys: 1000, IsTruncated: true,
		ContinuationToken: query.Get("continuation-token"), NextContinuationToken: "again"}
	if d.Do == Endless {
		at := 0
		fmt.Sscanf(p.ContinuationToken, "page-%d", &at)
		p.NextContinuationToken = fmt.Sprintf("page-%d", at+1)
		for i := range 2 {
			p.Contents = append(p.Contents, s3Listed{Key: fmt.Sprintf("%sendless/%09d-%d", p.Prefix, at, i), ETag: `"0"`})
		}
		p.KeyCount = len(p.Contents)
	}
	p.encode()
	writeXML(w, http.StatusOK, p)
}

// swellS3 answers with d.After bytes more than are right; those of XML are before its end.
func (d *Defect) swellS3(w http.ResponseWriter, r *http.Request, next http.Handler) {
	rec := httptest.NewRecorder()
	next.ServeHTTP(rec, r)
	maps.Copy(w.Header(), rec.Header())
	w.Header().Del("Content-Length")
	w.WriteHeader(rec.Code)
	if r.Method == http.MethodHead {
		return
	}
	text := rec.Body.Bytes()
	if end := bytes.LastIndex(text, []byte("</")); end >= 0 && rec.Header().Get("Content-Type") == "application/xml" {
		text = text[:end]
	}
	w.Write(text)
	d.pad(w)
}
