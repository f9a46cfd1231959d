package testenv

import (
	"bytes"
	"encoding/xml"
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
)

// AzureFailure returns a defect that answers as Azure Storage refuses.
func AzureFailure(status int, code, message string) *Defect {
	text, _ := xml.Marshal(azureRefusal(status, code, message))
	return &Defect{Do: Answer, Status: status, Header: http.Header{"Content-Type": {"application/xml"}, "X-Ms-Error-Code": {code}}, Body: xml.Header + string(text)}
}

// misbehave answers a request with a defect; next is the right answer.
func (s *Azblob) misbehave(w http.ResponseWriter, r *http.Request, d Defect, next http.Handler) {
	switch d.Do {
	case Serve:
		d.Handler(w, r, next)
	case Answer:
		d.answer(w, r)
	case Leak:
		said := append(credentialsOf(r), r.URL.RawQuery, url.QueryEscape(r.URL.Query().Get("sig")))
		azureRefusal(d.Status, "InternalError", "cannot serve "+strings.Join(said, ", ")).write(w)
	case Endless, Loop:
		d.turnAzurePages(w, r)
	case Swell:
		d.swellAzure(w, r, next)
	case End:
		next.ServeHTTP(&unsized{ResponseWriter: s.spoil(w, r, d)}, r)
	default:
		next.ServeHTTP(s.spoil(w, r, d), r)
	}
}

// turnAzurePages answers with a page of a listing and a next marker, always.
func (d *Defect) turnAzurePages(w http.ResponseWriter, r *http.Request) {
	query := r.URL.Query()
	p := azurePage{Container: "c", Prefix: query.Get("prefix"), Marker: query.Get("marker"), NextMarker: "again"}
	if d.Do == Endless {
		at := 0
		fmt.Sscanf(p.Marker, "page-%d", &at)
		p.NextMarker = fmt.Sprintf("page-%d", at+1)
		for i := range 2 {
			p.Blobs.Blob = append(p.Blobs.Blob, azureListed{Name: azureName{Text: fmt.Sprintf("%sendless/%09d-%d", p.Prefix, at, i)}, Properties: azureProperties{Etag: "0x0"}})
		}
	}
	writeXML(w, http.StatusOK, p)
}

// swellAzure answers with d.After bytes more than are right, before the end.
func (d *Defect) swellAzure(w http.ResponseWriter, r *http.Request, next http.Handler) {
	rec := httptest.NewRecorder()
	next.ServeHTTP(rec, r)
	maps.Copy(w.Header(), rec.Header())
	w.Header().Del("Content-Length")
	w.WriteHeader(rec.Code)
	w.Write(bytes.TrimSuffix(rec.Body.Bytes(), []byte("</EnumerationResults>")))
	d.pad(w)
}
